// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>

#include <tessera/core/memory.hpp>
#include <tessera/core/random.hpp>

int main() {
  tessera::aligned_array<float> values(64);
  const tessera::random_stream stream(1, tessera::random_purpose::test);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(stream.uniform(i));
  std::printf("%zu bytes, the first value is %f\n", values.size_bytes(), static_cast<double>(values[0]));
}
