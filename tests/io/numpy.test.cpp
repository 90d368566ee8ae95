// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/io/matrix_market.hpp>
#include <tessera/io/numpy.hpp>
#include <tessera/io/scipy.hpp>
#include <tessera/tensor/pattern_sources.hpp>

#include "scratch_folder.hpp"

// Files of NumPy and SciPy in both directions: with them where Python has them, and alone.

namespace numpy_test {

using namespace tessera;

constexpr int rows = 24, cols = 32;
const std::vector<int> at_row{3, 3, 20, 23, 7}, at_col{0, 31, 17, 30, 9};
const std::vector<float> values{1.5f, -2, 3.25f, 1e-30f, 4};

template <class Block> block_sparse_matrix<float, Block> sample() {
  return matrix_from_coo<float, Block>(rows, cols, at_row, at_col, values);
}
template <class Block> int different(block_sparse_matrix<float, Block> const& w) {
  std::vector<float> dense(std::size_t(rows * cols));
  for (std::size_t p = 0; p < values.size(); ++p)
    dense[std::size_t(at_row[p] * cols + at_col[p])] = values[p];
  int count = w.rows() != rows || w.cols() != cols;
  for (int i = 0; count == 0 && i < rows; ++i)
    for (int j = 0; j < cols; ++j) count += w(i, j) != dense[std::size_t(i * cols + j)];
  return count;
}

bool python(std::string const& arguments) { return std::system(("python3 " + arguments).c_str()) == 0; }
std::string script() { return std::string(TESSERA_SOURCE_DIR) + "/tests/io/numpy_files.py "; }

template <class T> void write_numbers(std::string const& path) {
  std::vector<T> numbers;
  for (int i = 0; i < 60; ++i) numbers.push_back(static_cast<T>(float(i)));
  io::write_npy(path, io::make_safetensor("", {6, 10}, std::span<T const>(numbers)));
}

TEST_CASE("numpy: what NumPy and SciPy write is read, and what is written they read") {
  if (!python("-c 'import numpy, scipy' 2>/dev/null")) {
    MESSAGE("skipped: python3 has no NumPy and SciPy");
    return;
  }
  const scratch_folder folder;
  REQUIRE(python(script() + "write " + (folder / "")));
  for (auto const& name : {"f4", "f8", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "columns"}) {
    INFO(name);
    const auto numbers = io::read_numbers<int>(io::numpy_file(folder / (std::string(name) + ".npy")), "");
    REQUIRE(numbers.size() == 60);
    CHECK(std::is_sorted(numbers.begin(), numbers.end()));
    CHECK(numbers.back() == 59);
    panel_matrix<float> x(10, 6);
    io::read(io::numpy_file(folder / (std::string(name) + ".npy")), "", x);
    CHECK(x(3, 4) == 43);
  }
  const auto cube = io::read_numbers<int>(io::numpy_file(folder / "cube.npy"), "");
  CHECK(cube.size() == 24);
  CHECK(std::is_sorted(cube.begin(), cube.end()));
  CHECK(io::read_numbers<float>(io::numpy_file(folder / "scalar.npy"), "") == std::vector{7.0f});
  CHECK(io::numpy_file(folder / "empty.npy").at("").shape == std::vector<std::int64_t>{0, 5});
  CHECK(error_of<io_error>([&] { io::numpy_file(folder / "big_endian.npy"); }).find("big-endian") !=
        std::string::npos);
  CHECK(error_of<io_error>([&] {
          io::read_numbers<float>(io::numpy_file(folder / "text.npy"), "");
        }).find("numbers of this dtype are not read") != std::string::npos);
  CHECK(error_of<io_error>([&] { io::numpy_file(folder / "record.npy"); }) != "");

  const io::numpy_file stored(folder / "stored.npz"), deflated(folder / "deflated.npz");
  CHECK(stored.names() == std::vector<std::string>{"bytes", "noise", "numbers", "zeros"});
  for (std::string const& name : stored.names()) {
    CHECK(std::ranges::equal(stored.at(name).bytes, deflated.at(name).bytes));
    CHECK(stored.at(name).shape == deflated.at(name).shape);
  }

  for (auto const& name : {"csr", "csc", "coo", "bsr", "bsr8"}) {
    INFO(name);
    const std::string path = folder / (std::string(name) + ".npz");
    CHECK(different(io::read_scipy<float, block_shape<4>>(path)) == 0);
    CHECK(different(io::read_scipy<float, block_shape<1>>(path)) == 0);
    CHECK(different(io::read_scipy<float, block_shape<8, 5>>(path)) == 0);
  }
  CHECK(io::read_scipy<float, block_shape<1>>(folder / "csr.npz").size() == 5);
  CHECK(io::read_scipy<float, block_shape<4>>(folder / "bsr8.npz").pattern().blocks() == 4 * 5);
  CHECK(error_of<io_error>([&] {
          io::read_scipy<float, block_shape<1>>(folder / "dia.npz");
        }).find("bsr, csr, csc and coo are read") != std::string::npos);

  CHECK(different(io::read_matrix_market<float, block_shape<4>>(folder / "coordinate.mtx")) == 0);
  CHECK(different(io::read_matrix_market<float, block_shape<1>>(folder / "array.mtx")) == 0);
  const auto natural = io::read_matrix_market<double, block_shape<1>>(folder / "unsigned.mtx");
  CHECK((natural(0, 1) == 2 && natural(1, 0) == 2 && natural(2, 2) == 3 && natural.size() == 6));
  const io::numpy_file mixed(folder / "mixed.npz");
  CHECK(mixed.names() == std::vector<std::string>{"big", "complex", "numbers", "objects", "record"});
  CHECK(io::read_numbers<float>(mixed, "numbers").back() == 59);
  for (std::string const name : {"big", "complex", "objects", "record"})
    CHECK(error_of<io_error>([&] { io::read_numbers<float>(mixed, name); }).find("\"" + name + "\"") !=
          std::string::npos);
  for (auto const& name : {"symmetric.mtx", "integer.mtx", "packed.mtx.gz"}) {
    const auto w = io::read_matrix_market<double, block_shape<1>>(folder / name);
    CHECK((w(0, 1) == 2 && w(1, 0) == 2 && w(2, 1) == 5 && w(1, 2) == 5 && w(2, 2) == -3 && w.size() == 6));
  }

  write_numbers<float>(folder / "our_f4.npy"), write_numbers<double>(folder / "our_f8.npy");
  write_numbers<float16>(folder / "our_f2.npy"), write_numbers<bfloat16>(folder / "our_bfloat16.npy");
  write_numbers<std::int64_t>(folder / "our_i8.npy"), write_numbers<std::int32_t>(folder / "our_i4.npy");
  write_numbers<std::int16_t>(folder / "our_i2.npy"), write_numbers<std::int8_t>(folder / "our_i1.npy");
  write_numbers<std::uint32_t>(folder / "our_u4.npy"), write_numbers<std::uint16_t>(folder / "our_u2.npy");
  write_numbers<std::uint8_t>(folder / "our_u1.npy");
  std::vector<float> numbers(60);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = float(i);
  io::write_npz(folder / "our.npz",
                std::vector{io::make_safetensor("x", {6, 10}, std::span<float const>(numbers)),
                            io::make_safetensor("v", {10}, std::span<float const>(numbers).first(10))});
  io::write_npy(folder / "our_matrix.npy", sample<block_shape<4>>());
  panel_matrix<float> tokens(cols, rows);
  io::read(io::numpy_file(folder / "our_matrix.npy"), "", tokens);
  io::write_npy(folder / "our_tokens.npy", tokens);
  io::write_scipy(folder / "our_bsr.npz", sample<block_shape<4>>());
  io::write_scipy(folder / "our_csr.npz", sample<block_shape<1>>());
  io::write_scipy(folder / "our_overhang.npz", sample<block_shape<5>>());
  io::write_matrix_market(folder / "our.mtx", sample<block_shape<5>>());
  CHECK(python(script() + "check " + (folder / "")));
}

TEST_CASE("numpy: a file that is written is read again, with the same numbers") {
  const scratch_folder folder;
  const auto w = sample<block_shape<5>>();
  io::write_scipy(folder / "w.npz", w);
  CHECK(different(io::read_scipy<float, block_shape<5>>(folder / "w.npz")) == 0);
  io::write_scipy(folder / "b.npz", sample<block_shape<4>>());
  CHECK(io::read_scipy<float, block_shape<4>>(folder / "b.npz").pattern() ==
        sample<block_shape<4>>().pattern());
  io::write_npy(folder / "w.npy", w);
  auto again = w;
  again.fill(9);
  io::read(io::numpy_file(folder / "w.npy"), "", again);
  CHECK(different(again) == 0);
  feature_vector<bfloat16> v(5), u(5);
  for (int i = 0; i < 5; ++i) v[i] = bfloat16(float(i) + 0.5f);
  io::write_npy(folder / "v.npy", v);
  io::read(io::numpy_file(folder / "v.npy"), "", u);
  CHECK(std::equal(u.begin(), u.end(), v.begin()));
  CHECK(error_of<io_error>([&] {
          io::read(io::numpy_file(folder / "w.npy"), "x", again);
        }).find("no array \"x\", but \"\"") != std::string::npos);
  CHECK(error_of<io_error>([&] {
          io::read(io::numpy_file(folder / "v.npy"), "", again);
        }).find("F32 (5) but should be F32 (24, 32)") != std::string::npos);
}

TEST_CASE("numpy: a damaged file is refused, whatever bit of it is changed and wherever it is cut") {
  const scratch_folder folder;
  io::write_scipy(folder / "w.npz", sample<block_shape<4>>());
  const std::string whole = io::read_file(folder / "w.npz");
  const auto reads = [&](std::string const& bytes) {
    put(folder / "damaged", bytes);
    return error_of<io_error>([&] { io::read_scipy<float, block_shape<4>>(folder / "damaged"); });
  };
  CHECK(reads(whole) == "");
  for (std::size_t length = 0; length < whole.size(); length += 7)
    CHECK(reads(whole.substr(0, length)) != "");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    static_cast<void>(reads(changed));  // of names, dates and spare fields some may change
  }
  const std::size_t data = whole.find("data.npy") + 200;
  std::string changed = whole;
  changed[data] = static_cast<char>(changed[data] ^ 1);
  CHECK(reads(changed).find("checksum differs") != std::string::npos);
}

/// A file of NumPy with this description, order and shape, as they stand in a header of version 1.
std::string npy(std::string const& header, std::string const& numbers) {
  std::string text = header + "\n";
  const char length[] = {char(text.size() & 0xff), char(text.size() >> 8)};
  return std::string("\x93NUMPY\1\0", 8) + std::string(length, 2) + text + numbers;
}
template <class T> std::string bytes_of(std::vector<T> const& numbers) {
  return {reinterpret_cast<char const*>(numbers.data()), numbers.size() * sizeof(T)};
}
void put_zip(std::string const& path, std::vector<std::pair<std::string, std::string>> const& members) {
  std::vector<io::zip_content> contents;
  for (auto const& [name, bytes] : members)
    contents.push_back({name, {std::as_bytes(std::span(bytes.data(), bytes.size()))}});
  io::write_zip(path, contents);
}

// numpy.load of NumPy 2.4 reads the same bytes so.
TEST_CASE("numpy: headers are read as Python reads them, of Python 2, of Windows and of cnpy") {
  const scratch_folder folder;
  const std::string three = bytes_of(std::vector{0.0f, 1.0f, 2.0f}), order = ", 'fortran_order': False, ";
  const auto read = [&](std::string const& header, std::string const& numbers) {
    put(folder / "a.npy", npy(header, numbers));
    return io::read_numbers<double>(io::numpy_file(folder / "a.npy"), "");
  };
  const std::vector<double> right{0, 1, 2};
  CHECK(read("{'descr': '<f4'" + order + "'shape': (3L,), }", three) == right);
  CHECK(read("{'descr': '<f4'" + order + "'shape': (3L,)}", three) == right);
  CHECK(read("{u'shape': (1L, 3L), u'descr': u'<f4', u'fortran_order': False, }", three) == right);
  CHECK(read("{'descr': '<f4'" + order + "'shape': (3,), }   ", three) == right);  // cnpy's
  CHECK(read("{'descr': '<b1'" + order + "'shape': (3,), }", {"\0\1\0", 3}) == std::vector<double>{0, 1, 0});
  CHECK(read("{'descr': '<u1'" + order + "'shape': (3,), }", "\3\2\1") == std::vector<double>{3, 2, 1});
  CHECK(read("{'descr': '>i1'" + order + "'shape': (1,), }", "\xff") == std::vector<double>{-1});
  CHECK(read("{'descr': '=f4'" + order + "'shape': (3,), }", three) == right);
  CHECK(read("{'descr': 'f4',\t'fortran_order': False,\r\n'shape': (3,), }", three) == right);
  CHECK(read("{'shape': (7, 7), 'descr': '<f8'" + order + "'shape': (3,), 'descr': '<f4', }", three) ==
        right);

  const auto wrong = [&](std::string const& header, std::string const& says) {
    INFO(header.substr(0, 200));
    const std::string error = error_of<io_error>([&] { read(header, three); });
    CHECK_MESSAGE(error.find(says) != std::string::npos, error);
    CHECK(error.size() < 400);
  };
  wrong("{'descr': '<f4'" + order + "'shape': (3,), } x", "goes on behind its '}': \"x\\x0a\"");
  wrong("{'descr': '<f4'" + order + "}", "does not have the keys");
  wrong("{'descr': '<f4'" + order + "'shape': (3,), 'x': 1}", "unknown key \"x\"");
  wrong("{'descr': '<f4'" + order + "'shape': (3.0,), }", "lacks a ')'");
  wrong("{'descr': '<f4'" + order + "'shape': (-3,), }", "not one of whole numbers");
  wrong("{'descr': '<f4'" + order + "'shape': (99999999999999999999,), }", "not one of whole numbers");
  wrong("{'descr': '>f4'" + order + "'shape': (3,), }", "big-endian");
  wrong("{'descr': [('a', '<f4'), ('b)', '<i4', (2,))]" + order + "'shape': (1,), }",
        "a structured array, of \"[('a', '<f4'), ('b)', '<i4', (2,))]\"");
  wrong("{'descr': [('a', '<f4')", "does not end");
  wrong("{'descr': [('a" + order, "does not end");
  wrong("{'descr': '<f4'" + order + "'shape': (4611686018427387904, 4611686018427387904), }",
        "but 12 bytes follow");
  std::string long_shape = "1";
  for (int i = 0; i < 10000; ++i) long_shape += ",1";
  wrong("{'descr': '<f4'" + order + "'shape': (" + long_shape + "), }", "has more than 64 extents");
  CHECK(read("{'descr': '|u1', 'fortran_order': True, 'shape': (4611686018427387904, 2, 0), }", "").empty());
  wrong("{'descr': '" + std::string(10000, 'x') + "'" + order + "'shape': (3,), }",
        "xxx…\": numbers of this dtype");
  put(folder / "a.npy", npy("{'descr': '\x1b[2J'" + order + "'shape': (3,), }", three));
  panel_matrix<float> x(3, 1);
  CHECK(error_of<io_error>([&] {
          io::read(io::numpy_file(folder / "a.npy"), "", x);
        }).ends_with("tensor \"\" is \"|\\x1b[2J\": numbers of this dtype are not read"));
}

TEST_CASE("numpy: an array that cannot be read spoils no other one, and says why when it is asked for") {
  const scratch_folder folder;
  const std::string order = ", 'fortran_order': False, 'shape': ", two = bytes_of(std::vector{1.0f, 2.0f});
  put_zip(folder / "a.npz",
          {{"meta.npy", npy("{'descr': [('epoch', '<i4'), ('loss', '<f4')]" + order + "(1,), }", two)},
           {"big.npy", npy("{'descr': '>f4'" + order + "(2,), }", two)},
           {"cut.npy", npy("{'descr': '<f4'" + order + "(3,), }", two)},
           {"objects.npy", npy("{'descr': '|O'" + order + "(2,), }", "pickle")},
           {"text.txt", "text"},
           {"folder/", ""},
           {"w", npy("{'descr': '<f4'" + order + "(2, 1), }", two)},
           {"w.npy", npy("{'descr': '<f4'" + order + "(1, 2), }", two)},
           {"v.npy", npy("{'descr': '<f4'" + order + "(2,), }", "12345678")},
           {"v.npy", npy("{'descr': '<f4'" + order + "(2,), }", two)}});
  const io::numpy_file file(folder / "a.npz");
  CHECK(file.names() ==
        std::vector<std::string>{"big", "cut", "folder/", "meta", "objects", "text.txt", "v", "w"});
  const auto wrong = [&](std::string const& name, std::string const& says) {
    INFO(name);
    CHECK(file.contains(name));
    const std::string error = error_of<io_error>([&] { io::read_numbers<float>(file, name); });
    CHECK_MESSAGE(error.find("array \"" + name + "\": " + says) != std::string::npos, error);
  };
  wrong("meta", "a structured array, of \"[('epoch', '<i4'), ('loss', '<f4')]\"");
  wrong("big", "its numbers are big-endian");
  wrong("cut", "is F32 (3), but 8 bytes follow");
  wrong("text.txt", "not an array of NumPy");
  wrong("folder/", "not an array of NumPy");
  CHECK(error_of<io_error>([&] {
          io::read_numbers<float>(file, "objects");
        }).find("this dtype are not read") != std::string::npos);
  CHECK(error_of<io_error>([&] { file.at("none"); }).find("no array \"none\", but \"big\", ") !=
        std::string::npos);
  const std::vector<float> right{1, 2};
  CHECK(io::read_numbers<float>(file, "v") == right);  // the last of one name, as for Python's zipfile
  CHECK(io::read_numbers<float>(file, "v.npy") == right);
  CHECK(file.at("w").shape == std::vector<std::int64_t>{2, 1});  // NumPy, too, looks for "w" first
  CHECK(file.at("w.npy").shape == std::vector<std::int64_t>{1, 2});
  CHECK(&file.at("v") == &file.at("v.npy"));
  CHECK_FALSE(file.contains("text"));
  CHECK_FALSE(file.contains("v.npy.npy"));
}

TEST_CASE("numpy: of an array without numbers an error says what it holds") {
  const scratch_folder folder;
  panel_matrix<float> x(3, 1);
  for (auto const& [descr, what] : {std::pair("<U5", "\"<U5\", texts of 5 characters"),
                                    {">U5", "\">U5\", texts of 5 characters"},
                                    {"|S3", "\"|S3\", texts of 3 bytes"},
                                    {"S3", "\"|S3\", texts of 3 bytes"},
                                    {"|O", "\"|O\", Python objects"},
                                    {"<M8[D]", "\"<M8[D]\", dates"},
                                    {"<c16", "\"<c16\", complex numbers"}}) {
    put(folder / "a.npy",
        npy(std::string("{'descr': '") + descr + "', 'fortran_order': False, 'shape': (3,), }", ""));
    const io::numpy_file file(folder / "a.npy");
    const std::string says = std::string("tensor \"\" is ") + what + ": numbers of this dtype are not read";
    CHECK(error_of<io_error>([&] { io::read(file, "", x); }).ends_with(says));
    CHECK(error_of<io_error>([&] { io::read_numbers<float>(file, ""); }).ends_with(says));
  }
}

TEST_CASE("numpy: names and shapes that a file cannot hold are refused before anything is written") {
  const scratch_folder folder;
  const float one = 1;
  const auto write = [&](std::string const& name, std::size_t extents) {
    io::write_npz(folder / "a.npz",
                  std::vector{io::make_safetensor(name, std::vector<std::int64_t>(extents, 1),
                                                  std::span<float const>(&one, 1))});
  };
  write(std::string(65531, 'x'), 64);  // ".npy" is behind it
  const io::numpy_file file(folder / "a.npz");
  CHECK(file.at(std::string(65531, 'x')).shape.size() == 64);
  CHECK(error_of<io_error>([&] { write(std::string(65532, 'x'), 1); }).find("a name of 65536 bytes") !=
        std::string::npos);
  CHECK(error_of<shape_error>([&] { write("x", 65); }).find("has 65 extents") != std::string::npos);
  CHECK(file.names() == io::numpy_file(folder / "a.npz").names());
}

TEST_CASE("numpy: an array is unpacked when it is asked for, to a limit that can be set") {
  const scratch_folder folder;
  const std::string text =
      npy("{'descr': '|u1', 'fortran_order': False, 'shape': (30,), }", std::string(30, '\7'));
  put_zip(folder / "stored.npz", {{"x.npy", text}, {"damaged.npy", text}});
  // The archive deflated: the content of the members is made a stored block of DEFLATE.
  const auto size = char(text.size()), flipped = char(~text.size());
  const std::string block = std::string{1, size, 0, flipped, char(0xff)} + text;
  put_zip(folder / "deflated.npz", {{"x.npy", block}, {"damaged.npy", block}});
  std::string deflated = io::read_file(folder / "deflated.npz");
  const std::uint32_t crc = io::detail::crc32(std::as_bytes(std::span(text.data(), text.size())));
  for (std::size_t at = 0; (at = deflated.find("PK\1\2", at)) != deflated.npos; at += 4) {
    deflated[at + 10] = 8;
    std::memcpy(deflated.data() + at + 16, &crc, 4);
    const std::uint32_t unpacked = std::uint32_t(text.size());
    std::memcpy(deflated.data() + at + 24, &unpacked, 4);
  }
  const std::size_t numbers = deflated.rfind(std::string(30, '\7'));  // of the second member
  deflated[numbers] = 6;
  // An extra field of 64 bits counts only where 32 bits are not enough: the packed size and the place follow.
  for (std::size_t at = 0; (at = deflated.find("PK\1\2", at)) != deflated.npos; at += 4) {
    const auto name = static_cast<unsigned char>(deflated[at + 28]);
    std::string& d = deflated;
    d.replace(at + 46 + name + 4, 16, d.substr(at + 46 + name + 12, 16));
  }
  put(folder / "deflated.npz", deflated);
  const io::numpy_file whole(folder / "deflated.npz", io::memory_limit{text.size()});
  CHECK(io::read_numbers<int>(whole, "x") == std::vector<int>(30, 7));
  CHECK(error_of<io_error>([&] { whole.at("damaged"); }).find("member \"damaged.npy\"] some of its bytes") !=
        std::string::npos);
  const io::numpy_file limited(folder / "deflated.npz", io::memory_limit{text.size() - 1});
  CHECK(error_of<io_error>([&] { limited.at("x"); }).find("but the memory_limit is ") != std::string::npos);
  CHECK(io::read_numbers<int>(io::numpy_file(folder / "stored.npz", io::memory_limit{0}), "x").size() == 30);
}

// The right values are from scipy.sparse.load_npz 1.17.
TEST_CASE("scipy: spare room, coordinates in one array and duplicates are read as load_npz reads them") {
  const scratch_folder folder;
  using strings = std::vector<std::pair<std::string, std::string>>;
  const auto array = [](std::string const& name, std::string const& descr, std::string const& shape,
                        std::string const& numbers) {
    return std::pair(
        name + ".npy",
        npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }", numbers));
  };
  const auto read = [&](strings const& members, duplicates repeated = duplicates::refused) {
    put_zip(folder / "a.npz", members);
    return io::read_scipy<float, block_shape<1>>(folder / "a.npz", repeated);
  };
  using ints = std::vector<std::int32_t>;
  const auto shape = array("shape", "<i8", "(2,)", bytes_of(std::vector<std::int64_t>{2, 3}));
  const auto three = array("data", "<f8", "(3,)", bytes_of(std::vector<double>{1, 2, 4}));
  const auto is = [](auto const& w, std::vector<float> const& right) {
    for (int p = 0; p < 6; ++p) CHECK(float(w(p / 3, p % 3)) == right[std::size_t(p)]);
  };
  const auto starts = array("indptr", "<i4", "(3,)", bytes_of(ints{0, 1, 2}));
  is(read({array("format", "|S3", "()", "csr"), shape, three, starts,
           array("indices", "<i4", "(3,)", bytes_of(ints{2, 0, 99}))}),
     {0, 0, 1, 2, 0, 0});
  is(read({array("format", "<U3", "()", {"c\0\0\0s\0\0\0r\0\0\0", 12}), shape, three, starts,
           array("indices", "<i8", "(3,)", bytes_of(std::vector<std::int64_t>{2, 0, 99}))}),
     {0, 0, 1, 2, 0, 0});
  const auto coo = array("format", "|S3", "()", "coo");
  is(read({coo, shape, three, array("coords", "<i4", "(2, 3)", bytes_of(ints{0, 1, 1, 1, 0, 2})),
           array("_is_array", "|b1", "()", "\1")}),
     {0, 1, 0, 2, 0, 4});
  const strings twice{coo, shape, three, array("coords", "<i4", "(2, 3)", bytes_of(ints{0, 1, 0, 1, 0, 1}))};
  is(read(twice, duplicates::summed), {0, 5, 0, 2, 0, 0});
  const strings csr_twice{array("format", "|S3", "()", "csr"), shape, three,
                          array("indptr", "<i4", "(3,)", bytes_of(ints{0, 2, 3})),
                          array("indices", "<i4", "(3,)", bytes_of(ints{1, 1, 0}))};
  is(read(csr_twice, duplicates::summed), {0, 3, 0, 4, 0, 0});
  for (strings const& members : {twice, csr_twice})
    CHECK(error_of<io_error>([&] { read(members); }).find("ask for duplicates::summed") != std::string::npos);
  is(read({array("format", "|S3", "()", "bsr"), shape, starts,
           array("indices", "<i4", "(3,)", bytes_of(ints{2, 0, 7})),
           array("data", "<f8", "(3, 1, 1)", bytes_of(std::vector<double>{1, 2, 4}))}),
     {0, 0, 1, 2, 0, 0});
  const auto wrong = [&](strings const& members, std::string const& says) {
    const std::string error = error_of<io_error>([&] { read(members); });
    CHECK_MESSAGE(error.find(says) != std::string::npos, error);
  };
  wrong({coo, shape, three, array("coords", "<i4", "(3, 2)", bytes_of(ints{0, 1, 1, 1, 0, 2}))},
        "not (2, elements)");
  wrong({coo, shape, three}, "no array \"row\"");
  wrong({array("format", "|S3", "()", "csr"), shape, three, starts,
         array("indices", "<i4", "(4,)", bytes_of(ints{2, 0, 1, 1}))},
        "3 values for 4 indices: there must be 4");
  // Blocks that the index claims, and the data do not have: 2^44 numbers, which nobody may make room for.
  const std::int64_t side = 1 << 22;
  wrong({array("format", "|S3", "()", "bsr"),
         array("shape", "<i8", "(2,)", bytes_of(std::vector<std::int64_t>{side, side})),
         array("data", "<f8", "(0, 4194304, 4194304)", ""),
         array("indptr", "<i4", "(2,)", bytes_of(ints{0, 1})),
         array("indices", "<i4", "(1,)", bytes_of(ints{0}))},
        "0 values for 1 indices: there must be 17592186044416");
  wrong({array("format", "|S3", "()", "dia"), shape, three},
        "in the format \"dia\": bsr, csr, csc and coo are read");
}

TEST_CASE("inflate: damaged data end in an error") {
  // "abc" 40 times, by zlib.compressobj(wbits=-15).
  const std::vector<unsigned char> good{0x4b, 0x4c, 0x4a, 0x4e, 0x1c, 0x08, 0x04, 0x00};
  const auto unpack = [](std::vector<unsigned char> const& bytes, std::uint64_t size) {
    return io::inflate(std::as_bytes(std::span(bytes)), size, "here");
  };
  const auto all = unpack(good, 120);
  int wrong = 0;
  for (std::size_t i = 0; i < 120; ++i) wrong += all[i] != std::byte("abc"[i % 3]);
  CHECK(wrong == 0);
  CHECK(error_of<io_error>([&] { unpack(good, 121); }).find("[here] less data") == 0);
  CHECK(error_of<io_error>([&] { unpack(good, 119); }).find("[here] more data") == 0);
  CHECK(error_of<io_error>([&] { unpack({0x4b, 0x4c, 0x4a}, 120); }) != "");
  CHECK(error_of<io_error>([&] { unpack({}, 0); }).find("end early") != std::string::npos);
  CHECK(error_of<io_error>([&] { unpack({0x07}, 5); }).find("unknown kind") != std::string::npos);
  CHECK(error_of<io_error>([&] { unpack({0x01, 5, 0, 0, 0}, 5); }).find("length is damaged") !=
        std::string::npos);
  CHECK(error_of<io_error>([&] { unpack(good, std::uint64_t(1) << 50); }).find("less data") !=
        std::string::npos);
  CHECK(error_of<io_error>([&] {
          io::inflate(std::as_bytes(std::span(good)), 120, "here", io::memory_limit{119});
        }) == "[here] 8 bytes become 120, but the memory_limit is 119");
}

}  // namespace numpy_test
