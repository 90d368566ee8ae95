// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <nn/lora.hpp>

#include <tessera/io/file.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/safetensors.hpp>
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

/// Of all tokens, and, if the model predicts it, of the next sentence.
template <class Bert>
std::pair<panel_matrix<float>, panel_matrix<float>> logits_of(Bert const& model, recorded const& torch) {
  context ctx(1);
  nn::workspace<float> workspace;
  const sequences one({0, std::int64_t(torch.ids.size())});
  const nn::pass<float> pass{ctx, one, workspace, nn::purpose::evaluation};
  typename Bert::saved saved;
  panel_matrix<float> next;
  model.forward({torch.ids, torch.segments}, torch.ids, saved, pass);
  if (model.config.next_sentence) model.predict_next({torch.ids, torch.segments}, next, saved, pass);
  return {std::move(saved.logits), std::move(next)};
}

TEST_CASE("pretrained: BERT gives the logits of Hugging Face") {
  const recorded torch;
  const auto model = train::pretrained<bert>(folder + "bert");
  CHECK(worst_difference(logits_of(model, torch).first, torch.logits("bert")) < 2e-4);
  CHECK_FALSE(model.config.next_sentence);
}

TEST_CASE(
    "pretrained: a BERT of adapters reads its frozen weights, and begins with the logits of the other") {
  const recorded torch;
  using adapted = nn::transformer_block_of<lora_layer::lora<float, block_shape<4>>, nn::norm_order::post>;
  auto model = train::pretrained<nn::encoder<float, block_shape<4>, adapted>>(folder + "bert");
  CHECK(worst_difference(logits_of(model, torch).first, torch.logits("bert")) > 1e-3);
  for (auto& each : model.blocks.layers)
    for (auto* linear : {&each.attention.qkv, &each.attention.out, &each.mlp.up, &each.mlp.down})
      linear->up.weight.fill(0);
  CHECK(worst_difference(logits_of(model, torch).first, torch.logits("bert")) < 2e-4);
  CHECK_THROWS_AS(
      (train::pretrained<nn::encoder<float, block_shape<4>, adapted>>(folder + "bert", {.density = 0.5})),
      option_error);  // weights that are not trained are not pruned
}

/// A folder with a golden model, changed.
struct edited_folder {
  scratch_folder scratch;
  std::string const of;
  std::vector<io::safetensor> tensors;

  explicit edited_folder(std::string name) : of(std::move(name)) {
    put(scratch / "config.json", io::read_file(folder + of + "/config.json"));
    for (auto const& [name_of, tensor] : original.tensors()) tensors.push_back(tensor);
  }
  /// Renames tensors; one that becomes "" is left out.
  template <class Rename> edited_folder& renamed(Rename rename) {
    for (auto& tensor : tensors) tensor.name = rename(tensor.name);
    std::erase_if(tensors, [](auto const& tensor) { return tensor.name.empty(); });
    return *this;
  }
  edited_folder& replaced(std::string const& from, std::string const& to) {
    return renamed([&](std::string name) {
      const std::size_t at = name.find(from);
      return at == name.npos ? name : name.replace(at, from.size(), to);
    });
  }
  edited_folder& with(std::string name, std::vector<std::int64_t> shape, std::span<float const> values) {
    tensors.push_back(io::make_safetensor(std::move(name), std::move(shape), values));
    return *this;
  }
  edited_folder& twice(std::string const& name, std::string const& other) {
    tensors.push_back(original.at(name));
    tensors.back().name = other;
    return *this;
  }
  /// The configuration without some members, and with others.
  edited_folder& configured(std::vector<std::string> const& without, io::json::object with = {}) {
    const std::string path = scratch / "config.json";
    const io::json all = io::parse_json(io::read_file(path));
    io::json::object kept;
    for (io::json_member const& member : *all.get_if<io::json::object>())
      if (std::ranges::count(without, member.key) == 0) kept.push_back(member);
    kept.insert(kept.end(), with.begin(), with.end());
    io::write_atomically(path, io::to_text(io::json(std::move(kept))));
    return *this;
  }
  edited_folder& set(std::string const& key, io::json value) {
    return configured(std::vector{key}, {{key, std::move(value)}});
  }
  std::string saved(std::string const& as = "model.safetensors") {
    io::write_safetensors(scratch / as, tensors);
    return scratch / ".";
  }
  template <class Model> std::string error(std::vector<std::string>* unused = nullptr) {
    saved();
    return error_of<io_error>([&] { train::pretrained<Model>(scratch / ".", {.unused = unused}); });
  }

 private:
  io::safetensors_file original{folder + of + "/model.safetensors"};
};

TEST_CASE("pretrained: tensors are found under all names that from_pretrained knows") {
  const recorded torch;
  const auto gpt2_differs = [&](std::string const& path) {
    return worst_difference(logits_of(train::pretrained<gpt2>(path), torch.ids), torch.logits("gpt2"));
  };
  const auto bert_differs = [&](std::string const& path) {
    return worst_difference(logits_of(train::pretrained<bert>(path), torch).first, torch.logits("bert"));
  };
  const std::string wte = "transformer.wte.weight", words = "bert.embeddings.word_embeddings.weight";
  CHECK(gpt2_differs(edited_folder("gpt2").replaced("transformer.", "").saved()) < 2e-4);
  CHECK(gpt2_differs(edited_folder("gpt2").replaced(wte, "lm_head.weight").saved()) < 2e-4);
  CHECK(gpt2_differs(edited_folder("gpt2").twice(wte, "lm_head.weight").saved()) < 2e-4);
  CHECK(bert_differs(edited_folder("bert").replaced("bert.", "").saved()) < 2e-4);
  CHECK(bert_differs(edited_folder("bert")
                         .replaced("LayerNorm.weight", "LayerNorm.gamma")
                         .replaced("LayerNorm.bias", "LayerNorm.beta")
                         .saved()) < 2e-4);
  CHECK(bert_differs(edited_folder("bert")
                         .replaced(words, "cls.predictions.decoder.weight")
                         .replaced("cls.predictions.bias", "cls.predictions.decoder.bias")
                         .saved()) < 2e-4);

  // Which of two different tensors is meant, nobody knows: from_pretrained does not tie them.
  const std::vector<float> other(40 * 32, 1);
  CHECK(edited_folder("gpt2")
            .with("lm_head.weight", {40, 32}, other)
            .error<gpt2>()
            .find("tensor \"lm_head.weight\" differs from \"transformer.wte.weight\"") != std::string::npos);
  CHECK(edited_folder("gpt2").with("wte.weight", {40, 32}, other).error<gpt2>().find("differs from") !=
        std::string::npos);
  CHECK(edited_folder("bert")
            .with("cls.predictions.decoder.bias", {40}, std::span(other).first(40))
            .error<bert>()
            .find("differs from \"cls.predictions.bias\"") != std::string::npos);
}

TEST_CASE("pretrained: a tensor of the files without a place in the model is an error or is listed") {
  const recorded torch;
  const std::vector<float> some(40);
  // Masks and positions, which older versions wrote, are no weights.
  CHECK(edited_folder("gpt2")
            .with("transformer.h.0.attn.bias", {40}, some)
            .with("transformer.h.1.attn.masked_bias", {40}, some)
            .error<gpt2>()
            .empty());
  CHECK(edited_folder("bert").with("bert.embeddings.position_ids", {40}, some).error<bert>().empty());
  CHECK(edited_folder("gpt2")
            .with("score.weight", {1, 40}, some)
            .error<gpt2>()
            .find("this model has no place for 1 tensor of the files: \"score.weight\"; with "
                  "pretrained_settings::unused") != std::string::npos);
  CHECK(edited_folder("gpt2").set("n_layer", 1).error<gpt2>().find("no place for 12 tensors") !=
        std::string::npos);
  CHECK(edited_folder("bert")
            .with("bert.encoder.layer.0.attention.self.distance_embedding.weight", {40, 1}, some)
            .error<bert>()
            .find("distance_embedding") != std::string::npos);

  std::vector<std::string> unused;
  CHECK(edited_folder("gpt2")
            .with("score.weight", {1, 40}, some)
            .with("transformer.h.0.attn.bias", {40}, some)
            .error<gpt2>(&unused)
            .empty());
  CHECK(unused == std::vector<std::string>{"score.weight"});
}

TEST_CASE("pretrained: a BERT with a head for next sentences predicts them") {
  const recorded torch;
  edited_folder edited("bert");
  for (char const* name : {"bert.pooler.dense.weight", "bert.pooler.dense.bias",
                           "cls.seq_relationship.weight", "cls.seq_relationship.bias"})
    edited.tensors.push_back(torch.file.at(name));
  const auto model = train::pretrained<bert>(edited.saved());
  CHECK(model.config.next_sentence);
  const auto [masked, next] = logits_of(model, torch);
  CHECK(worst_difference(masked, torch.logits("bert")) < 2e-4);
  panel_matrix<float> expected(2, 1);
  io::read(torch.file, "bert.next", expected);
  CHECK(worst_difference(next, expected) < 2e-4);
}

TEST_CASE("pretrained: a folder of a class with another head says which class is read") {
  const std::vector<float> some(64);
  const auto has = [](std::string const& text, std::string const& part) {
    INFO(text);
    return text.find(part) != std::string::npos;
  };
  const auto classes = [](std::string const& name) { return io::json(io::json::array{name}); };
  edited_folder classifier("bert");
  classifier.set("architectures", classes("BertForSequenceClassification"))
      .renamed([](std::string name) { return name.starts_with("cls.") ? "" : name; })
      .with("classifier.weight", {2, 32}, some);
  const std::string says =
      "architectures is [\"BertForSequenceClassification\"], but BertForMaskedLM is read, "
      "and its tensor \"cls.predictions.transform.dense.weight\" is not in the files";
  CHECK(has(classifier.error<bert>(), says));
  std::vector<std::string> unused;
  CHECK(has(classifier.error<bert>(&unused), says));

  edited_folder scored("gpt2");
  scored.set("architectures", classes("GPT2ForSequenceClassification")).with("score.weight", {2, 32}, some);
  CHECK(has(scored.error<gpt2>(),
            "no place for 1 tensor of the files: \"score.weight\"; architectures of config.json is "
            "[\"GPT2ForSequenceClassification\"], but GPT2LMHeadModel is read; with pretrained_settings"));
  CHECK(scored.error<gpt2>(&unused).empty());
  // A folder that has all tensors is read, whatever its model is called.
  CHECK(edited_folder("gpt2").set("architectures", classes("GPT2Model")).error<gpt2>().empty());
  CHECK(edited_folder("bert").set("architectures", io::json()).error<bert>().empty());
  CHECK(edited_folder("bert").set("architectures", classes("BertForPreTraining")).error<bert>().empty());
}

TEST_CASE("pretrained: an error is short whatever tensors and files are called") {
  const std::string name(10'000, 'x');
  const std::vector<float> some(40);
  const auto check_short = [](std::string const& error) {
    INFO(error);
    CHECK((error.size() > 0 && error.size() < 450));
  };
  edited_folder named("gpt2");
  for (int i = 0; i < 10; ++i) named.with(name + std::to_string(i), {40}, some);
  check_short(named.error<gpt2>());
  for (char const* key :
       {"model_type", "activation_function", "transformers_weights", "n_layer", "architectures"})
    check_short(edited_folder("gpt2").set(key, name).set("vocab_size", 41).error<gpt2>());
  edited_folder many("gpt2");
  for (int i = 0; i < 100; ++i) put(many.scratch / (name.substr(0, 200) + std::to_string(i)), "x");
  check_short(error_of<io_error>([&] { train::pretrained<gpt2>(many.scratch / "."); }));
}

TEST_CASE("pretrained: the files of the weights are chosen as from_pretrained chooses them") {
  const recorded torch;
  const auto differs = [&](edited_folder const& edited) {
    return worst_difference(logits_of(train::pretrained<gpt2>(edited.scratch / "."), torch.ids),
                            torch.logits("gpt2"));
  };
  const auto error = [](edited_folder const& edited) {
    return error_of<io_error>([&] { train::pretrained<gpt2>(edited.scratch / "."); });
  };
  const auto has = [](std::string const& text, std::string const& part) {
    INFO(text);
    return text.find(part) != std::string::npos;
  };
  const std::string index = "model.safetensors.index.json", shard = "model-00001-of-00002.safetensors",
                    lost = "{\"weight_map\": {\"x\": \"" + shard + "\"}}";

  // A single file, though an index of an earlier save is left and its files are gone.
  edited_folder resaved("gpt2");
  resaved.saved();
  put(resaved.scratch / index, lost);
  CHECK(differs(resaved) < 2e-4);
  std::filesystem::remove(resaved.scratch / "model.safetensors");
  CHECK(has(error(resaved), "weight_map.x is \"" + shard + "\", but that file is not in the folder"));
  put(resaved.scratch / index, "{\"weight_map\": {}}");
  CHECK(has(error(resaved), "weight_map lists no files"));
  for (char const* elsewhere : {"../x", "/etc/passwd", "a/../b"}) {
    put(resaved.scratch / index, std::string("{\"weight_map\": {\"x\": \"") + elsewhere + "\"}}");
    CHECK(has(error(resaved), "is no file of this folder"));
  }
  for (char const* none : {"..", ".", "", "model.safetensors\\u0000"}) {
    put(resaved.scratch / index, std::string("{\"weight_map\": {\"x\": \"") + none + "\"}}");
    CHECK(has(error(resaved), "but that file is not in the folder"));
  }

  edited_folder sharded("gpt2");
  const std::string last_shard = "model-00002-of-00002.safetensors";
  const auto all = sharded.tensors;
  const auto half = std::ptrdiff_t(all.size() / 2);
  const auto listed = [&](io::json::object const& others) {  // in the index
    io::json::object map = others;
    for (io::safetensor const& tensor : all)
      if (std::ranges::count(others, tensor.name, &io::json_member::key) == 0)
        map.push_back({tensor.name, std::distance(all.data(), &tensor) < half ? shard : last_shard});
    put(sharded.scratch / index, io::to_text(io::json::object{{"weight_map", std::move(map)}}));
  };
  sharded.tensors.assign(all.begin(), all.begin() + half);
  sharded.saved(shard);
  sharded.tensors.assign(all.begin() + half, all.end());
  sharded.saved(last_shard);
  listed({});
  CHECK(differs(sharded) < 2e-4);
  listed({{"x", shard}});
  CHECK(has(error(sharded), index + "] weight_map.x is \"" + shard + "\", but that file has no such tensor"));
  listed({{all.front().name, last_shard}});
  CHECK(
      has(error(sharded), all.front().name + " is \"" + last_shard + "\", but that file has no such tensor"));
  put(sharded.scratch / index, "{\"weight_map\": {\"" + all.front().name + "\": \"" + shard + "\"}}");
  CHECK(has(error(sharded), "no tensor"));
  sharded.tensors.push_back(all.front());
  sharded.saved(last_shard);
  listed({});
  CHECK(has(error(sharded), last_shard + "] tensor \"" + all.front().name + "\" is in "));
  CHECK(has(error(sharded), shard + ", too"));
  std::filesystem::remove(sharded.scratch / last_shard);
  CHECK(has(error(sharded), "is \"" + last_shard + "\", but that file is not in the folder"));

  edited_folder named("gpt2");
  named.set("transformers_weights", "other.safetensors").saved("other.safetensors");
  put(named.scratch / "model.safetensors", "of another model");
  CHECK(differs(named) < 2e-4);
  named.set("transformers_weights", "../other.safetensors");
  CHECK(has(error(named), "transformers_weights of config.json is \"../other.safetensors\""));

  // A file in another format is named, with the way to convert it.
  struct format {
    char const *file, *advice;
  };
  for (format const& other : {format{"pytorch_model.bin", "GPT2LMHeadModel.from_pretrained(\""},
                              {"pytorch_model.bin.index.json", ").save_pretrained(\""},
                              {"a.gguf", ", gguf_file=\"a.gguf\""},
                              {"tf_model.h5", "with transformers 4"},
                              {"flax_model.msgpack", ", from_flax=True"},
                              {"model.fp16.safetensors", ", variant=\"fp16\""},
                              {"adapter_model.safetensors", "merge_and_unload()"}}) {
    const edited_folder bare("gpt2");
    put(bare.scratch / other.file, "x");
    CHECK(has(error(bare),
              std::string("no model.safetensors and no model.safetensors.index.json, but ") + other.file));
    CHECK(has(error(bare), other.advice));
  }
  CHECK(has(error(edited_folder("gpt2")), "but config.json"));
  const edited_folder hostile("gpt2");  // a name that would be a line of Python, and clear the screen
  put(hostile.scratch / "model.\")\nquit()\x1b[2J#.safetensors", "x");
  CHECK(has(error(hostile), R"(but config.json, model.")\x0aquit()\x1b[2J#.safetensors)"));
  edited_folder adapted("gpt2");
  adapted.saved();
  put(adapted.scratch / "adapter_config.json", "{}");
  CHECK(has(error(adapted), "an adapter changes the weights"));
}

TEST_CASE("pretrained: members that the configuration lacks have the defaults of Hugging Face") {
  const recorded torch;
  edited_folder few("gpt2");
  few.configured({"activation_function", "layer_norm_epsilon", "n_inner", "model_type", "scale_attn_weights",
                  "scale_attn_by_inverse_layer_idx", "add_cross_attention", "tie_word_embeddings",
                  "reorder_and_upcast_attn", "n_embd", "n_head", "n_layer", "n_positions"},
                 {{"hidden_size", 32},
                  {"num_attention_heads", 4},
                  {"num_hidden_layers", 2},
                  {"max_position_embeddings", 24}});
  CHECK(worst_difference(logits_of(train::pretrained<gpt2>(few.saved()), torch.ids), torch.logits("gpt2")) <
        2e-4);
  edited_folder bert_few("bert");
  bert_few.configured({"hidden_act", "layer_norm_eps", "model_type", "type_vocab_size", "is_decoder",
                       "add_cross_attention", "tie_word_embeddings"});
  const auto model = train::pretrained<bert>(bert_few.saved());
  CHECK(model.embedding_norm.epsilon == 1e-12);
  CHECK(worst_difference(logits_of(model, torch).first, torch.logits("bert")) < 2e-4);

  // Sizes too, which then are the published models'.
  const auto without = [](char const* of, char const* key, std::string const& part) {
    edited_folder edited(of);
    edited.configured({key});
    const std::string text = edited.of == "gpt2" ? edited.error<gpt2>() : edited.error<bert>();
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  without("gpt2", "vocab_size", "should be F32 (50257, 32)");
  without("gpt2", "n_positions", "should be F32 (1024, 32)");
  without("gpt2", "n_embd", "should be F32 (40, 768)");
  without("gpt2", "n_layer", "transformer.h.2.");
  without("gpt2", "n_head", "n_head is 12, but should divide the 32 hidden features");
  without("bert", "vocab_size", "should be F32 (30522, 32)");
  without("bert", "max_position_embeddings", "should be F32 (512, 32)");
  without("bert", "intermediate_size", "should be F32 (3072, 32)");
  without("bert", "num_hidden_layers", "bert.encoder.layer.2.");
  CHECK(error_of<io_error>([&] {
          train::pretrained<nn::gpt<float, block_shape<4>>>(few.scratch / ".");
        }).find("activation_function is missing, which means \"gelu_new\"") != std::string::npos);
}

TEST_CASE("pretrained: values of a configuration that are impossible or not supported are refused by name") {
  const auto says = [](char const* of, char const* key, io::json value, std::string const& what) {
    edited_folder edited(of);
    edited.set(key, std::move(value));
    const std::string text = edited.of == "gpt2" ? edited.error<gpt2>() : edited.error<bert>();
    INFO(text);
    CHECK(text.find(std::string(key) + " " + what) != std::string::npos);
  };
  says("gpt2", "layer_norm_epsilon", -1, "is -1, but should be from 0 to 1");
  says("gpt2", "layer_norm_epsilon", io::json(), "is null but should be a number");
  says("bert", "layer_norm_eps", -1e-12, "is -1e-12, but should be from 0 to 1");
  says("gpt2", "n_head", 5, "is 5, but should divide the 32 hidden features");
  says("gpt2", "n_head", 0, "is 0, but should be from 1");
  says("gpt2", "n_layer", 0, "is 0, but should be from 1");
  says("gpt2", "n_layer", -2, "is -2, but should be from 1");
  says("gpt2", "n_layer", 2.0, "is 2.0 but should be an integer");
  says("gpt2", "n_layer", std::int64_t(1) << 40, "is 1099511627776, but should be from 1");
  says("gpt2", "vocab_size", -3, "is -3, but should be from 1 to 16777216");
  CHECK(edited_folder("gpt2")
            .set("hidden_size", 16)
            .error<gpt2>()
            .find("n_embd differs from hidden_size, which means the same") != std::string::npos);
  says("gpt2", "activation_function", io::json(), "is null, but");
  says("gpt2", "tie_word_embeddings", false, "is false, but nn::gpt has true");
  says("gpt2", "scale_attn_weights", false, "is false, but nn::gpt has true");
  says("gpt2", "add_cross_attention", true, "is true, but nn::gpt has false");
  says("gpt2", "quantization_config", io::json::object{{"bits", 4}}, "is given, but weights of a quantised");
  says("bert", "num_attention_heads", 7, "is 7, but should divide the 32 hidden features");
  says("bert", "type_vocab_size", -1, "is -1, but should be from 0");
  says("bert", "intermediate_size", 0, "is 0, but should be a multiple of the 32");
  says("bert", "is_decoder", true, "is true, but nn::encoder has false");
  says("bert", "add_cross_attention", true, "is true, but nn::encoder has false");
  says("bert", "position_embedding_type", "relative_key", "is \"relative_key\", but nn::encoder has");
  says("bert", "hidden_act", "quick_gelu", "is \"quick_gelu\", but the activation");
}

TEST_CASE("pretrained: all tensors are looked up before memory is taken for what the configuration says") {
  // A million layers, of which the file has two, and the last.
  edited_folder edited("gpt2");
  edited.set("n_layer", 1000000);
  for (io::safetensor tensor : std::vector(edited.tensors))
    if (const std::size_t at = tensor.name.find(".h.1."); at != tensor.name.npos) {
      tensor.name.replace(at, 5, ".h.999999.");
      edited.tensors.push_back(std::move(tensor));
    }
  edited.saved();
  CHECK(error_of<io_error>([&] {
          train::pretrained<gpt2>(edited.scratch / ".");
        }).find("no tensor \"transformer.h.2.ln_1.weight\"") != std::string::npos);
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
  CHECK(says([] { train::pretrained<other>(folder + "gpt2"); })
            .find("activation_function is \"gelu_new\", but the activation of this model (nn::gpt has gelu, "
                  "nn::gpt2 gelu_new) is "
                  "\"gelu\"") != std::string::npos);
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
  CHECK(with("\"n_layer\": 2", "\"n_layer\": 3").find("no tensor \"transformer.h.2.ln_1.weight\"") !=
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
}

}  // namespace pretrained_test
