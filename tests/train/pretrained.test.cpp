// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/io/file.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/train/pretrained.hpp>

// Against the logits of Hugging Face's own models: tests/golden/record_pretrained.py.

namespace pretrained_test {

using namespace tessera;

using gpt2 = nn::gpt2<float, block_shape<4>>;
using bert = nn::encoder<float, block_shape<4>>;

const std::string folder = TESSERA_SOURCE_DIR "/tests/golden/";

struct recorded {
  io::safetensors_file file{folder + "pretrained.safetensors"};
  std::vector<std::int32_t> ids = io::read_numbers<std::int32_t>(file, "ids"),
                            segments = io::read_numbers<std::int32_t>(file, "segments");
  panel_matrix<float> logits(std::string const& name) const {
    panel_matrix<float> all(40, std::int64_t(ids.size()));
    io::read(file, name + ".logits", all);
    return all;
  }
};

double worst_difference(panel_matrix<float> const& a, panel_matrix<float> const& b) {
  double worst = 0;
  for (std::int64_t f = 0; f < a.features(); ++f)
    for (std::int64_t t = 0; t < a.tokens(); ++t)
      worst = std::max(worst, std::abs(double(a(f, t)) - b(f, t)));
  return worst;
}

panel_matrix<float> logits_of(gpt2 const& model, std::vector<std::int32_t> const& ids) {
  context ctx(1);
  nn::workspace<float> workspace;
  const sequences one({0, std::int64_t(ids.size())});
  std::vector<std::int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  gpt2::saved saved;
  panel_matrix<float> logits;
  model.predict(ids, positions, logits, saved, {ctx, one, workspace, nn::purpose::evaluation});
  return logits;
}

TEST_CASE("pretrained: GPT-2 gives the logits of Hugging Face") {
  const recorded torch;
  const auto model = train::pretrained<gpt2>(folder + "gpt2");
  const auto expected = torch.logits("gpt2");
  CHECK(worst_difference(logits_of(model, torch.ids), expected) < 2e-4);
  CHECK(std::abs(expected(3, 5)) > 0.1);
}

TEST_CASE("pretrained: BERT gives the logits of Hugging Face") {
  const recorded torch;
  const auto model = train::pretrained<bert>(folder + "bert");
  context ctx(1);
  nn::workspace<float> workspace;
  const sequences one({0, std::int64_t(torch.ids.size())});
  const nn::pass<float> pass{ctx, one, workspace, nn::purpose::evaluation};
  bert::saved saved;
  model.forward({torch.ids, torch.segments}, torch.ids, saved, pass);
  CHECK(worst_difference(saved.logits, torch.logits("bert")) < 2e-4);
}

TEST_CASE("pretrained: weights are pruned to blocks on the way, embeddings and head are not") {
  const auto dense = train::pretrained<gpt2>(folder + "gpt2");
  const auto sparse = train::pretrained<gpt2>(folder + "gpt2", {.density = 0.25});
  auto const &before = dense.blocks.layers[1].mlp.up.weight, &after = sparse.blocks.layers[1].mlp.up.weight;
  CHECK(before.pattern().is_dense());
  CHECK(after.pattern() == pruned(before, 0.25).pattern());
  CHECK(after.pattern().density() == 0.25);
  CHECK(sparse.token_embedding.table.pattern().is_dense());
  CHECK(sparse.config.density == 0.25);
  const auto whole =
      train::pretrained<bert>(folder + "bert", {.density = 0.1, .scope = train::pruning_scope::whole_model});
  CHECK(whole.head.transform.weight.pattern().is_dense());
  CHECK_FALSE(whole.blocks.layers[0].attention.qkv.weight.pattern().is_dense());
}

TEST_CASE("pretrained: what does not fit is refused with the file and the place") {
  const auto says = [](auto&& body) { return error_of<io_error>(body); };
  CHECK(says([] {
          train::pretrained<bert>(folder + "gpt2");
        }).find("\"gpt2\", but nn::encoder is the model") != std::string::npos);
  using other = nn::gpt<float, block_shape<4>>;
  CHECK(says([] {
          train::pretrained<other>(folder + "gpt2");
        }).find("activation_function is \"gelu_new\", but the activation of this model is \"gelu\"") !=
        std::string::npos);
  CHECK_THROWS_AS(train::pretrained<gpt2>(folder + "gpt2", {.density = 0}), option_error);
  CHECK(says([] { train::pretrained<gpt2>(folder + "none"); }).find("none/config.json") != std::string::npos);

  const scratch_folder scratch;
  const auto with = [&](std::string const& from, std::string const& to) {
    std::string text = io::read_file(folder + "gpt2/config.json");
    text.replace(text.find(from), from.size(), to);
    put(scratch / "config.json", text);
    return says([&] { train::pretrained<gpt2>(scratch / "."); });
  };
  CHECK(with("\"n_layer\": 2", "\"n_layer\": 2").find("model.safetensors") != std::string::npos);
  std::filesystem::copy_file(folder + "gpt2/model.safetensors", scratch / "model.safetensors");
  CHECK(with("\"n_layer\": 2", "\"n_layer\": 2").empty());
  CHECK(with("\"n_layer\": 2", "\"n_layer\": 3").find("no tensor \"transformer.h.2.mlp.c_fc.weight\"") !=
        std::string::npos);
  CHECK(with("\"vocab_size\": 40", "\"vocab_size\": 41").find("is F32 (40, 32) but should be F32 (41, 32)") !=
        std::string::npos);
  CHECK(with("\"n_embd\": 32", "\"n_embd\": \"x\"").find("n_embd") != std::string::npos);
  CHECK(with("\"n_inner\": null", "\"n_inner\": 33")
            .find("n_inner is 33, but should be a multiple of the 32") != std::string::npos);
  CHECK(with("\"scale_attn_by_inverse_layer_idx\": false", "\"scale_attn_by_inverse_layer_idx\": true")
            .find("scale_attn_by_inverse_layer_idx is true, but nn::gpt has false") != std::string::npos);

  // A configuration of a size that no machine holds is refused by the file, before memory is taken.
  CHECK(with("\"n_layer\": 2", "\"n_layer\": 2000000000").find("no tensor") != std::string::npos);
  CHECK(with("\"n_inner\": null", "\"n_inner\": 3200000000").find("should be F32 (32, 3200000000)") !=
        std::string::npos);
  CHECK(with("\"vocab_size\": 40", "\"vocab_size\": 16000000").find("should be F32 (16000000, 32)") !=
        std::string::npos);

  put(scratch / "model.safetensors.index.json", "{\"weight_map\": {\"x\": \"../x\"}}");
  CHECK(with("\"n_layer\": 2", "\"n_layer\": 2").find("is no file of this folder") != std::string::npos);
  put(scratch / "model.safetensors.index.json", "{\"weight_map\": {\"x\": \"model.safetensors\"}}");
  CHECK(with("\"n_layer\": 2", "\"n_layer\": 2").empty());
}

}  // namespace pretrained_test
