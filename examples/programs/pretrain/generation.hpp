// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/random.hpp>
#include <tessera/nn/decoding.hpp>
#include <tessera/nn/token_sampler.hpp>

#include "../common/option_values.hpp"
#include "model.hpp"
#include "settings.hpp"
#include "vocabulary.hpp"

namespace pretrain {

using namespace programs;

/// How texts are generated.
struct generation_settings {
  nn::sampling_rule rule = {.temperature = 0.8};
  int tokens = 500;                                     ///< that are added at most
  std::int64_t context = 0;                             ///< tokens that the model sees at most; 0: all
  std::int64_t window = 0;                              ///< keys that a token sees at most; 0: all
  std::uint64_t seed = 1;                               ///< with the number of a text: of random choices
  int batch = 1;                                        ///< texts at a time
  tessera::cached_as cache = tessera::cached_as::same;  ///< how keys and values are kept
  std::vector<token> end = {};                          ///< tokens that end a text; none: nothing does
};

/// Tokens that were shown to the model, and tokens that it added, one by one.
struct generation_cost {
  std::int64_t shown = 0, added = 0;
  seconds showing{0}, adding{0};
  std::int64_t passes = 0, cached = 0;  ///< of adding: passes, and tokens whose keys and values they read
};

/// Texts that a model goes on with, several at a time. A text that fills the context goes on with its newer
/// half.
class generation {
  struct text {
    std::size_t number, given;
    std::vector<token> tokens;
    std::int32_t slot = -1;

    int added() const { return static_cast<int>(tokens.size() - given); }
  };

 public:
  generation(model& by, generation_settings of) : by_(by), of_(std::move(of)), sampler_(of_.rule) {}

  /// A decoding for these prompts, which `run` makes again. Throws machine_error if the memory does not hold
  /// its keys and values.
  void make_room(std::span<std::vector<token> const> prompts) {
    const std::int64_t slots = std::min<std::int64_t>(of_.batch, std::ssize(prompts));
    decoding_ = by_.network->decoding(by_.ctx, {slots, most_tokens(prompts), of_.cache});
  }

  /// Adds tokens to prompts, which are not empty.
  ///   emit    emit(number of the prompt, token): gets each token as it comes, but for the last one of the
  ///           end, and returns whether the text goes on
  ///   ended   ended(number), behind the last one
  template <class Emit, class Ended>
  void run(std::span<std::vector<token> const> prompts, Emit const& emit, Ended const& ended) {
    if (prompts.empty()) return;
    make_room(prompts);
    const std::int64_t slots = decoding_->options().sequences;
    std::vector<text> all;
    stopped_ = false;
    for (std::size_t next = 0; !stopped_ && (next < prompts.size() || !all.empty());) {
      for (; next < prompts.size() && std::ssize(all) < slots; ++next)
        all.push_back({next, prompts[next].size(), prompts[next]});
      std::vector<text*> fresh, others;
      for (text& each : all) (must_be_shown(each) ? fresh : others).push_back(&each);
      if (!fresh.empty()) show(fresh);
      if (!others.empty()) go_on(others);
      std::erase_if(all, [&](text const& each) {
        if (stopped_ || !says_no_more(each, emit)) return false;
        decoding_->end(each.slot);
        ended(each.number);
        return true;
      });
    }
  }

  /// Ends all texts; called by `emit`.
  void stop() { stopped_ = true; }

  generation_settings const& settings() const { return of_; }
  generation_cost const& cost() const { return cost_; }

 private:
  using clock = std::chrono::steady_clock;

  /// Of a text: as many as the context has, or fewer if all texts end before. 0: there is no context.
  std::int64_t most_tokens(std::span<std::vector<token> const> prompts) const {
    if (of_.context == 0) return 0;
    std::size_t longest = 0;
    for (std::vector<token> const& each : prompts) longest = std::max(longest, each.size());
    return std::min(std::int64_t(longest) + of_.tokens, of_.context) + by_.prompt.size();
  }
  /// Whether a text is new, or fills the context.
  bool must_be_shown(text const& each) const {
    return each.slot < 0 || decoding_->length(each.slot) == decoding_->options().tokens;
  }
  void show(std::vector<text*> const& all) {
    batch shown;
    slots_.clear();
    for (text* const each : all) {
      std::size_t seen = each->tokens.size();
      if (of_.context > 0) {
        const auto context = static_cast<std::size_t>(of_.context);
        seen = std::min(seen, each->slot < 0 ? context : (context + 1) / 2);
      }
      if (each->slot >= 0) decoding_->end(each->slot);
      each->slot = decoding_->begin();
      slots_.push_back(each->slot);
      shown.lengths.push_back(static_cast<std::int64_t>(seen));
      shown.inputs.insert(shown.inputs.end(), each->tokens.end() - static_cast<std::ptrdiff_t>(seen),
                          each->tokens.end());
    }
    by_.prompt.insert(shown);
    const auto begin = clock::now();
    choose(all, decoding_->append(slots_, shown.lengths, shown.inputs));
    cost_.showing += clock::now() - begin;
    cost_.shown += std::ssize(shown.inputs);
  }
  void go_on(std::vector<text*> const& all) {
    slots_.clear(), ids_.clear();
    for (text const* const each : all) {
      slots_.push_back(each->slot);
      ids_.push_back(each->tokens.back());
      const std::int64_t seen = decoding_->length(each->slot) + 1;
      cost_.cached += of_.window > 0 ? std::min(seen, of_.window) : seen;
    }
    const auto begin = clock::now();
    choose(all, decoding_->next(slots_, ids_));
    cost_.adding += clock::now() - begin;
    cost_.added += std::ssize(ids_);
    ++cost_.passes;
  }
  void choose(std::vector<text*> const& all, std::span<float const> logits) {
    const std::size_t vocabulary = logits.size() / all.size();
    for (std::size_t i = 0; i < all.size(); ++i) {
      text& its = *all[i];
      const tessera::random_stream random(of_.seed, tessera::random_purpose::sampling, its.number);
      its.tokens.push_back(sampler_.choose(logits.subspan(i * vocabulary, vocabulary), its.tokens,
                                           random.uniform(static_cast<std::uint64_t>(its.added()))));
    }
  }
  template <class Emit> bool says_no_more(text const& each, Emit const& emit) const {
    const std::span<token const> added = std::span(each.tokens).subspan(each.given);
    if (!of_.end.empty() && added.size() >= of_.end.size() &&
        std::ranges::equal(added.last(of_.end.size()), of_.end))
      return true;
    return !emit(each.number, each.tokens.back()) || each.added() == of_.tokens;
  }

  model& by_;
  generation_settings of_;
  nn::token_sampler sampler_;
  std::unique_ptr<nn::any_decoding> decoding_;
  std::vector<std::int32_t> slots_, ids_;
  generation_cost cost_;
  bool stopped_ = false;
};

/// The most tokens that a model of a run sees, or 0 if there is no most: a recurrent one keeps its state.
inline std::int64_t seen_tokens(settings const& asked) { return asked.model == "rnn" ? 0 : asked.context; }

/// What a model writes that begins a text.
///   context   tokens that it sees; 0: all
inline std::string sampled_text(model& by, vocabulary const& symbols, std::int64_t context,
                                std::uint64_t seed) {
  std::vector<token> sampled;
  const std::vector<token> prompts[]{symbols.beginning()};
  generation(by, {.context = context, .seed = seed})
      .run(
          prompts,
          [&](std::size_t, token t) {
            sampled.push_back(t);
            return true;
          },
          [](std::size_t) {});
  return symbols.decode(sampled);
}

}  // namespace pretrain
