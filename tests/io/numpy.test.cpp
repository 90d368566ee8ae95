// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
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
  CHECK(stored.tensors().size() == 4);
  for (auto const& [name, tensor] : stored.tensors()) {
    CHECK(std::ranges::equal(tensor.bytes, deflated.at(name).bytes));
    CHECK(tensor.shape == deflated.at(name).shape);
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
  for (auto const& name : {"symmetric.mtx", "integer.mtx"}) {
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
}

}  // namespace numpy_test
