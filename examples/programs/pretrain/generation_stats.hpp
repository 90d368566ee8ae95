// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <tessera/exec/context.hpp>

#include "../common/format.hpp"
#include "generation.hpp"
#include "trained_model.hpp"

namespace pretrain {

/// Bytes of weights, with their indices, that a model reads for one token, or for several of a pass.
inline double bytes_of_a_pass(trained_model const& of) {
  const bool in_8_bits =
      of.made_of.method != "frozen" && (of.made_of.precision == "float8" || of.made_of.precision == "int8");
  const train::trainable_layer layer = of.network.network->layer();
  nn::parameter_list const all = layer;
  double bytes = 0;
  const auto add = [&](nn::any_parameter const& each) {
    bytes += each.is_weight() && in_8_bits ? double(each.tensor.size()) : double(each.tensor.size_bytes());
    if (each.tensor.is_matrix() && !each.tensor.pattern().is_dense())
      bytes += 4.0 * double(each.tensor.pattern().blocks() + each.tensor.pattern().block_rows());
  };
  // Of these one row is read.
  const bool has_head = of.made_of.shape.output == nn::output_weight::own;
  const auto is_looked_up = [&](std::string const& name) {
    return name.starts_with("position_embedding") || (has_head && name.starts_with("token_embedding"));
  };
  const std::vector<std::string> names = all.names(), frozen = all.frozen_names();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!is_looked_up(names[i])) add(all[i]);
  for (std::size_t i = 0; i < frozen.size(); ++i)
    if (!is_looked_up(frozen[i])) add(all.frozen()[i]);
  return bytes;
}

/// The bytes per second at which the threads of a context read memory, together: the best of some passes over
/// more than caches hold.
inline double memory_speed(tessera::context& ctx) {
  using clock = std::chrono::steady_clock;
  constexpr std::size_t part = std::size_t(1) << 22, parts = 128;  // 512 MiB
  std::vector<std::uint64_t> numbers(part / 8 * parts, 1);
  std::atomic<std::uint64_t> all{0};
  double best = 0;
  for (int pass = 0; pass < 4; ++pass) {
    const auto begin = clock::now();
    ctx.run(int(parts), [&](int number, std::byte*) {
      std::uint64_t const* const from = numbers.data() + std::size_t(number) * (part / 8);
      std::uint64_t sum = 0;
      for (std::size_t i = 0; i < part / 8; ++i) sum += from[i];
      all += sum;
    });
    best = std::max(best, double(part * parts) / seconds(clock::now() - begin).count());
  }
  return all == 0 ? 0 : best;
}

/// The lines of --stats.
inline std::string stats_of(generation const& of, trained_model const& by) {
  generation_cost const& cost = of.cost();
  const auto line = [](char const* name, double tokens, seconds time) {
    return padded(name, 8) + quantity(tokens) + " tokens in " + fixed(time.count(), 3) + " s, " +
           quantity(time.count() > 0 ? tokens / time.count() : 0) + " per second";
  };
  std::string text = line("prompts", double(cost.shown), cost.showing) + "\n";
  if (cost.added == 0) return text;
  text += line("decode", double(cost.added), cost.adding) + ", " +
          fixed(1e3 * cost.adding.count() / double(cost.passes), 3) + " ms a pass\n";
  const tessera::nn::model_size size = size_of(by.made_of);
  const double number = of.settings().cache == tessera::cached_as::bfloat16 ? 2 : double(size.element_bytes);
  const double weights = bytes_of_a_pass(by) * double(cost.passes),
               cache = double(size.cached_values) * number * double(cost.cached);
  const double speed = (weights + cache) / cost.adding.count(), most = memory_speed(by.network.ctx);
  return text + padded("memory", 8) + quantity((weights + cache) / double(cost.added)) +
         "B read for a token, " + quantity(cache / double(cost.added)) + "B of them keys and values; " +
         quantity(speed) + "B/s, " + fixed(100 * speed / most, 0) + " % of the " + quantity(most) +
         "B/s of this memory\n";
}

}  // namespace pretrain
