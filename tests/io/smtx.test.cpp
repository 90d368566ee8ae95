// SPDX-License-Identifier: BSD-3-Clause
#include <limits>
#include <string>
#include <utility>

#include <doctest/doctest.h>
#include <support/foreign_locale.hpp>

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
  wrong("1, 4, 2\n0 2\n0 0\n\n", "line 3: [pattern_from_csr] block (0, 0) at position 1 repeats");
  wrong("2, 4, 2\n0 2 1\n0 1", "line 2: the start of a row is 1, which is not from 2 to 2");
  wrong("1, 4, 2\n1 2\n0 1", "line 2: the start of a row is 1, which is not from 0 to 0");
  wrong("1, 4, 2\n0 1\n0 1", "line 2: the rows end at element 1, but the file says 2 elements");
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

// The right values are from scipy.io.mmread 1.17, but for 1.5+100, of which it reads 1.5, and fractions among
// integers and diagonals of skew-symmetric matrices, which it takes.
TEST_CASE("matrix market: headings and numbers are read as SciPy, NIST and Fortran write them") {
  const scratch_folder folder;
  const auto read = [&](std::string const& text) {
    put(folder / "a.mtx", text);
    return io::read_matrix_market<double, block_shape<1>>(folder / "a.mtx");
  };
  const auto number = [&](std::string const& text, std::string const& field = "real") {
    return double(
        read("%%MatrixMarket matrix coordinate " + field + " general\n1 1 1\n1 1 " + text + "\n")(0, 0));
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string zeros(400, '0');
  CHECK(number("0." + zeros + "1") == 0);
  CHECK(number("1" + zeros + "e-400") == 1);
  CHECK(number("1" + zeros + "e-10") == infinity);
  CHECK(number("-1" + zeros) == -infinity);
  CHECK(number("0." + zeros + "1e401") == 1);
  CHECK(number("1e-99999999999999999999") == 0);
  CHECK(number("-1e99999999999999999999") == -infinity);
  CHECK(number("3.0D+00") == 3);
  CHECK(number("-4.5d-1") == -0.45);
  CHECK(number("2.5D2") == 250);
  CHECK(number("1.5+100") == 1.5e100);
  CHECK(number("0.15-120") == 0.15e-120);
  CHECK(number("1.") == 1);
  CHECK(number(".5") == 0.5);
  CHECK(number("-Infinity") == -infinity);
  CHECK(number("18446744073709551615", "unsigned-integer") == 18446744073709551616.0);
  CHECK(number("7.5", "pattern") == 1);
  CHECK(number("-7", "integer") == -7);
  const auto refused = [&](std::string const& text, std::string const& field = "real") {
    const std::string error = error_of<io_error>([&] { number(text, field); });
    CHECK_MESSAGE(error.find("] line 3: \"" + text + "\" is not an ") != std::string::npos, error);
  };
  for (auto const* text : {"0x10", "1.5.5", "1e5+3", "1-1", "D+1", "1.5D", "1.5+"}) refused(text);
  for (auto const* text : {"6.5", "6.0", "1e3", "9223372036854775808"}) refused(text, "integer");
  refused("-1", "unsigned-integer");

  const auto a =
      read("%%MatrixMarket  MATRIX \t  Coordinate    Real General   \n%\n\n   2  2         1\n 2 1 3\n");
  CHECK((a.size() == 1 && a(1, 0) == 3));
  const auto b = read("%MatrixMarket matrix coordinate unsigned-integer symmetric\n2 2 2\n1 1 3\n2 1 4\n");
  CHECK((b.size() == 3 && b(0, 0) == 3 && b(0, 1) == 4 && b(1, 0) == 4));
  const auto c = read("%%MatrixMarket matrix coordinate double hermitian\n2 2 1\n2 1 7.5\n");
  CHECK((c.size() == 2 && c(0, 1) == 7.5 && c(1, 0) == 7.5));
  const auto d = read("%%MatrixMarket matrix array double hermitian\n2 2\n1\n2\n3\n");
  CHECK((d(0, 1) == 2 && d(1, 0) == 2 && d(1, 1) == 3));
}

TEST_CASE("matrix market: elements that are listed several times are added if asked") {
  const scratch_folder folder;
  const std::string text =
      "%%MatrixMarket matrix coordinate real symmetric\n3 3 5\n2 1 0.5\n3 3 1\n1 2 0.25\n2 1 2\n1 1 8\n\n";
  put(folder / "a.mtx", text);
  const auto w = io::read_matrix_market<bfloat16, block_shape<1>>(folder / "a.mtx", duplicates::summed);
  CHECK((w.size() == 4 && w(1, 0) == bfloat16(2.75f) && w(0, 1) == bfloat16(2.75f) &&
         w(2, 2) == bfloat16(1.0f)));
  CHECK(error_of<io_error>([&] { io::read_matrix_market<double, block_shape<1>>(folder / "a.mtx"); }) ==
        "[read " + (folder / "a.mtx") +
            "] line 5: element (1, 2) repeats an earlier one: list each once, or ask for duplicates::summed");
}

TEST_CASE("matrix market: a file of gzip is read, whatever its name, to a limit that can be set") {
  const scratch_folder folder;
  // b"%%MatrixMarket matrix coordinate integer general\n2 3 1\n2 3 7\n" by gzip.compress(…, mtime=0)
  const std::string packed(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x53\x55\xf5\x4d\x2c\x29\xca\xac\xf0\x4d\x2c\xca\x4e\x2d\x51"
      "\xc8\x05\x73\x14\x92\xf3\xf3\x8b\x52\x32\xf3\x12\x4b\x52\x15\x32\xf3\x4a\x52\xd3\x53\x8b\x14\xd2\x53"
      "\xf3\x52\x8b\x12\x73\xb8\x8c\x14\x8c\x15\x0c\xc1\xa4\x39\x17\x00\x5a\x9f\x87\x74\x3d\x00\x00\x00",
      74);
  put(folder / "a.mtx", packed);
  const auto read = [&](io::memory_limit limit = {}) {
    return io::read_matrix_market<double, block_shape<1>>(folder / "a.mtx", duplicates::refused, limit);
  };
  CHECK(read()(1, 2) == 7);
  CHECK(read({61})(1, 2) == 7);
  CHECK(error_of<io_error>([&] { read({60}); }).find("more data than the memory_limit of 60 bytes") !=
        std::string::npos);
  put(folder / "a.mtx", packed + std::string(512, '\0'));  // as tapes have it
  CHECK(read()(1, 2) == 7);
  put(folder / "a.mtx", packed + packed);  // as one text
  CHECK(error_of<io_error>([&] { read(); }).find("there is more than the file says") != std::string::npos);
  for (std::size_t i = 0; i < packed.size(); ++i) {
    std::string changed = packed;
    changed[i] = static_cast<char>(changed[i] ^ 4);
    put(folder / "a.mtx", changed);
    const std::string error = error_of<io_error>([&] { read(); });
    const bool is_date_or_system = i >= 4 && i < 10;
    CHECK_MESSAGE((error == "") == is_date_or_system, i);
    put(folder / "a.mtx", packed.substr(0, i));
    CHECK(error_of<io_error>([&] { read(); }) != "");
  }
  for (auto const& [mark, program] :
       {std::pair("BZh91AY", "bzip2"), {"\xfd\x37zXZ", "xz"}, {"\x28\xb5\x2f\xfd", "zstd"}}) {
    put(folder / "a.mtx", mark);
    CHECK(error_of<io_error>([&] { read(); }).find("compressed by " + std::string(program)) !=
          std::string::npos);
  }
}

TEST_CASE("matrix market: numbers come back with their bits, errors with their line") {
  const scratch_folder folder;
  block_sparse_matrix<float, block_shape<4>> w(10, 7, random_pattern(3, 2, 0.5, 1));
  w.generate([](auto i, auto j) { return 1.0f / float(1 + 7 * i + j); });
  io::write_matrix_market(folder / "w.mtx", w);
  const auto again = io::read_matrix_market<float, block_shape<4>>(folder / "w.mtx");
  CHECK(again.pattern() == w.pattern());
  CHECK(std::equal(w.begin(), w.end(), again.begin()));

  const std::string good = "%%MatrixMarket matrix coordinate real general\n";
  const auto wrong = [&](std::string const& text, std::string const& says) {
    INFO(text);
    put(folder / "a.mtx", text);
    const std::string error =
        error_of<io_error>([&] { io::read_matrix_market<float, block_shape<1>>(folder / "a.mtx"); });
    CHECK_MESSAGE(error.find(says) != std::string::npos, error);
  };
  wrong("", "line 1: the heading is \"\"");
  wrong("%%MatrixMarket matrix coordinate complex general\n1 1 0\n",
        "line 1: the heading is \"%%MatrixMarket matrix coordinate complex general\", but should be");
  wrong("%%MatrixMarket coordinate matrix real general\n1 1 0\n", "the heading is");
  wrong("%%MatrixMarket vector coordinate real general\n1 1 0\n", "the heading is");
  wrong("%%MatrixMarket matrix coordinate real general\v\n1 1 0\n", "general\\x0b\"");
  wrong(std::string(1000, 'x'), "\"" + std::string(100, 'x') + "…\"");
  wrong(good + "1 1 1\n1 1 " + std::string(1000, 'x'),
        "\"" + std::string(100, 'x') + "…\" is not an element");
  wrong("%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 2 1\n",
        "line 3: element (2, 2) is on the diagonal");
  wrong("%%MatrixMarket matrix array pattern general\n1 1\n", "the heading is");
  wrong(good + "2 2 1\n3 1 1.0\n", "line 3: a row is 3, which is not from 1 to 2");
  wrong(good + "2 2 1\n1 0 1.0\n", "a column is 0");
  wrong(good + "2 2 2\n1 1 1.0\n", "the file ends where a row should be");
  wrong(good + "2 2 1\n1 1 one\n", "line 3: \"one\" is not an element");
  wrong(good + "2 2 2\n1 1 1\n1 1 2\n", "line 4: element (1, 1) repeats");
  wrong(good + "2 2 1\n1 1 1\n2 2 1\n", "more than the file says");
  wrong(good + "2000000000 2000000000 1\n1 1 1\n", "with only 1 elements");
  wrong("%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n1 1 1\n", "as many rows as columns");
}

TEST_CASE(
    "Matrix Market: a heading in capitals is read where I becomes another letter, and numbers have a point") {
  const scratch_folder folder;
  put(folder / "a.mtx", "%%MatrixMarket MATRIX COORDINATE INTEGER SYMMETRIC\n2 2 2\n1 1 3\n2 1 4\n");
  for (auto const name : {"tr_TR", "de_DE"}) {
    const support::foreign_locale foreign(name);
    if (!foreign) return;
    const auto a = io::read_matrix_market<float, block_shape<1>>(folder / "a.mtx");
    CHECK(a(0, 1) == 4);
    block_sparse_matrix<float, block_shape<1>> half(1, 1, pattern::dense(1, 1));
    half.fill(0.5f);
    io::write_matrix_market(folder / "b.mtx", half);
    CHECK(io::read_matrix_market<float, block_shape<1>>(folder / "b.mtx")(0, 0) == 0.5f);
  }
}

}  // namespace smtx_test
