// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/tensor/pattern_moves.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>

// The state of an optimizer when a pattern changes.

namespace tessera { inline namespace TESSERA_ISA { namespace train { namespace detail {

/// The arrays of a matrix after a change of its pattern, whose sizes are then `now`, after `updates` updates.
void move_state(std::vector<state_array>& arrays, pattern_moves const& moves, parameter_sizes const& now,
                std::int64_t block_elements, std::int64_t updates);

#ifdef TESSERA_BODY

/// Moves pieces of `bytes` each from an array into another or, in the order of the moves, within one.
template <std::size_t Bytes>
void move_pieces(pattern_moves const& moves, std::byte const* from, std::byte* to, std::size_t bytes) {
  const std::size_t each = Bytes ? Bytes : bytes;
  for (auto const& m : moves.kept())
    std::memmove(to + std::size_t(m.to) * each, from + std::size_t(m.from) * each, each);
  if (from == to)
    for (const std::int32_t slot : moves.added()) std::memset(to + std::size_t(slot) * each, 0, each);
}

/// An array with `bytes` for each block of a pattern, moved to `blocks` of another. Allocates only if their
/// number changes.
TESSERA_BODY void move_blocks(aligned_array<std::byte>& array, pattern_moves const& moves,
                              std::int64_t blocks, std::size_t bytes) {
  const std::size_t size = checked_multiply(std::size_t(blocks), bytes);
  aligned_array<std::byte> other;
  if (size != array.size()) other = aligned_array<std::byte>(size);
  std::byte const* const from = array.data();
  std::byte* const to = size == array.size() ? array.data() : other.data();
  switch (bytes) {  // copies of a size that the compiler knows are a few instructions
    case 1:
      move_pieces<1>(moves, from, to, bytes);
      break;
    case 4:
      move_pieces<4>(moves, from, to, bytes);
      break;
    case 8:
      move_pieces<8>(moves, from, to, bytes);
      break;
    case 64:
      move_pieces<64>(moves, from, to, bytes);
      break;
    case 128:
      move_pieces<128>(moves, from, to, bytes);
      break;
    case 256:
      move_pieces<256>(moves, from, to, bytes);
      break;
    default:
      move_pieces<0>(moves, from, to, bytes);
  }
  if (size != array.size()) array = std::move(other);
}

/// Codes and their scales after a change of pattern: see state_list::scaled.
TESSERA_COLD TESSERA_BODY void regroup(state_array& codes, state_array& scales, pattern_moves const& moves,
                                       parameter_sizes const& now, std::int64_t block_elements) {
  constexpr std::int64_t none = -1, several = -2;
  const std::int64_t group = codes.group;
  state_array next_codes{codes.name, codes.element, codes.per, codes.group, codes.code, codes.begins},
      next_scales{scales.name, scales.element, scales.per, scales.group};
  next_codes.reset(now);
  next_scales.reset(now);
  std::vector<std::int64_t> old(std::size_t(now.elements), none);  // place of a value before
  for (auto const& m : moves.kept())
    for (std::int64_t k = 0; k < block_elements; ++k)
      old[std::size_t(m.to * block_elements + k)] = m.from * block_elements + k;
  const auto old_value = [&](std::int64_t was) {
    return codes.code->value(codes.data<std::uint8_t>()[was]) * scales.data<float>()[was / group];
  };
  float newborn = 0;
  if (codes.begins == in_new_blocks::mean) {
    double sum = 0;
    for (const std::int64_t was : old) sum += was == none ? 0 : double(old_value(was));
    newborn = float(sum / double(std::max<std::int64_t>(1, std::ssize(moves.kept()) * block_elements)));
  }
  for (std::int64_t g = 0; g < next_scales.size(); ++g) {
    const std::int64_t first = g * group, last = std::min(now.elements, first + group);
    std::int64_t from = none;  // the group of before
    float greatest = 0;
    const auto value = [&](std::int64_t at) {
      const std::int64_t was = old[std::size_t(at)];
      return was == none ? newborn : old_value(was);
    };
    for (std::int64_t at = first; at < last; ++at) {
      const std::int64_t was = old[std::size_t(at)];
      if (was != none)
        from = from == none || from == was / group ? was / group : several;
      else if (newborn != 0)
        from = several;
      greatest = std::max(greatest, std::abs(value(at)));
    }
    next_scales.data<float>()[g] = from == several ? greatest : from == none ? 0 : scales.data<float>()[from];
    for (std::int64_t at = first; at < last; ++at) {
      const std::int64_t was = old[std::size_t(at)];
      next_codes.data<std::uint8_t>()[at] =
          from != several && was != none
              ? codes.data<std::uint8_t>()[was]
              : codes.code->nearest(greatest > 0 && from == several ? value(at) / greatest : 0);
    }
  }
  codes = std::move(next_codes);
  scales = std::move(next_scales);
}

/// The numbers of new blocks, of `per_block` each, in an array that has been moved.
template <class T>
void begin_new_blocks(state_array& array, pattern_moves const& moves, std::size_t per_block,
                      std::int64_t updates) {
  T* const values = array.data<T>();
  double number = static_cast<double>(updates);
  if (array.begins == in_new_blocks::mean) {  // new blocks are zero
    number = 0;
    for (std::int64_t i = 0; i < array.size(); ++i) number += static_cast<double>(values[i]);
    number /= static_cast<double>(std::max<std::size_t>(1, moves.kept().size() * per_block));
  }
  for (const std::int32_t slot : moves.added())
    std::fill_n(values + std::size_t(slot) * per_block, per_block, static_cast<T>(number));
}

TESSERA_COLD TESSERA_BODY void move_state(std::vector<state_array>& arrays, pattern_moves const& moves,
                                          parameter_sizes const& now, std::int64_t block_elements,
                                          std::int64_t updates) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    state_array& array = arrays[i];
    if (array.code && (block_elements % array.group != 0 || array.begins != in_new_blocks::zero)) {
      regroup(array, arrays[i + 1], moves, now, block_elements);
      ++i;
      continue;
    }
    const std::size_t per_block = array.per == state_per::element ? std::size_t(block_elements)
                                  : array.per == state_per::block ? 1
                                  : array.per == state_per::group && block_elements % array.group == 0
                                      ? std::size_t(block_elements / array.group)
                                      : 0;
    if (per_block > 0) move_blocks(array.bytes, moves, now.blocks, per_block * array.element->bytes);
    if (array.begins != in_new_blocks::zero)
      array.element->is<float>() ? begin_new_blocks<float>(array, moves, per_block, updates)
                                 : begin_new_blocks<double>(array, moves, per_block, updates);
    if (array.code)  // zeros of new blocks are codes, too
      for (const std::int32_t slot : moves.added())
        std::memset(array.bytes.data() + slot * block_elements, array.code->nearest(0),
                    std::size_t(block_elements));
  }
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::train::detail
