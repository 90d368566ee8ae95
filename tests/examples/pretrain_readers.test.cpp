// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/hash.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/io/text.hpp>

#include "../io/scratch_folder.hpp"
#include "pretrain_programs.hpp"

namespace pretrain_readers_test {

// The programs that read checkpoints of pretrain: generate, fill_mask, freeze and finetune.

#if defined(PRETRAIN) && defined(GENERATE) && defined(FILL_MASK) && defined(FREEZE) && defined(FINETUNE)

using namespace pretrain_programs;

TEST_CASE("pretrain: its programs say of a checkpoint of another program that it is one") {
  const workplace here;
  const std::string
      folder = here.in("other"),
      state = R"({"format": "tessera.checkpoint", "version": 4, "arithmetic": "", "architecture": {},)"
              R"( "updates": 0, "state": {"step": 1, "best_step": -1, "program": null}})";
  fs::create_directory(folder);
  put(folder + "/state.json", state);
  auto metadata = tessera::io::format_metadata("tessera.checkpoint", 4);
  metadata["tessera.state"] = std::to_string(tessera::content_hash(state));
  const float number = 1;
  tessera::io::write_safetensors(
      folder + "/tensors.safetensors",
      std::vector{tessera::io::make_safetensor("w", {1}, std::span<float const>(&number, 1))}, metadata,
      tessera::io::checksums::in_metadata);
  for (std::string const& command :
       {GENERATE " --checkpoint " + folder, FREEZE " --checkpoint " + folder + " --out " + here.in("f"),
        FILL_MASK " --text [MASK] --checkpoint " + folder}) {
    const outcome refused = shell(command);
    CHECK(refused.code == 1);
    CHECK(contains(refused, "[checkpoint] " + folder + " was not written by pretrain"));
  }
}

TEST_CASE("generate: a sample depends on the seed alone") {
  const workplace here;
  CHECK(shell(here.pretrain("a")).code == 0);
  const outcome sparse = shell(here.generate("a", "--prompt 'of 12'"));
  CHECK(sparse.code == 0);
  CHECK(contains(sparse, "of 12"));
  CHECK(contains(sparse, "runs/a/sparse/step-"));
  CHECK(shell(here.generate("a", "--prompt 'of 12' --threads 1")).output == sparse.output);
  CHECK(shell(here.generate("a", "--prompt 'of 12' --seed 2")).output != sparse.output);
  const outcome likeliest = shell(here.generate("a/dense", "--temperature 0"));
  CHECK(contains(likeliest, "runs/a/dense/step-"));
  CHECK(shell(here.generate("a/dense", "--top-k 1 --seed 3")).output == likeliest.output);
}

TEST_CASE("generate: mistakes of use end in code 2 and failures in 1") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--only dense --steps 1")).code == 0);
  const auto refused = [&](std::string const& command, int code, std::string const& message) {
    const outcome result = shell(command);
    CHECK(result.code == code);
    CHECK(contains(result, message));
  };
  refused(GENERATE, 2, "[--checkpoint] is missing");
  refused(here.generate("a", "--prompt 'ä'"), 2, "is not among the");
  refused(here.generate("a", "--temperature -1"), 2, "is not a number in [0, inf)");
  refused(here.generate("b"), 1, "holds no checkpoint");
  put(here.in("runs/a/dense/step-00000001/tensors.safetensors"), "12345678");
  refused(here.generate("a"), 1, "tensors.safetensors");
}

TEST_CASE("pretrain: BERT learns masked tokens, dense and sparse, and fill_mask guesses") {
  const workplace here;
  const std::string options = "--model bert --vocabulary 300 --documents blank-lines ";
  const outcome run = shell(here.pretrain("a", options));
  CHECK(run.code == 0);
  for (const char* part : {"masked tokens trained on", "Losses in nats per masked token", "unigram", "[MASK]",
                           "; the text has "})
    CHECK(contains(run, part));
  const std::string fill = FILL_MASK " --checkpoint " + here.in("runs/a");
  const outcome filled = shell(fill + " --text 'of [MASK] the square is [MASK].' --top 3");
  CHECK(filled.code == 0);
  CHECK(std::count(filled.output.begin(), filled.output.end(), '%') == 6);
  const auto refused = [&](std::string const& command, int code, std::string const& message) {
    const outcome result = shell(command);
    CHECK(result.code == code);
    CHECK(contains(result, message));
  };
  refused(fill, 2, "[--text] is missing");
  refused(fill + " --text 'no mask'", 2, "'no mask' has no [MASK]");
  refused(fill + " --text '" + std::string(200, '.') + "[MASK]'", 2, "this model takes 16");
  refused(here.generate("a"), 2, "fill_mask says what it expects");
  refused(here.pretrain("b", "--model bert --level char"), 2, "--model bert needs --level wordpiece");
  refused(here.pretrain("b", "--model bert --preset huge"), 2,
          "[--preset] 'huge' is not one of tiny|mini|small|medium|base");
  refused(here.pretrain("b", "--vocabulary-file x"), 2, "has no meaning with --level char");
  put(here.in("vocab.txt"), "[PAD]\n[CLS]\n[SEP]\n[MASK]\nof\n");
  refused(here.pretrain("b", "--model bert --vocabulary-file " + here.in("vocab.txt")), 2,
          "has no \"[UNK]\"");
  put(here.in("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nxyz\n");
  refused(here.pretrain("b", "--model bert --vocabulary-file " + here.in("vocab.txt")), 2,
          "are unknown to the vocabulary");
  CHECK(!fs::exists(here.in("runs/b")));
}

TEST_CASE("freeze: a model for inference writes and guesses the same, in a fraction of the bytes") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--block 4 --hidden 64")).code == 0);
  CHECK(shell(here.pretrain("b", "--model bert --vocabulary 300")).code == 0);
  const auto frozen = [&](std::string const& run) {
    return shell(FREEZE " --checkpoint " + here.in("runs/" + run) + " --out " + here.in("frozen-" + run));
  };
  const outcome a = frozen("a");
  CHECK(a.code == 0);
  CHECK(contains(a, "of a checkpoint of"));
  const auto output = [](std::string const& command) { return shell(command + " 2>/dev/null").output; };
  CHECK(output(GENERATE " --prompt 'of 12' --checkpoint " + here.in("frozen-a")) ==
        output(GENERATE " --prompt 'of 12' --checkpoint " + here.in("runs/a")));
  CHECK(frozen("b").code == 0);
  CHECK(output(FILL_MASK " --text 'of [MASK]' --checkpoint " + here.in("frozen-b")) ==
        output(FILL_MASK " --text 'of [MASK]' --checkpoint " + here.in("runs/b")));
  const outcome again = frozen("a");
  CHECK(again.code == 2);
  CHECK(contains(again, "exists already"));
  CHECK(shell(FREEZE " --out x").code == 2);
}

TEST_CASE("freeze: weights in 8 bits are a fraction of the bytes, and what they lose is told") {
  const workplace here;
  REQUIRE(shell(here.pretrain("a", "--only sparse --hidden 64")).code == 0);
  const std::string freeze = FREEZE " --checkpoint " + here.in("runs/a") + " ";
  const outcome frozen = shell(freeze + "--to int8 --out " + here.in("int8"));
  INFO(frozen.output);
  CHECK(frozen.code == 0);
  CHECK(contains(frozen, " in int8: nats per character, of "));
  double before = 0, after = 0;
  const std::size_t at = frozen.output.find("loss ");
  REQUIRE(at != std::string::npos);
  REQUIRE(std::sscanf(frozen.output.c_str() + at, "loss %lf before, %lf in int8", &before, &after) == 2);
  CHECK(std::abs(after - before) < 0.01 * before);
  CHECK(shell(freeze + "--out " + here.in("float")).code == 0);
  const auto bytes = [&](std::string const& name) {
    return double(fs::file_size(here.in(name) + "/tensors.safetensors"));
  };
  CHECK(bytes("int8") < 0.5 * bytes("float"));
  const outcome text = shell(GENERATE " --prompt 'of 12' --stats --checkpoint " + here.in("int8"));
  CHECK(text.code == 0);
  CHECK(contains(text, "of 12"));
  CHECK(contains(text, "ms a pass"));

  const auto refused = [&](std::string const& command, std::string const& part) {
    const outcome result = shell(command);
    CHECK(result.code != 0);
    CHECK(contains(result, part));
    CHECK_FALSE(fs::exists(here.in("x")));
  };
  refused(freeze + "--to int4 --out " + here.in("x"), "[--to] 'int4' is not one of none|bfloat16");
  refused(freeze + "--to int8 --format hf --out " + here.in("x"),
          "[--to] int8: --format hf has no such weights");
  refused(freeze + "--to int8 --density 0.1 --out " + here.in("x"), "[--to] and --density are two commands");
  const std::string why = "was frozen in int8 to be used";
  refused(FREEZE " --checkpoint " + here.in("int8") + " --out " + here.in("x"), why);
  refused(
      FINETUNE " --checkpoint " + here.in("int8") + " --text " + here.in("text") + " --out " + here.in("x"),
      why);
  std::string tensors = contents(here.in("int8") + "/tensors.safetensors");
  put(here.in("int8") + "/tensors.safetensors", tensors.substr(0, tensors.size() / 2));
  refused(GENERATE " --checkpoint " + here.in("int8"), "is cut off here: the file ends");
}

TEST_CASE("freeze: a folder of Hugging Face has weights, shape and tokenizer, and mistakes are named") {
  const workplace here;
  const auto frozen = [&](std::string const& run) {
    return shell(FREEZE " --format hf --checkpoint " + here.in("runs/" + run) + " --out " +
                 here.in("hf-" + run));
  };
  const auto has = [&](std::string const& file, std::string const& part) {
    const std::string text = contents(here.in(file));
    INFO(file, ": ", text);
    CHECK(text.find(part) != text.npos);
  };
  REQUIRE(shell(here.pretrain("a", "--block 4 --hidden 64")).code == 0);
  CHECK(frozen("a").code == 0);
  has("hf-a/config.json", "\"GPT2LMHeadModel\"");
  has("hf-a/tokenizer.json", "\"WordLevel\"");
  CHECK(frozen("a").code == 2);  // exists already
  REQUIRE(shell(here.pretrain("b", "--model bert --vocabulary 300")).code == 0);
  CHECK(frozen("b").code == 0);
  has("hf-b/config.json", "\"pad_token_id\"");
  has("hf-b/vocab.txt", "[MASK]\n");
  has("hf-b/tokenizer_config.json", "\"do_lower_case\": true");
  REQUIRE(shell(here.pretrain("c", "--level bpe --vocabulary 300 --only dense --precision float8")).code ==
          0);
  CHECK(frozen("c").code == 0);
  has("hf-c/merges.txt", "#version");
  has("hf-c/config.json", "\"eos_token_id\"");
  REQUIRE(shell(here.pretrain("d", "--model rnn")).code == 0);
  CHECK(contains(frozen("d"), "[--format] hf: transformers has no class for --model rnn"));
  REQUIRE(shell(here.pretrain("e", "--residual rezero")).code == 0);
  CHECK(contains(frozen("e"), "the model has block.0.norm1.absent"));
  CHECK_FALSE(std::filesystem::exists(here.in("hf-e")));
  CHECK(contains(shell(FREEZE " --format onnx --checkpoint x --out y"), "--format"));
}

TEST_CASE("freeze: a trained model is pruned, the loss of each weight is told, and a run goes on with it") {
  const workplace here;
  REQUIRE(shell(here.pretrain("a", "--only dense --hidden 64")).code == 0);
  const std::string freeze = FREEZE " --checkpoint " + here.in("runs/a") + " ";
  const outcome wanda =
      shell(freeze + "--density 0.5 --by wanda --block 4 --calibration 500 --out " + here.in("pruned"));
  INFO(wanda.output);
  CHECK(wanda.code == 0);
  CHECK(contains(wanda, "block.0.mlp.up.weight              1024 > 512  "));
  CHECK(contains(wanda, "all of them"));
  CHECK(shell(GENERATE " --checkpoint " + here.in("pruned")).code == 0);
  const outcome recovered = shell(PRETRAIN " --from " + here.in("pruned") +
                                  " --static --steps 3 --name b --out " + here.in("runs"));
  INFO(recovered.output);
  CHECK(recovered.code == 0);
  const auto refused = [&](std::string const& options, std::string const& part) {
    const outcome result = shell(freeze + options + " --out " + here.in("x"));
    INFO(result.output);
    CHECK(result.code == 2);
    CHECK(contains(result, part));
    CHECK_FALSE(std::filesystem::exists(here.in("x")));
  };
  refused("--by wanda", "[--by] has no meaning without --density");
  refused("--density 0.5 --calibration 9", "[--calibration] has no meaning with --by magnitude");
  refused("--density 0", "[--density]");
  refused("--density 0.9999", "leaves all blocks that the model stores");
  refused("--density 0.5 --block 5", "[--block]");
  put(here.in("other.txt"), "another text, of which it knows the symbols no more");
  refused("--density 0.5 --text " + here.in("other.txt"), "[");
}

TEST_CASE("pretrain: a GPT on the pieces of words writes text again") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--level bpe --vocabulary 300 --preset tiny --hidden 32 --only sparse"))
            .code == 0);
  CHECK(contains(shell(here.generate("a", "--prompt 'of 12'")), "of 12"));
}

#endif

}  // namespace pretrain_readers_test
