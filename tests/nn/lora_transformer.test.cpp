// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <support/reference.hpp>

#include <tessera/nn/gpt.hpp>
#include <tessera/nn/lora_transformer.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/save_checkpoint.hpp>

namespace lora_transformer_test {

using namespace tessera;
using block = block_shape<4>;
using plain = nn::gpt<float, block>;
using adapted = nn::gpt<float, block, nn::transformer_block_of<nn::lora<float, block>>>;

nn::transformer_config small() {
  nn::transformer_config c;
  c.layers = 2, c.hidden = 24, c.heads = 2, c.context = 16, c.vocabulary = 17, c.feed_forward = 2;
  c.density = 0.5;
  return c;
}
/// Logits of the last token.
template <class Model> std::vector<float> logits(Model const& m) {
  context ctx(1);
  const sequences one({0, 5});
  nn::workspace<float> room;
  typename Model::saved saved;
  panel_matrix<float> y(17, 1);
  const std::int32_t ids[]{1, 5, 2, 9, 16}, at[]{4};
  m.predict(ids, at, y, saved, {ctx, one, room});
  std::vector<float> all;
  for (std::int64_t i = 0; i < 17; ++i) all.push_back(y(i, 0));
  return all;
}
double worst(std::vector<float> const& a, std::vector<float> const& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, double(std::abs(a[i] - b[i])));
  return most;
}
/// A base that a checkpoint of a plain model gave its weights.
adapted from(plain const& base, std::string const& folder) {
  train::save_weights(folder, {}, base);
  adapted m(small(), 7);
  train::checkpoint(folder).load(m);
  return m;
}
template <class Model> void randomise_up(Model& m) {
  std::uint64_t seed = 20;
  nn::for_each_parameter(m, [&](nn::parameter_name const& name, auto& tensor) {
    if (name.text().ends_with(".up.weight")) support::fill(tensor, ++seed);
  });
}

TEST_CASE(
    "lora of a transformer: it reads the weights of its base, and merges into a model that the base reads") {
  const scratch_folder folder;
  const plain base(small(), 3);
  const auto expected = logits(base);
  adapted m = from(base, folder / "base");
  CHECK(logits(m) == expected);
  nn::lora_targets all{.query = true, .value = true, .out = true, .up = true, .down = true};
  nn::add_lora(m, {.rank = 3}, all, 1);
  CHECK(nn::parameter_list(m).size() == 2 * 8 + 2 + 2 + 2 * 4);  // adapters, tables, last norm, norms
  CHECK(logits(m) == expected);
  randomise_up(m);
  const auto tuned = logits(m);
  CHECK(worst(tuned, expected) > 1e-3);

  adapted dense = m;
  CHECK(nn::merge_lora(dense, nn::merge_blocks::all) == 0);
  CHECK(worst(logits(dense), tuned) < 1e-5);
  train::save_weights(folder / "merged", {}, dense);
  plain merged(small(), 9);
  train::checkpoint(folder / "merged").load(merged);
  CHECK(logits(merged) == logits(dense));
  CHECK(merged.blocks.layers[1].mlp.up.weight.pattern().is_dense());

  CHECK(nn::merge_lora(m, nn::merge_blocks::stored) > 0.01);
  CHECK(m.blocks.layers[1].mlp.up.base.weight.pattern() == base.blocks.layers[1].mlp.up.weight.pattern());
}

TEST_CASE("lora of a transformer: targets") {
  const auto added = [](nn::lora_targets const& where) {
    adapted m(small(), 1);
    nn::add_lora(m, {.rank = 4}, where, 1);
    return m;
  };
  auto const& qkv = [](adapted const& m) -> auto const& { return m.blocks.layers[0].attention.qkv; };
  CHECK(qkv(added({.query = true, .key = true, .value = true})).ranks() == 12);
  const adapted one = added({.qkv = true});
  CHECK(qkv(one).ranks() == 4);
  CHECK(qkv(one).up.weight.pattern().is_dense());
  CHECK(one.blocks.layers[0].mlp.up.ranks() == 0);

  const auto refusal = [&](nn::lora_settings how, nn::lora_targets const& where) {
    adapted m(small(), 1);
    try {
      nn::add_lora(m, how, where, 1);
    } catch (option_error const& e) {
      CHECK(qkv(m).ranks() == 0);
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(refusal({}, {}) == "[lora] no targets: q, k, v, qkv, out, up, down and gate are");
  CHECK(refusal({}, {.query = true, .qkv = true}).find("qkv and one of q, k and v") != std::string::npos);
  CHECK(refusal({.rank = 25}, {.up = true}) ==
        "[lora] rank is 25, but block.0.mlp.up has 24 rows or columns");
  CHECK(refusal({.rank = 25}, {.value = true}).find("block.0.attention.qkv has 24 rows of a target") !=
        std::string::npos);
  CHECK(refusal({.rank = 0}, {.up = true}).find("rank is 0") != std::string::npos);
}

}  // namespace lora_transformer_test
