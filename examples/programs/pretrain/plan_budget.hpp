// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <string>
#include <string_view>

#include <tessera/io/text.hpp>

#include "../common/options.hpp"

namespace pretrain {

using namespace programs;

/// A number of FLOPs, or a time in which a machine does some.
struct plan_budget {
  double flops = 0;
  seconds time{0};
};

/// Reads 1e15, or 90s, 10min, 1h30m. Throws option_error for any other text.
inline plan_budget plan_budget_of(std::string const& text) {
  plan_budget budget;
  std::string time = text;
  if (const std::size_t at = time.find("min"); at != time.npos) time.erase(at + 1, 2);
  const bool is_number = read_value(std::string_view(text), budget.flops);
  if (!is_number) budget.flops = 0;  // it may have begun like one
  if (!is_number && !read_value(std::string_view(time), budget.time)) budget = {};
  const double given = is_number ? budget.flops : budget.time.count();
  if (!(given > 0) || !std::isfinite(given) || given > 1e30)
    refuse("--plan", "'" + tessera::io::excerpt(text) +
                         "' is neither a number of FLOPs, such as 1e15, nor a time, such as 10min");
  return budget;
}

}  // namespace pretrain
