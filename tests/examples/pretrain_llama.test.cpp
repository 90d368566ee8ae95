// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include <tessera/io/json.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/safetensors.hpp>

#include "pretrain_programs.hpp"

namespace pretrain_llama_test {

#if defined(PRETRAIN) && defined(GENERATE) && defined(FILL_MASK) && defined(FREEZE) && defined(FINETUNE)

using namespace pretrain_programs;

TEST_CASE("pretrain: a LLaMA is trained, resumed, read, fine-tuned and frozen for transformers") {
  const workplace here;
  const auto does = [](std::string const& command) {
    const outcome result = shell(command);
    CHECK_MESSAGE(result.code == 0, result.output);
    return result;
  };
  does(here.pretrain("a", "--model llama --key-heads 1"));
  does(here.resume("a", "--quiet --steps 70"));
  does(here.generate("a/dense"));
  does(here.generate("a/sparse"));

  does(FREEZE " --checkpoint " + here.in("runs/a/sparse") + " --format hf --out " + here.in("hf"));
  const tessera::io::json config = tessera::io::read_json(here.in("hf/config.json"));
  CHECK(*config.find("architectures") == tessera::io::json(tessera::io::json::array{"LlamaForCausalLM"}));
  CHECK(*config.find("num_key_value_heads") == tessera::io::json(1));
  CHECK(*config.find("intermediate_size") ==
        tessera::io::json(96));  // 8 / 3 of 32 features, a multiple of 32
  CHECK(*config.find("max_position_embeddings") == tessera::io::json(16));
  CHECK(*config.find("tie_word_embeddings") == tessera::io::json(false));
  CHECK(tessera::io::safetensors_file(here.in("hf/model.safetensors")).tensors().size() == 2 * 9 + 3);

  put(here.in("tasks"),
      R"([{"instruction": "the square", "output": "is"}, {"instruction": "of", "output": "is"}])");
  const std::string tuned =
      FINETUNE " --checkpoint " + here.in("runs/a/sparse") + " --text " + here.in("text") + " --epochs 1 ";
  does(tuned + "--out " + here.in("full"));
  does(tuned + "--method lora --target all --rank 2 --out " + here.in("lora"));
  does(FREEZE " --checkpoint " + here.in("lora") + " --merge all --out " + here.in("merged"));
  does(GENERATE " --checkpoint " + here.in("merged") + " --tokens 10");
  const outcome labelled = shell(FINETUNE " --checkpoint " + here.in("runs/a/sparse") + " --train " +
                                 here.in("tasks") + " --validation " + here.in("tasks"));
  CHECK(contains(labelled, "is a LLaMA, which predicts the next token"));
}

TEST_CASE("pretrain: settings that a LLaMA does not have are refused by name") {
  const workplace here;
  const auto refused = [&](std::string const& options, std::string const& part) {
    const outcome result = shell(here.pretrain("a", "--dry-run " + options));
    CHECK(result.code == 2);
    CHECK(contains(result, part));
  };
  refused("--model llama --preset small", "'small' is not one of tiny|mini|68m|160m|1b|7b");
  refused("--model llama --heads 4 --key-heads 3", "[--key-heads] 3 is no divisor of --heads 4");
  refused("--model llama --heads 32", "[--heads] 32 make heads of 1 features; rotary positions rotate pairs");
  refused("--model llama --init fixup",
          "[--init] fixup has no meaning with --model llama, which has no biases");
  refused("--model llama --norm post", "[--norm] post has no meaning with --model llama");
  refused("--model llama --parameterisation mup", "mup has no meaning with --model llama; say --model gpt");
  refused("--model bert --output-weight own", "[--output-weight] own: the logits of --model bert");
  refused("--model rnn --key-heads 2", "[--key-heads] has no meaning with --model rnn");
}

#endif

}  // namespace pretrain_llama_test
