// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/io/file.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/nn/decoding.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/token_sampler.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/pretrained.hpp>
#include <tessera/train/training.hpp>

// Against the logits and the training of Hugging Face's own models: tests/golden/record_llama.py.

namespace pretrained_llama_test {

using namespace tessera;

using llama = nn::llama<float, block_shape<4>>;

const std::string folder = TESSERA_SOURCE_DIR "/tests/golden/";
constexpr std::int64_t length = 70, recorded_tokens = 24, vocabulary = 60;

io::safetensors_file const& recorded() {
  static const io::safetensors_file file(folder + "llama.safetensors");
  return file;
}

/// The greatest difference of the logits of a model and recorded ones.
double difference(llama const& model, std::string const& name) {
  context ctx(1);
  nn::workspace<float> workspace;
  const sequences one({0, length});
  const auto ids = io::read_numbers<std::int32_t>(recorded(), "ids");
  std::vector<std::int32_t> positions(recorded_tokens);
  std::iota(positions.begin(), positions.end(), std::int32_t(length - recorded_tokens));
  llama::saved saved;
  panel_matrix<float> logits, expected(vocabulary, recorded_tokens);
  model.predict(ids, positions, logits, saved, {ctx, one, workspace, nn::purpose::evaluation});
  io::read(recorded(), name + ".logits", expected);
  double worst = 0, greatest = 0;
  for (std::int64_t f = 0; f < vocabulary; ++f)
    for (std::int64_t t = 0; t < recorded_tokens; ++t) {
      worst = std::max(worst, std::abs(double(logits(f, t)) - double(expected(f, t))));
      greatest = std::max(greatest, std::abs(double(expected(f, t))));
    }
  CHECK(greatest > 1);
  return worst;
}

TEST_CASE("pretrained: LLaMA, Mistral and Qwen2 give the logits of Hugging Face") {
  const auto first = train::pretrained<llama>(folder + "llama"),
             second = train::pretrained<llama>(folder + "mistral"),
             third = train::pretrained<llama>(folder + "qwen2");
  CHECK(difference(first, "llama") < 1e-4);
  CHECK(difference(second, "mistral") < 1e-4);
  CHECK(difference(third, "qwen2") < 1e-4);
  CHECK(first.final_norm.epsilon == 1e-5);
  CHECK(first.has_output());
  CHECK(second.config.rotary_base == 1e6);
  CHECK_FALSE(third.has_output());
  CHECK(third.config.qkv_bias() == nn::bias_term::present);
  CHECK(third.config.out_bias() == nn::bias_term::absent);
  const auto sparse = train::pretrained<llama>(folder + "llama", {.density = 0.25});
  CHECK(sparse.blocks.layers[1].mlp.gate.weight.pattern().density() == doctest::Approx(0.25).epsilon(0.02));
  CHECK(sparse.output.table.pattern().is_dense());
}

/// A folder with a golden model, changed.
struct edited_folder {
  scratch_folder scratch;
  std::vector<io::safetensor> tensors;

  explicit edited_folder(std::string const& of) : config(io::read_json(folder + of + "/config.json")) {
    for (auto const& entry : std::filesystem::directory_iterator(folder + of))
      if (entry.path().extension() == ".safetensors") files.emplace_back(entry.path().string());
    for (auto const& file : files)
      for (auto const& [name, tensor] : file.tensors()) tensors.push_back(tensor);
  }
  edited_folder(std::string const& of, std::string const& key, io::json value) : edited_folder(of) {
    set(key, std::move(value));
  }
  edited_folder& set(std::string const& key, io::json value) {
    config[key] = std::move(value);
    return *this;
  }
  edited_folder& without(std::string const& key) {
    std::erase_if(*config.get_if<io::json::object>(), [&](auto const& member) { return member.key == key; });
    return *this;
  }
  edited_folder& with(std::string const& name, std::vector<std::int64_t> shape,
                      std::span<float const> values) {
    tensors.push_back(io::make_safetensor(name, std::move(shape), values));
    return *this;
  }
  std::string saved() {
    io::write_atomically(scratch / "config.json", io::to_text(config));
    io::write_safetensors(scratch / "model.safetensors", tensors);
    return scratch / ".";
  }
  void fails(std::string const& part) {
    const std::string path = saved();
    const std::string text = error_of<io_error>([&] { train::pretrained<llama>(path); });
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
    CHECK(std::count(text.begin(), text.end(), '\n') == 0);
  }

 private:
  std::vector<io::safetensors_file> files;
  io::json config;
};
io::json::object llama3() {
  return {{"rope_type", "llama3"},
          {"factor", 8.0},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 128}};
}

TEST_CASE(
    "pretrained: rotary positions of a LLaMA are scaled as in Hugging Face, in the words of all versions") {
  const io::json linear = io::json::object{{"type", "linear"}, {"factor", 4.0}};
  CHECK(difference(train::pretrained<llama>(edited_folder("llama", "rope_parameters", linear).saved()),
                   "linear") < 1e-4);
  CHECK(difference(train::pretrained<llama>(edited_folder("llama", "rope_parameters", llama3()).saved()),
                   "llama3") < 1e-4);
  edited_folder older("llama");
  older.without("rope_parameters").set("rope_theta", 10000.0).set("rope_scaling", linear);
  CHECK(difference(train::pretrained<llama>(older.saved()), "linear") < 1e-4);
  edited_folder oldest("mistral");
  oldest.without("rope_parameters").set("rope_theta", 1000000).set("rope_scaling", io::json());
  CHECK(difference(train::pretrained<llama>(oldest.saved()), "mistral") < 1e-4);
}

TEST_CASE("pretrained: a LLaMA whose files have rotated features as neighbours") {
  edited_folder turned("llama");
  std::vector<std::vector<float>> values;
  for (io::safetensor& tensor : turned.tensors) {
    if (!tensor.name.ends_with("q_proj.weight") && !tensor.name.ends_with("k_proj.weight")) continue;
    const io::safetensors_file original(folder + "llama/model.safetensors");
    const auto all = io::read_numbers<float>(original, tensor.name);
    std::vector<float>& now = values.emplace_back(all.size());
    for (std::size_t row = 0; row < all.size() / 32; ++row) {  // heads of 8: 0 4 1 5 2 6 3 7
      const std::size_t feature = row % 8, from = row - feature + feature / 2 + feature % 2 * 4;
      std::copy_n(all.begin() + std::ptrdiff_t(32 * from), 32, now.begin() + std::ptrdiff_t(32 * row));
    }
    tensor = io::make_safetensor(tensor.name, tensor.shape, std::span<float const>(now));
  }
  const std::string path = turned.saved();
  CHECK(difference(train::pretrained<llama>(path, {.rotary = train::rotary_order::neighbours}), "llama") <
        1e-4);
  CHECK(difference(train::pretrained<llama>(path), "llama") > 1e-2);
}

TEST_CASE("pretrained: a window of a Mistral or a Qwen2 is that of Hugging Face") {
  const auto windowed = train::pretrained<llama>(edited_folder("mistral", "sliding_window", 16).saved());
  CHECK(windowed.config.window == 16);
  CHECK(difference(windowed, "window") < 1e-4);
  CHECK(difference(windowed, "mistral") > 1e-2);
  const auto window_of = [](auto&& from) { return train::pretrained<llama>(from.saved()).config.window; };
  CHECK(window_of(edited_folder("mistral", "sliding_window", 80)) == 0);
  CHECK(window_of(edited_folder("mistral").without("sliding_window").set("max_position_embeddings", 5000)) ==
        4096);
  CHECK(window_of(edited_folder("qwen2", "sliding_window", 16).without("layer_types")) == 0);
  edited_folder qwen2("qwen2", "use_sliding_window", true);
  qwen2.without("layer_types").set("sliding_window", 16);
  CHECK(window_of(qwen2) == 0);  // from layer 28 on
  CHECK(window_of(qwen2.set("max_window_layers", 0)) == 16);
  qwen2.set("max_window_layers", 1)
      .fails("max_window_layers is 1 of 2 layers, but layers of nn::llama have one");
  const io::json::array all(2, "sliding_attention");
  CHECK(window_of(qwen2.set("layer_types", all)) == 16);
}

TEST_CASE("pretrained: going on with tokens, the likeliest are those that Hugging Face generates") {
  context ctx(1);
  for (auto const& [name, file] : {std::pair{"llama", "llama"}, {"window", "mistral"}}) {
    edited_folder longer(file, "max_position_embeddings", 300);
    if (name != std::string(file)) longer.set("sliding_window", 16);
    const auto model = train::pretrained<llama>(longer.saved());
    nn::decoding<llama> texts(model, ctx);
    nn::token_sampler likeliest({.temperature = 0});
    const auto ids = io::read_numbers<std::int32_t>(recorded(), "ids"),
               expected = io::read_numbers<std::int32_t>(recorded(), std::string(name) + ".greedy");
    const std::int32_t slot = texts.begin();
    std::span<float const> logits = texts.prefill(slot, std::span(ids).first(10));
    std::vector<std::int32_t> added;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      added.push_back(likeliest.choose(logits, {}, 0));
      logits = texts.next({&slot, 1}, {&added.back(), 1});
    }
    CHECK(added == expected);
  }
}

TEST_CASE("pretrained: what nn::llama has not is refused by name") {
  const auto scaled = [](char const* key, io::json value) {
    io::json all = llama3();
    all[key] = std::move(value);
    return edited_folder("llama", "rope_parameters", std::move(all));
  };
  for (char const* form : {"dynamic", "yarn", "longrope", "su"})
    scaled("rope_type", form)
        .fails("rope_parameters.rope_type is \"" + std::string(form) +
               "\", but rotary positions are scaled as \"linear\" or \"llama3\"");
  scaled("factor", 0.5).fails("rope_parameters.factor should be at least 1");
  scaled("high_freq_factor", 1.0).fails("rope_parameters.high_freq_factor should be above low_freq_factor");
  scaled("mscale", 1.0).fails("rope_parameters.mscale is not known");
  scaled("rope_theta", -1).fails("rope_parameters.rope_theta should be above 0");
  scaled("partial_rotary_factor", 0.5).fails("partial_rotary_factor should be 1");
  edited_folder("llama", "rope_parameters", io::json::object{{"type", "linear"}}).fails("rope_parameters");
  edited_folder("llama", "model_type", "gemma").fails("model_type is \"gemma\", but nn::llama is the model");
  edited_folder("llama", "hidden_act", "gelu").fails("hidden_act is \"gelu\"");
  edited_folder("llama", "head_dim", 16).fails("head_dim is 16, but");
  edited_folder("llama", "num_key_value_heads", 3)
      .fails("num_key_value_heads is 3, but should divide the 4 heads");
  edited_folder("llama", "mlp_bias", true).fails("mlp_bias is true without attention_bias");
  edited_folder("llama", "attention_bias", true).fails("no tensor \"model.layers.0.self_attn.q_proj.bias\"");
  edited_folder("mistral", "sliding_window", 0).fails("sliding_window is 0, but should be at least 1");
  edited_folder("qwen2", "layer_types", io::json::array{"full_attention", "sliding_attention"})
      .fails(
          "layer_types[1] is \"sliding_attention\", but layers of nn::llama have one kind of attention, "
          "\"full_attention\"");
  edited_folder("qwen2", "layer_types", io::json::array{"linear_attention", "linear_attention"})
      .fails("layer_types[0] is \"linear_attention\", which nn::llama has not");
  edited_folder("qwen2", "sliding_window", 16)
      .set("vocab_size", 61)
      .fails("(60, 32) but should be F16 (61, 32)");
  edited_folder("qwen2", "tie_word_embeddings", false).fails("no tensor \"lm_head.weight\"");
  const std::vector<float> other(60 * 32, 1);
  edited_folder("qwen2")
      .with("lm_head.weight", {60, 32}, other)
      .fails(
          "tensor \"lm_head.weight\" differs from \"model.embed_tokens.weight\", but in this model they are "
          "one");
}

TEST_CASE("pretrained: a LLaMA of which a file is missing is not read") {
  const scratch_folder scratch;
  for (char const* name : {"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"})
    std::filesystem::copy_file(folder + "mistral/" + name, scratch / name);
  const std::string text = error_of<io_error>([&] { train::pretrained<llama>(scratch / "."); });
  INFO(text);
  CHECK(text.find("is \"model-00002-of-00002.safetensors\", but that file is not in the folder") !=
        std::string::npos);
}

TEST_CASE("pretrained: a LLaMA learns as in PyTorch") {
  context ctx(2, oversubscribe::allowed);
  auto model = train::pretrained<llama>(folder + "llama");
  train::training t(model, train::adamw{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1});
  const auto inputs = io::read_numbers<std::int32_t>(recorded(), "inputs"),
             targets = io::read_numbers<std::int32_t>(recorded(), "targets");
  const auto losses = io::read_numbers<float>(recorded(), "losses");
  REQUIRE(losses.size() == 20);
  const sequences batch = sequences::of_equal_length(2, 20);
  nn::workspace<float> room;
  llama::saved saved;
  for (std::size_t step = 0; step < 20; ++step) {
    INFO("step ", step);
    const auto ids = std::span(inputs).subspan(40 * step, 40),
               next = std::span(targets).subspan(40 * step, 40);
    const auto report = train::train_step(ctx, t, {3e-3, 1e9}, [&](int) {
      const nn::pass<float> p{ctx, batch, room};
      const double sum = t.model.forward(ids, next, saved, p);
      t.model.backward(ids, saved, t.gradients, p);
      return train::token_loss{sum, 40};
    });
    CHECK(std::abs(report.loss - double(losses[step])) < 1e-4);
  }
}

}  // namespace pretrained_llama_test
