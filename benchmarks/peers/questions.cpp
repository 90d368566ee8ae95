// SPDX-License-Identifier: BSD-3-Clause

#include <array>
#include <string>
#include <vector>

#include <harness/question.hpp>

// The questions to ourselves and to other libraries.

namespace bench {
namespace {

constexpr std::array<std::int64_t, 3> small_product = {96, 80, 150};

/// Ours beside the fastest of each kind: other libraries' products of the same sparse weights.
std::vector<comparison> beside_best_peer(entrant const& e, std::vector<entrant> const& group) {
  entrant const* best = nullptr;
  for (entrant const& other : group)
    if (!is_ours(other.name) && other.what == e.what &&
        (!best || other.time_ns().median < best->time_ns().median))
      best = &other;
  if (!best || !is_ours(e.name)) return {};
  return {{best->name, best->time_ns().median / e.time_ns().median, 0}};
}

bool us_and_onednn(std::string const& contestant) { return is_ours(contestant) || contestant == "oneDNN"; }

/// 1024³ at several densities, and the dense product by the dense library that is always asked.
question density(int threads) {
  std::vector<std::vector<workload>> groups{{{"dense", 1024, 1024, 1024, 1, 16, threads}}};
  for (const int block : {16, 8, 4, 1}) {
    auto& group = groups.emplace_back();
    for (const double stored : {1.0, .5, .2, .1, .05, .02, .01})
      group.push_back({"forward", 1024, 1024, 1024, stored, block, threads});
  }
  return {"density",    "y = W x from all blocks to one in a hundred", groups, small_product, {}, {},
          us_and_onednn};
}

/// From one panel of tokens to many.
question tokens(int threads) {
  std::vector<std::vector<workload>> groups;
  for (const std::int64_t n : {64, 128, 256, 512, 1024, 2048, 4096}) {
    auto& group = groups.emplace_back();
    for (const int block : {16, 8, 4, 1}) group.push_back({"forward", 1024, 1024, n, .1, block, threads});
    group.push_back({"dense", 1024, 1024, n, 1, 16, threads});
  }
  return {"tokens", "y = W x for few and many tokens", groups, small_product, {}, {}, us_and_onednn};
}

question peers(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& [m, k, n] :
       {std::array<std::int64_t, 3>{1024, 1024, 1024}, {3072, 768, 4096}, {768, 3072, 4096}}) {
    groups.push_back({{"dense", m, k, n, 1, 16, threads}});
    for (const int block : {16, 8, 4, 1}) groups.push_back({{"forward", m, k, n, .1, block, threads}});
  }
  for (const double stored : {.5, .05, .01})
    for (const int block : {16, 1}) groups.push_back({{"forward", 1024, 1024, 1024, stored, block, threads}});
  question q{"peers",         "y = W x beside every library that is here", groups, small_product, {},
             beside_best_peer};
  q.by_default = false;
  return q;
}

/// The three products of a linear layer, beside the one library that has them for sparse weights.
question layer(int threads) {
  std::vector<std::vector<workload>> groups;
  for (auto const& [m, k, n] :
       {std::array<std::int64_t, 3>{1024, 1024, 1024}, {3072, 768, 4096}, {768, 3072, 4096}}) {
    groups.push_back({{"layer", m, k, n, 1, 16, threads}});
    for (const double stored : {.1, .05, .01})
      for (const int block : {16, 1}) groups.push_back({{"layer", m, k, n, stored, block, threads}});
  }
  question q{"layer",         "a linear layer forward and backward: y, dx and dW", groups, small_product, {},
             beside_best_peer};
  q.by_default = false;
  return q;
}

/// The product of two sparse matrices, beside libraries that find its pattern anew each time, as ours does
/// unless it says otherwise.
question sparse_product(int threads) {
  std::vector<std::vector<workload>> groups;
  for (const double stored : {.1, .05})
    for (const int block : {16, 8, 4, 1})
      groups.push_back({{"sparse product", 2048, 2048, 2048, stored, block, threads}});
  question q{"sparse_product",
             "c = W W of sparse matrices, with the pattern of c and without",
             groups,
             {192, 192, 192},
             {},
             beside_best_peer};
  q.by_default = false;
  return q;
}

}  // namespace

std::vector<question> peer_questions(int threads) {
  return {density(threads), tokens(threads), peers(threads), layer(threads), sparse_product(threads)};
}

}  // namespace bench
