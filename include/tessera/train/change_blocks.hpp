// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern_algebra.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// Gives a model the parameters and frozen tensors of another one, whose blocks have other sizes: a matrix
/// then has each block that holds a stored value of the other matrix, and zeros where that has none, so that
/// both models have equal results. Tensors that follow from parameters are to be refreshed. Throws
/// shape_error, with the name of the first tensor that differs in anything but its blocks, and for blocks of
/// which neither height divides the other, or neither width; before anything is changed.
void change_blocks(nn::parameter_list const& from, nn::mutable_parameter_list to);

#ifdef TESSERA_BODY

namespace detail {

TESSERA_COLD TESSERA_BODY void require_same_but_blocks(std::vector<std::string> const& names,
                                                       std::vector<std::string> const& others) {
  if (names != others)
    throw shape_error(message("[change_blocks] the models have ", names.size(), " and ", others.size(),
                              " tensors, or these have other names"));
}

TESSERA_COLD TESSERA_BODY void require_same_but_blocks(std::string const& name, any_tensor const& from,
                                                       any_tensor const& to) {
  if (from.rows() != to.rows() || from.cols() != to.cols() || &from.element() != &to.element())
    throw shape_error(message("[change_blocks] ", name, " is ", from.rows(), " x ", from.cols(), " of ",
                              from.element().name, ", and in the other model ", to.rows(), " x ", to.cols(),
                              " of ", to.element().name));
}

TESSERA_COLD TESSERA_BODY pattern pattern_for(any_tensor const& from, any_tensor const& to) {
  if (!to.is_matrix()) return {};
  return reblocked(from.pattern(), int(from.rows()), int(from.cols()), {from.block_rows(), from.block_cols()},
                   {to.block_rows(), to.block_cols()});
}

TESSERA_COLD TESSERA_BODY void copy_values(any_tensor const& from, any_tensor& to, pattern const& stored) {
  if (to.is_matrix()) to.reset(stored);
  const std::size_t bytes = from.element().bytes;
  std::vector<std::byte> rows(std::size_t(from.rows() * from.cols()) * bytes);
  const auto place = [&](std::int64_t row, std::int64_t col) {
    return rows.data() + std::size_t(row * from.cols() + col) * bytes;
  };
  for_each_value(from, from.data(), bytes, [&](std::byte const* value, std::int64_t row, std::int64_t col) {
    std::memcpy(place(row, col), value, bytes);
  });
  for_each_value(to, to.data(), bytes, [&](std::byte* value, std::int64_t row, std::int64_t col) {
    std::memcpy(value, place(row, col), bytes);
  });
}

}  // namespace detail

TESSERA_COLD TESSERA_BODY void change_blocks(nn::parameter_list const& from, nn::mutable_parameter_list to) {
  const std::vector<std::string> names = from.names(), frozen = from.frozen_names();
  detail::require_same_but_blocks(names, to.names());
  detail::require_same_but_blocks(frozen, to.frozen_names());
  std::vector<pattern> patterns, of_frozen;
  for (std::size_t i = 0; i < names.size(); ++i) {
    detail::require_same_but_blocks(names[i], from[i].tensor, to[i].tensor);
    patterns.push_back(detail::pattern_for(from[i].tensor, to[i].tensor));
  }
  for (std::size_t i = 0; i < frozen.size(); ++i) {
    detail::require_same_but_blocks(frozen[i], from.frozen()[i].tensor, to.frozen()[i].tensor);
    of_frozen.push_back(detail::pattern_for(from.frozen()[i].tensor, to.frozen()[i].tensor));
  }
  for (std::size_t i = 0; i < names.size(); ++i)
    detail::copy_values(from[i].tensor, to[i].tensor, patterns[i]);
  for (std::size_t i = 0; i < frozen.size(); ++i)
    detail::copy_values(from.frozen()[i].tensor, to.frozen()[i].tensor, of_frozen[i]);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
