// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/nn/cross_entropy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// How masking treats a token of a vocabulary: special tokens are never predicted, and a whole word is a
/// token that begins it and all tokens that continue it.
enum class token_kind : std::uint8_t { special, begins_word, continues_word };

/// Hides tokens that a masked language model predicts (Devlin et al. 2019, §3.1 and appendix A.1; whole
/// words: the release of May 2019 of google-research/bert).
struct masking {
  std::int32_t mask = 0;          // token that is shown in place of a hidden one
  std::vector<token_kind> kinds;  // of each token of the vocabulary
  double chosen = 0.15;           // share of the tokens of a sequence that are predicted, one at least
  double masked = 0.8;            // share of these that are hidden
  double random = 0.1;            // share that is shown as any token of the vocabulary; the rest as it is
  bool whole_words = true;        // all tokens of a word are chosen, or none

  /// Throws option_error for shares that make no sense and a mask that is no token.
  void check() const;

  /// Masks one sequence: `inputs` are the tokens for the model, `targets` the true tokens of chosen places
  /// and nn::ignored elsewhere. Returns the number of chosen places: 0 if all tokens are special.
  ///   random_numbers   of this sequence alone: the result depends on nothing else
  std::int64_t apply(std::span<std::int32_t const> tokens, random_stream const& random_numbers,
                     std::span<std::int32_t> inputs, std::span<std::int32_t> targets) const;
};

#ifdef TESSERA_BODY

TESSERA_BODY void masking::check() const {
  const auto require_share = [](const char* name, double value) {
    if (!(value >= 0 && value <= 1))
      throw option_error(message("[masking] ", name, " is ", value, ": it must be in [0, 1]"));
  };
  require_share("chosen", chosen), require_share("masked", masked), require_share("random", random);
  if (masked + random > 1)
    throw option_error(message("[masking] masked is ", masked, " and random ", random,
                               ": they are shares of the chosen tokens, of at most 1 together"));
  if (mask < 0 || std::size_t(mask) >= kinds.size())
    throw option_error(message("[masking] mask is token ", mask, " of a vocabulary of ", kinds.size()));
}

TESSERA_BODY std::int64_t masking::apply(std::span<std::int32_t const> tokens,
                                         random_stream const& random_numbers, std::span<std::int32_t> inputs,
                                         std::span<std::int32_t> targets) const {
  std::copy(tokens.begin(), tokens.end(), inputs.begin());
  std::fill(targets.begin(), targets.end(), nn::ignored);
  struct word {
    std::size_t first, count;
  };
  std::vector<word> words;
  std::size_t countable = 0;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const token_kind kind = kinds[std::size_t(tokens[t])];
    if (kind == token_kind::special) continue;
    ++countable;
    const bool continues = whole_words && kind == token_kind::continues_word && !words.empty() &&
                           words.back().first + words.back().count == t;
    if (continues)
      ++words.back().count;
    else
      words.push_back({t, 1});
  }
  const auto wanted = std::max<std::size_t>(1, std::size_t(std::llround(chosen * double(countable))));
  std::size_t taken = 0;
  for (std::size_t i = 0; i < words.size() && taken < wanted; ++i) {  // words in random order
    std::swap(words[i], words[i + random_numbers.below(i, words.size() - i)]);
    if (taken > 0 && taken + words[i].count > wanted) continue;  // a shorter one may fit
    for (std::size_t t = words[i].first; t < words[i].first + words[i].count; ++t) {
      targets[t] = tokens[t];
      const std::uint64_t draws = tokens.size() + 2 * t;
      const double shown = random_numbers.uniform(draws);
      if (shown < masked)
        inputs[t] = mask;
      else if (shown < masked + random)
        inputs[t] = std::int32_t(random_numbers.below(draws + 1, kinds.size()));
    }
    taken += words[i].count;
  }
  return std::int64_t(taken);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
