// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/train/optimizers/optimizer.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>
#include <tessera/train/random_keys.hpp>
#include <tessera/train/schedules.hpp>
#include <tessera/train/sparsity/policy.hpp>
#include <tessera/train/step_hook.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Deep rewiring, a control (Bellec et al. 2018, "Deep rewiring: training very sparse deep networks",
/// algorithm 1): each place of the block grid has a sign, drawn once and for all. The blocks of least
/// sign · (sum of elements) are pruned, and an equal number of randomly chosen absent blocks grows, as zeros.
///   The paper prunes a connection in the step in which its sign turns over, however many do; here an update
///   replaces a fixed number, so that policies can be compared by their counts. Weights need not begin with
///   the signs of their places: about half of the first blocks are pruned early. The paper's L1 term and its
///   noise are hooks of the step: l1_penalty and weight_noise.
struct deep_rewiring {
  std::int64_t interval = 0;  // steps from update to update; 0: the first pattern is kept
  std::int64_t steps = 0;     // of the whole run
  double fraction = 0.3;      // of the stored blocks, [0, 1]
  std::uint64_t seed = 0;     // of signs and of regrowth

  static void parts(auto& each, auto&... of) {
    each.setting("interval", of.interval...);
    each.setting("steps", of.steps...);
    each.setting("fraction", of.fraction...);
    each.setting("seed", of.seed...);
  }
  void check() const { require_updates("deep_rewiring", interval, steps, fraction); }
  bool due(std::int64_t done) const { return due_every(interval, static_cast<double>(steps), done); }
  std::int64_t count(pattern const& stored, std::int64_t done) const {
    return replaced_blocks(stored, fraction, done, interval, static_cast<double>(steps),
                           fraction_decay::constant);
  }
  /// 1 or -1 for a place of the grid, numbered row by row, of the matrix of this key.
  int sign(random_key matrix, std::int64_t place) const {
    const random_stream random(seed, random_purpose::signs, matrix);
    return random.bits(static_cast<std::uint64_t>(place)) >> 63 ? 1 : -1;
  }
  /// Of equal scores the lower slot is pruned. Not-a-number counts as infinite, so that it stays in sight.
  std::vector<char> prune(matrix_at_update const& at, std::int64_t count) const {
    std::vector<double> scores = at.weight.block_sums();
    at.stored().for_each([&](int i, int j, std::int64_t slot) {
      scores[static_cast<std::size_t>(slot)] *= sign(at.key, std::int64_t{i} * at.stored().block_cols() + j);
    });
    return weakest(std::span<double const>(scores), count);
  }
  std::vector<std::int64_t> grow(matrix_at_update const& at, std::int64_t count) const {
    return random_absent_blocks(at, count, seed, at.done / std::max<std::int64_t>(1, interval));
  }
};

static_assert(sparsity_policy<deep_rewiring>);

/// A hook that adds √(2 η T) · N(0, 1) to the stored elements of all weights after each update, where η is
/// the learning rate of the step and T the temperature (Bellec et al. 2018, algorithm 1). Embeddings, heads
/// and vectors are left out, frozen weights too. An element's noise depends on (seed, matrix, step, row,
/// column) alone, so a resumed run has equal bits. Of narrow weights the master gets it.
///   train::weight_noise noise(1e-9, rates, seed);
template <schedule Schedule> struct weight_noise : step_hook {
  double temperature;
  Schedule rates;  // of the run
  std::uint64_t seed;

  /// Throws option_error for a temperature that is negative or no number.
  weight_noise(double of, Schedule of_run, std::uint64_t by = 0) : temperature(of), rates(of_run), seed(by) {
    if (!(temperature >= 0 && std::isfinite(temperature)))
      throw option_error(
          message("[weight_noise] temperature is ", temperature, ": it must be a number, at least 0"));
  }

  template <class Training, class Update>
  void around_update(context& ctx, Training& t, Update const& update) const {
    update();
    const double rate = rates.rate(t.progress.step);
    nn::mutable_parameter_list model(t.model);
    const nn::parameter_list gradients(t.gradients);
    require_state("weight_noise", model, gradients, t.state);
    const std::vector<std::string> names = model.names();
    std::uint64_t number = 0;
    for (std::size_t i = 0; i < model.size(); ++i) {
      if (!model[i].tensor.is_matrix()) continue;
      const random_stream random(seed, random_purpose::noise, key_of(t.keys, names[i], number++),
                                 static_cast<std::uint64_t>(t.progress.step));
      const double its_rate = rate * t.groups.of_parameter(i).rate;
      if (!model[i].is_weight() || its_rate == 0 || !nn::is_wanted(gradients[i].tensor)) continue;
      const auto add_to = [&]<class T>(T) {
        parameter_values<T> of(model[i], gradients[i].tensor, t.state.parameters[i]);
        add(ctx, model[i].tensor, of.w.data(), std::sqrt(2 * its_rate * temperature), random);
        run(ctx, of.rounded());
      };
      gradients[i].tensor.element().template is<float>() ? add_to(float()) : add_to(double());
    }
  }

 private:
  template <class T>
  static void add(context& ctx, any_tensor const& matrix, T* values, double deviation,
                  random_stream const& random) {
    const std::int64_t height = matrix.block_rows(), width = matrix.block_cols(), elements = height * width,
                       rows = matrix.rows(), cols = matrix.cols();
    pattern const& stored = matrix.pattern();
    ctx.run(stored.block_rows(), [&](int block_row, std::byte*) {
      std::int64_t slot = stored.first_slot(block_row);
      for (const std::int32_t block_col : stored.row(block_row)) {
        T* const block = values + elements * slot++;
        for (std::int64_t k = 0; k < elements; ++k) {
          const std::int64_t row = block_row * height + k / width, col = block_col * width + k % width;
          if (row < rows && col < cols)
            block[k] += T(deviation * random.normal(static_cast<std::uint64_t>(row * cols + col)));
        }
      }
    });
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
