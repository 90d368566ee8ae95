// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/range.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/kernels/rotary.hpp>
#include <tessera/simd/simd.hpp>
#include <tessera/statements/attention_heads.hpp>
#include <tessera/statements/rotary_scaling.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/sequences.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The cosines and sines of rotary positions (RoFormer: Su et al. 2021, eq. 15): at position p, features 2 i
/// and 2 i + 1 of a head of d are rotated by the angle p base^(-2 i / d), whose frequencies may be scaled.
/// Immutable and shared, as patterns are.
template <element T> class rotary_positions {
 public:
  /// No positions: nothing is rotated.
  rotary_positions() = default;
  /// A table for the positions 0 … count - 1. Throws option_error.
  TESSERA_COLD rotary_positions(int head_size, std::int64_t count, double base = 10000,
                                rotary_scaling const& scaling = {}) {
    if (head_size < 2 || head_size % 2 != 0)
      throw option_error(message("[rotary] a head has ", head_size,
                                 " features, of which pairs are rotated: make ", "it ",
                                 std::max(2, head_size + 1)));
    if (count < 1) throw option_error(message("[rotary] ", count, " positions: there must be at least one"));
    if (!(base > 0)) throw option_error(message("[rotary] the base is ", base, ": it must be positive"));
    scaling.check();
    table of{head_size, count, base, scaling, {}, {}};
    for (int i = 0; i < head_size; i += 2)
      for (std::int64_t p = 0; p < count; ++p) {
        const double angle = double(p) * scaling.scaled(std::pow(base, -double(i) / head_size));
        of.cosines.push_back(T(std::cos(angle)));
        of.sines.push_back(T(std::sin(angle)));
      }
    table_ = std::make_shared<table const>(std::move(of));
  }

  explicit operator bool() const { return table_ != nullptr; }
  int head_size() const { return table_ ? table_->head_size : 0; }
  std::int64_t count() const { return table_ ? table_->count : 0; }
  /// The base, or 0 without positions.
  double base() const { return table_ ? table_->base : 0; }
  rotary_scaling scaling() const { return table_ ? table_->scaling : rotary_scaling(); }
  /// For features 2 pair and 2 pair + 1: (count).
  T const* cosines(int pair) const { return table_->cosines.data() + pair * table_->count; }
  T const* sines(int pair) const { return table_->sines.data() + pair * table_->count; }

 private:
  struct table {
    int head_size;
    std::int64_t count;
    double base;
    rotary_scaling scaling;
    std::vector<T> cosines, sines;  // (head_size / 2, count)
  };
  std::shared_ptr<table const> table_;
};

namespace eval {

/// The direction of a rotation.
enum class rotation { forward, backward };

/// Rotates heads in place. A tile is a panel, or a range of its heads of q and k.
template <class T> struct rotary_body {
  using angle = accumulator_t<T>;
  operand x;
  sequences const* layout;
  rotary_positions<angle> const* positions;
  int heads;  // of q and k together: the first ones of qkv
  rotation way;

  void compute(tile const& t) const noexcept {
    const int live = tokens_of(t.index, layout->tokens()), size = positions->head_size();
    const range h = part_of(heads, t.part, t.parts);
    T* const panel = t.address<T>(x);
    for (int pair = 0; pair < size / 2; ++pair) {
      alignas(64) angle cosines[panel_tokens] = {}, sines[panel_tokens] = {};
      for_each_piece(t.index * panel_tokens, live, [&](int lane, int count, std::int64_t position) {
        std::copy_n(positions->cosines(pair) + position, count, cosines + lane);
        std::copy_n(positions->sines(pair) + position, count, sines + lane);
      });
      if (way == rotation::backward)
        for (angle& sine : sines) sine = -sine;
      for (int head = h.first; head < h.last; ++head)
        kernels::rotate_features<simd::native>(panel, std::int64_t(head) * size + 2 * pair, cosines, sines);
    }
  }
  void describe(tile const& t, task_description& d) const {
    const range h = part_of(heads, t.part, t.parts);
    const std::int64_t size = positions->head_size();
    d.write(
        part_of_panel<T>(x, t.index, h.first * size, h.last * size, tokens_of(t.index, layout->tokens())));
    d.read(d.writes.back());
  }

 private:
  /// Calls visit(lane, count, position) for each sequence in a panel: `count` tokens from lane `lane` on, the
  /// first at `position` in the sequence.
  template <class Visit> void for_each_piece(std::int64_t token, int live, Visit&& visit) const {
    std::int64_t sequence = layout->sequence_of(token);
    for (int lane = 0; lane < live; ++sequence) {
      const int count = int(std::min<std::int64_t>(live - lane, layout->end(sequence) - token));
      if (count > 0) visit(lane, count, layout->start(sequence) + token - layout->begin(sequence));
      lane += count;
      token += count;
    }
  }
};

template <class T> struct TESSERA_STATEMENT rotary_statement {
  using statement_tag = void;
  panel_matrix<T>* qkv;
  sequences const* layout;
  attention_heads heads;
  rotary_positions<accumulator_t<T>> const* positions;
  rotation way;

  /// Throws shape_error.
  void check() const {
    const std::int64_t features = std::int64_t(heads.all()) * positions->head_size();
    if (heads.queries < 1 || qkv->features() != features)
      throw shape_error(message("[rotary] qkv has ", qkv->features(), " features but ", heads.queries,
                                " heads of queries and ", heads.keys,
                                " of keys and values, with positions for ", positions->head_size(),
                                " features, need ", features));
    if (layout->tokens() != qkv->tokens())
      throw shape_error(
          message("[rotary] qkv has ", qkv->tokens(), " tokens but the sequences ", layout->tokens()));
    for (std::int64_t s = 0; s < layout->count(); ++s)
      if (const std::int64_t length = layout->start(s) + layout->length(s); length > positions->count())
        throw shape_error(message("[rotary] sequence ", s, " has ", length, " tokens but there are ",
                                  positions->count(), " positions"));
  }

  void lower(plan& p) const {
    check();
    static_assert(
        sizeof(T) > 1,
        "[rotary] pairs of features are rotated in place, of float, double, bfloat16 or float16: an "
        "activation of 8 bits is stored after that");
    if constexpr (sizeof(T) > 1) {
      step_draft s("rotary", cut::panels);
      s.tiles = int(qkv->panels());
      s.most_parts = heads.queries + heads.keys;
      const operand to = s.writes(by_panel(*qkv));
      s.reads(to);
      p.add(s, rotary_body<T>{to, layout, positions, s.most_parts, way});
    }
  }
};

}  // namespace eval

/// Rotates the heads of q and k, in place, by the positions of tokens in their sequences.
///   qkv   as `attention` takes it
/// Throws shape_error. All arguments are held by reference until run.
template <element T>
auto rotary(panel_matrix<T>& qkv, sequences const& layout, attention_heads heads,
            rotary_positions<accumulator_t<T>> const& positions) {
  const eval::rotary_statement<T> statement{&qkv, &layout, heads, &positions, eval::rotation::forward};
  statement.check();
  return statement;
}

/// The backward of `rotary`, in place: turns the gradient by its output into the gradient by its input, by
/// rotating back.
template <element T>
auto rotary_backward(panel_matrix<T>& dqkv, sequences const& layout, attention_heads heads,
                     rotary_positions<accumulator_t<T>> const& positions) {
  const eval::rotary_statement<T> statement{&dqkv, &layout, heads, &positions, eval::rotation::backward};
  statement.check();
  return statement;
}

}}  // namespace tessera::TESSERA_ISA
