// SPDX-License-Identifier: BSD-3-Clause

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <harness/contestant.hpp>
#include <step/step.hpp>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/core/error.hpp>

// The same dense model in PyTorch, in a process of its own that makes a step when it is told to, so that it
// takes its turn among the others and its threads sleep while they run.

namespace bench {
namespace {

class step_process {
 public:
  explicit step_process(std::vector<std::string> arguments) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw error("[bench] no socket pair for PyTorch");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(ends[1], 0);
      ::dup2(ends[1], 1);
      ::dup2(::open("/dev/null", O_WRONLY), 2);
      ::execvp(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    to_ = ends[0];
    from_ = ::fdopen(::fcntl(ends[0], F_DUPFD_CLOEXEC, 0), "r");
  }
  ~step_process() {
    ::shutdown(to_, SHUT_RDWR);  // the end of its input ends the process
    std::fclose(from_);
    ::close(to_);
    ::waitpid(child_, nullptr, 0);
  }
  step_process(step_process const&) = delete;
  step_process& operator=(step_process const&) = delete;

  /// The next line of its output without the line end; empty if there is none.
  std::string answer() {
    char line[64];
    if (!std::fgets(line, sizeof line, from_)) return "";
    std::string text = line;
    while (text.ends_with('\n')) text.pop_back();
    return text;
  }

  /// One step; the number that tells whether it was made.
  double step() {
    if (::send(to_, "\n", 1, MSG_NOSIGNAL) == 1)
      if (const std::string text = answer(); !text.empty()) return std::strtod(text.c_str(), nullptr);
    throw error(
        "[bench] the PyTorch process ended unexpectedly; python3 benchmarks/step/pytorch.py shows why");
  }

 private:
  pid_t child_;
  int to_;
  std::FILE* from_;
};

/// A contestant of the step of a model.
template <class Shape>
std::optional<job> prepare(workload const& what, checked_value (Shape::*after_first)(double) const) {
  static bool available = true;
  if (what.density < 1 || !available) return std::nullopt;
  const Shape shape(what);
  struct trainer {
    step_process process;
    double answer = 0;
  };
  const auto option = [](const char* name, auto const& value) { return message("--", name, "=", value); };
  auto t = std::shared_ptr<trainer>(
      new trainer{step_process({"python3", TESSERA_BENCH_DIR "/step/pytorch.py", "--serve",
                                option("model", what.operation), message("-m", what.m), message("-k", what.k),
                                message("-n", what.n), option("threads", what.threads)})});
  if (t->process.answer() != "ready") {
    available = false;
    std::printf("PyTorch is left out: `python3 -c 'import torch'` fails (pip install torch)\n");
    return std::nullopt;
  }
  return job{shape.useful_flops(1), [t] { t->answer = t->process.step(); }, 1,
             [t, shape, after_first](std::int64_t) { return (shape.*after_first)(t->answer); }};
}

const registered gpt({"PyTorch", "gpt",
                      [](workload const& what) { return prepare<gpt_shape>(what, &gpt_shape::untrained); }});
const registered bert({"PyTorch", "bert", [](workload const& what) {
                         return prepare<bert_shape>(what, &bert_shape::untrained);
                       }});
const registered mlp({"PyTorch", "mlp",
                      [](workload const& what) { return prepare<mlp_shape>(what, &mlp_shape::learnt); }});

}  // namespace
}  // namespace bench
