// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/block_shape.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/float16.hpp>

namespace bench {

using namespace tessera;

/// The shape of a computation. In products m and k are the rows and columns of the weights and n the tokens,
/// whichever of the three products it is; in training steps hidden size, layers, tokens.
struct workload {
  std::string operation;
  std::int64_t m, k, n;
  double density = 0.1;
  int block = 16;  // blocks are block x block
  int threads = 1;
  std::string element = "float";

  friend bool operator==(workload const&, workload const&) = default;
};

/// One number of a result beside the right one.
struct checked_value {
  double value, reference, tolerance;
};

/// The work of one contestant: operands are made and filled, results can be looked at after a run.
struct job {
  double useful_flops;  // of one run: two for each stored weight and token
  std::function<void()> run;
  std::int64_t results;
  std::function<checked_value(std::int64_t)> result;  // 0 … results - 1, after the first run
  std::function<double(int times)> timed{};  // that many runs: ns; for a contestant with a clock of its own
  std::string library{};                     // whose, with version and kernels; empty for ours
  int least_runs = 1;                        // of a sample
};

/// Somebody who can do an operation. `prepare` gives nothing for a workload that is not theirs.
struct contestant {
  std::string name;  // ours begin with "tessera"
  std::string operation;
  std::function<std::optional<job>(workload const&)> prepare;
};

inline bool is_ours(std::string const& contestant) { return contestant.starts_with("tessera"); }

inline std::vector<contestant>& contestants() {
  static std::vector<contestant> all;
  return all;
}

/// Enters a contestant before main begins: `const registered here({"name", "operation", prepare});`.
struct registered {
  explicit registered(contestant who) { contestants().push_back(std::move(who)); }
};

/// body.operator()<block_shape<size>>() for the sizes that are timed. With TESSERA_REDUCED_TYPES, for builds
/// that only show that everything compiles and is right, it is 16 alone.
template <class Body> std::optional<job> with_block(int size, Body&& body) {
  switch (size) {
    case 16:
      return body.template operator()<block_shape<16>>();
#ifndef TESSERA_REDUCED_TYPES
    case 8:
      return body.template operator()<block_shape<8>>();
    case 4:
      return body.template operator()<block_shape<4>>();
    case 1:
      return body.template operator()<block_shape<1>>();
#endif
    default:
      return std::nullopt;
  }
}

/// body.operator()<element, block>() for the elements and sizes in which whole layers are timed; blocks of 32
/// in bfloat16, for AMX.
template <class Body> std::optional<job> with_element_and_block(workload const& what, Body&& body) {
#ifndef TESSERA_REDUCED_TYPES
  if (what.element == "bfloat16" && what.block == 32)
    return body.template operator()<bfloat16, block_shape<32>>();
#endif
  return with_block(what.block, [&]<class Block>() -> std::optional<job> {
    if (what.element == "float") return body.template operator()<float, Block>();
    if (what.element == "bfloat16") return body.template operator()<bfloat16, Block>();
    return std::nullopt;
  });
}

/// As with_element_and_block for products, which are also timed in float16.
template <class Body> std::optional<job> with_product_element_and_block(workload const& what, Body&& body) {
  if (what.element != "float16") return with_element_and_block(what, body);
  return with_block(what.block, [&]<class Block> { return body.template operator()<float16, Block>(); });
}

}  // namespace bench
