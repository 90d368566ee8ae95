// SPDX-License-Identifier: BSD-3-Clause
#include <sstream>
#include <string>

#include <doctest/doctest.h>
#include <support/foreign_locale.hpp>

#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/panel_slice.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/tensor/sequences.hpp>
#include <tessera/tensor/text.hpp>
#include <tessera/tensor/token_rows.hpp>
#include <tessera/tensor/vectors.hpp>

namespace text_test {

using namespace tessera;

template <class T> std::string printed_text(T const& of) {
  std::ostringstream out;
  out << of;
  return out.str();
}

TEST_CASE("text: tensors are printed with their size and first numbers") {
  block_sparse_matrix<float, block_shape<2>> w(3, 4, band_pattern(2, 2, 0, 0));
  w.generate([](auto i, auto j) { return float(i) + float(j) / 4; });
  CHECK(printed_text(w) ==
        "matrix of F32, 3 x 4 in blocks of 2 x 2, 2 of 4 stored\n"
        "         0      0.25         .         .\n"
        "         1      1.25         .         .\n"
        "         .         .       2.5      2.75\n");
  panel_matrix<bfloat16> x(2, 100);
  x(1, 2) = bfloat16(-3);
  CHECK(printed_text(x) ==
        "activation of BF16, 2 features x 100 tokens\n"
        "         0         0         0         0         0         0         0         0  …\n"
        "         0         0        -3         0         0         0         0         0  …\n");
  CHECK(printed_text(slice_tokens(x, 0, 3)).find("2 features x 3 tokens\n") != std::string::npos);
  CHECK(printed_text(feature_vector<double>{1, 2}) == "vector of F64, 2 features\n         1         2\n");
  CHECK(printed_text(token_vector<float>()) == "vector of F32, 0 tokens\n");
  const float rows[] = {1, 2, 3};
  CHECK(printed_text(token_rows<float const>(rows, 1, 3)) ==
        "activation of F32, 3 features x 1 tokens\n         1\n         2\n         3\n");
  std::ostringstream element;
  element << w(0, 1) << ' ' << x(1, 2);
  CHECK(element.str() == "0.25 -3");
}

TEST_CASE("text: a pattern is drawn, a large one in shades") {
  CHECK(printed_text(band_pattern(3, 4, 0, 1)) ==
        "pattern, 6 of 3 x 4 blocks\n"
        "##  \n"
        " ## \n"
        "  ##\n");
  const std::string large = printed_text(block_diagonal_pattern(128, 128, 2));
  CHECK(large.substr(0, 55) == "pattern, 8192 of 128 x 128 blocks, 2 x 2 a character\n##");
  CHECK(large.find(std::string(32, '#') + std::string(32, ' ') + "\n") != std::string::npos);
  CHECK(printed_text(random_pattern(640, 640, 0.3, 1)).find('#') == std::string::npos);
  CHECK(printed_text(pattern()) == "pattern, 0 of 0 x 0 blocks\n");
}

TEST_CASE("text: sequences are listed") {
  CHECK(printed_text(sequences({0, 3, 8}, {3, 2})) == "2 sequences, 8 tokens: 3 5 (2 keys)\n");
  CHECK(printed_text(sequences::of_equal_length(20, 2)).ends_with(" 2 …\n"));
}

TEST_CASE("text: the picture of a pattern has a rectangle for each run of blocks") {
  const std::string picture = to_svg(band_pattern(2, 3, 0, 1), 300);
  CHECK(picture.find("width=\"300\" height=\"200\" viewBox=\"0 0 3 2\"") != std::string::npos);
  CHECK(picture.find("d=\"M0 0h2v1h-2zM1 1h2v1h-2z\"") != std::string::npos);
  CHECK(picture.ends_with("</svg>\n"));
  CHECK(to_svg(pattern()).ends_with("</svg>\n"));
}

TEST_CASE("text: numbers have a point in every locale") {
  const support::foreign_locale german("de_DE");
  if (!german) return;
  CHECK(message(0.25, " ", -1e-30) == "0.25 -1e-30");
  CHECK(printed_text(feature_vector<double>{0.25, 1234567}) ==
        "vector of F64, 2 features\n      0.25 1.235e+06\n");
  CHECK(to_svg(band_pattern(3, 7, 0, 0), 100).find("height=\"42.8571\"") != std::string::npos);
}

}  // namespace text_test
