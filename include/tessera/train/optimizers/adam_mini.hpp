// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/simd/simd.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Adam-mini (Zhang et al. 2024, "Adam-mini: Use Fewer Learning Rates To Gain More"): AdamW with one second
/// moment, of the mean square of the gradients, for each block of a matrix, for each row of one in blocks of
/// 1x1, and for each vector: half of AdamW's state. Matrices decay, biases and gains do not. The second
/// moment of a block that grows begins with the mean over the blocks that stay; in 1x1 it is that of its row.
struct adam_mini {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;

  void state(state_list& each, any_tensor const& of) const {
    each.elements("first_moment");
    if (by_row(of))
      each.rows("second_moment");
    else
      each.blocks("second_moment", in_new_blocks::mean);
  }
  static void parts(auto& each, auto&... of) {
    each.setting("beta1", of.beta1...);
    each.setting("beta2", of.beta2...);
    each.setting("epsilon", of.epsilon...);
    each.setting("weight_decay", of.weight_decay...);
  }
  void check() const { require_adam_settings("adam_mini", beta1, beta2, epsilon, weight_decay); }

  template <element T> void step(context& ctx, update const& now, parameter_values<T>& of) const {
    const terms<T> all(*this, now, of);
    any_tensor const& w = of.parameter.tensor;
    if (!w.is_matrix()) {
      all.step(0, 0, 1, of.w.size(), [&](std::int64_t) { return of.w.size(); });
    } else {
      const std::int64_t lines = w.pattern().block_rows(), values_a_task = 16384,
                         tasks = std::clamp<std::int64_t>(w.size() / values_a_task, 1,
                                                          std::max<std::int64_t>(1, lines));
      ctx.run(int(tasks), [&](int task, std::byte*) {
        for (std::int64_t i = lines * task / tasks; i < lines * (task + 1) / tasks; ++i)
          step_line(all, w, int(i));
      });
    }
    run(ctx, of.rounded());
  }

 private:
  static bool by_row(any_tensor const& of) { return of.is_matrix() && of.block_elements() == 1; }

  template <class T> struct terms {
    using batch = simd::batch<T>;
    static constexpr int lanes = simd::lanes<T>;
    static constexpr int at_once = 64;  // groups, at most

    T const* gradient;
    T *w, *first_moment, *second_moment;
    T scale, share1, kept, squared_scale;
    batch kept2, share2, correction, epsilon, full_step;

    terms(adam_mini const& by, update const& now, parameter_values<T>& of)
        : gradient(of.gradient.begin()),
          w(of.w.begin()),
          first_moment(of.elements(0).begin()),
          second_moment(of.numbers(1).begin()),
          scale(T(now.gradient_scale)),
          share1(T(1 - by.beta1)),
          kept(T(1 - now.rate * by.weight_decay * now.decay)),
          squared_scale(T(now.gradient_scale * now.gradient_scale)),
          kept2(T(by.beta2)),
          share2(T(1 - by.beta2)),
          correction(T(1 / (1 - std::pow(by.beta2, double(now.number))))),
          epsilon(T(by.epsilon)),
          full_step(T(now.rate / (1 - std::pow(by.beta1, double(now.number))))) {}

    /// `groups` groups of `size` values from number `first` on, each of which shares a second moment; the
    /// first of these is number `group`.
    ///   live   (group from 0 on) → the number of its values that do not overhang the matrix
    void step(std::int64_t group, std::int64_t first, std::int64_t groups, auto size,
              auto const& live) const {
      const std::int64_t in_cache =
          std::clamp<std::int64_t>(4096 / std::max<std::int64_t>(1, size), 1, at_once);
      for (std::int64_t begin = 0; begin < groups; begin += in_cache) {
        const std::int64_t count = std::min<std::int64_t>(in_cache, groups - begin);
        alignas(64) T mean[at_once] = {}, second[at_once] = {};
        for (std::int64_t i = 0; i < count; ++i)
          mean[i] = sum_of_squares(gradient + first + (begin + i) * size, size) * squared_scale /
                    T(live(begin + i));
        std::copy_n(second_moment + group + begin, count, second);
        for (std::int64_t i = 0; i < count; i += lanes) {
          const batch v = load(second + i) * kept2 + load(mean + i) * share2;
          v.store_unaligned(second + i);
          simd::quotient(full_step, simd::root(v * correction) + epsilon).store_unaligned(mean + i);
        }
        std::copy_n(second, count, second_moment + group + begin);
        for (std::int64_t i = 0; i < count; ++i) move(first + (begin + i) * size, size, mean[i]);
      }
    }

   private:
    static batch load(T const* from) { return batch(simd::load<simd::native>(from)); }

    static T sum_of_squares(T const* x, auto size) {
      batch sum(T(0));
      std::int64_t k = 0;
      for (; k + lanes <= size; k += lanes) sum = sum + load(x + k) * load(x + k);
      T all = simd::sum_lanes(sum);
      for (; k < size; ++k) all += x[k] * x[k];
      return all;
    }
    void move(std::int64_t first, auto size, T length_of_step) const {
      T const* const g = gradient + first;
      T *const m = first_moment + first, *const values = w + first;
      std::int64_t k = 0;
      for (; k + lanes <= size; k += lanes) {
        const batch old = load(m + k), next = old + (load(g + k) * scale - old) * share1;
        next.store_unaligned(m + k);
        (load(values + k) * kept - next * length_of_step).store_unaligned(values + k);
      }
      for (; k < size; ++k) {
        m[k] += (g[k] * scale - m[k]) * share1;
        values[k] = values[k] * kept - m[k] * length_of_step;
      }
    }
  };

  template <class T> static void step_line(terms<T> const& all, any_tensor const& w, int line) {
    pattern const& stored = w.pattern();
    const auto cols = stored.row(line);
    const std::int64_t first = stored.first_slot(line), values = w.block_elements();
    if (by_row(w))
      return all.step(line, first, 1, std::ssize(cols), [&](std::int64_t) { return std::ssize(cols); });
    const std::int64_t height = std::min<std::int64_t>(w.block_rows(), w.rows() - line * w.block_rows());
    const auto live = [&](std::int64_t k) {
      return height *
             std::min<std::int64_t>(w.block_cols(), w.cols() - cols[std::size_t(k)] * w.block_cols());
    };
    if (values == 16)  // loops of a known length
      all.step(first, first * values, std::ssize(cols), std::integral_constant<std::int64_t, 16>(), live);
    else
      all.step(first, first * values, std::ssize(cols), values, live);
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
