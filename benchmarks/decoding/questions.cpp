// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <harness/question.hpp>

#include <tessera/exec/available_threads.hpp>

// The question to models in use, and the goals: times as fast as a peer, and shares of the speed of memory.

namespace bench {
namespace {

/// A way of storing the weights, beside dense ones of PyTorch in float and of llama.cpp in 8 bits.
struct stored_as {
  double density;
  std::string element;
  double beside_transformers, beside_llama_cpp;  // goals; 0 for none
  friend bool operator==(stored_as const&, stored_as const&) = default;
};
const std::vector<stored_as> weights = {
    {1, "float", 1.5, 0}, {.1, "float", 3, 0}, {1, "int8", 0, .95}, {.1, "int8", 7, 2}};

constexpr std::int64_t hidden = 768, cached = 128, batch = 16, prompt = 512;
constexpr double longer_text = 1 / 1.3, bandwidth = .8, prefill = 6;

/// Groups for one thread, and for as many as are asked for; all of a group take turns.
std::vector<std::vector<workload>> groups_of(int threads) {
  std::vector<std::vector<workload>> groups;
  const auto add = [&](std::vector<workload>& to, std::string const& operation, std::int64_t k,
                       std::int64_t n, double density, std::string const& element,
                       int on) { to.push_back({operation, hidden, k, n, density, 16, on, element}); };
  std::vector<int> counts{1};
  if (threads > 1) counts.push_back(threads);
  for (const int on : counts) {
    for (std::string const model : {"gpt2", "llama"}) {
      auto& group = groups.emplace_back();
      for (stored_as const& w : weights) add(group, model + " decode", cached, 1, w.density, w.element, on);
      add(group, model + " decode", cached, batch, .1, "float", on);
      for (const double density : {1., .1}) add(group, model + " prefill", 0, prompt, density, "float", on);
    }
    auto& group = groups.emplace_back();
    for (const std::int64_t k : {100, 2000}) add(group, "llama decode", k, 1, .1, "float", on);
  }
  return groups;
}

std::vector<comparison> beside(entrant const& e, std::vector<entrant> const& group) {
  std::vector<comparison> all;
  if (!is_ours(e.name)) return all;
  const bool decodes = e.what.operation.ends_with("decode"), is_short = e.what.k <= cached;
  const auto its = std::ranges::find_if(weights, [&](stored_as const& w) {
    return w.density == e.what.density && w.element == e.what.element;
  });
  const double time = e.time_ns().median;
  for (entrant const& other : group) {
    const double times = other.time_ns().median / time;
    if (other.what.operation != e.what.operation || other.what.n != e.what.n) continue;
    if (is_ours(other.name)) {
      if (other.what.k < e.what.k)
        all.push_back({message(other.what.k, " tokens before it"), times, longer_text});
    } else if (other.what.k != e.what.k) {
      continue;
    } else if (other.name == "transformers") {
      all.push_back({other.name, times,
                     decodes              ? its->beside_transformers
                     : e.what.density < 1 ? prefill
                                          : 0});
    } else if (other.name == "llama.cpp") {
      all.push_back({other.name, times, its->beside_llama_cpp});
    } else if (other.what == e.what && e.what.n == 1) {
      all.push_back({"reading its bytes", times, is_short ? bandwidth : 0});
    } else if (other.what == e.what) {
      all.push_back({"reading its bytes", times, 0});
      all.push_back({"its bytes and FLOPs", std::max(times, e.share().median), bandwidth});
    }
  }
  return all;
}

}  // namespace

question decoding_question(int threads) {
  question q{"decoding",
             "models in use: a token appended to n texts of k (decode), a text of n tokens (prefill)",
             groups_of(std::max(threads, std::min(2, exec::available_threads()))),
             {192, 20, 3},
             {},
             beside};
  q.by_default = false;
  return q;
}

}  // namespace bench
