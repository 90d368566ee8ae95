// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/decimal.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/expression.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/sequences.hpp>

// Tensors, patterns and sequences as short texts, for people: `std::cout << w`. A large tensor is cut off.

namespace tessera { inline namespace TESSERA_ISA {

namespace detail {

inline constexpr std::int64_t most_rows_shown = 8, most_columns_shown = 8;

std::string number_text(double number);
/// Rows of numbers, each (rows, cols) of at(i, j); none where stored(i, j) is false.
template <class At, class Stored>
std::string grid_text(std::int64_t rows, std::int64_t cols, At&& at, Stored&& stored) {
  std::string text;
  for (std::int64_t i = 0; i < std::min(rows, most_rows_shown); ++i) {
    for (std::int64_t j = 0; j < std::min(cols, most_columns_shown); ++j)
      text += stored(i, j) ? number_text(double(at(i, j))) : "         .";
    text += cols > most_columns_shown ? "  …\n" : "\n";
  }
  return rows > most_rows_shown ? text + "         …\n" : text;
}

}  // namespace detail

/// Kind, size and first numbers of a tensor.
template <tensor Tensor> std::string to_text(Tensor const& x) {
  using E = typename Tensor::value_type;
  const char* const name = element_traits<E>::name;
  if constexpr (Tensor::laid_over == domain::blocks) {
    return message("matrix of ", name, ", ", x.rows(), " x ", x.cols(), " in blocks of ", Tensor::block::rows,
                   " x ", Tensor::block::cols, ", ", x.pattern().blocks(), " of ",
                   std::int64_t{x.pattern().block_rows()} * x.pattern().block_cols(), " stored\n") +
           detail::grid_text(
               x.rows(), x.cols(), [&](auto i, auto j) { return x(i, j); },
               [&](auto i, auto j) { return x.find(i, j) >= 0; });
  } else if constexpr (Tensor::laid_over == domain::panels) {
    return message("activation of ", name, ", ", x.features(), " features x ", x.tokens(), " tokens\n") +
           detail::grid_text(
               x.features(), x.tokens(), [&](auto f, auto t) { return x(f, t); },
               [](auto, auto) { return true; });
  } else {
    return message("vector of ", name, ", ", x.size(),
                   Tensor::laid_over == domain::features ? " features\n" : " tokens\n") +
           detail::grid_text(
               x.size() == 0 ? 0 : 1, x.size(), [&](auto, auto i) { return x[i]; },
               [](auto, auto) { return true; });
  }
}

/// A character for each block, or, of a grid of more than 64, for a square of blocks: ' ' if none is stored,
/// '.' for few, up to '#' for all.
std::string to_text(pattern const& p);

std::string to_text(sequences const& all);

/// The picture of a pattern: a rectangle for each run of stored blocks in a row. A browser shows it.
///   side   width and height of the picture, at most, in pixels
std::string to_svg(pattern const& p, int side = 512);

template <class T>
concept printed = requires(T const& of) { to_text(of); } &&
                  (tensor<T> || std::is_same_v<T, pattern> || std::is_same_v<T, sequences>);

template <class Traits, printed Printed>
auto& operator<<(std::basic_ostream<char, Traits>& out, Printed const& of) {
  return out << to_text(of).c_str();
}

#ifdef TESSERA_BODY

namespace detail {

TESSERA_BODY std::string number_text(double number) {
  const std::string text = general_text(number, 4);
  return std::string(text.size() < 10 ? 10 - text.size() : 0, ' ') + text;
}

}  // namespace detail

TESSERA_BODY std::string to_text(pattern const& p) {
  constexpr int most = 64;
  const int side = std::max(1, ceil_div(std::max(p.block_rows(), p.block_cols()), most));
  const int rows = ceil_div(p.block_rows(), side), cols = ceil_div(p.block_cols(), side);
  std::vector<int> stored(std::size_t(rows) * std::size_t(cols));
  p.for_each([&](int i, int j, std::int64_t) {
    ++stored[std::size_t(i / side) * std::size_t(cols) + std::size_t(j / side)];
  });
  std::string text =
      message("pattern, ", p.blocks(), " of ", p.block_rows(), " x ", p.block_cols(), " blocks");
  text += side > 1 ? message(", ", side, " x ", side, " a character\n") : "\n";
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) {
      const int height = std::min(side, p.block_rows() - i * side),
                width = std::min(side, p.block_cols() - j * side);
      constexpr char shades[] = " .:-=+*%@#";
      const int count = stored[std::size_t(i) * std::size_t(cols) + std::size_t(j)];
      text += count == height * width ? '#' : shades[std::min(8, ceil_div(count * 8, height * width))];
    }
    text += '\n';
  }
  return text;
}

TESSERA_BODY std::string to_text(sequences const& all) {
  std::string text = message(all.count(), " sequences, ", all.tokens(), " tokens:");
  for (std::int64_t i = 0; i < std::min<std::int64_t>(all.count(), 16); ++i) {
    text += message(" ", all.length(i));
    if (all.keys(i) != all.length(i)) text += message(" (", all.keys(i), " keys)");
  }
  return text + (all.count() > 16 ? " …\n" : "\n");
}

TESSERA_BODY std::string to_svg(pattern const& p, int side) {
  const double scale = double(side) / std::max({1, p.block_rows(), p.block_cols()});
  const auto number = [](double n) { return general_text(n, 6); };
  std::string text =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + number(scale * p.block_cols()) + "\" height=\"" +
      number(scale * p.block_rows()) + "\" viewBox=\"0 0 " + std::to_string(p.block_cols()) + " " +
      std::to_string(p.block_rows()) + "\"><title>" + std::to_string(p.blocks()) + " of " +
      std::to_string(p.block_rows()) + " x " + std::to_string(p.block_cols()) +
      " blocks</title><rect width=\"100%\" height=\"100%\" fill=\"#eeeeee\"/><path fill=\"#1f4e79\" d=\"";
  for (int i = 0; i < p.block_rows(); ++i) {
    const auto row = p.row(i);
    for (std::size_t k = 0; k < row.size();) {
      std::size_t end = k + 1;
      while (end < row.size() && row[end] == row[end - 1] + 1) ++end;
      text += "M" + std::to_string(row[k]) + " " + std::to_string(i) + "h" + std::to_string(end - k) +
              "v1h-" + std::to_string(end - k) + "z";
      k = end;
    }
  }
  return text + "\"/></svg>\n";
}

#endif

}}  // namespace tessera::TESSERA_ISA
