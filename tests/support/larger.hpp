// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace support {

/// The larger of two errors; one that is not a number, which std::max would pass over, is infinite.
inline double larger(double worst, double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
}

/// An error as a multiple of what is allowed; none is none, even where nothing is allowed.
inline double multiple(double error, double allowed) { return error == 0 ? 0 : error / allowed; }

}  // namespace support
