// SPDX-License-Identifier: BSD-3-Clause

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <decoding/decoding.hpp>
#include <harness/contestant.hpp>
#include <harness/process.hpp>

#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>

// The same dense models in other libraries, with random weights of their own: a process for each library,
// which harness/serve.py keeps and which starts once, for a start takes longer than a measurement.

namespace bench { namespace {

/// A library that decodes in one element.
///   difference   the most by which its logits differ with and without a cache: see peer_decoder
struct library {
  std::string name, file, element, install;
  double difference;
};

/// A library's process, and how many models it was given so far.
struct peer_process {
  process program;
  int models = 0;

  std::string ask(library const& who, std::string const& line) {
    std::string text = program.answer_to(line);
    if (text.empty()) throw error("[bench] the process of " + who.name + " ended unexpectedly");
    return text;
  }
};

class peer_decoder {
 public:
  peer_decoder(library const& who, std::shared_ptr<peer_process> in)
      : who_(who), in_(std::move(in)), number_(in_->models++) {}
  ~peer_decoder() { in_->program.answer_to(message("drop ", number_)); }
  peer_decoder(peer_decoder const&) = delete;
  peer_decoder& operator=(peer_decoder const&) = delete;

  double run(int times) {
    answer_.clear();
    return std::strtod(in_->ask(who_, message("run ", times, " ", number_)).c_str(), nullptr);
  }
  /// 0: by how much a cache changes the logits of the last run; 1: the parameters of the model.
  double result(std::int64_t which) {
    if (answer_.empty()) answer_ = in_->ask(who_, message("result ", number_));
    return std::strtod(answer_.c_str() + (which == 0 ? 0 : answer_.find(' ')), nullptr);
  }

 private:
  library who_;
  std::shared_ptr<peer_process> in_;
  int number_;
  std::string answer_;  // to "result", after a run
};

std::optional<job> prepare(library const& by, workload const& what) {
  static std::map<std::string, std::shared_ptr<peer_process>> all;  // null if it is not here
  if (what.density < 1 || what.element != by.element) return std::nullopt;
  const decoder_shape of(what);
  const std::string form = io::to_text(of.json());
  const auto [at, starts] = all.try_emplace(by.name);
  if (starts)
    at->second.reset(new peer_process{process({"sh", "-c", "exec python3 \"$@\" 2>/dev/null", "python3",
                                               TESSERA_BENCH_DIR "/decoding/" + by.file, form})});
  if (!at->second) return std::nullopt;
  const std::string answer =
      starts ? at->second->program.answer() : at->second->program.answer_to("prepare " + form);
  if (!answer.starts_with("ready ")) {
    at->second.reset();
    std::printf("%s is left out: %s (%s)\n", by.name.c_str(),
                answer.starts_with("cannot ") ? answer.c_str() + 7 : "no python3", by.install.c_str());
    return std::nullopt;
  }
  const auto p = std::make_shared<peer_decoder>(by, at->second);
  job work{of.useful_flops(),
           [p] { p->run(1); },
           2,
           [p, of, most = by.difference](std::int64_t r) -> checked_value {
             if (r == 0) return {p->result(0), 0, most};
             return {p->result(1), double(of.parameters()), 0};
           },
           [p](int times) { return p->run(times); },
           answer.substr(6)};
  work.least_runs = of.prefill ? 1 : decoder_shape::passes_of_a_sample;
  return work;
}

const library transformers{"transformers", "transformers.py", "float", "pip install torch transformers",
                           1e-4},
    llama_cpp{"llama.cpp", "llama_cpp.py", "int8", "pip install llama-cpp-python gguf", 0.05};

contestant entry(library const& by, char const* operation) {
  return {by.name, operation, [by](workload const& what) { return prepare(by, what); }};
}
const registered all[] = {
    registered(entry(transformers, "gpt2 decode")),  registered(entry(transformers, "gpt2 prefill")),
    registered(entry(transformers, "llama decode")), registered(entry(transformers, "llama prefill")),
    registered(entry(llama_cpp, "gpt2 decode")),     registered(entry(llama_cpp, "llama decode"))};

}}  // namespace bench
