// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/bind.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/kernels/cached_attention.hpp>
#include <tessera/simd/simd.hpp>
#include <tessera/statements/attention_shape.hpp>
#include <tessera/tensor/key_value_cache.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/sequences.hpp>

namespace tessera { inline namespace TESSERA_ISA {
namespace eval {

/// The slots of a cache for the sequences of a batch.
template <class T> struct cache_access {
  key_value_cache<T>* cache;
  std::span<std::int32_t const> slot_list;
  bool attends;  // or keys and values are appended alone
};

/// Appends the keys and values of new tokens to a cache, and computes attention of each over its sequence. A
/// tile is a sequence with one head of keys. E is the element that the cache stores.
template <class T, class E, class Score> struct cached_attention_body {
  using sum = accumulator_t<T>;
  attention_shape<T, Score> shape;
  cache_access<T> of;
  panel_matrix<T>* y;
  operand scratch;

  static int padded_heads(attention_heads heads) {
    return heads.group() == 1 ? 1 : round_up(heads.group(), kernels::heads_at_once);
  }
  static std::int64_t scratch_numbers(attention_shape<T, Score> const& shape,
                                      key_value_cache<T> const& cache) {
    return kernels::cached_attention_scratch +
           padded_heads(shape.heads) * std::int64_t(shape.head_size() + cache.value_stride());
  }

  std::int64_t sequence_of(tile const& t) const { return t.index / shape.heads.keys; }
  int key_head_of(tile const& t) const { return int(t.index % shape.heads.keys); }
  std::int64_t slot_of(tile const& t) const { return of.slot_list[std::size_t(sequence_of(t))]; }
  /// The first token whose keys are kept: of tokens that are appended together, the last ones.
  std::int64_t first_kept(std::int64_t sequence) const {
    sequences const& rows = *shape.layout;
    return of.attends ? rows.begin(sequence)
                      : std::max(rows.begin(sequence), rows.end(sequence) - of.cache->tokens());
  }

  void compute(tile const& t) const noexcept {
    sequences const& rows = *shape.layout;
    const std::int64_t s = sequence_of(t);
    const int key_head = key_head_of(t), group = shape.heads.group(), size = shape.head_size();
    const std::int64_t value_stride = of.cache->value_stride();
    E* const keys = of.cache->template keys<E>(slot_of(t), key_head);
    E* const values = of.cache->template values<E>(slot_of(t), key_head);
    sum* const room = t.address<sum>(scratch);
    sum* const q = room + kernels::cached_attention_scratch;
    sum* const result = q + std::int64_t(padded_heads(shape.heads)) * size;
    const int head = key_head * group;
    for (std::int64_t token = first_kept(s); token < rows.end(s); ++token) {
      const std::int64_t position = rows.start(s) + token - rows.begin(s);
      append(keys, values, token, position, shape.rows_of(head));
      if (!of.attends) continue;
      T const* const panel = shape.qkv->panel(token / panel_tokens) + shape.rows_of(head)[0] * panel_tokens;
      for (int i = 0; i < group * size; ++i) q[i] = sum(panel[place_in_panel<T>(i, token % panel_tokens)]);
      for (int i = group * size; i < padded_heads(shape.heads) * size; ++i) q[i] = 0;
      for (int h = 0; h < group; h += shape.seen.blocks.size() > 1 ? 1 : group)
        attend(q, keys, values, result, head, h, position, room);
      T* const to = y->panel(token / panel_tokens) + std::int64_t(head) * size * panel_tokens;
      for (int h = 0; h < group; ++h)
        for (int f = 0; f < size; ++f)
          to[place_in_panel<T>(std::int64_t(h) * size + f, token % panel_tokens)] =
              T(result[h * value_stride + f]);
    }
  }

  void describe(tile const& t, task_description& d) const {
    sequences const& rows = *shape.layout;
    const std::int64_t s = sequence_of(t), size = shape.head_size();
    if (rows.length(s) == 0) return;
    const int key_head = key_head_of(t), group = shape.heads.group();
    const auto first = shape.rows_of(std::int64_t(key_head) * group);
    const auto touch = [&](std::vector<touched_bytes>& list, auto const& x, std::int64_t feature,
                           std::int64_t features, std::int64_t from) {
      for (std::int64_t token = from; token < rows.end(s); ++token)
        list.push_back(one_token(x, feature, features, token));
    };
    touch(d.reads, *shape.qkv, first[1], size, first_kept(s));
    touch(d.reads, *shape.qkv, first[2], size, first_kept(s));
    // Panels of the slot: of the new tokens, and of the keys that are seen.
    const std::int64_t begin = rows.start(s), end = begin + rows.length(s);
    const std::int64_t kept = begin + first_kept(s) - rows.begin(s);
    touch_cache(d.writes, t, kept, end);
    if (!of.attends) return;
    touch(d.reads, *shape.qkv, first[0], group * size, rows.begin(s));
    touch(d.writes, *y, first[0], group * size, rows.begin(s));
    touch_cache(d.reads, t, shape.seen.of_query(begin, end).first, end);
    for (std::int64_t query = begin; query < end; ++query) {
      const auto seen = shape.seen.of_query(query, query + 1);
      d.multiplies += 2 * (seen.last - seen.first) * group * size;
    }
  }

 private:
  /// `heads` rows of q from row `h` on: all of a group, or one where each sees blocks of its own.
  void attend(sum const* q, E const* keys, E const* values, sum* result, int head, int h,
              std::int64_t position, sum* room) const noexcept {
    const bool alone = shape.seen.blocks.size() > 1;
    const auto seen = shape.seen.of_query(position, position + 1);
    kernels::live_panels live;
    if (!shape.seen.blocks.empty()) {
      const auto row = shape.seen.blocks[alone ? std::size_t(head + h) : 0].row(int(position / panel_tokens));
      live = {false, row.data(), int(row.size()), 0};
    }
    const std::int64_t size = shape.head_size();
    kernels::cached_attention<simd::native, E, Score>::run(
        {q + h * size, alone ? 1 : shape.heads.group(), keys, values, of.cache->panels(),
         of.cache->panel_stride(), of.cache->value_stride(), seen.first, seen.last, int(size),
         sum(1 / std::sqrt(double(size))), result + h * of.cache->value_stride(), room, shape.score, head + h,
         position, live});
  }
  void append(E* keys, E* values, std::int64_t token, std::int64_t position,
              std::array<std::int64_t, 3> rows) const noexcept {
    const std::int64_t at = position / panel_tokens % of.cache->panels() * of.cache->panel_stride();
    const int size = shape.head_size(), lane = int(position % panel_tokens);
    T const* const panel = shape.qkv->panel(token / panel_tokens);
    const auto number = [&](std::int64_t row) {
      return E(sum(panel[place_in_panel<T>(row, token % panel_tokens)]));
    };
    for (int f = 0; f < size; ++f) {
      keys[at + f * panel_tokens + lane] = number(rows[1] + f);
      values[at + lane * of.cache->value_stride() + f] = number(rows[2] + f);
    }
  }
  template <class Panels>
  static touched_bytes one_token(Panels const& x, std::int64_t feature, std::int64_t features,
                                 std::int64_t token) {
    constexpr int group = element_traits<T>::features_a_lane;
    auto bytes =
        part_of_panel<T>(memory::user, reinterpret_cast<std::uintptr_t>(x.panel(token / panel_tokens)),
                         feature, feature + features, 1);
    bytes.at += std::uintptr_t(token % panel_tokens * group) * sizeof(T);
    return bytes;
  }
  /// Positions [from, to) of the tile's head: of keys a lane of each feature, of values a row.
  void touch_cache(std::vector<touched_bytes>& list, tile const& t, std::int64_t from,
                   std::int64_t to) const {
    const auto at = [](E const* p) { return reinterpret_cast<std::uintptr_t>(p); };
    constexpr auto bytes = std::int64_t(sizeof(E));
    for (std::int64_t panel = from / panel_tokens; panel * panel_tokens < to; ++panel) {
      const std::int64_t begin = panel * panel_tokens, first = std::max(from, begin) - begin;
      const std::int64_t count = std::min<std::int64_t>(to - begin, panel_tokens) - first;
      const std::int64_t offset = panel % of.cache->panels() * of.cache->panel_stride();
      E const* const keys = of.cache->template keys<E>(slot_of(t), key_head_of(t)) + offset + first;
      E const* const values = of.cache->template values<E>(slot_of(t), key_head_of(t)) + offset +
                              first * of.cache->value_stride();
      list.push_back({memory::user, at(keys), count * bytes, of.cache->head_size(), panel_tokens * bytes});
      list.push_back(
          {memory::user, at(values), of.cache->head_size() * bytes, count, of.cache->value_stride() * bytes});
    }
  }
};

template <class T, class Score> struct TESSERA_STATEMENT cached_attention_statement {
  using statement_tag = void;
  attention_shape<T, Score> shape;
  cache_access<T> of;
  panel_matrix<T>* y;  // null if keys and values are appended alone

  /// Throws shape_error.
  void check() const {
    shape.check("cached_attention", true);
    if (of.attends) shape.check("cached_attention", "y", *y, shape.hidden());
    check_cache();
  }

  void lower(plan& p) const {
    check();
    step_draft s("cached attention", cut::lines);
    s.tiles = int(shape.layout->count() * shape.heads.keys);
    s.writes(all_of(*of.cache));
    if (of.attends) s.writes(all_of(*y));
    s.reads(all_of(*shape.qkv));
    const auto add = [&]<class E>(std::type_identity<E>) {
      using body = cached_attention_body<T, E, Score>;
      const auto bytes = std::size_t(body::scratch_numbers(shape, *of.cache)) * sizeof(accumulator_t<T>);
      p.add(s, body{shape, of, y, p.worker_memory(bytes)});
    };
    if constexpr (std::is_same_v<accumulator_t<T>, float> && !std::is_same_v<T, bfloat16>)
      if (of.cache->is_narrow()) return add(std::type_identity<bfloat16>());
    add(std::type_identity<T>());
  }

 private:
  TESSERA_COLD void check_cache() const {
    sequences const& rows = *shape.layout;
    key_value_cache<T> const& cache = *of.cache;
    if (shape.seen.order != mask::causal)
      throw shape_error("[cached_attention] tokens that see later ones cannot be appended: mask::causal");
    if (cache.heads() != shape.heads.keys || cache.head_size() != shape.head_size())
      throw shape_error(message("[cached_attention] the cache is for ", cache.heads(), " heads of ",
                                cache.head_size(), ", the keys are ", shape.heads.keys, " of ",
                                shape.head_size()));
    if (std::ssize(of.slot_list) != rows.count())
      throw shape_error(message("[cached_attention] ", of.slot_list.size(), " slots for ", rows.count(),
                                " sequences: give one for each"));
    for (std::int64_t i = 0; i < rows.count(); ++i) {
      const std::int32_t slot = of.slot_list[std::size_t(i)];
      if (slot < 0 || slot >= cache.slot_count())
        throw shape_error(message("[cached_attention] slot ", slot, " of ", cache.slot_count()));
      if (std::ranges::count(of.slot_list, slot) > 1)
        throw shape_error(message("[cached_attention] slot ", slot, " is given twice"));
      const std::int64_t length = rows.start(i) + rows.length(i), window = shape.seen.window;
      if ((window == 0 ? length : std::min(length, window)) > cache.tokens())
        throw shape_error(message("[cached_attention] sequence ", i, " has ", length,
                                  " tokens, and queries see ", window == 0 ? message("all") : message(window),
                                  ", but the cache has ", cache.tokens()));
    }
  }
};

}  // namespace eval

/// Appends the keys and values of the tokens of qkv to a cache, and computes y as `attention` does over all
/// tokens of each sequence: tokens before layout.start(i) stand in slot slot_list[i] of the cache. In float
/// and double it is that value, in other elements probabilities are not rounded; a cache that rounds does so
/// to keys and values.
///   qkv, y, heads, score   as in `attention`
///   seen                   mask::causal; with a window, or blocks of positions
/// Throws shape_error. All arguments are held by reference until run.
template <element T, score_functor Score = plain_scores>
auto cached_attention(panel_matrix<T> const& qkv, sequences const& layout, attention_heads heads,
                      visible_keys seen, key_value_cache<T>& cache, std::span<std::int32_t const> slot_list,
                      panel_matrix<T>& y, Score const& score = eval::scores_as_they_are) {
  const eval::cached_attention_statement<T, Score> statement{
      {&qkv, &layout, heads, seen, &score}, {&cache, slot_list, true}, &y};
  statement.check();
  return statement;
}

/// Appends alone: for the first tokens of sequences, of which `attention` needs no cache.
template <element T>
auto cache_keys(panel_matrix<T> const& qkv, sequences const& layout, attention_heads heads, visible_keys seen,
                key_value_cache<T>& cache, std::span<std::int32_t const> slot_list) {
  const eval::cached_attention_statement<T, plain_scores> statement{
      {&qkv, &layout, heads, seen, &eval::scores_as_they_are}, {&cache, slot_list, false}, nullptr};
  statement.check();
  return statement;
}

}}  // namespace tessera::TESSERA_ISA
