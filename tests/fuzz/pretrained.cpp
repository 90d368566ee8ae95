// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fuzz/memory_file.hpp>
#include <io/scratch_folder.hpp>

#include <tessera/io/file.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/train/hugging_face.hpp>
#include <tessera/train/hugging_face_tensors.hpp>
#include <tessera/train/llama_configuration.hpp>

using namespace tessera;

// The configuration of a folder of Hugging Face, or, if the first byte is 'i', the index of its files. Links
// to files in memory take their places in the folder.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  static const memory_file config, index;
  static const scratch_folder scratch;
  static const std::string folder = [] {
    const std::vector<float> table(6);
    std::filesystem::create_symlink(config.path, scratch / "config.json");
    std::filesystem::create_symlink(index.path, scratch / "model.safetensors.index.json");
    io::write_safetensors(scratch / "a.safetensors",
                          std::vector{io::make_safetensor("lm_head.weight", {3, 2}, std::span(table)),
                                      io::make_safetensor("h.0.attn.bias", {6}, std::span(table))});
    return scratch / ".";
  }();
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<char const*>(bytes) + 1, size - 1);
  const bool is_index = bytes[0] == 'i';
  config.put(is_index ? R"({"n_embd": 2, "vocab_size": 3})" : text);
  index.put(is_index ? text : R"({"weight_map": {"lm_head.weight": "a.safetensors"}})");
  try {
    train::detail::hugging_face from(folder, {{"gpt2", "GPT2LMHeadModel"}}, "transformer.");
    from.tie("transformer.wte.weight", "lm_head.weight");
    if (from.setting("rope_parameters") || from.setting("num_key_value_heads"))
      static_cast<void>(train::detail::read_llama_configuration(from));
    from.expect_activation("activation_function", {"gelu_new"}, "gelu_new", "the activation is");
    from.expect("scale_attn_weights", {true}, "the model has");
    nn::transformer_config c;
    c.hidden = from.integer("n_embd", "hidden_size", 768);
    c.vocabulary = from.integer("vocab_size", "", 50257, 1, 1 << 24);
    c.feed_forward = from.times_hidden("n_inner", 4 * c.hidden, c.hidden);
    static_cast<void>(from.epsilon("layer_norm_epsilon", 1e-5));
    from.read(train::detail::hugging_face_model::gpt2, c, nullptr,
              []() -> nn::mutable_parameter_list { throw error("all is there"); });
    std::abort();
  } catch (error const&) {
  }
  return 0;
}
