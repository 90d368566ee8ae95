// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <tessera/io/scipy.hpp>

#include "memory_file.hpp"

using namespace tessera;

/// Whether a matrix holds the values that another one stores: most blocks of both are absent.
template <class Matrix, class Stored> bool holds(Matrix const& all, Stored const& some) {
  using block = typename Stored::block;
  bool same = true;
  some.pattern().for_each([&](int row, int col, std::int64_t slot) {
    for (int k = 0; k < block::elements; ++k) {
      const std::int64_t i = row * block::rows + k / block::cols, j = col * block::cols + k % block::cols;
      if (i < all.rows() && j < all.cols()) same &= all(i, j) == some.at_slot(slot)[std::size_t(k)];
    }
  });
  return same;
}

// The arrays of a sparse matrix, for which the archive around them is made: a fuzzer guesses no checksums. In
// turn a byte, whose bits are the format, the shape of the data, whether coordinates stand in one array and
// whether elements may be repeated, and indices.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  if (size < 8) return 0;
  static const char* const formats[] = {"csr", "csc", "coo", "bsr"};
  const std::string format = formats[bytes[0] & 3];
  const std::int64_t height = 1 + (bytes[0] >> 2 & 3), width = 1 + (bytes[0] >> 4 & 3);
  const std::int64_t shape[2] = {static_cast<std::int8_t>(bytes[1]), static_cast<std::int8_t>(bytes[2])};
  const std::size_t starts = std::min<std::size_t>(bytes[3], size - 8);
  std::vector<std::int32_t> first, second;
  for (std::size_t i = 8; i < size; ++i)
    (i - 8 < starts ? first : second).push_back(static_cast<std::int8_t>(bytes[i]));
  const std::int64_t count = std::int64_t(second.size());
  const std::vector<float> data(second.size() * std::size_t(format == "bsr" ? height * width : 1), 1.0f);
  const std::vector<std::int64_t> data_shape =
      format == "bsr" ? std::vector<std::int64_t>{count, height, width} : std::vector{count};
  const bool coo = format == "coo", together = coo && (bytes[0] & 0x40) != 0;
  const std::span<std::int32_t const> a(first), b(second);
  std::vector<std::int32_t> both(first);
  both.insert(both.end(), second.begin(), second.end());
  std::vector arrays{io::make_safetensor("data", data_shape, std::span<float const>(data)),
                     io::make_safetensor("shape", {2}, std::span<std::int64_t const>(shape)),
                     io::safetensor{"format", "|S3", {}, std::as_bytes(std::span(format))}};
  if (together && both.size() % 2 == 0) {
    arrays.push_back(io::make_safetensor("coords", {2, std::int64_t(both.size() / 2)},
                                         std::span<std::int32_t const>(both)));
  } else {
    arrays.push_back(io::make_safetensor(coo ? "row" : "indptr", {std::int64_t(first.size())}, a));
    arrays.push_back(io::make_safetensor(coo ? "col" : "indices", {count}, b));
  }
  static const std::string path = "/dev/shm/tessera-fuzz-scipy-" + std::to_string(::getpid());
  io::write_npz(path, arrays);
  const duplicates repeated = (bytes[0] & 0x80) != 0 ? duplicates::refused : duplicates::summed;
  try {
    const auto w = io::read_scipy<float, block_shape<4>>(path, repeated);
    const auto v = io::read_scipy<float, block_shape<2, 3>>(path, repeated);
    if (!holds(w, v) || !holds(v, w)) std::abort();
  } catch (error const&) {
  }
  ::unlink(path.c_str());
  return 0;
}
