// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/changed_checkpoint.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/sgd.hpp>

namespace checkpoint_of_other_models_test {

using namespace tessera;
using changed_checkpoint::contains, changed_checkpoint::make_version;
using train::checkpoint;

/// W (rows, cols), sparse, of which neither values nor pattern say how large it is.
template <class T, class Block> struct matrix_model {
  block_sparse_matrix<T, Block> w;
  using gradients = matrix_model<accumulator_t<T>, Block>;
  matrix_model(std::int64_t rows, std::int64_t cols)
      : w(support::random_matrix<T, Block>(rows, cols, 0.4, 1)) {}
  static void parts(auto& each, auto&... of) { each("w", of.w...); }
};

/// Writes a checkpoint of `written` and gives the message with which `read` refuses it, unchanged.
template <class Written, class Read>
std::string refusal_between(std::string const& folder, Written const& written, Read read) {
  train::save_checkpoint(folder, io::json::object{}, written, train::initial_state(train::sgd{}, written));
  const auto before = read.w;
  const std::string what = error_of<io_error>([&] { checkpoint(folder).load(read); });
  CHECK(toy::same_bits(read.w, before));
  return what;
}

TEST_CASE("checkpoint: matrices of other sizes, blocks or precision are refused with both sides named") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c", place = "[read " + folder + "/tensors.safetensors] ";
  using small = matrix_model<float, block_shape<4>>;
  using large = matrix_model<float, block_shape<8>>;
  CHECK(refusal_between(folder, small(24, 20), large(24, 20)) ==
        place + "matrix \"w\" is 24 x 20 in blocks of 4 x 4 but should be 24 x 20 in blocks of 8 x 8");
  CHECK(refusal_between(folder, large(24, 20), small(24, 20)) ==
        place + "matrix \"w\" is 24 x 20 in blocks of 8 x 8 but should be 24 x 20 in blocks of 4 x 4");
  CHECK(refusal_between(folder, small(24, 20), small(22, 18)) ==  // as many blocks
        place + "matrix \"w\" is 24 x 20 in blocks of 4 x 4 but should be 22 x 18 in blocks of 4 x 4");
  CHECK(refusal_between(folder, small(24, 20), small(240, 200)) ==
        place + "matrix \"w\" is 24 x 20 in blocks of 4 x 4 but should be 240 x 200 in blocks of 4 x 4");
  const std::string other_type =
      refusal_between(folder, small(24, 20), matrix_model<bfloat16, block_shape<4>>(24, 20));
  CHECK(other_type.starts_with(place + "tensor \"w\" is F32 ("));
  CHECK(contains(other_type, "but should be BF16 ("));

  train::save_checkpoint(folder, io::json::object{}, small(24, 20),
                         train::initial_state(train::sgd{}, small(24, 20)));
  make_version(1, folder);
  large other(24, 20);
  CHECK(error_of<io_error>([&] { checkpoint(folder).load(other); }) ==
        place + "matrix \"w\" is in blocks of 4 x 4 but should be in blocks of 8 x 8");
}

/// A model with a setting that its tensors do not show.
struct model_with_heads : matrix_model<float, block_shape<4>> {
  using gradients = model_with_heads;
  int heads;
  explicit model_with_heads(int count) : matrix_model(24, 20), heads(count) {}
  static void parts(auto& each, auto&... of) {
    each("w", of.w...);
    each.setting("heads", of.heads...);
  }
};

TEST_CASE("checkpoint: a model of another setting is refused with both named") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c";
  CHECK(refusal_between(folder, model_with_heads(2), model_with_heads(4)) ==
        "[" + folder + "/state.json] architecture.heads is 2 in the checkpoint but 4 in this model");
  model_with_heads same(2);
  CHECK_NOTHROW(checkpoint(folder).load(same));
  model_with_heads other(4);
  make_version(2, folder);
  CHECK_NOTHROW(checkpoint(folder).load(other));
}

}  // namespace checkpoint_of_other_models_test
