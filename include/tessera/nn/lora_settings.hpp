// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

// The settings of LoRA's adapters, for programs that do not compute with them: see nn/lora.hpp.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// The adapters of a LoRA layer.
struct lora_settings {
  std::int64_t rank = 8;
  double alpha = 16;             // the scale is alpha ÷ rank
  bool rank_stabilised = false;  // or alpha ÷ √rank (Kalajdzievski 2023, arXiv 2312.03732)

  double scale() const {
    return alpha / (rank_stabilised ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
  }
  /// Throws option_error for settings without meaning.
  void check() const {
    if (rank < 1) throw option_error(message("[lora] rank is ", rank, ": it must be at least 1"));
    if (!std::isfinite(alpha)) throw option_error(message("[lora] alpha is ", alpha));
  }
};

/// Rows first … end - 1 of a matrix.
struct row_range {
  std::int64_t first, end;
};

/// Where the product of adapters goes: into the stored blocks of W alone, or into all, so that W is dense.
enum class merge_blocks { stored, all };

/// Which matrices of each layer get adapters. Q, K and V are rows of one matrix: each of them has an adapter
/// of its own, or all of them share one.
struct lora_targets {
  bool query = false, key = false, value = false;
  bool qkv = false;
  bool out = false, up = false, down = false;
  bool gate = false;  // of gated MLPs

  /// Their names: for options and files.
  static constexpr std::array<std::pair<std::string_view, bool lora_targets::*>, 8> names{{
      {"q", &lora_targets::query},
      {"k", &lora_targets::key},
      {"v", &lora_targets::value},
      {"qkv", &lora_targets::qkv},
      {"out", &lora_targets::out},
      {"up", &lora_targets::up},
      {"down", &lora_targets::down},
      {"gate", &lora_targets::gate},
  }};
  bool of_rows() const { return query || key || value; }
  /// Throws option_error if there are none, and for qkv beside one of its parts.
  void check() const {
    if (!of_rows() && !qkv && !out && !up && !down && !gate)
      throw option_error("[lora] no targets: q, k, v, qkv, out, up, down and gate are");
    if (of_rows() && qkv)
      throw option_error("[lora] the targets are qkv and one of q, k and v, which are its rows");
  }
  friend bool operator==(lora_targets const&, lora_targets const&) = default;
};

}}}  // namespace tessera::TESSERA_ISA::nn
