// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <harness/contestant.hpp>
#include <harness/timing.hpp>

namespace bench {

/// An entrant beside another one of its group.
struct comparison {
  std::string with;
  double times;  // as fast, or as large a share of the peak
  double goal;   // 0 for none
};

/// What one folder of benchmarks finds out.
struct question {
  std::string name, asks;
  std::vector<std::vector<workload>> groups;  // timed in turn, by the contestants for their operations
  std::array<std::int64_t, 3> small;          // m, k, n at which every result is checked
  std::function<double(workload const&, std::string const& contestant)> goal;  // share of peak; 0 for none
  std::function<std::vector<comparison>(entrant const&, std::vector<entrant> const&)> compare;
  std::function<bool(std::string const& contestant)> invites{};  // all if empty
  bool by_default = true;                                        // asked if no question is named
};

/// The questions with contestants from other libraries.
std::vector<question> peer_questions(int threads);

/// Models in use, beside other libraries.
///   threads   of this run; takes at least two if there are as many, after one
question decoding_question(int threads);

/// All questions, in the order they are asked.
///   threads   of this run; `scaling` compares with one thread and takes at least two if there are as many
std::vector<question> questions(int threads);

}  // namespace bench
