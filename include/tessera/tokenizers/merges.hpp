// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace tokenizers {

/// Two neighbouring pieces that become one.
struct merge {
  std::int32_t left, right, merged;
};

namespace detail {

/// Of a pair of neighbours, for a map; pairs in the order of their keys are in the order of their numbers.
inline std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
}

/// Where a word has a pair, from the left; the pair is merged there.
std::vector<std::size_t> apply(merge const& pair, std::vector<std::int32_t>& word);

}  // namespace detail

/// A word of a corpus, as pieces, and how often it occurs.
struct counted_word {
  std::vector<std::int32_t> pieces;
  std::int64_t count;
};

/// Merges the most frequent pair of neighbours, again and again (Sennrich et al. 2016, "Neural Machine
/// Translation of Rare Words with Subword Units"), while there are fewer than `most` pieces and the pair
/// occurs `least_count` times. Of pairs that are equally frequent the one of smaller numbers is merged.
///   pieces   the text of each number in words; merged pieces are added
///   join     the piece that two pieces make, both given as text
template <class Join>
std::vector<merge> learn_merges(std::vector<counted_word> words, std::vector<std::string>& pieces,
                                std::size_t most, Join&& join, std::int64_t least_count = 2) {
  using candidate = std::pair<std::int64_t, std::uint64_t>;  // count, ~key: the greatest is merged first
  std::unordered_map<std::string, std::int32_t> numbers;
  for (std::size_t i = 0; i < pieces.size(); ++i) numbers.emplace(pieces[i], std::int32_t(i));
  std::unordered_map<std::uint64_t, std::int64_t> counts;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> words_with;
  std::priority_queue<candidate> likeliest;
  std::vector<std::uint64_t> changed;
  const auto unique = [](auto& all) {
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
  };
  const auto count_pairs = [&](std::size_t w, std::vector<std::int32_t> const& word, std::size_t begin,
                               std::size_t end, std::int64_t sign) {
    for (std::size_t i = begin; i < end && i + 1 < word.size(); ++i) {
      const std::uint64_t key = detail::pair_key(word[i], word[i + 1]);
      counts[key] += sign * words[w].count;
      if (sign > 0) words_with[key].push_back(w);
      changed.push_back(key);
    }
  };
  const auto suggest_changed = [&] {
    unique(changed);
    for (const std::uint64_t key : changed)
      if (const std::int64_t count = counts[key]; count >= least_count) likeliest.push({count, ~key});
    changed.clear();
  };
  for (std::size_t w = 0; w < words.size(); ++w)
    count_pairs(w, words[w].pieces, 0, words[w].pieces.size(), 1);
  suggest_changed();

  std::vector<merge> merges;
  while (pieces.size() < most && !likeliest.empty()) {
    const auto [count, negated] = likeliest.top();
    const std::uint64_t key = ~negated;
    likeliest.pop();
    if (count != counts[key]) continue;  // an older count
    merge best{std::int32_t(key >> 32), std::int32_t(key & 0xFFFFFFFF), std::int32_t(pieces.size())};
    std::string made = join(pieces[std::size_t(best.left)], pieces[std::size_t(best.right)]);
    const auto [place, is_new] = numbers.emplace(made, best.merged);
    best.merged = place->second;  // another pair may have made it
    if (is_new) pieces.push_back(std::move(made));
    merges.push_back(best);
    std::vector<std::size_t> with = std::move(words_with[key]);
    words_with.erase(key);
    unique(with);
    for (const std::size_t w : with) {
      const std::vector<std::int32_t> before = words[w].pieces;
      const std::vector<std::size_t> places = detail::apply(best, words[w].pieces);
      std::size_t counted = 0;  // only pairs beside a merge change
      for (const std::size_t i : places) {
        count_pairs(w, before, std::max(counted, i - (i > 0)), i + 2, -1);
        counted = i + 2;
      }
      counted = 0;
      for (std::size_t k = 0; k < places.size(); ++k) {
        const std::size_t i = places[k] - k;
        count_pairs(w, words[w].pieces, std::max(counted, i - (i > 0)), i + 1, 1);
        counted = i + 1;
      }
    }
    suggest_changed();
  }
  return merges;
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY std::vector<std::size_t> apply(merge const& pair, std::vector<std::int32_t>& word) {
  std::vector<std::size_t> places;
  std::size_t to = 0;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool here = i + 1 < word.size() && word[i] == pair.left && word[i + 1] == pair.right;
    if (here) places.push_back(i);
    word[to++] = here ? pair.merged : word[i];
    i += here;
  }
  word.resize(to);
  return places;
}

}  // namespace detail

#endif

}}}  // namespace tessera::TESSERA_ISA::tokenizers
