// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/lora.hpp>
#include <tessera/nn/lora_settings.hpp>
#include <tessera/nn/lora_transformer.hpp>
#include <tessera/nn/sequence_classifier.hpp>
#include <tessera/train/peft.hpp>
#include <tessera/train/pretrained.hpp>

// Against folders and logits of PEFT itself: tests/golden/record_peft.py.

namespace peft_test {

using namespace tessera;

using block = block_shape<4>;
template <class T>
using gpt2 = nn::gpt<
    T, block,
    nn::transformer_block<T, block, nn::norm_order::pre, nn::layer_norm<T>,
                          nn::mlp<T, block, ops::gelu_tanh, nn::lora<T, block>>,
                          nn::multi_head_attention<T, block, kernels::plain_scores, nn::lora<T, block>>>>;
template <class T> using post_block = nn::transformer_block_of<nn::lora<T, block>, nn::norm_order::post>;
template <class T> using bert = nn::encoder<T, block, post_block<T>>;

const std::string golden = TESSERA_SOURCE_DIR "/tests/golden/";

nn::transformer_config small_shape() {
  nn::transformer_config c;
  c.layers = 2, c.hidden = 16, c.heads = 2, c.context = 7, c.vocabulary = 11, c.feed_forward = 2;
  return c;
}

/// Gives adapters values, in U, too, but where a rank was rounded up.
template <class Model> void train_a_little(Model& model, std::int64_t rank) {
  const random_stream random(5, random_purpose::initial_values, random_key(6));
  std::uint64_t at = 0;
  nn::for_each_layer(model, [&](auto& layer) {
    if constexpr (requires { layer.down.weight; })
      layer.up.weight.generate([&](std::int64_t, std::int64_t col) {
        using T = typename std::remove_reference_t<decltype(layer)>::value_type;
        const double value = random.uniform(at++) - 0.5;
        return T(col % round_up<std::int64_t>(rank, 4) < rank ? float(value) : 0);
      });
  });
}

template <class Model> Model adapted(nn::lora_settings const& how, nn::lora_targets const& where) {
  Model model(small_shape(), 3);
  nn::add_lora(model, how, where, 4);
  train_a_little(model, how.rank);
  return model;
}

/// The model that the files give a base.
template <class Model> Model read_again(std::string const& folder, Model base) {
  const auto found = train::read_peft(folder, base);
  nn::add_lora(base, found.settings, found.targets, 8);
  train::load_peft(folder, base);
  return base;
}

bool same_values(nn::parameter_list const& a, nn::parameter_list const& b) {
  const auto same = [](nn::any_parameter const& x, nn::any_parameter const& y) {
    return std::ranges::equal(std::span(x.tensor.data(), x.tensor.size_bytes()),
                              std::span(y.tensor.data(), y.tensor.size_bytes()));
  };
  return a.names() == b.names() && std::ranges::equal(a, b, same);
}

/// Logits of all tokens.
template <class T> panel_matrix<T> logits_of(gpt2<T> const& model, std::vector<std::int32_t> const& ids) {
  context ctx(1);
  nn::workspace<T> room;
  const sequences one({0, std::int64_t(ids.size())});
  std::vector<std::int32_t> positions(ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  typename gpt2<T>::saved saved;
  panel_matrix<T> logits;
  model.predict(ids, positions, logits, saved, {ctx, one, room, nn::purpose::evaluation});
  return logits;
}

double worst_difference(panel_matrix<float> const& a, panel_matrix<float> const& b) {
  double worst = 0;
  for (std::int64_t f = 0; f < a.features(); ++f)
    for (std::int64_t t = 0; t < a.tokens(); ++t)
      worst = std::max(worst, std::abs(double(a(f, t)) - b(f, t)));
  return worst;
}

const std::vector<std::int32_t> some_ids{1, 5, 2, 9, 10};

struct recorded {
  io::safetensors_file sequence{golden + "pretrained.safetensors"}, file{golden + "peft.safetensors"};
  std::vector<std::int32_t> ids = io::read_numbers<std::int32_t>(sequence, "ids"),
                            segments = io::read_numbers<std::int32_t>(sequence, "segments");
  panel_matrix<float> logits(std::string const& name) const {
    panel_matrix<float> all(40, std::int64_t(ids.size()));
    io::read(file, name + ".logits", all);
    return all;
  }
};

TEST_CASE("peft: GPT-2 with adapters of PEFT gives its logits") {
  const recorded torch;
  const auto base = train::pretrained<gpt2<float>>(golden + "gpt2");
  const auto found = train::read_peft(golden + "peft_gpt2", base);
  CHECK(found.base == "gpt2");
  CHECK(found.settings.rank == 3);
  CHECK(found.settings.alpha == 5);
  CHECK(found.settings.rank_stabilised);
  CHECK(found.targets == nn::lora_targets{.qkv = true, .out = true, .down = true});
  const auto model = read_again(golden + "peft_gpt2", base);
  CHECK(worst_difference(logits_of(model, torch.ids), torch.logits("gpt2")) < 1e-4);
  CHECK(worst_difference(logits_of(base, torch.ids), torch.logits("gpt2")) > 1);
}

TEST_CASE("peft: BERT with adapters of PEFT gives its logits") {
  const recorded torch;
  const auto base = train::pretrained<bert<float>>(golden + "bert");
  const auto found = train::read_peft(golden + "peft_bert", base);
  CHECK(found.base == "bert");
  CHECK_FALSE(found.settings.rank_stabilised);
  CHECK(found.targets == nn::lora_targets{.query = true, .value = true, .up = true});
  const auto model = read_again(golden + "peft_bert", base);
  context ctx(1);
  nn::workspace<float> room;
  const sequences one({0, std::int64_t(torch.ids.size())});
  std::vector<std::int32_t> positions(torch.ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  bert<float>::saved saved;
  panel_matrix<float> logits;
  model.predict({torch.ids, torch.segments}, positions, logits, saved,
                {ctx, one, room, nn::purpose::evaluation});
  CHECK(worst_difference(logits, torch.logits("bert")) < 1e-4);
}

TEST_CASE("peft: what was read is written with the same values") {
  const scratch_folder scratch;
  const auto check = [&](std::string const& name, auto const& base) {
    const std::string theirs = golden + "peft_" + name, ours = scratch / name;
    train::save_peft(ours, read_again(theirs, base), train::read_peft(theirs, base).settings, name);
    const io::safetensors_file a(theirs + "/adapter_model.safetensors"),
        b(ours + "/adapter_model.safetensors");
    CHECK(std::ranges::equal(a.tensors(), b.tensors(), [](auto const& x, auto const& y) {
      return x.first == y.first && x.second.dtype == y.second.dtype && x.second.shape == y.second.shape &&
             std::ranges::equal(x.second.bytes, y.second.bytes);
    }));
    const io::json written = io::read_json(ours + "/adapter_config.json"),
                   original = io::read_json(theirs + "/adapter_config.json");
    for (io::json_member const& member : *written.get_if<io::json::object>()) {
      INFO(member.key);
      REQUIRE(original.find(member.key));
      if (member.key == "target_modules") continue;  // longer names here
      if (member.key == "lora_alpha")
        CHECK(original.at(member.key).as_number() == written.at(member.key).as_number());
      else
        CHECK(member.value == *original.find(member.key));
    }
  };
  check("gpt2", train::pretrained<gpt2<float>>(golden + "gpt2"));
  check("bert", train::pretrained<bert<float>>(golden + "bert"));
}

template <class Model> void check_round_trip(nn::lora_settings const& how, nn::lora_targets const& where) {
  const scratch_folder scratch;
  const auto model = adapted<Model>(how, where);
  train::save_peft(scratch / "x", model, how, "some/base");
  const Model base(small_shape(), 3);
  const auto found = train::read_peft(scratch / "x", base);
  CHECK(found.settings.rank == how.rank);
  CHECK(found.settings.scale() == how.scale());
  CHECK(found.settings.rank_stabilised == how.rank_stabilised);
  CHECK(found.targets == where);
  CHECK(found.base == "some/base");
  CHECK(same_values(read_again(scratch / "x", base), model));
}

TEST_CASE_TEMPLATE("peft: adapters of a GPT are read again to the bit", T, float, bfloat16) {
  check_round_trip<gpt2<T>>({.rank = 8, .alpha = 16}, {.qkv = true});
  check_round_trip<gpt2<T>>({.rank = 3, .alpha = 7, .rank_stabilised = true},
                            {.qkv = true, .out = true, .up = true, .down = true});
  check_round_trip<gpt2<T>>({.rank = 5, .alpha = 0.3}, {.out = true});
}

TEST_CASE_TEMPLATE("peft: adapters of an encoder are read again to the bit", T, float, bfloat16) {
  check_round_trip<bert<T>>({.rank = 4, .alpha = 16}, {.query = true, .value = true});
  check_round_trip<bert<T>>(
      {.rank = 3, .alpha = 7, .rank_stabilised = true},
      {.query = true, .key = true, .value = true, .out = true, .up = true, .down = true});
  check_round_trip<bert<T>>({.rank = 2}, {.key = true, .down = true});
}

TEST_CASE("peft: a classifier of sequences is a BERT, too") {
  using classifier = nn::sequence_classifier<float, block, post_block<float>>;
  const scratch_folder scratch;
  const auto trained = adapted<bert<float>>({.rank = 3}, {.query = true, .value = true});
  train::save_peft(scratch / "x", classifier(trained, 3, 1), {.rank = 3}, "");
  CHECK(train::read_peft(scratch / "x", trained).base.empty());
  CHECK(same_values(read_again(scratch / "x", bert<float>(small_shape(), 3)), trained));
}

TEST_CASE("peft: Q and V of GPT-2 become one adapter of c_attn, and all others get its rank") {
  const scratch_folder scratch;
  for (const bool rank_stabilised : {false, true}) {
    const nn::lora_settings how{.rank = 3, .alpha = 7, .rank_stabilised = rank_stabilised};
    const auto model = adapted<gpt2<float>>(how, {.query = true, .value = true, .up = true});
    train::save_peft(scratch / "x", model, how, "");
    const auto again = read_again(scratch / "x", gpt2<float>(small_shape(), 3));
    const auto expected = logits_of(model, some_ids);
    CHECK(worst_difference(logits_of(again, some_ids), expected) <= 1e-6);
    CHECK(worst_difference(logits_of(gpt2<float>(small_shape(), 3), some_ids), expected) > 1e-3);
    const io::safetensors_file file(scratch / "x/adapter_model.safetensors");
    const auto b = io::read_numbers<float>(file,
                                           "base_model.model.transformer.h.1.attn.c_attn.lora_B.weight"),
               a = io::read_numbers<float>(file, "base_model.model.transformer.h.1.mlp.c_fc.lora_A.weight");
    REQUIRE(b.size() == 48 * 6);
    REQUIRE(a.size() == 6 * 16);
    CHECK(b[2] != 0);
    CHECK(b[3] == 0);  // the first row of Q, the first column of V
    CHECK(b[47 * 6 + 2] == 0);
    CHECK(b[47 * 6 + 3] != 0);
    CHECK(std::all_of(a.begin() + 3 * 16, a.end(), [](float value) { return value == 0; }));
  }
}

TEST_CASE("peft: an adapter that Q, K and V of BERT share becomes three") {
  const scratch_folder scratch;
  const auto model = adapted<bert<float>>({.rank = 3}, {.qkv = true});
  train::save_peft(scratch / "x", model, {.rank = 3}, "");
  const auto again = read_again(scratch / "x", bert<float>(small_shape(), 3));
  auto const &one = model.blocks.layers[1].attention.qkv, &three = again.blocks.layers[1].attention.qkv;
  REQUIRE(three.ranks() == 12);
  bool same = true;
  for (std::int64_t row = 0; row < 48; ++row)
    for (std::int64_t k = 0; k < 3; ++k) {
      const std::int64_t part = row / 16;
      same = same && one.up.weight(row, k) == three.up.weight(row, 4 * part + k);
      same = same && one.down.weight(k, row % 16) == three.down.weight(4 * part + k, row % 16);
    }
  CHECK(same);
}

TEST_CASE("peft: names of tensors of a base without a head are read, too") {
  const scratch_folder scratch;
  const auto model = adapted<gpt2<float>>({.rank = 3}, {.qkv = true});
  train::save_peft(scratch / "x", model, {.rank = 3}, "");
  const std::string path = scratch / "x/adapter_model.safetensors";
  {
    const io::safetensors_file file(path);
    std::vector<io::safetensor> tensors;
    for (auto [name, tensor] : file.tensors()) {
      tensor.name.erase(tensor.name.find("transformer."), 12);
      tensors.push_back(tensor);
    }
    io::write_safetensors(path, tensors);
  }
  CHECK(same_values(read_again(scratch / "x", gpt2<float>(small_shape(), 3)), model));
}

/// A copy of a folder of PEFT, of which parts can be changed.
struct changed_folder {
  scratch_folder scratch;
  std::string path = scratch / "x";
  io::json config;

  explicit changed_folder(std::string const& of) {
    std::filesystem::copy(of, path);
    config = io::read_json(path + "/adapter_config.json");
  }
  /// The error of read_peft and load_peft if a member of the configuration is another, and the path is left
  /// out.
  template <class Model> std::string refusal(Model& model, std::string const& key, io::json value) {
    io::json changed = config;
    changed[key] = std::move(value);
    put(path + "/adapter_config.json", io::to_text(changed));
    return refusal(model);
  }
  template <class Model> std::string refusal(Model& model) {
    const Model before = model;
    const std::string text = error_of<io_error>([&] { train::read_peft(path, model); });
    CHECK(error_of<io_error>([&] { train::load_peft(path, model); }) == text);
    CHECK(same_values(model, before));
    const std::size_t at = text.find(path + "/");
    REQUIRE(at != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
    return text.substr(at + path.size() + 1);
  }
};

TEST_CASE("peft: a configuration of other adapters is refused by the name of its member") {
  changed_folder folder(golden + "peft_gpt2");
  auto model = read_again(golden + "peft_gpt2", train::pretrained<gpt2<float>>(golden + "gpt2"));
  const auto says = [&](std::string const& key, io::json value) {
    return folder.refusal(model, key, std::move(value));
  };
  const std::string in = "adapter_config.json] ";
  using object = io::json::object;
  using array = io::json::array;
  CHECK(says("peft_type", "LOHA") ==
        in + "peft_type is \"LOHA\", but the adapters that are read are \"LORA\"");
  CHECK(says("bias", "all").starts_with(in + "bias is \"all\", but"));
  CHECK(says("fan_in_fan_out", false) == in + "fan_in_fan_out is false, but of GPT-2 it is true");
  CHECK(says("init_lora_weights", "pissa").starts_with(in + "init_lora_weights is \"pissa\", but adapters"));
  CHECK(says("rank_pattern", object{{"c_attn", 4}}) ==
        in + "rank_pattern is {\"c_attn\":4}, which adapters here cannot have");
  CHECK(says("alpha_pattern", object{{"c_attn", 4}}).starts_with(in + "alpha_pattern is {"));
  CHECK(
      says("modules_to_save", array{"lm_head"}).starts_with(in + "modules_to_save is [\"lm_head\"], which"));
  CHECK(says("use_dora", true).starts_with(in + "use_dora is true, which"));
  CHECK(says("layers_to_transform", array{1}).starts_with(in + "layers_to_transform is [1], which"));
  CHECK(says("new_kind", object{{"a", 1}}).starts_with(in + "new_kind is {\"a\":1}, which"));
  CHECK(says("new_kind", 0).starts_with(in + "new_kind is 0, which"));
  CHECK(says("r", 0) == in + "r is 0, but should be at least 1");
  CHECK(says("r", "3").starts_with(in + "r is \"3\" but should be an integer"));
  CHECK(says("r", 33) == in + "r is 33, but transformer.h.0.attn.c_attn has 32 rows or columns");
  CHECK(says("lora_alpha", "x").starts_with(in + "lora_alpha is \"x\" but should be a number"));
  CHECK(says("use_rslora", 1).starts_with(in + "use_rslora is 1 but should be a boolean"));
  CHECK(says("base_model_name_or_path", 1).starts_with(in + "base_model_name_or_path is 1 but"));
  CHECK(says("target_modules", array{"c_attn"}) ==
        in + "target_modules does not mean transformer.h.0.attn.c_proj, of which the files have an adapter");
  CHECK(says("target_modules", array{"c_attn", "c_proj", "c_fc"}) ==
        in + "target_modules means transformer.h.0.mlp.c_fc, of which the files have no adapter");
  CHECK(says("target_modules", array{1}).starts_with(in + "target_modules[0] is 1 but should be a string"));

  for (io::json const& value :
       {io::json(), io::json(false), io::json(array{}), io::json(object{}), io::json("")}) {
    folder.config["new_kind"] = value;
    put(folder.path + "/adapter_config.json", io::to_text(folder.config));
    CHECK_NOTHROW(train::load_peft(folder.path, model));
  }
  for (char const* key : {"peft_type", "r", "lora_alpha", "fan_in_fan_out"}) {
    io::json without = folder.config;
    std::erase_if(*without.get_if<object>(),
                  [&](io::json_member const& member) { return member.key == key; });
    put(folder.path + "/adapter_config.json", io::to_text(without));
    CHECK(folder.refusal(model).find(key) != std::string::npos);
  }
  put(folder.path + "/adapter_config.json", "{\"lora_alpha\": NaN}");
  CHECK(folder.refusal(model).starts_with("adapter_config.json] "));
  std::string infinite = io::to_text(folder.config);
  infinite.replace(infinite.find("\"lora_alpha\":5"), 14, "\"lora_alpha\":1e999");
  put(folder.path + "/adapter_config.json", infinite);
  CHECK(folder.refusal(model).starts_with("adapter_config.json] "));
  put(folder.path + "/adapter_config.json", "[]");
  CHECK(folder.refusal(model).starts_with(
      "adapter_config.json] the document has no member \"peft_type\", it is an array"));
  std::filesystem::remove(folder.path + "/adapter_config.json");
  CHECK(folder.refusal(model).starts_with("adapter_config.json] "));
}

TEST_CASE("peft: adapters of another base are refused by the names of their tensors") {
  auto model = train::pretrained<gpt2<float>>(golden + "gpt2");
  changed_folder folder(golden + "peft_gpt2");
  const std::string in = "adapter_model.safetensors] ",
                    first = "base_model.model.transformer.h.0.attn.c_attn.";
  gpt2<float> other(small_shape(), 1);
  CHECK(folder.refusal(other) ==
        in + "tensor \"" + first + "lora_A.weight\" is F32 (3, 32) but should be F32 (3, 16)");
  nn::transformer_config c = model.config;
  c.layers = 3;
  gpt2<float> longer(c, 1);
  CHECK(folder.refusal(longer).find(
            "no tensor \"base_model.model.transformer.h.2.attn.c_attn.lora_A.weight\"") != std::string::npos);
  c.layers = 1;
  gpt2<float> shorter(c, 1);
  CHECK(folder.refusal(shorter).starts_with(
      in + "this model has no place for 6 tensors: \"base_model.model.transformer.h.1.attn.c_attn.lora_A"));
  auto encoder = train::pretrained<bert<float>>(golden + "bert");
  CHECK(folder.refusal(encoder) == "adapter_config.json] fan_in_fan_out is true, but of BERT it is false");
  CHECK(folder.refusal(encoder, "fan_in_fan_out", false)
            .starts_with(in + "this model has no place for 12 tensors"));
  put(folder.path + "/adapter_config.json", io::to_text(folder.config));

  const io::safetensors_file file(golden + "peft_gpt2/adapter_model.safetensors");
  const auto with = [&](auto const& change) {
    std::vector<io::safetensor> tensors;
    for (auto const& [name, tensor] : file.tensors()) tensors.push_back(tensor);
    change(tensors);
    io::write_safetensors(folder.path + "/adapter_model.safetensors", tensors);
    return folder.refusal(model);
  };
  using list = std::vector<io::safetensor>;
  CHECK(with([](list& all) {
          all.erase(all.begin() + 1);
        }).find("no tensor \"" + first + "lora_B.weight\"") != std::string::npos);
  CHECK(with([](list& all) { all.clear(); }) == in + "there are no tensors");
  CHECK(with([](list& all) { all[0].dtype = "I32"; }) ==
        in + "tensor \"" + first + "lora_A.weight\" is I32: adapters are floating-point numbers");
  CHECK(with([](list& all) { all.push_back(all[0]), all.back().name = "score.weight"; }) ==
        in + "this model has no place for 1 tensor: \"score.weight\"");
  const std::string whole = io::read_file(golden + "peft_gpt2/adapter_model.safetensors");
  for (std::size_t size : {std::size_t(0), std::size_t(5), std::size_t(100), whole.size() - 1}) {
    put(folder.path + "/adapter_model.safetensors", whole.substr(0, size));
    CHECK(folder.refusal(model).starts_with(in));
  }
  std::filesystem::remove(folder.path + "/adapter_model.safetensors");
  CHECK(folder.refusal(model).starts_with(in));
}

TEST_CASE("peft: a model of other adapters, or of none, is refused, and nothing is changed or written") {
  const scratch_folder scratch;
  const auto has = [](std::string const& text, std::string const& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const nn::lora_settings how{.rank = 3, .alpha = 7};
  const nn::lora_targets where{.query = true, .value = true};
  const auto saves = [&](auto const& model, nn::lora_settings const& as) {
    const std::string text = error_of<option_error>([&] { train::save_peft(scratch / "x", model, as, ""); });
    CHECK_FALSE(std::filesystem::exists(scratch / "x"));
    return text;
  };
  const bert<float> base(small_shape(), 3);
  const auto model = adapted<bert<float>>(how, where);
  CHECK(saves(base, how) == "[save_peft] the model has no adapters: nn::add_lora makes them");
  has(saves(model, {.rank = 3, .alpha = 8}),
      "[peft] block.0.attention.qkv has adapters of 8 rows and the scale 2.33");
  has(saves(model, {.rank = 9, .alpha = 9 * how.scale()}),
      "of rank 9 they would have 12 rows each and the scale");
  has(saves(model, {.rank = 0}), "rank is 0");
  const nn::lora_settings less{.rank = 2, .alpha = 2};
  has(saves(adapted<bert<float>>({.rank = 3, .alpha = 3}, where), less),
      "the adapters of block.0.attention.qkv have another rank than 2");
  nn::transformer_config c = small_shape();
  c.positions = nn::position_coding::rotary;
  has(saves(gpt2<float>(c, 1), how), "[peft] the model has no position_embedding, which GPT-2 and BERT have");
  c = small_shape(), c.key_heads = 1;
  has(saves(gpt2<float>(c, 1), how), "block.0.attention.qkv.weight is 32 x 16, but would be 48 x 16");

  train::save_peft(scratch / "y", model, how, "");
  const auto loads = [&](bert<float> to) {
    const bert<float> before = to;
    const std::string text = error_of<option_error>([&] { train::load_peft(scratch / "y", to); });
    CHECK(same_values(to, before));
    return text;
  };
  const std::string other = "] the model has not the adapters of these files: nn::add_lora makes them";
  has(loads(base), other);
  has(loads(adapted<bert<float>>(how, {.query = true})), other);
  has(loads(adapted<bert<float>>(how, {.query = true, .key = true, .value = true})), other);
  has(loads(adapted<bert<float>>(how, {.qkv = true})), other);
  has(loads(adapted<bert<float>>({.rank = 3, .alpha = 8}, where)), "and the scale 2.66");

  put(scratch / "file", "x");
  CHECK(error_of<io_error>([&] { train::save_peft(scratch / "file", model, how, ""); }).find("file") !=
        std::string::npos);
  std::filesystem::create_directory(scratch / "taken");
  put(scratch / "taken/other", "x");
  has(error_of<io_error>([&] { train::save_peft(scratch / "taken", model, how, ""); }),
      "it holds other, but only");
}

}  // namespace peft_test
