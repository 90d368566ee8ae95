// SPDX-License-Identifier: BSD-3-Clause
#include <type_traits>

#include <doctest/doctest.h>

#include <tessera/eval/account.hpp>
#include <tessera/eval/advise.hpp>
#include <tessera/eval/attention.hpp>
#include <tessera/eval/attention_heads.hpp>
#include <tessera/eval/attention_shape.hpp>
#include <tessera/eval/block_softmax.hpp>
#include <tessera/eval/concatenation.hpp>
#include <tessera/eval/copy.hpp>
#include <tessera/eval/embedding.hpp>
#include <tessera/eval/outer_products.hpp>
#include <tessera/eval/quantised.hpp>
#include <tessera/eval/rotary.hpp>
#include <tessera/eval/run.hpp>
#include <tessera/eval/sequence_sums.hpp>
#include <tessera/ipu/block_softmax.hpp>
#include <tessera/ipu/buckets.hpp>
#include <tessera/ipu/dense_plan.hpp>
#include <tessera/ipu/dense_product.hpp>
#include <tessera/ipu/dynamic_codelets.hpp>
#include <tessera/ipu/dynamic_plan.hpp>
#include <tessera/ipu/dynamic_product.hpp>
#include <tessera/ipu/engine.hpp>
#include <tessera/ipu/graph.hpp>
#include <tessera/ipu/homes.hpp>
#include <tessera/ipu/machine.hpp>
#include <tessera/ipu/memory_plan.hpp>
#include <tessera/ipu/options.hpp>
#include <tessera/ipu/placement.hpp>
#include <tessera/ipu/plan_cache.hpp>
#include <tessera/ipu/program.hpp>
#include <tessera/ipu/races.hpp>
#include <tessera/ipu/recorder.hpp>
#include <tessera/ipu/report.hpp>
#include <tessera/ipu/report_page.hpp>
#include <tessera/ipu/static_plan.hpp>
#include <tessera/ipu/static_product.hpp>
#include <tessera/ipu/task_cost.hpp>
#include <tessera/train/sparsity/connectivity.hpp>
#include <tessera/train/sparsity/deep_rewiring.hpp>
#include <tessera/train/sparsity/densify.hpp>
#include <tessera/train/sparsity/early_ticket.hpp>
#include <tessera/train/sparsity/evolving_pattern.hpp>
#include <tessera/train/sparsity/gradual_pruning.hpp>
#include <tessera/train/sparsity/layer_table.hpp>
#include <tessera/train/sparsity/lottery_ticket.hpp>
#include <tessera/train/sparsity/model_patterns.hpp>
#include <tessera/train/sparsity/pattern_history.hpp>
#include <tessera/train/sparsity/prune.hpp>
#include <tessera/train/sparsity/rigl.hpp>
#include <tessera/train/sparsity/saliency.hpp>
#include <tessera/train/sparsity/sparse_evolutionary_training.hpp>
#include <tessera/train/sparsity/sparse_momentum.hpp>
#include <tessera/train/sparsity/suggested_rate.hpp>

namespace old_paths_test {

TEST_CASE("old_paths: headers that moved are found where they were") {
  CHECK(std::is_class_v<tessera::workload>);
}

}  // namespace old_paths_test
