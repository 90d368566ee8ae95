// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>

// The straight line between two models. Whether the loss stays low along it tells whether two trainings from
// one checkpoint came to one basin (Frankle et al. 2020, "Linear mode connectivity and the lottery ticket
// hypothesis", §2).

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Throws shape_error, which begins with the operation and names the first parameter that differs, unless two
/// models have parameters of the same names, elements, sizes, blocks and patterns.
void require_same_tensors(char const* operation, nn::parameter_list const& first,
                          nn::parameter_list const& second);

/// Makes a model (1 - share) · first + share · second, value by value: in double, and rounded once to the
/// element of the model, which may be narrower than theirs (masters). At 0 and 1 it has the values of one of
/// them. It gets their patterns. Frozen tensors that all three have on one pattern, such as measured scales,
/// are mixed alike; nn::refresh(model, 0) makes the others follow. Throws shape_error as
/// require_same_tensors, and for a model of other sizes.
///   share   in [0, 1] on the line between them; others go on along it
void interpolate(nn::parameter_list const& first, nn::parameter_list const& second, double share,
                 nn::mutable_parameter_list model);

#ifdef TESSERA_BODY

namespace detail {

/// "F32, 24 x 20 in blocks of 4 x 4, of which 7 are stored".
TESSERA_COLD TESSERA_BODY std::string tensor_in_words(any_tensor const& of) {
  std::string all = message(of.element().name, ", ", of.rows());
  if (of.is_matrix()) {
    all += message(" x ", of.cols(), " in blocks of ", of.block_rows(), " x ", of.block_cols());
    if (!of.pattern().is_dense()) all += message(", of which ", of.pattern().blocks(), " are stored");
  }
  return all;
}

inline bool same_sizes(any_tensor const& a, any_tensor const& b) {
  return a.is_matrix() == b.is_matrix() && a.rows() == b.rows() && a.cols() == b.cols() &&
         a.block_rows() == b.block_rows() && a.block_cols() == b.block_cols();
}
inline bool same_pattern(any_tensor const& a, any_tensor const& b) {
  return !a.is_matrix() || a.pattern() == b.pattern();
}

/// Mixes tensors of the same sizes and pattern into one of these sizes, which gets the pattern.
TESSERA_BODY void mix(any_tensor const& first, any_tensor const& second, double share, any_tensor& to) {
  if (!same_pattern(to, first)) to.reset(first.pattern());
  std::vector<double> mixture = first.values();
  const std::vector<double> other = second.values();
  for (std::size_t i = 0; i < mixture.size(); ++i) mixture[i] = std::lerp(mixture[i], other[i], share);
  to.set_values(mixture);
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY void require_same_tensors(char const* operation, nn::parameter_list const& first,
                                                    nn::parameter_list const& second) {
  const auto refuse = [&](std::string const& what) {
    throw shape_error(message("[", operation, "] ", what));
  };
  const std::vector<std::string> names = first.names(), others = second.names();
  for (std::size_t i = 0; i < std::min(names.size(), others.size()); ++i) {
    if (names[i] != others[i])
      refuse(message("the first model has ", names[i], " where the second has ", others[i]));
    any_tensor const &a = first[i].tensor, &b = second[i].tensor;
    if (const std::string of_a = detail::tensor_in_words(a), of_b = detail::tensor_in_words(b); of_a != of_b)
      refuse(message(names[i], " is ", of_a, " in the first model, and ", of_b, " in the second"));
    if (!detail::same_pattern(a, b))
      refuse(message(names[i], " stores other blocks in the first model than in the second, ",
                     (a.pattern() - b.pattern()).blocks(), " of ", a.pattern().blocks()));
  }
  if (names.size() != others.size())
    refuse(message("the first model has ", names.size(), " parameters, and the second ", others.size()));
}

TESSERA_BODY void interpolate(nn::parameter_list const& first, nn::parameter_list const& second, double share,
                              nn::mutable_parameter_list model) {
  require_same_tensors("interpolate", first, second);
  if (model.size() != first.size())
    throw shape_error(message("[interpolate] ", first.size(), " parameters for a model of ", model.size()));
  for (std::size_t i = 0; i < model.size(); ++i) {
    any_tensor const &from = first[i].tensor, &to = model[i].tensor;
    if (!detail::same_sizes(from, to))
      throw shape_error(message("[interpolate] ", model.name(i), " is ", detail::tensor_in_words(from),
                                ", and in the model ", detail::tensor_in_words(to)));
  }
  for (std::size_t i = 0; i < model.size(); ++i)
    detail::mix(first[i].tensor, second[i].tensor, share, model[i].tensor);
  const std::span<nn::any_parameter> frozen = model.frozen();
  const std::span<nn::any_parameter const> of_first = first.frozen(), of_second = second.frozen();
  for (std::size_t i = 0; i < std::min({frozen.size(), of_first.size(), of_second.size()}); ++i) {
    any_tensor const &a = of_first[i].tensor, &b = of_second[i].tensor;
    if (detail::same_sizes(a, b) && detail::same_pattern(a, b) && detail::same_sizes(a, frozen[i].tensor))
      detail::mix(a, b, share, frozen[i].tensor);
  }
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
