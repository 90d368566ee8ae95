// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <numbers>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// Which frequencies of rotary positions are divided by a factor.
///   none
///   linear   all (Chen et al. 2023, eq. 4)
///   llama3   frequencies of long wavelengths (Llama 3.1: Grattafiori et al. 2024), as in transformers
enum class rotary_scaling_form { none, linear, llama3 };

/// How rotary positions are changed after a training on short sequences, for longer ones.
struct rotary_scaling {
  rotary_scaling_form form = rotary_scaling_form::none;
  double factor = 1;
  // Of llama3: the frequency of a wavelength below trained / short_part stays, above trained / long_part it
  // is divided.
  double long_part = 1, short_part = 4;
  std::int64_t trained = 8192;  // tokens of the sequences before

  explicit operator bool() const { return form != rotary_scaling_form::none; }
  bool operator==(rotary_scaling const&) const = default;

  /// Throws option_error.
  void check() const {
    if (!*this) return;
    if (!(factor >= 1))
      throw option_error(
          message("[rotary] the factor of scaled positions is ", factor, ": it is at least 1"));
    if (form == rotary_scaling_form::linear) return;
    if (!(long_part > 0 && short_part > long_part) || trained < 1)
      throw option_error(message("[rotary] scaled positions with the parts ", long_part, " and ", short_part,
                                 " of ", trained,
                                 " tokens: 0 < long part < short part, and 1 token at least"));
  }

  /// A frequency (radians a position), scaled.
  double scaled(double frequency) const {
    if (!*this) return frequency;
    const double divided = frequency / factor;
    if (form == rotary_scaling_form::linear) return divided;
    const double waves = double(trained) * frequency / (2 * std::numbers::pi);  // in the trained length
    if (waves > short_part) return frequency;
    if (waves < long_part) return divided;
    const double smooth = (waves - long_part) / (short_part - long_part);
    return (1 - smooth) * divided + smooth * frequency;
  }
};

}}  // namespace tessera::TESSERA_ISA
