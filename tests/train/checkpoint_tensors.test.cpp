// SPDX-License-Identifier: BSD-3-Clause
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/io/safetensors.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/train/checkpoint.hpp>

namespace checkpoint_tensors_test {

using namespace tessera;

TEST_CASE_TEMPLATE("checkpoint_tensors: weights alone take at most a twentieth more than their values", Block,
                   block_shape<4>, block_shape<8>, block_shape<16>) {
  const scratch_folder scratch;
  const nn::linear<float, Block> layer(
      1024, 512, random_pattern(1024 / Block::rows, 512 / Block::cols, 0.1, 1), nn::bias_term::absent);
  train::save_weights(scratch / "frozen", {}, layer);
  const io::safetensors_file file(scratch / "frozen/tensors.safetensors");
  double index = 0;
  for (auto const& [name, tensor] : file.tensors())
    if (name.find(".pattern.") != name.npos) index += double(tensor.bytes.size());
  CHECK(index <= 0.05 * double(file.at("weight").bytes.size()));
}

}  // namespace checkpoint_tensors_test
