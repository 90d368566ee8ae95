// SPDX-License-Identifier: BSD-3-Clause
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/io/safetensors.hpp>

#include "safetensors_sample.hpp"
#include "scratch_folder.hpp"

namespace safetensors_python_test {

using namespace tessera::io;
using safetensors_sample::write_sample;

TEST_CASE("safetensors: files pass to the Python package and back") {
  if (std::system("python3 -c 'import safetensors.numpy' 2>/dev/null") != 0) {
    MESSAGE("skipped: python3 has no safetensors package with NumPy");
    return;
  }
  const scratch_folder folder;
  write_sample(folder / "ours");
  const std::vector<std::uint16_t> halves{0x3f80, 0xc000};  // 1 and -2 in bfloat16
  write_safetensors(folder / "bf16",
                    std::vector{safetensor{"h", "BF16", {2}, std::as_bytes(std::span(halves))}});
  put(folder / "check.py", R"(
import sys
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

ours, bf16, theirs = sys.argv[1:]
t = load_file(ours)
assert sorted(t) == ["columns", "layer.0.w", "moments", "none", "odd", "seed"], sorted(t)
np.testing.assert_array_equal(t["layer.0.w"], np.array([[1.5, -2, 3.25], [0, 1e-30, 6]], np.float32), strict=True)
np.testing.assert_array_equal(t["moments"], np.array([[0.1], [-1e300]]), strict=True)
np.testing.assert_array_equal(t["columns"], np.array([7, -8, 9], np.int32), strict=True)
np.testing.assert_array_equal(t["odd"], np.array([1, 2, 3], np.uint8), strict=True)
np.testing.assert_array_equal(t["seed"], np.array(2**64 - 1, np.uint64), strict=True)
assert t["none"].shape == (0, 4) and t["none"].dtype == np.float32
with safe_open(ours, "np") as f:
    assert f.metadata() == {"tessera.format": "checkpoint", "tessera.version": "2"}, f.metadata()
with safe_open(bf16, "np") as f:
    assert f.get_slice("h").get_dtype() == "BF16" and f.get_slice("h").get_shape() == [2]
save_file({"b": np.arange(3, dtype=np.uint8), "a": np.arange(6, dtype=np.float32).reshape(2, 3),
           "e": np.zeros((0, 4)), "é \"q\"": np.array(-5, np.int64)}, theirs, {"k": "v \n é"})
)");
  const std::string command = "python3 '" + folder / "check.py" + "' '" + folder / "ours" + "' '" +
                              folder / "bf16" + "' '" + folder / "theirs" + "'";
  REQUIRE(std::system(command.c_str()) == 0);

  const safetensors_file file(folder / "theirs");
  CHECK(file.tensors().size() == 4);
  CHECK(file.metadata() == safetensors_metadata{{"k", "v \n é"}});
  std::array<float, 6> a{};
  file.read_into("a", {2, 3}, std::span<float>(a));
  CHECK(a == std::array<float, 6>{0, 1, 2, 3, 4, 5});
  std::array<std::uint8_t, 3> b{};
  file.read_into("b", {3}, std::span<std::uint8_t>(b));
  CHECK(b == std::array<std::uint8_t, 3>{0, 1, 2});
  std::array<std::int64_t, 1> q{};
  file.read_into("é \"q\"", {}, std::span<std::int64_t>(q));
  CHECK(q[0] == -5);
  CHECK(file.at("e").bytes.empty());
}

}  // namespace safetensors_python_test
