// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// Where the sequences of a flat row of tokens begin and end, and how many of the first tokens of each may be
/// attended to: the rest are padding. A sequence may be empty, start anywhere in a panel, and cross panels.
/// It may go on with one whose first tokens are in a cache of keys: its tokens then have later positions.
class sequences {
 public:
  /// No sequences, no tokens.
  sequences() = default;

  /// Sequence i holds the tokens offsets[i] … offsets[i + 1] - 1, of which the first valid[i] are keys; all
  /// of them if `valid` is left out. Throws shape_error unless 0 = offsets[0] ≤ offsets[1] ≤ … and no
  /// sequence has more keys than tokens.
  explicit sequences(std::vector<std::int64_t> offsets, std::vector<std::int64_t> valid = {});

  static sequences from_lengths(std::span<std::int64_t const> lengths, std::vector<std::int64_t> valid = {});
  static sequences of_equal_length(std::int64_t count, std::int64_t length);

  std::int64_t count() const { return std::int64_t(offsets().size()) - 1; }
  std::int64_t tokens() const { return offsets().back(); }
  std::int64_t begin(std::int64_t sequence) const { return offsets_[std::size_t(sequence)]; }
  std::int64_t end(std::int64_t sequence) const { return offsets_[std::size_t(sequence) + 1]; }
  std::int64_t length(std::int64_t sequence) const { return end(sequence) - begin(sequence); }
  std::int64_t keys(std::int64_t sequence) const { return keys_[std::size_t(sequence)]; }
  /// The position of its first token.
  std::int64_t start(std::int64_t sequence) const {
    return starts_.empty() ? 0 : starts_[std::size_t(sequence)];
  }
  /// Gives the first token of each sequence a position. Allocates only to grow. Throws shape_error unless
  /// there is one for each, none negative.
  void start_at(std::span<std::int64_t const> positions);
  std::span<std::int64_t const> offsets() const { return from_zero(offsets_); }

  /// The sequence that holds a token, in log(count) steps.
  std::int64_t sequence_of(std::int64_t token) const {
    TESSERA_ASSERT(token >= 0 && token < tokens(), "indices are in range");
    return std::upper_bound(offsets_.begin(), offsets_.end(), token) - offsets_.begin() - 1;
  }
  /// How many tokens of its sequence stand before a token, here or in a cache.
  std::int64_t position_of(std::int64_t token) const {
    const std::int64_t sequence = sequence_of(token);
    return start(sequence) + token - begin(sequence);
  }

  /// Groups of panels that no sequence leaves: group i holds the panels panel_groups()[i] … [i + 1] - 1.
  std::span<std::int64_t const> panel_groups() const { return from_zero(groups_); }

 private:
  static std::span<std::int64_t const> from_zero(std::vector<std::int64_t> const& bounds) {
    static constexpr std::int64_t zero = 0;
    if (bounds.empty()) return {&zero, 1};
    return bounds;
  }

  // The bounds begin with 0; none at all, as a move leaves them, mean that 0 alone.
  std::vector<std::int64_t> offsets_, keys_, groups_;
  std::vector<std::int64_t> starts_;  // none: all 0
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY sequences::sequences(std::vector<std::int64_t> offsets,
                                               std::vector<std::int64_t> valid)
    : offsets_(std::move(offsets)), keys_(std::move(valid)) {
  if (offsets_.empty() || offsets_[0] != 0) throw shape_error("[sequences] the first offset must be 0");
  for (std::int64_t i = 0; i < count(); ++i)
    if (end(i) < begin(i))
      throw shape_error(message("[sequences] offset ", i + 1, " is ", end(i), " but the one before it ",
                                begin(i), ": offsets may not decrease"));
  if (keys_.empty())
    for (std::int64_t i = 0; i < count(); ++i) keys_.push_back(length(i));
  if (std::int64_t(keys_.size()) != count())
    throw shape_error(message("[sequences] ", keys_.size(), " numbers of keys for ", count(),
                              " sequences: give one for each, or none"));
  for (std::int64_t i = 0; i < count(); ++i)
    if (keys(i) < 0 || keys(i) > length(i))
      throw shape_error(message("[sequences] sequence ", i, " has ", length(i), " tokens but ", keys(i),
                                " keys: give 0 to ", length(i)));
  groups_.push_back(0);
  for (const std::int64_t offset : offsets_)
    if (offset % panel_tokens == 0 && offset < tokens() && offset / panel_tokens != groups_.back())
      groups_.push_back(offset / panel_tokens);
  if (tokens() > 0) groups_.push_back(ceil_div<std::int64_t>(tokens(), panel_tokens));
}

TESSERA_BODY void sequences::start_at(std::span<std::int64_t const> positions) {
  if (std::int64_t(positions.size()) != count())
    throw shape_error(message("[sequences] ", positions.size(), " first positions for ", count(),
                              " sequences: give one for each"));
  for (const std::int64_t position : positions)
    if (position < 0) throw shape_error(message("[sequences] a first position is ", position));
  starts_.assign(positions.begin(), positions.end());
}

TESSERA_COLD TESSERA_BODY sequences sequences::from_lengths(std::span<std::int64_t const> lengths,
                                                            std::vector<std::int64_t> valid) {
  std::vector<std::int64_t> offsets{0};
  for (const std::int64_t length : lengths) {
    if (length < 0)
      throw shape_error(message("[sequences] length ", offsets.size() - 1, " is ", length,
                                ": a sequence cannot have fewer tokens than none"));
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    if (length > most - offsets.back())
      throw shape_error(message("[sequences] length ", offsets.size() - 1, " is ", length, ", after ",
                                offsets.back(), " tokens: there can be at most ", most, " in all"));
    offsets.push_back(offsets.back() + length);
  }
  return sequences(std::move(offsets), std::move(valid));
}

TESSERA_BODY sequences sequences::of_equal_length(std::int64_t count, std::int64_t length) {
  if (count < 0)
    throw shape_error(message("[sequences] ", count, " sequences: there cannot be fewer than none"));
  return from_lengths(std::vector<std::int64_t>(std::size_t(count), length));
}

#endif

}}  // namespace tessera::TESSERA_ISA
