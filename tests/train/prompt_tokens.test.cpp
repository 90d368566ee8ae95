// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/train/any_model.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/prompt_tokens.hpp>
#include <tessera/train/training.hpp>

namespace prompt_tokens_test {

using namespace tessera;
using block = block_shape<16>;

TEST_CASE("prompt tokens: they stand in each sequence, outside of loss and labels") {
  train::token_batch batch{{2, 3}, {1, 2, 3, 4, 5}, {2, nn::ignored, 4, 5, 6}, {0, 1, 0, 0, 1}, {7, 8}};
  train::prompt_tokens{{20, 21, 22}, 1}.insert(batch);
  CHECK(batch.lengths == std::vector<std::int64_t>{5, 6});
  CHECK(batch.inputs == std::vector<std::int32_t>{1, 20, 21, 22, 2, 3, 20, 21, 22, 4, 5});
  const std::int32_t no = nn::ignored;
  CHECK(batch.targets == std::vector<std::int32_t>{2, no, no, no, no, 4, no, no, no, 5, 6});
  CHECK(batch.segments == std::vector<std::int32_t>{0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1});
  CHECK(batch.labels == std::vector<std::int32_t>{7, 8});
  CHECK(batch.counted() == 4);

  const train::prompt_tokens at_front{{20, 21}};
  train::token_batch inputs{{1, 1}, {5, 6}};
  at_front.insert(inputs);
  CHECK(inputs.inputs == std::vector<std::int32_t>{20, 21, 5, 20, 21, 6});
  CHECK(at_front.moved(0) == 2);
  CHECK(train::prompt_tokens{{20, 21}, 1}.moved(0) == 0);
  CHECK(error_of<shape_error>([] {
          train::token_batch empty{{0}};
          train::prompt_tokens{{20}, 1}.insert(empty);
        }) == "[prompt_tokens] a sequence of 0 tokens has no place for more at position 1");
}

TEST_CASE("prompt tokens: their rows alone are trained, and all else keeps its bits") {
  nn::transformer_config shape;
  shape.layers = 1, shape.hidden = 32, shape.heads = 2, shape.vocabulary = 30, shape.context = 16;
  using network = nn::gpt<float, block>;
  train::model_of<network> model(network(shape, 1));
  const auto prompt = train::prompt_tokens::sampled(4, 30, 0, 1);
  CHECK(prompt.ids == train::prompt_tokens::sampled(4, 30, 0, 1).ids);
  CHECK(prompt.ids != train::prompt_tokens::sampled(4, 30, 0, 2).ids);
  train::any_training t(model.layer(), train::adamw{.weight_decay = 0.1});
  t.group_parameters(train::prompt_tokens::groups());
  const nn::parameter_list list = model.layer();
  std::vector<std::vector<double>> before;
  for (nn::any_parameter const& each : list) before.push_back(each.tensor.values());
  const network copy = model.network;
  context ctx(2);
  double first = 0, last = 0;
  for (int step = 0; step < 30; ++step) {
    train::token_batch batch{
        {6, 6}, {1, 7, 1, 7, 1, 7, 7, 1, 7, 1, 7, 1}, {7, 1, 7, 1, 7, 1, 1, 7, 1, 7, 1, 7}};
    prompt.insert(batch);
    last = train::train_step(ctx, t, {.rate = 0.05}, [&](int) {
             const train::token_loss loss = train::learn(ctx, model, t, batch);
             prompt.freeze_other_positions(t.gradients);
             return loss;
           }).loss;
    if (step == 0) first = last;
  }
  CHECK(last < first - 0.03);
  const std::vector<std::string> names = list.names();
  for (std::size_t i = 0; i < names.size(); ++i)
    CHECK((list[i].tensor.values() == before[i]) == (names[i] != "position_embedding"));
  for (std::int64_t row = 0; row < 16; ++row) {
    bool same = true;
    for (std::int64_t col = 0; col < 32; ++col)
      same = same && std::as_const(model.network.position_embedding.table)(row, col) ==
                         std::as_const(copy.position_embedding.table)(row, col);
    CHECK(same == (row >= 4));
  }
}

TEST_CASE("prompt tokens: a model without the positions is refused") {
  nn::transformer_config shape;
  shape.layers = 1, shape.hidden = 32, shape.heads = 2, shape.vocabulary = 30, shape.context = 16;
  using network = nn::gpt<float, block>;
  network model(shape, 1);
  auto gradients = nn::zeros_like(model);
  const train::prompt_tokens many = train::prompt_tokens::sampled(17, 30, 0, 1);
  CHECK(error_of<option_error>([&] { many.freeze_other_positions(gradients); }) ==
        "[prompt_tokens] the last one is at position 16, but the model has 16");
  shape.positions = nn::position_coding::rotary;
  network rotary(shape, 1);
  auto others = nn::zeros_like(rotary);
  CHECK(error_of<option_error>([&] { many.freeze_other_positions(others); }) ==
        "[prompt_tokens] there is no gradient of learned positions");
}

}  // namespace prompt_tokens_test
