// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <doctest/doctest.h>

#include <tessera/io/matrix_market.hpp>
#include <tessera/io/smtx.hpp>
#include <tessera/tensor/pattern_sources.hpp>

#include "scratch_folder.hpp"

// Matrices as texts: .smtx and Matrix Market.

namespace smtx_test {

using namespace tessera;

TEST_CASE("smtx: a pattern goes out and comes in") {
  const scratch_folder folder;
  put(folder / "a.smtx", "3, 4, 4\n0 2 2 4\n3 0 1 2");  // the columns of a row in any order
  const pattern a = io::read_smtx(folder / "a.smtx");
  CHECK(a == pattern_from_coo(3, 4, std::vector{0, 0, 2, 2}, std::vector{0, 3, 1, 2}));
  for (pattern const& stored : {a, pattern(), pattern::dense(2, 3), random_pattern(50, 70, 0.2, 1)}) {
    io::write_smtx(folder / "b.smtx", stored);
    CHECK(io::read_smtx(folder / "b.smtx") == stored);
  }
}

TEST_CASE("smtx: what is wrong is named with its line") {
  const scratch_folder folder;
  const auto wrong = [&](std::string const& text, std::string const& says) {
    INFO(text);
    put(folder / "a.smtx", text);
    const std::string error = error_of<io_error>([&] { io::read_smtx(folder / "a.smtx"); });
    CHECK(error.find("[read " + (folder / "a.smtx") + "] line ") == 0);
    CHECK_MESSAGE(error.find(says) != std::string::npos, error);
  };
  wrong("", "line 1: the file ends where the number of rows should be");
  wrong("3, 4", "ends where the number of elements");
  wrong("3, 4, x\n", "\"x\" is not the number of elements");
  wrong("-3, 4, 5\n", "the number of rows is -3, which is not from 0 to");
  wrong("1, 4, 2\n0 2\n0 4", "line 3: a column is 4, which is not from 0 to 3");
  wrong("1, 4, 2\n0 2\n0 0", "repeats");
  wrong("2, 4, 2\n0 2 1\n0 1", "below its predecessor");
  wrong("1, 4, 2\n0 2\n0 1 2", "more than the file says");
  wrong("2000000000, 2000000000, 2000000000\n0", "the file ends where the start of a row");
  wrong("2, 322225225, 2\n0 1 2\n0 4", "with only 2 elements");
  wrong("1, 4, 2\n0 2.5\n0 1", "\"2.5\" is not the start of a row");
}

TEST_CASE("matrix market: all forms of real numbers are read") {
  const scratch_folder folder;
  const auto read = [&](std::string const& text) {
    put(folder / "a.mtx", text);
    return io::read_matrix_market<double, block_shape<1>>(folder / "a.mtx");
  };
  const auto a =
      read("%%MatrixMarket matrix coordinate real general\n% a comment\n\n3 4 2\r\n1 2 +1.5e2\n3 4 -2\n");
  CHECK((a.rows() == 3 && a.cols() == 4 && a.size() == 2 && a(0, 1) == 150 && a(2, 3) == -2));
  const auto b = read("%%MATRIXMARKET Matrix Coordinate Pattern Symmetric\n2 2 2\n1 1\n2 1\n");
  CHECK((b.size() == 3 && b(0, 0) == 1 && b(1, 0) == 1 && b(0, 1) == 1));
  const auto c = read("%%MatrixMarket matrix array integer general\n2 2\n1\n2\n3\n4\n");
  CHECK((c(0, 0) == 1 && c(1, 0) == 2 && c(0, 1) == 3 && c(1, 1) == 4));
  const auto d = read("%%MatrixMarket matrix array real skew-symmetric\n3 3\n1\n2\n3\n");
  CHECK((d(1, 0) == 1 && d(2, 0) == 2 && d(2, 1) == 3 && d(0, 1) == -1 && d(1, 2) == -3 && d(1, 1) == 0));
  const auto e =
      read("%%MatrixMarket matrix coordinate real general\n1 3 3\n1 1 1e-400\n1 2 -1e400\n1 3 nan\n");
  CHECK((e(0, 0) == 0 && e(0, 1) < -1e300 && e(0, 2) != e(0, 2)));
}

TEST_CASE("matrix market: numbers come back with their bits, errors with their line") {
  const scratch_folder folder;
  block_sparse_matrix<float, block_shape<4>> w(10, 7, random_pattern(3, 2, 0.5, 1));
  w.generate([](auto i, auto j) { return 1.0f / float(1 + 7 * i + j); });
  io::write_matrix_market(folder / "w.mtx", w);
  const auto again = io::read_matrix_market<float, block_shape<4>>(folder / "w.mtx");
  CHECK(again.pattern() == w.pattern());
  CHECK(std::equal(w.begin(), w.end(), again.begin()));

  const auto wrong = [&](std::string const& text, std::string const& says) {
    INFO(text);
    put(folder / "a.mtx", text);
    const std::string error =
        error_of<io_error>([&] { io::read_matrix_market<float, block_shape<1>>(folder / "a.mtx"); });
    CHECK_MESSAGE(error.find(says) != std::string::npos, error);
  };
  const std::string good = "%%MatrixMarket matrix coordinate real general\n";
  wrong("", "the heading is");
  wrong("%%MatrixMarket matrix coordinate complex general\n1 1 0\n", "the heading is \"%%matrixmarket");
  wrong("%%MatrixMarket matrix array pattern general\n1 1\n", "the heading is");
  wrong(good + "2 2 1\n3 1 1.0\n", "line 3: a row is 3, which is not from 1 to 2");
  wrong(good + "2 2 1\n1 0 1.0\n", "a column is 0");
  wrong(good + "2 2 2\n1 1 1.0\n", "the file ends where a row should be");
  wrong(good + "2 2 1\n1 1 one\n", "line 3: \"one\" is not an element");
  wrong(good + "2 2 2\n1 1 1\n1 1 2\n", "repeats");
  wrong(good + "2 2 1\n1 1 1\n2 2 1\n", "more than the file says");
  wrong(good + "2000000000 2000000000 1\n1 1 1\n", "with only 1 elements");
  wrong("%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n1 1 1\n", "as many rows as columns");
}

}  // namespace smtx_test
