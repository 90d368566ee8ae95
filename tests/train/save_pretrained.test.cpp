// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <nn/lora.hpp>

#include <tessera/io/read_json.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/presets.hpp>
#include <tessera/nn/scaled_residual.hpp>
#include <tessera/train/pretrained.hpp>
#include <tessera/train/save_pretrained.hpp>

// Folders that transformers reads: tests/hugging_face/check.py asks transformers itself.

namespace save_pretrained_test {

using namespace tessera;

using gpt2 = nn::gpt2<float, block_shape<4>>;
using bert = nn::encoder<float, block_shape<4>>;

const std::string golden = TESSERA_SOURCE_DIR "/tests/golden/";

bool same_tensors(std::string const& a, std::string const& b) {
  const io::safetensors_file one(a + "/model.safetensors"), other(b + "/model.safetensors");
  return std::ranges::equal(one.tensors(), other.tensors(), [](auto const& x, auto const& y) {
    return x.first == y.first && x.second.dtype == y.second.dtype && x.second.shape == y.second.shape &&
           std::ranges::equal(x.second.bytes, y.second.bytes);
  });
}

nn::transformer_config small_shape() {
  nn::transformer_config c;
  c.layers = 2, c.hidden = 12, c.heads = 2, c.context = 7, c.vocabulary = 11, c.feed_forward = 3;
  return c;
}

TEST_CASE("save_pretrained: what was read of Hugging Face is written with the same bytes") {
  const scratch_folder scratch;
  const auto check = [&](std::string const& name, auto const& model) {
    train::save_pretrained(scratch / name, model);
    CHECK(same_tensors(scratch / name, golden + name));
    const io::json written = io::read_json(scratch / (name + "/config.json")),
                   original = io::read_json(golden + name + "/config.json");
    for (io::json_member const& member : *written.get_if<io::json::object>()) {
      if (member.key.ends_with("pdrop") || member.key.ends_with("dropout_prob") || member.key == "n_inner")
        continue;  // 0 here; n_inner is null there, which means 4 x n_embd
      INFO(member.key);
      REQUIRE(original.find(member.key));
      CHECK(member.value == *original.find(member.key));
    }
  };
  check("gpt2", train::pretrained<gpt2>(golden + "gpt2"));
  check("bert", train::pretrained<bert>(golden + "bert"));
}

/// Whether the tensors of a folder have the numbers of the tensors in some files. Vectors beside narrow
/// weights are float here.
bool same_numbers(std::string const& a, std::vector<std::string> const& files) {
  const io::safetensors_file one(a + "/model.safetensors");
  const io::safetensors_files other(files);
  std::size_t count = 0;
  for (io::safetensors_file const& file : other.files()) count += file.tensors().size();
  return count == one.tensors().size() && std::ranges::all_of(one.tensors(), [&](auto const& x) {
           if (!other.contains(x.first)) return false;
           io::safetensors_file const& file = other.file_of(x.first);
           return x.second.shape == file.at(x.first).shape &&
                  (x.second.shape.size() == 1 || x.second.dtype == file.at(x.first).dtype) &&
                  io::read_numbers<double>(one, x.first) == io::read_numbers<double>(file, x.first);
         });
}

TEST_CASE("save_pretrained: a LLaMA, a Mistral and a Qwen2 are written with the same numbers and settings") {
  const scratch_folder scratch;
  const auto check = [&](std::string const& name, auto const& model, std::vector<std::string> const& files,
                         io::json::object more = {}) {
    INFO(name);
    const std::string to = scratch / name, from = golden + name;
    train::save_pretrained(to, model, {.configuration = std::move(more), .context = model.config.context});
    std::vector<std::string> paths;
    for (std::string const& file : files) paths.push_back(from + "/" + file);
    CHECK(same_numbers(to, paths));
    const io::json written = io::read_json(to + "/config.json"),
                   original = io::read_json(from + "/config.json");
    for (io::json_member const& member : *written.get_if<io::json::object>()) {
      INFO(member.key);
      if (member.key == "rope_theta" || (name == "mistral" && member.key.ends_with("_bias"))) continue;
      REQUIRE(original.find(member.key));
      CHECK(member.value == *original.find(member.key));
    }
  };
  check("llama", train::pretrained<nn::llama<float, block_shape<4>>>(golden + "llama"),
        {"model.safetensors"});
  check("qwen2", train::pretrained<nn::llama<float16, block_shape<4>>>(golden + "qwen2"),
        {"model.safetensors"});
  check("mistral", train::pretrained<nn::llama<bfloat16, block_shape<4>>>(golden + "mistral"),
        {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"},
        {{"architectures", io::json::array{"MistralForCausalLM"}}, {"model_type", "mistral"}});
}

TEST_CASE("save_pretrained: a LLaMA of any shape is read again") {
  using model = nn::llama<float, block_shape<4>>;
  const scratch_folder scratch;
  int number = 0;
  for (const auto biases : {nn::attention_bias::none, nn::attention_bias::inputs, nn::attention_bias::all})
    for (const auto rotary : {train::rotary_order::halves, train::rotary_order::neighbours})
      for (const rotary_scaling& scaling : {rotary_scaling{}, rotary_scaling{rotary_scaling_form::linear, 2},
                                            rotary_scaling{rotary_scaling_form::llama3, 8, 1, 4, 64}}) {
        nn::transformer_config c = nn::as_llama(small_shape());
        c.heads = 3, c.key_heads = 1, c.mlp_features = 21;
        c.biases_of_attention = biases, c.scaling = scaling, c.rotary_base = 500;
        if (biases == nn::attention_bias::all) c.bias = nn::bias_term::present;
        if (rotary == train::rotary_order::halves) c.output = nn::output_weight::tied;
        if (biases != nn::attention_bias::all && scaling.form == rotary_scaling_form::linear) c.window = 5;
        model written(c, 1);
        const std::string to = scratch / std::to_string(number++);
        train::save_pretrained(to, written, {.context = 7, .rotary = rotary});
        const auto read = train::pretrained<model>(to, {.rotary = rotary});
        CHECK(read.blocks.layers[0].attention.positions.scaling() == scaling);
        CHECK(read.config.rotary_base == 500);
        CHECK(read.config.context == 7);
        CHECK(read.config.window == c.window);
        const nn::parameter_list expected(written), found(read);
        REQUIRE(expected.names() == found.names());
        for (std::size_t i = 0; i < found.size(); ++i) {
          INFO(found.name(i));
          CHECK(found[i].tensor.values() == expected[i].tensor.values());
        }
      }
}

TEST_CASE("save_pretrained: windows that no model of Hugging Face has are refused") {
  const scratch_folder scratch;
  nn::transformer_config c = nn::as_llama(small_shape());
  c.window = 3, c.biases_of_attention = nn::attention_bias::all;
  using model = nn::llama<float, block_shape<4>>;
  CHECK_THROWS_WITH_AS(train::save_pretrained(scratch / "a", model(c, 1), {.context = 7}),
                       doctest::Contains("the model has a window and biases"), option_error);
  c = small_shape(), c.window = 3;
  CHECK_THROWS_WITH_AS(train::save_pretrained(scratch / "a", nn::gpt<float, block_shape<4>>(c, 1), {}),
                       doctest::Contains("the model has block.0.attention.window"), option_error);
}

TEST_CASE_TEMPLATE("save_pretrained: a sparse model of any element is read again, its absent blocks as zeros",
                   T, float, double, bfloat16) {
  nn::transformer_config c = small_shape();
  c.density = 0.3, c.next_sentence = true, c.dropout = 0.25;
  const scratch_folder scratch;
  using sparse_bert = nn::encoder<T, block_shape<5, 3>>;  // of blocks that overhang
  const sparse_bert model(c, 1);
  train::save_pretrained(scratch / "bert", model, {{{"pad_token_id", 3}}, {}});
  const auto again = train::pretrained<sparse_bert>(scratch / "bert");
  CHECK(again.config.next_sentence);
  CHECK(again.config.segment_types == 2);  // BERT has them: zeros
  for (const T value : again.segment_embedding.table) CHECK(float(value) == 0);
  const nn::parameter_list expected(model), found(again);
  std::vector<std::string> names = found.names();
  std::size_t at = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO(names[i]);
    if (names[i] == "segment_embedding") continue;
    any_tensor const &a = expected[at].tensor, &b = found[i].tensor;
    CHECK(expected.name(at++) == names[i]);
    double sum = 0, sum_again = 0;
    std::int64_t values = 0, values_again = 0;
    for (const double value : a.values()) sum += value, values += value != 0;
    for (const double value : b.values()) sum_again += value, values_again += value != 0;
    CHECK(values == values_again);
    CHECK(sum == doctest::Approx(sum_again).epsilon(1e-12));
  }
  auto const &w = model.blocks.layers[1].attention.qkv.weight,
             &dense = again.blocks.layers[1].attention.qkv.weight;
  CHECK_FALSE(w.pattern().is_dense());
  bool same = true;
  for (std::int64_t row = 0; row < w.rows(); ++row)
    for (std::int64_t col = 0; col < w.cols(); ++col) {
      const std::int64_t stored = w.find(row, col);
      same = same && double(float(dense(row, col))) == (stored < 0 ? 0 : double(float(w.data()[stored])));
    }
  CHECK(same);
  const io::json config = io::read_json(scratch / "bert/config.json");
  CHECK(*config.find("pad_token_id") == io::json(3));
  CHECK(*config.find("hidden_dropout_prob") == io::json(0.25));
  CHECK(*config.find("architectures") == io::json(io::json::array{"BertForPreTraining"}));
  CHECK(*config.find("dtype") == io::json(std::is_same_v<T, float>    ? "float32"
                                          : std::is_same_v<T, double> ? "float64"
                                                                      : "bfloat16"));
}

TEST_CASE("save_pretrained: what GPT-2 and BERT do not have is refused by name, and nothing is written") {
  const scratch_folder scratch;
  const auto says = [&](auto const& model) {
    const std::string text = error_of<option_error>([&] { train::save_pretrained(scratch / "x", model); });
    CHECK_FALSE(std::filesystem::exists(scratch / "x"));
    return text;
  };
  const auto has = [](std::string const& text, std::string const& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  nn::transformer_config c = small_shape();
  c.positions = nn::position_coding::rotary;
  has(says(gpt2(c, 1)), "the model has no position_embedding, which GPT2LMHeadModel has");
  c = small_shape(), c.bias = nn::bias_term::absent;
  has(says(gpt2(c, 1)), "the model has no block.0.norm1.bias, which");
  c = small_shape(), c.key_heads = 1;
  has(says(gpt2(c, 1)), "block.0.attention.key_heads is 1, but it is 2 elsewhere in the model");
  c = small_shape(), c.residual = nn::residual_form::rezero;
  has(says(gpt2(c, 1)), "the model has block.0.attention_scale.");
  c = small_shape(), c.norms = nn::norm_layers::absent;
  has(says(gpt2(c, 1)), "the model has block.0.norm1.absent, and GPT2LMHeadModel has not");
  c = small_shape(), c.repeats = 3;
  has(says(gpt2(c, 1)), "the model has block.times, and GPT2LMHeadModel has not");
  c = small_shape(), c.embedding = 8;
  has(says(gpt2(c, 1)), "token_embedding is 11 x 8, but would be 11 x 12 in GPT2LMHeadModel");
  has(says(bert(c, 1)), "token_embedding is 11 x 8, but would be 11 x 12 in BertForMaskedLM");
  c = small_shape();
  using gated = nn::gpt<float, block_shape<4>,
                        nn::transformer_block<float, block_shape<4>, nn::norm_order::pre,
                                              nn::layer_norm<float>, nn::gated_mlp<float, block_shape<4>>>>;
  has(says(gated(c, 1)), "the model has no rotary positions, which LlamaForCausalLM has");
  c = nn::as_llama(small_shape());
  has(says(gated(c, 1)), "block.0.norm1 subtracts the mean, and a norm of LlamaForCausalLM does not");
  has(says(nn::llama<float, block_shape<4>>(c, 1)),
      "pretrained_folder::context is 0: make it the longest sequence, which LlamaForCausalLM has");
  c = small_shape();
  using post =
      nn::gpt<float, block_shape<4>, nn::transformer_block<float, block_shape<4>, nn::norm_order::post>>;
  has(says(post(c, 1)), "block.0.order is 1, but in GPT2LMHeadModel it is 0");
  using adapted =
      nn::gpt<float, block_shape<4>, nn::transformer_block_of<lora_layer::lora<float, block_shape<4>>>>;
  has(says(adapted(c, 1)), "the model has block.0.attention.qkv.");
  gpt2 uneven(c, 1);
  uneven.blocks.layers[1].norm2.epsilon = 0.5;
  has(says(uneven), "block.1.norm2.epsilon is 0.5, but it is 1e-05 elsewhere in the model");

  put(scratch / "file", "x");
  CHECK(error_of<io_error>([&] { train::save_pretrained(scratch / "file", gpt2(c, 1)); }).find("file") !=
        std::string::npos);
  const std::string taken = scratch / "taken";
  std::filesystem::create_directory(taken);
  put(taken + "/other", "x");
  has(error_of<io_error>([&] { train::save_pretrained(taken, gpt2(c, 1)); }), "it holds other, but only");
  CHECK_THROWS_AS(
      train::save_pretrained(scratch / "failing", gpt2(c, 1),
                             {{}, {{"vocab.txt", [](std::string const&) { throw io_error("full"); }}}}),
      io_error);
  CHECK_FALSE(std::filesystem::exists(scratch / "failing"));
}

}  // namespace save_pretrained_test
