// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/tokenizers/merges.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers { namespace detail {

/// Which pairs of neighbouring pieces were learned, and in which order.
class merge_table {
  struct ranked {
    std::size_t rank;
    std::int32_t merged;
  };

 public:
  /// Memory of a merge, used again for the next word.
  class memory {
    friend merge_table;
    struct place {
      std::size_t before, behind;  // places of the neighbours
      ranked const* pair;          // of the piece and the one behind it, or null
    };
    using candidate = std::pair<std::size_t, std::size_t>;  // rank, place of the left piece
    std::vector<place> places;
    std::vector<candidate> heap;
  };

  /// Of equal pairs the last counts.
  void add(merge const& pair, std::size_t rank) {
    ranks_[pair_key(pair.left, pair.right)] = {rank, pair.merged};
  }
  /// In the order of their ranks.
  std::vector<merge> in_order() const;

  /// Merges the pair that was learned first, of equal ones the leftmost, until no pair was learned. A heap
  /// finds it: n log n steps for a word of n pieces.
  void apply(std::vector<std::int32_t>& word, memory& use) const;

 private:
  std::unordered_map<std::uint64_t, ranked> ranks_;
};

#ifdef TESSERA_BODY

TESSERA_BODY std::vector<merge> merge_table::in_order() const {
  std::vector<std::pair<std::size_t, merge>> by_rank;
  for (auto const& [key, at] : ranks_)
    by_rank.push_back({at.rank, {std::int32_t(key >> 32), std::int32_t(key & 0xFFFFFFFF), at.merged}});
  std::sort(by_rank.begin(), by_rank.end(), [](auto& a, auto& b) { return a.first < b.first; });
  std::vector<merge> merges;
  for (auto const& [rank, pair] : by_rank) merges.push_back(pair);
  return merges;
}

TESSERA_BODY void merge_table::apply(std::vector<std::int32_t>& word, memory& use) const {
  constexpr std::int32_t gone = -1;  // part of the piece before it
  auto& places = use.places;
  auto& heap = use.heap;
  places.resize(word.size());
  heap.clear();
  const auto look_up = [&](std::size_t left) {
    auto& [before, behind, pair] = places[left];
    const auto at = behind < word.size() ? ranks_.find(pair_key(word[left], word[behind])) : ranks_.end();
    pair = at == ranks_.end() ? nullptr : &at->second;
    if (pair) heap.push_back({pair->rank, left});
    return pair != nullptr;
  };
  for (std::size_t i = 0; i < word.size(); ++i) {
    places[i] = {i - 1, i + 1, nullptr};
    look_up(i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto [rank, left] = heap.back();
    heap.pop_back();
    auto& [before, behind, pair] = places[left];
    if (!pair || pair->rank != rank) continue;  // one of its pieces was merged meanwhile
    word[left] = pair->merged, word[behind] = gone;
    places[behind].pair = nullptr;
    behind = places[behind].behind;
    if (behind < word.size()) places[behind].before = left;
    for (const std::size_t changed : {before, left})
      if (changed < word.size() && look_up(changed))
        std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  std::erase(word, gone);
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::tokenizers::detail
