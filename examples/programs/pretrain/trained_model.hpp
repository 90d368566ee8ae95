// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/io/printable.hpp>
#include <tessera/io/text.hpp>
#include <tessera/train/masters.hpp>

#include "adapters.hpp"
#include "run_record.hpp"

namespace pretrain {

/// The checkpoint that is meant by the folder of a checkpoint, of a variant or of a run: of several the best,
/// and of both variants the sparse one.
inline std::string find_checkpoint(std::string const& folder) {
  namespace fs = std::filesystem;
  if (fs::exists(fs::path(folder) / "state.json")) return folder;
  for (std::string const& variant : {folder, folder + "/sparse", folder + "/dense"}) {
    const auto steps = train::checkpoint_steps(variant);
    if (steps.empty()) continue;
    const std::string newest = train::checkpoint_folder(variant, steps.back());
    const train::checkpoint from(newest);
    if (!from.state().contains("best_step")) return newest;  // of weights alone
    const auto best = from.state().at("best_step").as_integer();
    const std::string best_folder = train::checkpoint_folder(variant, best);
    return fs::exists(best_folder) ? best_folder : newest;
  }
  throw tessera::io_error(tessera::message(
      "[checkpoint] ", folder, fs::exists(folder) ? " holds" : " does not exist, so it holds",
      " no checkpoint; give the folder of a run, or one of its checkpoints"));
}

/// A model as a run left it, or a fine-tuning.
struct trained_model {
  run_origin origin;
  run_record record;
  model_description made_of;
  std::optional<adapter_description> adapters;
  std::string form;                         // of the instructions that it was tuned on: --template
  std::vector<std::string> classes;         // of texts, which it tells apart; else none
  std::unique_ptr<train::checkpoint> file;  // from which the model of freeze --to borrows its weights
  model network;
};

/// The model of the variant that a run has trained. Throws io_error if its settings have none.
inline model_description description_of(run_origin const& origin, std::string const& variant_name,
                                        std::string const& folder) {
  for (variant const& v : variants_of(origin.asked))
    if (v.name == variant_name) return description_of(origin.asked, v, origin.symbols.size());
  throw tessera::io_error("[--checkpoint] " + folder + " is of a variant " +
                          tessera::io::in_quotes(variant_name) + " that its settings do not have");
}

/// Reads the checkpoint that `named` means, and prints where it is. Throws io_error if it is not one of a
/// run, or has no such weights.
///   weights    "last", or "average"
///   adapters   a folder of PEFT, whose adapters the model gets, or ""
inline trained_model read_trained(std::string const& named, tessera::context& ctx,
                                  std::string const& weights = "last", std::string const& adapters = "") {
  const std::string folder = find_checkpoint(named);
  train::checkpoint from(folder);
  const auto program = program_of(from, folder);
  trained_model read{
      read_origin(program, folder), read_record(program.at("record")), {}, {}, {}, {}, {}, {nullptr, ctx}};
  if (program.contains("template")) read.form = program.at("template").as_string();
  read.made_of = description_of(read.origin, read.record.variant, folder);
  if (program.contains("adapters")) read.adapters = read_adapters(program.at("adapters"));
  if (read.adapters && !adapters.empty())
    refuse("--adapters", folder + " has adapters already; freeze it with --merge all first");
  read.made_of.method = read.adapters ? read.adapters->method : adapters.empty() ? "full" : "lora";
  if (program.contains("frozen")) {
    if (read.adapters) program.at("adapters").fail("are given, but a model of freeze --to has none");
    if (!adapters.empty()) refuse("--adapters", folder + " was frozen in fewer bits, and takes none");
    if (weights == "average") refuse("--weights", "average: " + folder + " has none");
    read.made_of.method = "frozen";
    read.made_of.precision = program.at("frozen").as_string();
  }
  if (program.contains("classes")) {
    const auto names = program.at("classes");
    for (std::size_t i = 0; i < names.size(); ++i) read.classes.push_back(names.at(i).as_string());
    read.network.network = make_classifier(read.made_of, nullptr, static_cast<int>(names.size()));
  } else {
    read.network.network = make_model(read.made_of);
  }
  if (read.adapters && read.adapters->method == "prompt") {
    read.network.prompt = read.adapters->prompt;
    read.network.context = std::size_t(room_beside(read.network.prompt, read.origin.asked));
  } else if (read.adapters) {
    add_adapters(read.made_of, *read.network.network, *read.adapters);
  }
  if (read.made_of.method == "frozen") {
    read.file = std::make_unique<train::checkpoint>(std::move(from));
    read.network.map(*read.file);
    std::fprintf(stderr, "%s\n", tessera::io::printable(folder).c_str());
    return read;
  }
  read.network.load(from);
  const bool always = read.origin.asked.optimizer == "schedule-free";  // loaded
  if (weights == "average" && !always) {
    if (read.origin.asked.average == "none")
      refuse("--weights", "average: " + folder + " has none; pretrain --average makes one");
    const train::trainable_layer layer = read.network.network->layer();
    train::load_array(from, weights, layer);
    layer.refresh(0);
  }
  if (!adapters.empty()) {
    read.adapters = read_peft_into(*read.network.network, read.made_of, adapters);
    read.network.network->layer().refresh(0);
  }
  std::fprintf(stderr, "%s%s\n", tessera::io::printable(folder).c_str(),
               weights == "average" || always ? ", the average of its weights" : "");
  return read;
}

/// Throws option_error: a folder of freeze --to is only used.
[[noreturn]] inline void refuse_frozen(std::string const& folder, std::string const& precision) {
  refuse("--checkpoint",
         folder + " was frozen in " + precision + " to be used; take the checkpoint that it was made of");
}
inline void require_not_frozen(trained_model const& read, std::string const& folder) {
  if (read.made_of.method == "frozen") refuse_frozen(folder, read.made_of.precision);
}

/// Throws option_error for a model with classes or adapters, which finetune made, or of freeze --to.
inline void require_pretrained(trained_model const& read, std::string const& folder) {
  require_not_frozen(read, folder);
  if (!read.classes.empty() || read.adapters)
    refuse("--checkpoint", folder + (read.adapters ? " has adapters" : " is a classifier") +
                               ", made by finetune; this program takes what pretrain made");
}

/// The text of a run, tokenised by its vocabulary. Throws option_error if it is not the text that the run
/// saw.
///   given    where it is now, or nothing: where it was
///   folder   of the run, for the error
inline token_text text_of_run(string_list const& given, run_origin const& origin, std::string const& folder) {
  settings of = origin.asked;
  if (!given.empty()) of.text = given;
  const auto refuse_it = [&] {
    refuse("--text", (of.text.empty() ? std::string("the project's sources are")
                                      : of.text[0] + (of.text.size() > 1 ? " and the others are" : " is")) +
                         " not the text of " + folder + " any more; give it as it was");
  };
  const corpus files = corpus_of(of);
  std::optional<token_text> text;
  try {
    text.emplace(tokenize(files, origin.symbols, of.context, objective_of(of), of.next_sentence ? 2 : 0));
  } catch (tessera::option_error const&) {  // a symbol that the run did not know
    refuse_it();
  }
  if (text->hash != origin.text_hash) refuse_it();
  return std::move(*text);
}

}  // namespace pretrain
