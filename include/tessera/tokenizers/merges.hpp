// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
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

/// A word of a corpus, as pieces, and how often it occurs.
struct counted_word {
  std::vector<std::int32_t> pieces;
  std::int64_t count;
};

namespace detail {

/// Of a pair of neighbours, for a map; pairs in the order of their keys are in the order of their numbers.
inline std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t(std::uint32_t(left)) << 32 | std::uint32_t(right);
}

/// Where a word has a pair, from the left; the pair is merged there.
std::vector<std::size_t> apply(merge const& pair, std::vector<std::int32_t>& word);

/// How often each pair of neighbours occurs in words whose pairs are merged.
class pair_counts {
 public:
  pair_counts(std::vector<counted_word> words, std::int64_t least_count);

  /// The most frequent pair, of several the one of smaller numbers, with `merged` 0; its turn is over then.
  /// Nothing if no pair occurs least_count times.
  std::optional<merge> next();
  /// Merges a pair in all words.
  void apply(merge const& pair);

 private:
  using candidate = std::pair<std::int64_t, std::uint64_t>;  // count, ~key: the greatest is merged first

  /// Counts the pairs that begin at pieces [begin, end) of word w, or takes them from the counts.
  void count(std::size_t w, std::vector<std::int32_t> const& word, std::size_t begin, std::size_t end,
             std::int64_t sign);
  void suggest_changed();

  std::vector<counted_word> words_;
  std::int64_t least_count_;
  std::unordered_map<std::uint64_t, std::int64_t> counts_;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> words_with_;
  std::priority_queue<candidate> likeliest_;
  std::vector<std::uint64_t> changed_;  // keys
};

}  // namespace detail

/// Merges the most frequent pair of neighbours, again and again (Sennrich et al. 2016, "Neural Machine
/// Translation of Rare Words with Subword Units"), while there are fewer than `most` pieces and the pair
/// occurs `least_count` times. Of pairs that are equally frequent the one of smaller numbers is merged.
///   pieces   the text of each number in words; merged pieces are added
///   join     the piece that two pieces make, both given as text
template <class Join>
std::vector<merge> learn_merges(std::vector<counted_word> words, std::vector<std::string>& pieces,
                                std::size_t most, Join&& join, std::int64_t least_count = 2) {
  std::unordered_map<std::string, std::int32_t> numbers;
  for (std::size_t i = 0; i < pieces.size(); ++i) numbers.emplace(pieces[i], std::int32_t(i));
  detail::pair_counts pairs(std::move(words), least_count);
  std::vector<merge> merges;
  while (pieces.size() < most) {
    std::optional<merge> best = pairs.next();
    if (!best) break;
    std::string made = join(pieces[std::size_t(best->left)], pieces[std::size_t(best->right)]);
    const auto [place, is_new] = numbers.emplace(made, std::int32_t(pieces.size()));
    best->merged = place->second;  // another pair may have made it
    if (is_new) pieces.push_back(std::move(made));
    merges.push_back(*best);
    pairs.apply(*best);
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

TESSERA_BODY pair_counts::pair_counts(std::vector<counted_word> words, std::int64_t least_count)
    : words_(std::move(words)), least_count_(least_count) {
  for (std::size_t w = 0; w < words_.size(); ++w) count(w, words_[w].pieces, 0, words_[w].pieces.size(), 1);
  suggest_changed();
}

TESSERA_BODY std::optional<merge> pair_counts::next() {
  while (!likeliest_.empty()) {
    const auto [count, negated] = likeliest_.top();
    likeliest_.pop();
    const std::uint64_t key = ~negated;
    if (count == counts_[key]) return merge{std::int32_t(key >> 32), std::int32_t(key & 0xFFFFFFFF), 0};
  }  // else it is an older count
  return std::nullopt;
}

TESSERA_BODY void pair_counts::apply(merge const& pair) {
  const std::uint64_t key = pair_key(pair.left, pair.right);
  std::vector<std::size_t> with = std::move(words_with_[key]);
  words_with_.erase(key);
  std::sort(with.begin(), with.end());
  with.erase(std::unique(with.begin(), with.end()), with.end());
  for (const std::size_t w : with) {
    const std::vector<std::int32_t> before = words_[w].pieces;
    const std::vector<std::size_t> places = detail::apply(pair, words_[w].pieces);
    std::size_t counted = 0;  // only pairs beside a merge change
    for (const std::size_t i : places) {
      count(w, before, std::max(counted, i - (i > 0)), i + 2, -1);
      counted = i + 2;
    }
    counted = 0;
    for (std::size_t k = 0; k < places.size(); ++k) {
      const std::size_t i = places[k] - k;
      count(w, words_[w].pieces, std::max(counted, i - (i > 0)), i + 1, 1);
      counted = i + 1;
    }
  }
  suggest_changed();
}

TESSERA_BODY void pair_counts::count(std::size_t w, std::vector<std::int32_t> const& word, std::size_t begin,
                                     std::size_t end, std::int64_t sign) {
  for (std::size_t i = begin; i < end && i + 1 < word.size(); ++i) {
    const std::uint64_t key = pair_key(word[i], word[i + 1]);
    counts_[key] += sign * words_[w].count;
    if (sign > 0) words_with_[key].push_back(w);
    changed_.push_back(key);
  }
}

TESSERA_BODY void pair_counts::suggest_changed() {
  std::sort(changed_.begin(), changed_.end());
  changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
  for (const std::uint64_t key : changed_)
    if (const std::int64_t count = counts_[key]; count >= least_count_) likeliest_.push({count, ~key});
  changed_.clear();
}

}  // namespace detail

#endif

}}}  // namespace tessera::TESSERA_ISA::tokenizers
