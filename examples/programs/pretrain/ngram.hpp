// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "vocabulary.hpp"

namespace pretrain {

/// Predicts a token from the order − 1 before it, by counting: p(x | c) = (n(c, x) + a) / (n(c) + a·symbols),
/// where a is the smoothing. Any network worth its training loses less.
class ngram_model {
 public:
  /// symbols^order must fit 64 bits: orders up to 4 do for any text, up to 8 for bytes.
  ngram_model(std::span<token const> text, int order, int symbols)
      : order_(static_cast<std::size_t>(order)), symbols_(static_cast<std::uint64_t>(symbols)) {
    for (std::size_t i = 0; i + order_ <= text.size(); ++i) {
      ++grams_[key(text.subspan(i, order_))];
      ++contexts_[key(text.subspan(i, order_ - 1))];
    }
  }

  /// Mean loss in nats over the tokens of `text` that have a whole context; without smoothing, on the text
  /// that was counted, this is its conditional entropy.
  double loss(std::span<token const> text, double smoothing) const {
    double sum = 0;
    const std::size_t predictions = text.size() + 1 - order_;
    for (std::size_t i = 0; i < predictions; ++i)
      sum -= std::log(
          (count(grams_, key(text.subspan(i, order_))) + smoothing) /
          (count(contexts_, key(text.subspan(i, order_ - 1))) + smoothing * static_cast<double>(symbols_)));
    return sum / static_cast<double>(predictions);
  }

 private:
  using counts = std::unordered_map<std::uint64_t, int>;

  std::uint64_t key(std::span<token const> gram) const {
    std::uint64_t digits = 0;
    for (const token t : gram) digits = digits * symbols_ + static_cast<std::uint64_t>(t);
    return digits;
  }
  static double count(counts const& table, std::uint64_t key) {
    const auto found = table.find(key);
    return found == table.end() ? 0 : found->second;
  }

  std::size_t order_;
  std::uint64_t symbols_;
  counts grams_, contexts_;
};

/// What a model without a network reaches on the validation part.
struct ngram_floor {
  std::string name;
  double loss;  ///< nats per token
};

/// Uniform to 4-gram, as far as both parts have as many tokens; counted on the training part, with 0.1 added
/// to every count.
inline std::vector<ngram_floor> ngram_floors(std::span<token const> training,
                                             std::span<token const> validation, int symbols) {
  std::vector<ngram_floor> floors{{"uniform", std::log(symbols)}};
  for (const char* name : {"unigram", "bigram", "trigram", "4-gram"}) {
    const int order = static_cast<int>(floors.size());
    if (std::min(training.size(), validation.size()) < floors.size()) break;
    floors.push_back({name, ngram_model(training, order, symbols).loss(validation, 0.1)});
  }
  return floors;
}

}  // namespace pretrain
