// SPDX-License-Identifier: BSD-3-Clause

// Writes a trained model for inference: its weights and patterns alone, or as a folder of Hugging Face.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>

#include <tessera/exec/available_threads.hpp>
#include <tessera/io/printable.hpp>

#include "../common/format.hpp"
#include "../common/guarded_main.hpp"
#include "../common/options_help.hpp"
#include "disk_room.hpp"
#include "hugging_face_folder.hpp"
#include "prune_trained.hpp"
#include "reader_settings.hpp"
#include "round_trained.hpp"
#include "trained_model.hpp"

namespace pretrain { namespace {

using namespace programs;

/// Bytes of the files in a folder.
std::string bytes_of(std::string const& folder) {
  double bytes = 0;
  for (auto const& file : std::filesystem::recursive_directory_iterator(folder))
    if (file.is_regular_file()) bytes += double(file.file_size());
  return quantity(bytes) + "B";
}

void write_hugging_face(std::string const& folder, trained_model const& trained) {
  settings const& asked = trained.origin.asked;
  if (asked.model == "rnn") refuse("--format", "hf: transformers has no class for --model rnn");
  train::pretrained_folder more = tokenizer_files(
      trained.origin.symbols, std::max(asked.positions, asked.context), asked.model != "bert");
  more.context = std::max(asked.positions, asked.context);
  if (!trained.classes.empty()) {
    tessera::io::json::object names, numbers;
    for (std::size_t i = 0; i < trained.classes.size(); ++i) {
      names.push_back({std::to_string(i), trained.classes[i]});
      numbers.push_back({trained.classes[i], static_cast<std::int64_t>(i)});
    }
    more.configuration.push_back({"id2label", std::move(names)});
    more.configuration.push_back({"label2id", std::move(numbers)});
  }
  train::save_pretrained(folder, trained.network.network->layer(), more);
}

/// Adds the adapters of a fine-tuned model to its weights, by --merge. A dense model gets them anyway where
/// the format has no place for adapters.
void merge_if_asked(freezing_settings const& s, trained_model& trained, std::string const& folder) {
  if (!trained.adapters) {
    const std::string why = folder + " has no adapters; finetune --method lora makes some";
    if (s.merge != "none") refuse("--merge", why);
    if (s.format == "peft") refuse("--format", "peft: " + why);
    return;
  }
  if (s.format == "peft" && s.merge != "none") refuse("--merge", "would leave no adapters for --format peft");
  if (s.density < 1)
    refuse("--density",
           folder + " has adapters; freeze it with --merge all first, and prune what that wrote");
  if (trained.adapters->method != "lora" && (s.merge != "none" || s.format != "tessera"))
    refuse(s.merge != "none" ? "--merge" : "--format", folder + " is of finetune --method " +
                                                           trained.adapters->method +
                                                           ", which only --format tessera has");
  const bool sparse = trained.made_of.shape.density < 1;
  if (s.merge == "none" && s.format != "hf") return;
  if (s.merge == "none" && sparse)
    refuse("--merge",
           "is to be said: adapters of a sparse model go into all blocks, so that it becomes "
           "dense, or into the stored ones, so that something of them is lost");
  const bool all = s.merge != "stored";
  const double lost = merge_adapters(trained.made_of, *trained.network.network,
                                     all ? nn::merge_blocks::all : nn::merge_blocks::stored);
  trained.adapters.reset();
  if (sparse && all)
    trained.origin.asked.density = 1;
  else if (sparse)
    std::printf("adapters in the stored blocks; what these do not store, of norm %s, is lost\n",
                number(lost, 3).c_str());
}

int command(string_list const& arguments) {
  const freezing_settings s = new_freezing_settings(arguments);
  if (s.help) {
    std::printf("freeze: writes a trained model for inference, without what only training needs\n%s",
                help_text(freezing_table()).c_str());
    return 0;
  }
  require_new_folder(s.out);
  check_threads(s.threads, tessera::exec::available_threads());
  tessera::context ctx(s.threads > 0 ? s.threads : tessera::exec::available_threads());
  const std::string from = find_checkpoint(s.checkpoint);
  trained_model trained = read_trained(from, ctx, s.weights, s.adapters);
  require_not_frozen(trained, from);
  const bool dense = s.format == "hf", rounds = s.to != "none";
  if (rounds) require_roundable(s, trained);
  model_description written = rounds ? rounded(s, trained) : trained.made_of;
  if (dense || s.merge == "all") written.shape.density = 1;
  require_room(s.out, double(size_of(written).weight_bytes()), "the weights need");
  if (s.density < 1 && !trained.classes.empty())
    refuse("--density", from + " is a classifier; prune the model that it was made of");
  merge_if_asked(s, trained, from);
  if (s.density < 1) prune_trained(s, trained, from);
  if (rounds) round_trained(s, trained, from);
  if (s.format == "peft") {
    train::save_peft(s.out, trained.network.network->layer(), trained.adapters->settings, "");
  } else if (dense) {
    write_hugging_face(s.out, trained);
  } else {
    trained.record.history = {};  // only a training goes on with it
    tessera::io::json kept = to_json(trained.origin);
    kept["record"] = to_json(trained.record);
    if (rounds) kept["frozen"] = s.to;
    if (trained.adapters) kept["adapters"] = to_json(*trained.adapters);
    if (!trained.form.empty()) kept["template"] = trained.form;
    if (!trained.classes.empty())
      kept["classes"] = tessera::io::json::array(trained.classes.begin(), trained.classes.end());
    if (s.density < 1)
      write_run(s.out, trained, std::move(kept));
    else
      trained.network.save_weights(s.out, tessera::io::json::object{{"program", std::move(kept)}});
  }
  std::printf("%s: %s, of a checkpoint of %s\n", tessera::io::printable(s.out).c_str(),
              bytes_of(s.out).c_str(), bytes_of(from).c_str());
  return 0;
}

}}  // namespace pretrain

int main(int count, char** arguments) {
  return pretrain::guarded_main("freeze", count, arguments, pretrain::command);
}
