// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <examples/pretrain_programs.hpp>
#include <pretrain/adapters.hpp>
#include <pretrain/instructions.hpp>
#include <pretrain/reader_settings.hpp>

#include "../io/scratch_folder.hpp"

namespace finetune_test {

using namespace pretrain;

TEST_CASE("finetune: of an instruction, exactly the tokens of the response are learned, and the end") {
  const scratch_folder folder;
  const std::string file = folder / "i.json";
  put(file, R"([{"instruction": "Add", "input": "1 2", "output": "3"},
                {"instruction": "Greet", "input": "", "output": "hello"}, {"instruction": "Stop", "output": ""}])");
  const vocabulary symbols(text_level::byte, "");
  const instruction_text brief(file, symbols, 100, "brief");
  CHECK(brief.size() == 3);
  CHECK(brief.cut() + brief.left_out() == 0);
  batch shown;
  for (std::size_t i = 0; i < brief.size(); ++i) brief.add(i, shown);
  std::string inputs = symbols.decode(shown.inputs), targets;
  for (const std::int32_t target : shown.targets)
    targets += target == nn::ignored ? "." : symbols.decode(std::vector<token>{target});
  const std::string add = "### Instruction:\nAdd\n\n### Input:\n1 2\n\n### Response:",
                    greet = "### Instruction:\nGreet\n\n### Response:",
                    stop = "### Instruction:\nStop\n\n### Response:";
  CHECK(inputs == add + "3\n" + greet + "hello\n" + stop + "\n");  // but for the last token of each
  const auto dots = [](std::string const& prompt) { return std::string(prompt.size() - 1, '.'); };
  CHECK(targets == dots(add) + "3\n\n" + dots(greet) + "hello\n\n" + dots(stop) + "\n\n");
  CHECK(shown.lengths ==
        std::vector<std::int64_t>{std::ssize(add) + 2, std::ssize(greet) + 6, std::ssize(stop) + 1});

  const instruction_text narrow(file, symbols, int(greet.size()) + 2, "brief");
  CHECK(narrow.size() == 2);
  CHECK(narrow.left_out() == 1);  // the first
  CHECK(narrow.cut() == 1);
  CHECK(prompt_of({"Add", "1 2"}, "alpaca") ==
        "Below is an instruction that describes a task, paired with an input that provides further context. "
        "Write a response that appropriately completes the request.\n\n" +
            add);
  CHECK(prompt_of({"Greet", ""}, "alpaca") ==
        "Below is an instruction that describes a task. Write a response that appropriately completes the "
        "request.\n\n" +
            greet);
}

TEST_CASE("finetune: a file of instructions of another form is refused with its place") {
  const scratch_folder folder;
  const std::string file = folder / "i.json";
  const auto refusal = [&](std::string const& text, vocabulary const& symbols, int context = 100) {
    put(file, text);
    return error_of<tessera::error>([&] { instruction_text(file, symbols, context, "brief"); });
  };
  const vocabulary bytes(text_level::byte, "");
  CHECK(refusal("[]", bytes) == "[instructions] " + file + " has no examples");
  CHECK(refusal(R"([{"instruction": "a"}])", bytes).find("output") != std::string::npos);
  CHECK(refusal(R"([{"instruction": 1, "output": "b"}])", bytes).find("instruction") != std::string::npos);
  CHECK(refusal(R"({"instruction": "a", "output": "b"})", bytes).find("an array") != std::string::npos);
  CHECK(refusal("[{", bytes).find(file) != std::string::npos);
  CHECK(refusal(R"([{"instruction": "a", "output": "b"}])", bytes, 10).find("no prompt leaves room") !=
        std::string::npos);
  const std::string unknown =
      refusal(R"([{"instruction": "a", "output": "b"}])", {text_level::character, "#"});
  CHECK(unknown.find("the headings of --template brief have symbols") != std::string::npos);
  CHECK(unknown.find("is not among the 1 symbols") != std::string::npos);
}

TEST_CASE("finetune: options that do not go together are refused") {
  const auto refusal = [](std::string const& options) {
    string_list all{"--checkpoint", "x"};
    std::size_t end = 0;
    for (std::size_t begin = 0; begin < options.size(); begin = end + 1) {
      end = std::min(options.find(' ', begin), options.size());
      all.push_back(options.substr(begin, end - begin));
    }
    return error_of<tessera::option_error>([&] { new_finetune_settings(all); });
  };
  CHECK(refusal("--train a --validation b").empty());
  CHECK(refusal("--instructions a").empty());
  CHECK(refusal("--instructions a --method lora --rank 4 --target all --lora-plus 16").empty());
  CHECK(refusal("") == "[--train] is missing: texts and their classes, or --instructions, or --text");
  CHECK(refusal("--train a --instructions b").find("are three tasks") != std::string::npos);
  CHECK(refusal("--text a --validation b").find("[--validation]") == 0);
  CHECK(refusal("--text a --prompt-tokens 4") == "[--prompt-tokens] is of --method prompt");
  CHECK(refusal("--train a --validation b --template brief").find("[--template]") == 0);
  CHECK(refusal("--instructions a --rank 4") == "[--rank] is of --method lora");
  CHECK(refusal("--instructions a --width 4") == "[--width] is of --method adapter");
  CHECK(refusal("--instructions a --method lora --adapters x --rank 4").find("[--rank] is said by") == 0);
  CHECK(refusal("--instructions a --method lora --random-weights").find("[--random-weights]") == 0);
  CHECK(refusal("--instructions a --rank 0").find("[--rank]") == 0);
  CHECK(error_of<tessera::option_error>([] { targets_of("q,x", "--target"); }) ==
        "[--target] has no target \"x\"; there are q, k, v, qkv, out, up, down and, of a LLaMA, gate, with "
        "commas "
        "between, and all");
  CHECK(text_of(targets_of("all", "")) == "q,k,v,out,up,down");
  CHECK(text_of(targets_of("all", "", "llama")) == "q,k,v,out,up,down,gate");
  CHECK(text_of(targets_of("down,qkv", "")) == "qkv,down");
}

#if defined(PRETRAIN) && defined(GENERATE) && defined(FILL_MASK) && defined(FREEZE) && defined(FINETUNE)

using namespace pretrain_programs;

TEST_CASE("finetune: a sparse BERT learns classes, keeps its blocks, and mistakes are named") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--model bert --vocabulary 300 --only sparse --static")).code == 0);
  std::string lines, others;
  for (int i = 0; i < 200; ++i) {
    const std::string even = "even\tof " + std::to_string(i) + " the square is here\n",
                      odd = "odd\tthe " + std::to_string(i) + " is of the square\n";
    (i % 5 == 0 ? others : lines) += even + odd;
  }
  put(here.in("train.tsv"), lines);
  put(here.in("test.tsv"), others);
  const std::string finetune = FINETUNE " --checkpoint " + here.in("runs/a") + " --train " +
                               here.in("train.tsv") + " --validation " + here.in("test.tsv") +
                               " --lr 3e-3 --epochs 10 ";
  const std::string quiet = " 2>/dev/null";
  const outcome learned = shell(finetune + "--out " + here.in("tuned") + quiet);
  CHECK(learned.code == 0);
  CHECK(contains(learned, "320 texts of 2 classes to learn, 80 to validate"));
  CHECK(contains(learned, "epoch 10"));
  CHECK(contains(learned, "accuracy 100.0 %"));
  CHECK(shell(finetune + quiet).output + "in " + here.in("tuned") + "\n" == learned.output);  // the same bits
  CHECK(shell(finetune + "--random-weights" + quiet).output != shell(finetune + quiet).output);
  if (const auto full =
          with_full_disk(here.in("disk"), "true", finetune + "--out " + here.in("disk/tuned"))) {
    CHECK(full->code == 1);
    CHECK(contains(*full, "[" + here.in("disk/tuned") + "] the weights need "));
    CHECK(full->output.find("epoch") == std::string::npos);
  }
  const tessera::io::safetensors_file before(here.in("runs/a/sparse/step-00000060/tensors.safetensors")),
      after(here.in("tuned/tensors.safetensors"));
  for (auto const& [name, tensor] : after.tensors())
    if (name.ends_with(".weight") && before.contains(name)) CHECK(tensor.shape == before.at(name).shape);
  CHECK(after.at("classifier.weight").shape == std::vector<std::int64_t>{1, 2, 16, 16});

  const auto refused = [&](std::string const& command, int code, std::string const& message) {
    const outcome result = shell(command);
    CHECK(result.code == code);
    CHECK(contains(result, message));
  };
  refused(finetune + "--out " + here.in("tuned"), 2, "exists already");
  put(here.in("test.tsv"),
      "\xEF\xBB\xBF"
      "even\tof 1\nneither\tof 2\n");
  refused(finetune, 2, "test.tsv line 2: \"neither\" is in no line to train on");
  put(here.in("train.tsv"), "even\tof 1\nno tab\n");
  refused(finetune, 1, "train.tsv line 2: a label, a tab and a text are meant");
  put(here.in("train.tsv"), "even\tof 1\n");
  refused(finetune, 2, "has the one label \"even\"");
  CHECK(shell(here.pretrain("b", "--steps 2 --only dense")).code == 0);
  refused(FINETUNE " --checkpoint " + here.in("runs/b") + " --train x --validation x", 2,
          "is a GPT, which predicts the next token");
}

/// Words to spell: what a small model learns in a second.
std::string words_to_spell(int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) {
    std::string word;
    for (int letter = 0; letter < 3; ++letter) word += char('a' + (i * 7 + i / 5 * letter * 3 + letter) % 10);
    text += std::string(i > 0 ? ",\n" : "") + R"({"instruction": "spell )" + word + R"(", "output": ")" +
            word[0] + "-" + word[1] + "-" + word[2] + "\"}";
  }
  return text + "]";
}
/// The number after a word in the line of the last epoch.
double last_of(std::string const& output, std::string const& word) {
  const std::size_t at = output.rfind(word + " ");
  return at == std::string::npos ? -1 : std::atof(output.c_str() + at + word.size());
}

TEST_CASE("finetune: a GPT learns instructions by adapters alone, and these go into its weights") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--level byte --context 64 --steps 300 --lr 1e-2")).code == 0);
  put(here.in("i.json"), words_to_spell(120));
  put(here.in("v.json"), words_to_spell(20));
  const auto finetune = [&](std::string const& variant, std::string const& more) {
    return shell(FINETUNE " --checkpoint " + here.in("runs/a/" + variant) + " --instructions " +
                 here.in("i.json") + " --validation " + here.in("v.json") +
                 " --template brief --epochs 8 --batch 8 --lr 1e-2 " + more + " 2>/dev/null");
  };
  const outcome tuned =
      finetune("dense/step-00000300", "--method lora --target all --out " + here.in("tuned"));
  CHECK(tuned.code == 0);
  CHECK(contains(tuned, "120 instructions to learn, 20 to validate"));
  CHECK(last_of(tuned.output, "validation") <
        0.85 * last_of(tuned.output.substr(0, tuned.output.find("epoch  2")), "validation"));
  CHECK(finetune("dense/step-00000300", "--method lora --target all --threads 1").output + "in " +
            here.in("tuned") + "\n" ==
        tuned.output);  // the same bits
  const std::string base = here.in("runs/a/dense/step-00000300/tensors.safetensors");
  const tessera::io::safetensors_file before(base), after(here.in("tuned/tensors.safetensors"));
  for (auto const& [name, tensor] : after.tensors())
    if (name.find(".down.weight") == name.npos && name.find(".up.weight") == name.npos) {
      INFO(name);
      REQUIRE(before.contains(name));
      auto const& bytes = before.at(name).bytes;
      CHECK(std::equal(bytes.begin(), bytes.end(), in_rows(tensor).begin()));
    }
  const auto sample = [&](std::string const& of) {
    return shell(GENERATE
                 " --temperature 0 --tokens 12 --prompt '### Instruction:\nspell abc' --checkpoint " +
                 here.in(of) + " 2>/dev/null")
        .output;
  };
  CHECK(shell(FREEZE " --checkpoint " + here.in("tuned") + " --merge all --out " + here.in("merged")).code ==
        0);
  CHECK(sample("tuned") == sample("merged"));
  CHECK(sample("tuned") != sample("runs/a/dense"));
  const tessera::io::safetensors_file merged(here.in("merged/tensors.safetensors"));
  for (auto const& [name, tensor] : merged.tensors()) CHECK(before.contains(name));
  CHECK(shell(FREEZE " --checkpoint " + here.in("tuned") + " --format hf --out " + here.in("hf")).code == 0);

  CHECK(shell(FREEZE " --checkpoint " + here.in("tuned") + " --format peft --out " + here.in("peft")).code ==
        0);
  const std::string run = here.in("runs/a/dense/step-00000300");
  CHECK(shell(FREEZE " --checkpoint " + run + " --adapters " + here.in("peft") + " --merge all --out " +
              here.in("by_peft"))
            .code == 0);
  CHECK(same_tensors(here.in("by_peft"), here.in("merged")));
  const outcome again = finetune("dense/step-00000300", "--method lora --adapters " + here.in("peft"));
  CHECK(last_of(again.output, "validation") < last_of(tuned.output, "validation"));

  CHECK(finetune("sparse", "--method lora --out " + here.in("sparse")).code == 0);
  const auto refused = [&](std::string const& command, std::string const& message) {
    const outcome result = shell(command);
    CHECK(result.code == 2);
    CHECK(contains(result, message));
  };
  const std::string freeze = FREEZE " --checkpoint " + here.in("sparse") + " --out " + here.in("x") + " ";
  refused(freeze + "--format hf", "[--merge] is to be said");
  refused(freeze + "--density 0.1", "[--density] " + here.in("sparse") + " has adapters");
  CHECK_FALSE(fs::exists(here.in("x")));
  const outcome stored = shell(freeze + "--merge stored");
  CHECK(contains(stored, "what these do not store, of norm "));
  CHECK(fs::file_size(here.in("x/tensors.safetensors")) <
        fs::file_size(here.in("merged/tensors.safetensors")));
  refused(FREEZE " --checkpoint " + here.in("runs/a") + " --merge all --out " + here.in("y"),
          "has no adapters; finetune --method lora makes some");
  refused(FINETUNE " --checkpoint " + here.in("tuned") + " --instructions " + here.in("i.json"),
          "has adapters; freeze --merge all puts them into the weights");
  refused(FINETUNE " --checkpoint " + here.in("runs/a") + " --instructions " + here.in("i.json") +
              " --template brief --method lora --rank 33",
          "[lora] rank is 33, but block.0.attention.qkv has 32 rows of a target");
  refused(FINETUNE " --checkpoint " + here.in("runs/a") + " --train x --validation x",
          "finetune --train takes a BERT");
}

TEST_CASE("finetune: adapters behind attention and MLP stay layers of their own") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--level byte --context 64 --only dense")).code == 0);
  put(here.in("i.json"), words_to_spell(40));
  const std::string finetune = FINETUNE " --checkpoint " + here.in("runs/a/dense/step-00000060") +
                               " --instructions " + here.in("i.json") + " --template brief --method adapter ";
  CHECK(shell(finetune + "--width 8 --lr 1e-2 --out " + here.in("tuned")).code == 0);
  const tessera::io::safetensors_file before(here.in("runs/a/dense/step-00000060/tensors.safetensors")),
      after(here.in("tuned/tensors.safetensors"));
  CHECK(after.at("block.0.mlp.adapter.down.weight").shape == std::vector<std::int64_t>{1, 2, 16, 16});
  for (char const* const frozen : {"token_embedding", "block.1.mlp.up.weight", "final_norm.weight"}) {
    auto const& bytes = before.at(frozen).bytes;
    CHECK(std::equal(bytes.begin(), bytes.end(), in_rows(after.at(frozen)).begin()));
  }
  CHECK(shell(GENERATE " --checkpoint " + here.in("tuned") + " --tokens 5").code == 0);
  const auto refused = [&](std::string const& command, std::string const& message) {
    const outcome result = shell(command);
    CHECK(result.code == 2);
    CHECK(contains(result, message));
  };
  refused(finetune + "--width 33", "[adapter] width is 33: it is from 1 to the 32 features of the layer");
  refused(FREEZE " --checkpoint " + here.in("tuned") + " --merge all --out " + here.in("x"),
          "is of finetune --method adapter, which only --format tessera has");
}

TEST_CASE("finetune: a BERT learns classes by adapters") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--model bert --vocabulary 300 --only sparse --static")).code == 0);
  std::string lines;
  for (int i = 0; i < 160; ++i)
    lines += "even\tof " + std::to_string(i) + " the square is here\nodd\tthe " + std::to_string(i) +
             " is of the square\n";
  put(here.in("train.tsv"), lines);
  const std::string finetune = FINETUNE " --checkpoint " + here.in("runs/a") + " --train " +
                               here.in("train.tsv") + " --validation " + here.in("train.tsv") +
                               " --lr 3e-3 --epochs 8 --method lora ";
  const outcome learned = shell(finetune + "--out " + here.in("tuned"));
  CHECK(learned.code == 0);
  CHECK(last_of(learned.output, "accuracy") == 100);
  const tessera::io::safetensors_file before(here.in("runs/a/sparse/step-00000060/tensors.safetensors")),
      after(here.in("tuned/tensors.safetensors"));
  auto const& w = after.at("block.1.mlp.up.weight");
  CHECK(std::equal(w.bytes.begin(), w.bytes.end(), before.at("block.1.mlp.up.weight").bytes.begin()));
  CHECK(after.contains("block.0.attention.qkv.up.weight"));
#ifdef CLASSIFY
  const std::string classify = CLASSIFY " --checkpoint " + here.in("tuned");
  CHECK(contains(shell(classify + " --text 'of 17 the square is here'"), "even 9"));
  CHECK(contains(shell("echo 'the 17 is of the square' | " + classify), "odd 9"));
  CHECK(shell(FREEZE " --checkpoint " + here.in("tuned") + " --merge all --format hf --out " + here.in("hf"))
            .code == 0);
  CHECK(contents(here.in("hf/config.json")).find("BertForSequenceClassification") != std::string::npos);
  CHECK(contents(here.in("hf/config.json")).find("\"odd\": 1") != std::string::npos);
  const tessera::io::safetensors_file written(here.in("hf/model.safetensors"));
  CHECK(written.at("classifier.weight").shape == std::vector<std::int64_t>{2, 32});
  CHECK(written.contains("bert.pooler.dense.bias"));
  const outcome refused = shell(CLASSIFY " --checkpoint " + here.in("runs/a") + " --text x");
  CHECK(refused.code == 2);
  CHECK(contains(refused, "is no classifier; finetune --train makes one"));
#endif
}

TEST_CASE("finetune: a prompt is trained, no weight changes, and generate begins with it") {
  const workplace here;
  CHECK(shell(here.pretrain("a", "--level byte --context 64 --only dense")).code == 0);
  put(here.in("i.json"), words_to_spell(60));
  const std::string finetune = FINETUNE " --checkpoint " + here.in("runs/a/dense/step-00000060") +
                               " --instructions " + here.in("i.json") + " --template brief --method prompt ";
  CHECK(shell(finetune + "--prompt-tokens 5 --lr 1e-2 --out " + here.in("tuned")).code == 0);
  const tessera::io::safetensors_file before(here.in("runs/a/dense/step-00000060/tensors.safetensors")),
      after(here.in("tuned/tensors.safetensors"));
  for (auto const& [name, tensor] : after.tensors()) {
    const std::size_t kept = name == "position_embedding" ? 5 * 32 * sizeof(float) : 0;
    auto const& bytes = before.at(name).bytes;
    const std::vector<std::byte> now = in_rows(tensor);
    CHECK(std::equal(bytes.begin() + std::ptrdiff_t(kept), bytes.end(), now.begin() + std::ptrdiff_t(kept)));
    if (kept > 0) CHECK_FALSE(std::equal(bytes.begin(), bytes.begin() + std::ptrdiff_t(kept), now.begin()));
  }
  CHECK(shell(GENERATE " --checkpoint " + here.in("tuned") + " --instruction 'spell abc' --tokens 80").code ==
        0);
  const auto refused = [&](std::string const& command, std::string const& message) {
    const outcome result = shell(command);
    CHECK(result.code == 2);
    CHECK(contains(result, message));
  };
  refused(finetune + "--prompt-tokens 60",
          "[--prompt-tokens] 60 leave 4 of the model's positions to the texts");
  refused(GENERATE " --checkpoint " + here.in("runs/a") + " --instruction x", "was not taught instructions");
  refused(finetune + "--json " + here.in("i.json"), "[--json] " + here.in("i.json") + " exists already");
  CHECK(shell(FINETUNE " --checkpoint " + here.in("runs/a") + " --text " + here.in("text") +
              " --epochs 1 --json " + here.in("result.json"))
            .code == 0);
  CHECK(contents(here.in("result.json")).find("validation_loss") != std::string::npos);
}

#endif

}  // namespace finetune_test
