// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/io/safetensors.hpp>

namespace safetensors_sample {

using namespace tessera::io;

inline const std::vector<float> weights{1.5f, -2, 3.25f, 0, 1e-30f, 6};
inline const std::vector<double> moments{0.1, -1e300};
inline const std::vector<std::int32_t> columns{7, -8, 9};
inline const std::vector<std::uint64_t> seeds{~std::uint64_t{0}};
inline const std::vector<std::uint8_t> odd{1, 2, 3};

inline void write_sample(std::string const& path) {
  const std::vector tensors{
      make_safetensor("odd", {3}, std::span(odd)),
      make_safetensor("layer.0.w", {2, 3}, std::span(weights)),
      make_safetensor("moments", {2, 1}, std::span(moments)),
      make_safetensor("columns", {3}, std::span(columns)),
      make_safetensor("seed", {}, std::span(seeds)),
      make_safetensor("none", {0, 4}, std::span<float const>()),
  };
  write_safetensors(path, tensors, format_metadata("checkpoint", 2));
}

}  // namespace safetensors_sample
