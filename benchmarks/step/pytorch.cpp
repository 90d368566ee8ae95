// SPDX-License-Identifier: BSD-3-Clause

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <harness/contestant.hpp>
#include <harness/process.hpp>
#include <step/step.hpp>

#include <tessera/core/error.hpp>

// The same dense model in PyTorch, in a process of its own that makes a step when it is told to, so that it
// takes its turn among the others and its threads sleep while they run.

namespace bench { namespace {

/// One step; the number that tells whether it was made.
double step(process& trainer) {
  if (const std::string text = trainer.answer_to(""); !text.empty())
    return std::strtod(text.c_str(), nullptr);
  throw error("[bench] the PyTorch process ended unexpectedly; python3 benchmarks/step/pytorch.py shows why");
}

/// A contestant of the step of a model.
template <class Shape>
std::optional<job> prepare(workload const& what, checked_value (Shape::*after_first)(double) const) {
  static bool available = true;
  if (what.density < 1 || !available) return std::nullopt;
  const Shape shape(what);
  struct trainer {
    process program;
    double answer = 0;
  };
  const auto option = [](const char* name, auto const& value) { return message("--", name, "=", value); };
  auto t = std::shared_ptr<trainer>(new trainer{
      process({"sh", "-c", "exec python3 \"$@\" 2>/dev/null", "python3", TESSERA_BENCH_DIR "/step/pytorch.py",
               "--serve", option("model", what.operation), message("-m", what.m), message("-k", what.k),
               message("-n", what.n), option("element", what.element), option("threads", what.threads)})});
  if (t->program.answer() != "ready") {
    available = false;
    std::printf("PyTorch is left out: `python3 -c 'import torch'` fails (pip install torch)\n");
    return std::nullopt;
  }
  return job{shape.useful_flops(1), [t] { t->answer = step(t->program); }, 1,
             [t, shape, after_first](std::int64_t) { return (shape.*after_first)(t->answer); }};
}

const registered gpt({"PyTorch", "gpt",
                      [](workload const& what) { return prepare<gpt_shape>(what, &gpt_shape::untrained); }});
const registered bert({"PyTorch", "bert", [](workload const& what) {
                         return prepare<bert_shape>(what, &bert_shape::untrained);
                       }});
const registered bert_model({"PyTorch", "bert model", [](workload const& what) {
                               return prepare<bert_model_shape>(what, &bert_model_shape::untrained);
                             }});
const registered mlp({"PyTorch", "mlp",
                      [](workload const& what) { return prepare<mlp_shape>(what, &mlp_shape::learnt); }});

}}  // namespace bench
