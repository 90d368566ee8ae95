// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <map>
#include <tuple>

#include <harness/question.hpp>

#include <tessera/exec/available_threads.hpp>

// What is asked, at which sizes, and what the answers should be.

namespace bench {
namespace {

constexpr int blocks[] = {16, 8, 4, 1};
constexpr std::array<std::int64_t, 3> small_product = {96, 80, 150};  // a last panel that is partly filled

/// 1024³ runs from the caches, the two layer shapes from memory.
const std::vector<std::array<std::int64_t, 3>> shapes = {
    {1024, 1024, 1024}, {3072, 768, 4096}, {768, 3072, 4096}};
bool is_warm(workload const& what) { return what.n == 1024; }

/// Shares of the peak to reach, by block size; 0 for none.
using goals = std::map<int, double>;
double goal_of(goals const& all, int block) {
  const auto at = all.find(block);
  return at == all.end() ? 0 : at->second;
}

/// One group for each shape, with all block sizes in it.
std::vector<std::vector<workload>> sparse_groups(std::vector<std::string> const& operations, int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& operation : operations)
    for (auto const& [m, k, n] : shapes) {
      auto& group = groups.emplace_back();
      for (const int block : blocks) group.push_back({operation, m, k, n, 0.1, block, threads});
    }
  return groups;
}

question forward(int threads) {
  return {"forward",
          "y = W x, one token per lane",
          sparse_groups({"forward"}, threads),
          small_product,
          [](workload const& what, std::string const&) {
            return is_warm(what) ? goal_of({{16, .88}, {8, .88}, {4, .82}, {1, .40}}, what.block)
                                 : goal_of({{16, .75}, {8, .75}, {4, .72}, {1, .33}}, what.block);
          },
          {}};
}

question transposed(int threads) {
  return {"transposed",
          "dx = transposed(W) dy, with the same weights",
          sparse_groups({"transposed"}, threads),
          small_product,
          [](workload const& what, std::string const&) {
            return is_warm(what) ? goal_of({{16, .82}, {8, .82}, {4, .78}, {1, .25}}, what.block) : 0;
          },
          {}};
}

question sampled(int threads) {
  return {"sampled",
          "g = dy transposed(x) at the blocks of W: whole, and the product alone",
          sparse_groups({"sampled"}, threads),
          small_product,
          [](workload const& what, std::string const& contestant) {
            return is_warm(what) && contestant == "tessera product only"
                       ? goal_of({{16, .70}, {8, .58}, {4, .60}, {1, .25}}, what.block)
                       : 0;
          },
          {}};
}

question dense(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& [m, k, n] : shapes) groups.push_back({{"dense", m, k, n, 1, 16, threads}});
  for (auto const& operation : {"transposed", "sampled"})
    groups.push_back({{operation, 1024, 1024, 1024, 1, 16, threads}});
  return {"dense",
          "the products with every block stored, by the same kernels",
          groups,
          small_product,
          [](workload const& what, std::string const& contestant) {
            return contestant == "tessera" && what.operation == "dense" ? .85 : 0;
          },
          [](entrant const& e, std::vector<entrant> const& group) -> std::optional<comparison> {
            for (entrant const& peer : group)
              if (peer.name == "oneDNN" && e.name != peer.name)
                return comparison{peer.name, peer.time_ns().median / e.time_ns().median, 0};
            return std::nullopt;
          }};
}

/// Each workload with one thread and with several, each against the peak of as many threads.
question scaling(int threads) {
  const int several = std::max(threads, std::min(2, exec::available_threads()));
  std::vector<std::vector<workload>> groups;
  if (several > 1) {
    groups = sparse_groups({"forward", "transposed", "sampled"}, 1);
    for (auto const& [m, k, n] : shapes) groups.push_back({{"dense", m, k, n, 1, 16, 1}});
    for (auto& group : groups)
      for (std::size_t i = 0; i < group.size(); i += 2) {
        group.insert(group.begin() + std::ptrdiff_t(i) + 1, group[i]);
        group[i + 1].threads = several;
      }
  }
  return {"scaling",
          "several threads beside one, each as a share of the peak of that many threads",
          groups,
          small_product,
          {},
          [](entrant const& e, std::vector<entrant> const& group) -> std::optional<comparison> {
            for (entrant const& alone : group)
              if (e.what.threads > 1 && alone.what.threads == 1 && alone.what.block == e.what.block &&
                  alone.name == e.name)
                return comparison{"1 thread", e.share().median / alone.share().median, .93};
            return std::nullopt;
          },
          "tessera"};
}

/// Sparse models beside our own dense one, and that beside PyTorch's.
question step(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& [hidden, layers, tokens] : {std::array<std::int64_t, 3>{256, 4, 2048}, {512, 8, 4096}}) {
    auto& group = groups.emplace_back();
    group.push_back({"step", hidden, layers, tokens, 1, 16, threads});
    for (const int block : blocks) group.push_back({"step", hidden, layers, tokens, 0.1, block, threads});
  }
  return {"step",
          "forward, backward and AdamW of a GPT (m hidden, k layers, n tokens, 512 of context, 256 symbols)",
          groups,
          {64, 2, 256},
          {},
          [](entrant const& e, std::vector<entrant> const& group) -> std::optional<comparison> {
            if (e.name != "tessera") return std::nullopt;
            const bool dense = e.what.density == 1;
            for (entrant const& other : group) {
              if (other.what.density < 1 || other.name != (dense ? "PyTorch" : "tessera")) continue;
              const bool has_goal = e.what.m == 512 && (dense || e.what.block == 16);
              return comparison{dense ? "PyTorch" : "own dense", other.time_ns().median / e.time_ns().median,
                                !has_goal ? 0
                                : dense   ? 1.0
                                          : 3.5};
            }
            return std::nullopt;
          }};
}

}  // namespace

std::vector<question> questions(int threads) {
  return {forward(threads), transposed(threads), sampled(threads),
          dense(threads),   scaling(threads),    step(threads)};
}

}  // namespace bench
