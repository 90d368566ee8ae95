// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// A weight of a model.
struct layer_row {
  std::string name;          // `block.3.mlp.up.weight`
  std::int64_t rows, cols;   // in elements
  std::int64_t blocks, all;  // stored, and of the grid
  double density;            // blocks ÷ all
  double l1, l2;             // Σ |w|, √Σ w²: sums in double
};

/// A row for each weight that may be pruned, sparse or dense, in the order of the parameters.
std::vector<layer_row> layer_table(nn::parameter_list const& model);

/// The table for programs (RFC 4180), with a line of names.
std::string to_csv(std::vector<layer_row> const& table);

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY std::vector<layer_row> layer_table(nn::parameter_list const& model) {
  std::vector<layer_row> table;
  const std::vector<std::string> names = model.names();
  for (const auto [i, number] : evolving_weights(model, true)) {
    any_tensor const& weight = model[i].tensor;
    pattern const& stored = weight.pattern();
    double l1 = 0, squares = 0;
    for (const double w : weight.values()) {
      l1 += std::abs(w);
      squares += w * w;
    }
    table.push_back({names[i], weight.rows(), weight.cols(), stored.blocks(),
                     std::int64_t{stored.block_rows()} * stored.block_cols(), stored.density(), l1,
                     std::sqrt(squares)});
  }
  return table;
}

TESSERA_BODY std::string to_csv(std::vector<layer_row> const& table) {
  std::string text = "weight,rows,cols,blocks,all_blocks,density,l1,l2\n";
  for (layer_row const& row : table)
    text += message(row.name, ",", row.rows, ",", row.cols, ",", row.blocks, ",", row.all, ",", row.density,
                    ",", row.l1, ",", row.l2, "\n");
  return text;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
