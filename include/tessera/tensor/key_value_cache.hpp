// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// How a cache stores the numbers of an activation: as they are, or rounded to bfloat16.
enum class cached_as { same, bfloat16 };

/// The keys and values of one attention for tokens that have passed it (Pope et al. 2022, §2.1), of as many
/// sequences as it has slots. The positions of a sequence stand in panels of 64, of which a head has
///   keys (head size, 64)     a lane of a register is a key: scores need no sum over lanes
///   values (64, head size)   so do weighted sums of values
/// feature by feature and token by token, without lanes that features share. A sequence longer than the slot
/// overwrites its oldest panel.
template <element Element> class key_value_cache {
  static constexpr bool rounds = std::is_same_v<accumulator_t<Element>, float>;

 public:
  using value_type = Element;

  key_value_cache() = default;
  /// Zeros.
  ///   tokens   positions of a slot, rounded up to whole panels
  /// Throws option_error: of numbers below 1, or of doubles that should be rounded.
  TESSERA_COLD key_value_cache(std::int64_t of_slots, int heads, int head_size, std::int64_t tokens,
                               cached_as how = cached_as::same)
      : slots_(of_slots),
        panels_(ceil_div<std::int64_t>(tokens, panel_tokens)),
        heads_(heads),
        head_size_(head_size),
        narrow_(how == cached_as::bfloat16 && !std::is_same_v<Element, bfloat16>) {
    if (std::min({of_slots, std::int64_t(heads), std::int64_t(head_size), tokens}) < 1)
      throw option_error(message("[key_value_cache] ", of_slots, " slots of ", tokens, " tokens for ", heads,
                                 " heads of ", head_size, ": each must be at least 1"));
    if (narrow_ && !rounds)
      throw option_error(
          "[key_value_cache] keys of double are not rounded to bfloat16: take cached_as::same");
    bytes_ = aligned_array<std::byte>(
        checked_multiply(checked_multiply(std::size_t(slots_ * heads_), std::size_t(panels_)),
                         std::size_t(panel_stride()) * element_bytes()));
  }

  std::int64_t slot_count() const { return slots_; }
  /// Positions of a slot.
  std::int64_t tokens() const { return panels_ * panel_tokens; }
  std::int64_t panels() const { return panels_; }
  int heads() const { return heads_; }
  int head_size() const { return head_size_; }
  bool is_narrow() const { return narrow_; }
  std::size_t element_bytes() const { return narrow_ ? sizeof(bfloat16) : sizeof(Element); }
  std::byte const* data() const { return bytes_.data(); }
  std::size_t size_bytes() const { return bytes_.size_bytes(); }

  /// Elements from the values of a token to the next: whole registers.
  int value_stride() const { return round_up(head_size_, granule); }
  /// Elements from a panel of a head to the next.
  std::int64_t panel_stride() const { return std::int64_t(head_size_ + value_stride()) * panel_tokens; }
  /// Panel 0 of a head, as the elements that are stored: keys, and behind them values.
  template <class Stored> Stored* keys(std::int64_t slot, int head) const {
    const std::int64_t at = (slot * heads_ + head) * panels_ * panel_stride();
    return reinterpret_cast<Stored*>(const_cast<std::byte*>(bytes_.data())) + at;
  }
  template <class Stored> Stored* values(std::int64_t slot, int head) const {
    return keys<Stored>(slot, head) + head_size_ * panel_tokens;
  }

 private:
  std::int64_t slots_ = 0, panels_ = 0;
  int heads_ = 0, head_size_ = 0;
  bool narrow_ = false;
  aligned_array<std::byte> bytes_;
};

}}  // namespace tessera::TESSERA_ISA
