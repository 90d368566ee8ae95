// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/core/int8.hpp>
#include <tessera/core/range.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/simd/elements.hpp>
#include <tessera/simd/int8.hpp>
#include <tessera/simd/root_code.hpp>
#include <tessera/simd/simd.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Codes of first moments: shares of the greatest of their group, as 127 equal steps of about the square
/// root, with the sign. Err less than the table of Dettmers et al. 2022 from 1 down to 0.01.
inline constexpr eight_bits signed_roots{
    [](std::uint8_t code) {
      const float root = float(std::int8_t(code)) / 127;
      return std::copysign(simd::root_code<1>::power(std::abs(root)), root);
    },
    [](float share) {
      const float root = simd::root_code<1>::root(std::abs(share)) * 127;
      return std::uint8_t(std::int8_t(std::lround(std::copysign(root, share))));
    }};
/// Codes of second moments: steps of 1 ÷ 255.5 of about the fourth root, which begin with half a step, from
/// -128 on. They span ten decades, and err less than that table everywhere. Zero is none of them, so that no
/// moment is divided by the root of a number that was rounded to zero.
inline constexpr eight_bits fourth_roots{
    [](std::uint8_t code) {
      return simd::root_code<2>::power((float(std::int8_t(code)) + 128.5F) * (1 / 255.5F));
    },
    [](float share) {
      return std::uint8_t(std::max(-128L, std::lround(simd::root_code<2>::root(share) * 255.5F - 128.5F)));
    }};

/// AdamW with moments in 8 bits, each 256 stored values of which share a scale (Dettmers et al. 2022, "8-bit
/// Optimizers via Block-wise Quantization"): a quarter of their bytes. A step computes with moments that are
/// not rounded yet. Vectors and matrices below 4096 rows x columns keep accumulators. Matrices decay, biases
/// and gains do not. The second moment of a block that grows begins with the mean over the blocks that stay.
struct adamw_8_bits {
  static constexpr int group = 256;               // values of a scale
  static constexpr std::int64_t smallest = 4096;  // matrix that is quantised

  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;

  void state(state_list& each, any_tensor const& of) const {
    if (is_quantised(of)) {
      each.scaled("first_moment", group, signed_roots);
      each.scaled("second_moment", group, fourth_roots, in_new_blocks::mean);
    } else {
      each.elements("first_moment");
      each.elements("second_moment", in_new_blocks::mean);
    }
  }
  static void parts(auto& each, auto&... of) {
    each.setting("beta1", of.beta1...);
    each.setting("beta2", of.beta2...);
    each.setting("epsilon", of.epsilon...);
    each.setting("weight_decay", of.weight_decay...);
  }
  void check() const { require_adam_settings("adamw_8_bits", beta1, beta2, epsilon, weight_decay); }

  template <element T> void step(context& ctx, update const& now, parameter_values<T>& of) const {
    if (!is_quantised(of.parameter.tensor))
      return adamw{beta1, beta2, epsilon, weight_decay, newborn_moments::mean}.step(ctx, now, of);
    const terms all(*this, now);
    scaled_values first = of.scaled(0), second = of.scaled(2);
    constexpr std::int64_t a_task = 64;
    ctx.run(int(ceil_div(first.groups(), a_task)), [&](int task, std::byte*) {
      for (std::int64_t g = task * a_task; g < std::min(first.groups(), (task + 1) * a_task); ++g) {
        const std::int64_t at = first.first(g);
        const values_of_group<T> its{of.gradient.begin() + at,       of.w.begin() + at,
                                     first.codes.data<int8>() + at,  second.codes.data<int8>() + at,
                                     first.scales.data<float>() + g, second.scales.data<float>() + g};
        first.size(g) == group ? step_group(all, its) : step_part(all, its, first.size(g));
      }
    });
    run(ctx, of.rounded());
  }

 private:
  static bool is_quantised(any_tensor const& of) {
    return of.is_matrix() && of.rows() * of.cols() >= smallest;
  }

  /// The values of a group, its codes and their scales.
  template <class T> struct values_of_group {
    T const* gradient;
    T* w;
    int8 *first, *second;
    float *first_scale, *second_scale;
  };

  using floats = simd::batch<float>;
  static constexpr int lanes = simd::lanes<float>;

  struct terms {
    floats share1, share2, kept2, step, correction, epsilon, scale;
    double kept;

    terms(adamw_8_bits const& by, update const& now)
        : share1(float(1 - by.beta1)),
          share2(float(1 - by.beta2)),
          kept2(float(by.beta2)),
          step(float(now.rate / (1 - std::pow(by.beta1, double(now.number))))),
          correction(float(1 / (1 - std::pow(by.beta2, double(now.number))))),
          epsilon(float(by.epsilon)),
          scale(float(now.gradient_scale)),
          kept(1 - now.rate * by.weight_decay * now.decay) {}

    /// The step of the values in a register, whose moments it moves.
    TESSERA_INLINE floats move(floats gradient, floats& m, floats& v) const {
      const floats g = gradient * scale;
      m = m + (g - m) * share1;
      v = v * kept2 + g * g * share2;
      return simd::quotient(m * step, simd::root(v * correction) + epsilon);
    }
  };

  template <class T> static void step_group(terms const& all, values_of_group<T> const& of) {
    alignas(64) float m[group], v[group], wide[group];
    if constexpr (std::is_same_v<T, double>) std::copy_n(of.gradient, group, wide);
    floats greatest(0.0F), greatest_second(0.0F);
    for (int k = 0; k < group; k += lanes) {
      const floats root = codes(of.first + k) * (1.0F / 127), steps = codes(of.second + k) + 128.5F;
      floats first = copysign(simd::root_code<1>::power_or_zero(abs(root)), root) * *of.first_scale,
             second = simd::root_code<2>::power(steps * (1 / 255.5F)) * *of.second_scale;
      if constexpr (std::is_same_v<T, float>)
        (load(of.w + k) * float(all.kept) - all.move(load(of.gradient + k), first, second))
            .store_unaligned(of.w + k);
      else
        all.move(load(wide + k), first, second).store_unaligned(wide + k);
      greatest = max(greatest, abs(first)), greatest_second = max(greatest_second, second);
      first.store_unaligned(m + k), second.store_unaligned(v + k);
    }
    if constexpr (std::is_same_v<T, double>)
      for (int k = 0; k < group; ++k) of.w[k] = of.w[k] * all.kept - double(wide[k]);
    *of.first_scale = simd::largest_lane(greatest), *of.second_scale = simd::largest_lane(greatest_second);
    const float to_share = *of.first_scale > 0 ? 1 / *of.first_scale : 0,
                to_second_share = *of.second_scale > 0 ? 1 / *of.second_scale : 0;
    for (int k = 0; k < group; k += lanes) {
      const floats first = load(m + k), second = load(v + k);
      const floats root = simd::root_code<1>::root(abs(first) * to_share) * 127.0F;
      const floats steps = simd::root_code<2>::root(second * to_second_share) * 255.5F;
      simd::store_values(of.first + k, copysign(root, first));
      simd::store_values(of.second + k, steps - 128.5F);
    }
  }
  static floats load(float const* from) { return floats::load_unaligned(from); }
  static floats codes(int8 const* from) { return simd::load_values<simd::native>(from); }
  /// The last group of a matrix may be shorter.
  template <class T>
  static void step_part(terms const& all, values_of_group<T> const& of, std::int64_t count) {
    T gradient[group] = {}, w[group] = {};
    int8 first[group] = {}, second[group];
    std::fill_n(second, group, int8(-128));  // the least second moment: the rest must not set the scale
    std::copy_n(of.gradient, count, gradient), std::copy_n(of.w, count, w);
    std::copy_n(of.first, count, first), std::copy_n(of.second, count, second);
    step_group<T>(all, {gradient, w, first, second, of.first_scale, of.second_scale});
    std::copy_n(w, count, of.w), std::copy_n(first, count, of.first), std::copy_n(second, count, of.second);
  }
};

}}}  // namespace tessera::TESSERA_ISA::train
