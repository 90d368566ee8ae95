// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace support {

/// The larger of two errors. A not-a-number error, which std::max would skip, counts as infinite.
inline double larger(double worst, double error) {
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
}

/// The error ÷ the allowed error; 0 if the error is 0, even if the allowed error is 0 too.
inline double multiple(double error, double allowed) { return error == 0 ? 0 : error / allowed; }

}  // namespace support
