// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fuzz/memory_file.hpp>
#include <io/scratch_folder.hpp>

#include <tessera/io/file.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/train/hugging_face.hpp>
#include <tessera/train/hugging_face_tensors.hpp>
#include <tessera/train/llama_configuration.hpp>

using namespace tessera;

/// The model of the folder: all its tensors.
nn::transformer_config shape() {
  nn::transformer_config c;
  c.layers = 1, c.hidden = 2, c.heads = 1, c.context = 2, c.vocabulary = 3;
  return c;
}

/// Its two files, with half of the tensors each.
void write_half(std::string const& path, int which) {
  static const std::vector<float> numbers(64);
  std::vector<io::safetensor> all, half;
  train::detail::for_each_tensor(
      train::detail::hugging_face_model::gpt2, shape(),
      [&](train::detail::hugging_face_tensor const& each) {
        for (auto const& part : each.theirs) {
          std::size_t count = 1;
          for (const std::int64_t n : each.shape(part)) count *= std::size_t(n);
          all.push_back(io::make_safetensor(part.name, each.shape(part), std::span(numbers).first(count)));
        }
      },
      train::rotary_order::halves);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (int(i % 2) == which) half.push_back(all[i]);
  io::write_safetensors(path, half);
}

// The configuration of a folder of Hugging Face, or, if the first byte is 'i', the index of its two files
// and, behind a zero, the second of them. Links to files in memory take their places in the folder.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  static const memory_file config, index, second;
  static const scratch_folder scratch;
  static std::string listed, intact;
  static const std::string folder = [] {
    std::filesystem::create_symlink(config.path, scratch / "config.json");
    std::filesystem::create_symlink(index.path, scratch / "model.safetensors.index.json");
    write_half(scratch / "a.safetensors", 0), write_half(scratch / "whole", 1);
    intact = io::read_file(scratch / "whole");
    std::filesystem::create_symlink(second.path, scratch / "b.safetensors");
    io::json::object map;
    for (char const* name : {"a.safetensors", "b.safetensors"}) {
      second.put(intact);
      const io::safetensors_file file(scratch / name);
      for (auto const& [tensor, found] : file.tensors()) map.push_back({tensor, name});
    }
    listed = io::to_text(io::json::object{{"weight_map", std::move(map)}});
    return scratch / ".";
  }();
  if (size == 0) return 0;
  const bool is_index = bytes[0] == 'i';
  const std::string_view all(reinterpret_cast<char const*>(bytes) + 1, size - 1);
  const std::size_t end = is_index ? std::min(all.find('\0'), all.size()) : all.size();
  const std::string_view text = all.substr(0, end), behind = all.substr(std::min(end + 1, all.size()));
  config.put(is_index ? R"({"n_embd": 2, "vocab_size": 3, "n_layer": 1, "n_head": 1, "n_positions": 2})"
                      : text);
  index.put(is_index ? text : listed);
  second.put(behind.empty() ? intact : behind);
  try {
    train::detail::hugging_face from(folder, {{"gpt2", "GPT2LMHeadModel"}}, "transformer.");
    from.tie("transformer.wte.weight", "lm_head.weight");
    if (from.setting("rope_parameters") || from.setting("num_key_value_heads"))
      static_cast<void>(train::detail::read_llama_configuration(from));
    from.expect_activation("activation_function", {"gelu_new"}, "gelu_new", "the activation is");
    from.expect("scale_attn_weights", {true}, "the model has");
    nn::transformer_config c = shape();
    c.hidden = from.integer("n_embd", "hidden_size", 768);
    c.vocabulary = from.integer("vocab_size", "", 50257, 1, 1 << 24);
    c.feed_forward = from.times_hidden("n_inner", 4 * c.hidden, c.hidden);
    static_cast<void>(from.epsilon("layer_norm_epsilon", 1e-5));
    from.read(train::detail::hugging_face_model::gpt2, c, nullptr, [&]() -> nn::mutable_parameter_list {
      const io::json document = io::read_json(scratch / "model.safetensors.index.json");
      for (auto const& entry : io::json_place(document).at("weight_map").members()) {
        std::string const& file = *entry.value.get_if<std::string>();
        if (file.find('/') != file.npos) std::abort();
        const io::safetensors_file holder(scratch / file);
        if (!holder.contains(entry.key)) std::abort();
      }
      throw error("all is there");
    });
    std::abort();
  } catch (error const&) {
  }
  return 0;
}
