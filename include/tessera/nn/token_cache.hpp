// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/tensor/key_value_cache.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// The keys and values of all attention layers of a model, for the sequences that it goes on with: see
/// decoding. Layers find theirs by their order in a pass.
template <element T> class token_cache {
 public:
  /// Room for `slot_list` sequences of `tokens` tokens, allocated as layers ask for it.
  token_cache(std::int64_t slot_list, std::int64_t tokens, cached_as how = cached_as::same)
      : count_(slot_list), tokens_(tokens), how_(how) {}

  /// Begins a pass over tokens of some sequences.
  ///   slot_list  of each sequence of the pass; must outlive it
  ///   begins   whether all of them begin with it
  void begin_pass(std::span<std::int32_t const> slot_list, bool begins) {
    slots_ = slot_list;
    begins_ = begins;
    next_ = 0;
  }
  std::span<std::int32_t const> slot_list() const { return slots_; }
  bool begins() const { return begins_; }

  /// The cache of the next layer of the pass. Throws shape_error if that of the first pass was another one,
  /// or if there was none and sequences go on.
  ///   window   of the layer, which needs no more tokens; 0: none
  key_value_cache<T>& next(int heads, int head_size, std::int64_t window) {
    const std::int64_t tokens = window == 0 ? tokens_ : std::min(tokens_, window);
    if (next_ == layers_.size() && !begins_)
      throw shape_error(message("[token_cache] ", next_,
                                " layers have keys of earlier tokens, but the model has ",
                                "more: a cache is of one model"));
    if (next_ == layers_.size()) layers_.emplace_back(count_, heads, head_size, tokens, how_);
    key_value_cache<T>& its = layers_[next_++];
    if (its.tokens() != round_up<std::int64_t>(tokens, panel_tokens))
      throw shape_error(message("[token_cache] layer ", next_ - 1, " sees ", tokens,
                                " tokens, but there is room "
                                "for ",
                                its.tokens(), " as it was before: a cache is of one model"));
    if (its.heads() != heads || its.head_size() != head_size)
      throw shape_error(message("[token_cache] layer ", next_ - 1, " has ", heads, " heads of ", head_size,
                                ", but had ", its.heads(), " of ", its.head_size(),
                                " before: a cache is of one model"));
    return its;
  }
  std::size_t size_bytes() const {
    std::size_t all = 0;
    for (auto const& layer : layers_) all += layer.size_bytes();
    return all;
  }

 private:
  std::int64_t count_, tokens_;
  cached_as how_;
  std::deque<key_value_cache<T>> layers_;  // which stay where they are
  std::size_t next_ = 0;
  std::span<std::int32_t const> slots_;
  bool begins_ = true;
};

}}}  // namespace tessera::TESSERA_ISA::nn
