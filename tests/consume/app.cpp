// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>

#include <tessera/core/memory.hpp>
#include <tessera/core/random.hpp>
#include <tessera/simd/build_info.hpp>

int main() {
  tessera::aligned_array<float> values(64);
  const tessera::random_stream stream(1, tessera::random_purpose::test);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stream.uniform(i));
  std::printf("%zu bytes, the first value is %f\n%s", values.size_bytes(), static_cast<double>(values[0]),
              tessera::build_info().text().c_str());  // includes xsimd
}
