// SPDX-License-Identifier: BSD-3-Clause

// Bodies of functions that are no templates: tessera::compiled has them once for all types.

#define TESSERA_COMPILES_BODIES
#include <tessera/core/decimal.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/eval/elementwise.hpp>
#include <tessera/eval/matrix_product.hpp>
#include <tessera/eval/operands.hpp>
#include <tessera/eval/plan.hpp>
#include <tessera/eval/step.hpp>
#include <tessera/eval/weight_order.hpp>
#include <tessera/exec/amx_permission.hpp>
#include <tessera/exec/available_threads.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/exec/index_ranges.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/exec/phase.hpp>
#include <tessera/exec/thread_pool.hpp>
#include <tessera/expr/node.hpp>
#include <tessera/expr/product.hpp>
#include <tessera/expr/statement.hpp>
#include <tessera/io/dtypes.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/file_format.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/folder_lock.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/io/own_checksum.hpp>
#include <tessera/io/parse_number.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/io/text.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/statements/account.hpp>
#include <tessera/statements/attention_heads.hpp>
#include <tessera/statements/concatenation.hpp>
#include <tessera/statements/embedding.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/densities.hpp>
#include <tessera/tensor/matrix_sources.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_moves.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/tensor/pruning.hpp>
#include <tessera/tensor/sequences.hpp>
#include <tessera/tensor/text.hpp>
#include <tessera/tokenizers/byte_characters.hpp>
#include <tessera/tokenizers/byte_pair.hpp>
#include <tessera/tokenizers/merge_table.hpp>
#include <tessera/tokenizers/merges.hpp>
#include <tessera/tokenizers/pieces.hpp>
#include <tessera/tokenizers/unicode.hpp>
#include <tessera/tokenizers/wordpiece.hpp>
#include <tessera/train/architecture.hpp>
#include <tessera/train/change_blocks.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/clipping.hpp>
#include <tessera/train/hugging_face.hpp>
#include <tessera/train/hugging_face_tensors.hpp>
#include <tessera/train/interpolate.hpp>
#include <tessera/train/kept_parameters.hpp>
#include <tessera/train/loss_scaling.hpp>
#include <tessera/train/masking.hpp>
#include <tessera/train/masters.hpp>
#include <tessera/train/optimizers/moved_state.hpp>
#include <tessera/train/optimizers/optimizer.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>
#include <tessera/train/optimizers/trust_ratio.hpp>
#include <tessera/train/parameter_groups.hpp>
#include <tessera/train/parameterisation.hpp>
#include <tessera/train/peft.hpp>
#include <tessera/train/peft_modules.hpp>
#include <tessera/train/prompt_tokens.hpp>
#include <tessera/train/random_keys.hpp>
#include <tessera/train/save_checkpoint.hpp>
#include <tessera/train/save_pretrained.hpp>
#include <tessera/train/settings.hpp>
#include <tessera/train/sparsity/absent_gradients.hpp>
#include <tessera/train/sparsity/evolve.hpp>
#include <tessera/train/sparsity/explored_blocks.hpp>
#include <tessera/train/sparsity/policies/gradual_pruning.hpp>
#include <tessera/train/sparsity/policies/granet.hpp>
#include <tessera/train/sparsity/policies/sparse_evolutionary_training.hpp>
#include <tessera/train/sparsity/policies/sparse_momentum.hpp>
#include <tessera/train/sparsity/policy.hpp>
#include <tessera/train/sparsity/scores/densify.hpp>
#include <tessera/train/sparsity/scores/lottery_ticket.hpp>
#include <tessera/train/sparsity/scores/prune.hpp>
#include <tessera/train/sparsity/scores/saliency.hpp>
#include <tessera/train/sparsity/scores/wanda.hpp>
#include <tessera/train/sparsity/watching/connectivity.hpp>
#include <tessera/train/sparsity/watching/layer_table.hpp>
#include <tessera/train/sparsity/watching/model_patterns.hpp>
#include <tessera/train/sparsity/watching/pattern_history.hpp>
#include <tessera/train/weight_average.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace the_compiled_library_must_be_of_the_same {

void version_and_instruction_set::TESSERA_COMPILED_VERSION() {}

}}}  // namespace tessera::TESSERA_ISA::the_compiled_library_must_be_of_the_same
