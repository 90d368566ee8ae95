// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <tessera/core/config.hpp>
#include <tessera/simd/simd.hpp>

// A score functor changes the scores of attention before the softmax: s, the scaled product of a query and a
// key, becomes f(s, w), where w depends on the head and on the distance, which is the position of the query
// minus the position of the key. All pairs of a block on one diagonal have one distance: w is a function of
// integers, called once for each diagonal, and f an op of registers.

namespace tessera { inline namespace TESSERA_ISA { namespace kernels {

/// Leaves scores unchanged.
struct plain_scores {};

template <class Score> inline constexpr bool changes_scores = !std::is_same_v<Score, plain_scores>;

/// For a score s and w = f.term(head, distance), all of them finite:
///   f(s, w)              the argument of the softmax
///   f.derivative(s, w)   ∂f/∂s
/// Both take registers too, as ops do. The term is also computed for distances that no query sees.
template <class F>
concept score_functor = !changes_scores<F> || requires(F const& f, double s, std::int64_t distance) {
  { f.term(0, distance) } -> std::convertible_to<double>;
  { f(s, s) } -> std::same_as<double>;
  { f.derivative(s, s) } -> std::same_as<double>;
};

/// A score functor whose terms have parameters, equally many for each head.
///   f.parameters()                               number of parameters for each head
///   f.term_derivative(s, w)                      ∂f/∂w
///   f.add_gradient(head, distance, dw, to)       adds dw ∂w/∂(parameter) of each parameter of the head
template <class F>
concept learned_score_functor =
    score_functor<F> && requires(F const& f, double s, std::int64_t distance, double* dparameters) {
      { f.parameters() } -> std::convertible_to<std::int64_t>;
      { f.term_derivative(s, s) } -> std::same_as<double>;
      f.add_gradient(0, distance, s, dparameters);
    };

/// A number for each diagonal of a block of 64 keys and 64 queries.
template <class Arch, class T> class block_diagonals {
 public:
  using batch = simd::batch<T, Arch>;

  /// Calls visit(distance, number) for each diagonal.
  ///   panels   panel of the queries minus panel of the keys
  template <class Visit> void for_each(std::int64_t panels, Visit&& visit) {
    for (int i = 0; i < count; ++i) visit(panels * panel_tokens + i - first_key, number_[i]);
  }
  /// The numbers of a key with the queries of a register.
  TESSERA_INLINE batch load(int key, int lane) const {
    return batch::load_unaligned(number_ + first_key + lane - key);
  }
  TESSERA_INLINE void add(int key, int lane, batch const& value) {
    (load(key, lane) + value).store_unaligned(number_ + first_key + lane - key);
  }

 private:
  static constexpr int first_key = panel_tokens - 1,
                       count = 2 * panel_tokens;  // one more, for whole registers
  alignas(64) T number_[count];
};

/// Replaces block_diagonals that are not needed.
struct no_diagonals {};

/// The terms of a functor for a block of scores; none for plain scores.
template <class Arch, class T, class Score>
using score_terms = std::conditional_t<changes_scores<Score>, block_diagonals<Arch, T>, no_diagonals>;
/// The sums of gradients by these terms; none without parameters.
template <class Arch, class T, class Score>
using score_term_sums =
    std::conditional_t<learned_score_functor<Score>, block_diagonals<Arch, T>, no_diagonals>;

}}}  // namespace tessera::TESSERA_ISA::kernels
