// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>

#include "../common/options.hpp"
#include "settings.hpp"

// What the programs that read a checkpoint can be told: generate, fill_mask, freeze, interpolate and
// finetune.

namespace pretrain {

using namespace programs;

/// All that the sampling program can be told.
struct sampling_settings {
  std::string checkpoint, weights = "last", prompt, prompts, instruction, input, cache = "same", json;
  string_list stop;
  int tokens = 500, top_k = 0, batch = 8;
  double temperature = 0.8, top_p = 1, min_p = 0, repetition_penalty = 1;
  std::uint64_t seed = 1;
  int threads = 0;
  bool stats = false, help = false;
};

inline option_table<sampling_settings> const& sampling_table() {
  using s = sampling_settings;
  static const option_table<sampling_settings> table{
      {"Options",
       {{"checkpoint", &s::checkpoint, "DIR", "folder of a run, or one of its checkpoints"},
        {"weights", &s::weights, "last|average",
         "of the checkpoint: its own, or their average, if the run was made with --average"},
        {"prompt", &s::prompt, "TEXT", "the text to go on from; without, a line break"},
        {"prompts", &s::prompts, "FILE", "a prompt in each line, in place of one; texts come in their order"},
        {"batch", &s::batch, "[1, 4096]", "texts at a time, of --prompts"},
        {"instruction", &s::instruction, "TEXT",
         "in place of a prompt, what a model that finetune taught --instructions is to do; it ends by "
         "itself"},
        {"input", &s::input, "TEXT", "that the instruction is about"},
        {"tokens", &s::tokens, "[1, 2e9]", "how many to add at most"},
        {"temperature", &s::temperature, "[0, inf)",
         "logits are divided by it; 0: always the likeliest token"},
        {"top-k", &s::top_k, "[0, 2e9]", "choose among so many likeliest tokens; 0: among all"},
        {"top-p", &s::top_p, "(0, 1]",
         "choose among the fewest likeliest tokens that have this probability together"},
        {"min-p", &s::min_p, "[0, 1]",
         "not among tokens that are less likely than this share of the likeliest"},
        {"repetition-penalty", &s::repetition_penalty, "(0, inf)",
         "logits of tokens that are in the text are divided by it"},
        {"stop", &s::stop, "TEXT ...", "a text ends before the first of these"},
        {"seed", &s::seed, "[0, inf)", "decides what is chosen"},
        {"cache", &s::cache, "same|bfloat16",
         "how keys and values are kept: as the model computes, or rounded"},
        {"json", &s::json, "FILE", "writes prompts and texts to it"},
        {"stats", &s::stats, "", "says how fast tokens come, and how fast memory is read for them"},
        {"threads", &s::threads, "[0, 4096]", "0: as many as this process may use"},
        {"help", &s::help, "", "print this", option_role::command}}}};
  return table;
}

/// All that the program that fills masks can be told.
struct filling_settings {
  std::string checkpoint, weights = "last", text;
  int top = 5, threads = 0;
  bool help = false;
};

inline option_table<filling_settings> const& filling_table() {
  using s = filling_settings;
  static const option_table<filling_settings> table{
      {"Options",
       {{"checkpoint", &s::checkpoint, "DIR", "folder of a run, or one of its checkpoints"},
        {"weights", &s::weights, "last|average",
         "of the checkpoint: its own, or their average, if the run was made with --average"},
        {"text", &s::text, "TEXT", "what has [MASK] where a token is to be guessed, once or more often"},
        {"top", &s::top, "[1, 1000]", "how many guesses to print for each"},
        {"threads", &s::threads, "[0, 4096]", "0: as many as this process may use"},
        {"help", &s::help, "", "print this", option_role::command}}}};
  return table;
}

/// All that the program that freezes a model can be told.
struct freezing_settings {
  std::string checkpoint, weights = "last", format = "tessera", adapters, merge = "none", to = "none", out;
  double density = 1;
  std::string by = "magnitude";
  int block = 0, calibration = 16384, threads = 0;
  string_list text;
  bool help = false;
};

inline option_table<freezing_settings> const& freezing_table() {
  using s = freezing_settings;
  static const option_table<freezing_settings> table{
      {"Options",
       {{"checkpoint", &s::checkpoint, "DIR", "folder of a run, or one of its checkpoints"},
        {"weights", &s::weights, "last|average",
         "of the checkpoint: its own, or their average, if the run was made with --average"},
        {"format", &s::format, "tessera|hf|peft",
         "of the folder: generate and fill_mask take tessera's as a --checkpoint; from_pretrained of "
         "transformers takes hf, with zeros for absent blocks, and its tokenizer; PEFT takes peft, which has "
         "the adapters alone"},
        {"adapters", &s::adapters, "DIR", "a folder of PEFT, whose adapters the model gets first"},
        {"merge", &s::merge, "none|stored|all",
         "add the adapters of a fine-tuned model to its weights, and drop them: to the blocks that are "
         "stored, "
         "or to all, so that a sparse matrix becomes dense; a dense one has all stored"},
        {"to", &s::to, "none|bfloat16|float16|float8|int8",
         "keep the weights and the token table in this element, those of 8 bits with a scale for each row; "
         "prints the loss before and after. The folder is mapped, so that programs start at once"},
        {"density", &s::density, "(0, 1]",
         "prune each weight first, to this share of all blocks of its matrix; prints the loss before and "
         "after, and writes "
         "a "
         "run that pretrain --from goes on with"},
        {"by", &s::by, "magnitude|wanda",
         "which blocks are pruned: of least mean magnitude, or of least magnitude times the norm of the "
         "inputs "
         "(Sun et al. 2024)"},
        {"block", &s::block, "0|1|4|8|16",
         "rows and columns of the blocks of the pruned model; 0: as they are, and 16 of a dense one"},
        {"text", &s::text, "FILE", "the text of the run, where it is now; without, where it was"},
        {"calibration", &s::calibration, "[1, 2e9]", "tokens of the training text whose inputs wanda sees"},
        {"threads", &s::threads, "[0, 4096]", "0: as many as this process may use"},
        {"out", &s::out, "DIR", "folder to write"},
        {"help", &s::help, "", "print this", option_role::command}}}};
  return table;
}

/// All that the program that interpolates can be told.
struct interpolation_settings {
  string_list checkpoint, text;
  int points = 11, threads = 0;
  std::string out;
  bool help = false;
};

inline option_table<interpolation_settings> const& interpolation_table() {
  using s = interpolation_settings;
  static const option_table<interpolation_settings> table{
      {"Options",
       {{"checkpoint", &s::checkpoint, "DIR",
         "the ends of the line: two folders of runs, or of checkpoints; named first, they need no "
         "--checkpoint"},
        {"points", &s::points, "[2, 10001]", "of the line, evenly spaced, with its ends"},
        {"text", &s::text, "FILE", "the text of both runs, where it is now; without, where it was"},
        {"out", &s::out, "DIR",
         "where to write loss.csv, loss.svg and summary.json; without, they are not kept"},
        {"threads", &s::threads, "[0, 4096]", "0: as many as this process may use"},
        {"help", &s::help, "", "print this", option_role::command}}}};
  return table;
}

/// All that the program that fine-tunes can be told.
struct finetune_settings {
  std::string checkpoint, train, validation, instructions, out, json;
  string_list text;
  std::string form = "alpaca", method = "full", target = "q,v", adapters;
  int epochs = 4, batch = 32, rank = 8, width = 64, prompt_tokens = 20, threads = 0;
  double lr = 0, weight_decay = 0.01, alpha = 16, lora_plus = 1;
  std::uint64_t seed = 1;
  bool rank_stabilised = false, random_weights = false, help = false;
};

inline option_table<finetune_settings> const& finetune_table() {
  using s = finetune_settings;
  static const option_table<finetune_settings> table{
      {"What to learn",
       {{"checkpoint", &s::checkpoint, "DIR", "folder of a run, or one of its checkpoints"},
        {"train", &s::train, "FILE.tsv",
         "by a BERT: texts to tell apart, lines of a label, a tab and a text"},
        {"instructions", &s::instructions, "FILE.json",
         "by a GPT: a list of objects with an instruction, an output and maybe an input; the tokens of "
         "outputs are learned"},
        {"template", &s::form, "alpaca|brief",
         "the words around an instruction: those of Stanford Alpaca (Taori et al. 2023), or their headings "
         "alone"},
        {"text", &s::text, "FILE",
         "by both: a text, or several, to go on with as pretrain does; its end measures"},
        {"validation", &s::validation, "FILE", "texts or instructions that measure, in the same form"},
        {"out", &s::out, "DIR", "where to write the weights; without, they are not kept"},
        {"json", &s::json, "FILE", "where to write losses, measures, memory and time"}}},
      {"Training",
       {{"epochs", &s::epochs, "[1, 1000]", "how often each text is learned"},
        {"batch", &s::batch, "[1, 65536]", "texts of a step; the last one of an epoch takes what is left"},
        {"lr", &s::lr, "[0, inf)",
         "highest learning rate, after a tenth of the steps; it falls to 0; 0: 2e-4, or 1e-3 of adapters"},
        {"weight-decay", &s::weight_decay, "[0, inf)", "of AdamW, on matrices"},
        {"random-weights", &s::random_weights, "",
         "begin with random weights of the same shape, to see what pre-training is worth"},
        {"seed", &s::seed, "[0, inf)", "decides all that is random"}}},
      {"Adapters",
       {{"method", &s::method, "full|lora|adapter|prompt",
         "train all weights, or freeze them and train the layers that are new, and: adapters of low rank "
         "beside the weights (LoRA: Hu et al. 2022); two small layers behind attention and MLP, and the "
         "norms "
         "(Houlsby et al. 2019); or the vectors of tokens before each text (Lester et al. 2021)"},
        {"width", &s::width, "[1, 1000000]", "features between the two layers of --method adapter"},
        {"prompt-tokens", &s::prompt_tokens, "[1, 1000000]", "how many, of --method prompt"},
        {"rank", &s::rank, "[1, 1000000]", "of an adapter"},
        {"alpha", &s::alpha, "(0, inf)", "adapters are scaled by alpha / rank"},
        {"rank-stabilised", &s::rank_stabilised, "", "by alpha / sqrt(rank) (Kalajdzievski 2023)"},
        {"target", &s::target, "LIST",
         "which matrices of a layer have adapters: some of q, k, v, out, up, down and, of a LLaMA, gate, "
         "with commas between, or all; qkv: one for q, k and v"},
        {"adapters", &s::adapters, "DIR", "go on with those in a folder of PEFT, which say all of the above"},
        {"lora-plus", &s::lora_plus, "(0, inf)",
         "rate of the matrix that begins with zeros / rate of the other one (LoRA+: Hayou et al. 2024, who "
         "advise 16)"}}},
      {"Machine",
       {{"threads", &s::threads, "[0, 4096]", "0: as many as this process may use"},
        {"help", &s::help, "", "print this", option_role::command}}}};
  return table;
}

/// All that the program that tells classes can be told.
struct classifying_settings {
  std::string checkpoint, text;
  int threads = 0;
  bool help = false;
};

inline option_table<classifying_settings> const& classifying_table() {
  using s = classifying_settings;
  static const option_table<classifying_settings> table{
      {"Options",
       {{"checkpoint", &s::checkpoint, "DIR", "what finetune --train wrote"},
        {"text", &s::text, "TEXT", "whose class is asked for; without, each line of the standard input"},
        {"threads", &s::threads, "[0, 4096]", "0: as many as this process may use"},
        {"help", &s::help, "", "print this", option_role::command}}}};
  return table;
}

/// Throws option_error if an option that a program needs was not said.
inline void require_said(std::string const& name, std::string const& value, std::string const& what) {
  if (value.empty()) refuse("--" + name, "is missing: " + what);
}
inline void require_checkpoint(std::string const& said) {
  require_said("checkpoint", said, "the folder of a run, or one of its checkpoints");
}

/// The settings of the sampling program.
inline sampling_settings new_sampling_settings(string_list const& arguments) {
  sampling_settings s;
  assign(sampling_table(), s, read_arguments(sampling_table(), arguments));
  if (s.help) return s;
  require_checkpoint(s.checkpoint);
  if (!s.instruction.empty() && !s.prompt.empty())
    refuse("--instruction", "stands in place of a --prompt; leave one out");
  if (s.instruction.empty() && !s.input.empty())
    refuse("--input", "is of an --instruction, and there is none");
  if (!s.prompts.empty() && !(s.prompt.empty() && s.instruction.empty()))
    refuse("--prompts", "stands in place of a --prompt or an --instruction; leave one out");
  for (std::string const& each : s.stop)
    if (each.empty()) refuse("--stop", "is an empty text, before which every text ends");
  return s;
}

/// The settings of the program that tells classes.
inline classifying_settings new_classifying_settings(string_list const& arguments) {
  classifying_settings s;
  assign(classifying_table(), s, read_arguments(classifying_table(), arguments));
  if (!s.help) require_said("checkpoint", s.checkpoint, "what finetune --train wrote");
  return s;
}

/// The settings of the program that fills masks.
inline filling_settings new_filling_settings(string_list const& arguments) {
  filling_settings s;
  assign(filling_table(), s, read_arguments(filling_table(), arguments));
  if (s.help) return s;
  require_checkpoint(s.checkpoint);
  require_said("text", s.text, "a text with [MASK] in it");
  return s;
}

/// The settings of the program that freezes a model.
inline freezing_settings new_freezing_settings(string_list const& arguments) {
  freezing_settings s;
  const auto given = read_arguments(freezing_table(), arguments);
  assign(freezing_table(), s, given);
  if (s.help) return s;
  require_checkpoint(s.checkpoint);
  for (const char* name : {"by", "block", "calibration"})
    if (s.density == 1 && is_said(given, name))
      refuse("--" + std::string(name), "has no meaning without --density below 1, which prunes");
  if (s.density == 1 && s.to == "none" && is_said(given, "text"))
    refuse("--text", "has no meaning without --density below 1, or --to");
  if (s.by != "wanda" && is_said(given, "calibration"))
    refuse("--calibration", "has no meaning with --by " + s.by + "; say --by wanda");
  require_said("out", s.out, "the folder to write");
  return s;
}

/// The settings of the program that interpolates. The first words are checkpoints.
inline interpolation_settings new_interpolation_settings(string_list arguments) {
  if (!arguments.empty() && !arguments[0].starts_with("-"))
    arguments.insert(arguments.begin(), "--checkpoint");
  interpolation_settings s;
  assign(interpolation_table(), s, read_arguments(interpolation_table(), arguments));
  if (!s.help && s.checkpoint.size() != 2)
    refuse("--checkpoint", "takes two, the ends of a line, not " + std::to_string(s.checkpoint.size()));
  return s;
}

/// The settings of the program that fine-tunes.
inline finetune_settings new_finetune_settings(string_list const& arguments) {
  finetune_settings s;
  const auto given = read_arguments(finetune_table(), arguments);
  assign(finetune_table(), s, given);
  if (s.help) return s;
  require_checkpoint(s.checkpoint);
  const int tasks = !s.train.empty() + !s.instructions.empty() + !s.text.empty();
  if (tasks > 1) refuse("--train", "and --instructions and --text are three tasks; say one");
  if (tasks == 0) refuse("--train", "is missing: texts and their classes, or --instructions, or --text");
  if (!s.train.empty()) require_said("validation", s.validation, "a file of texts that measure");
  if (!s.text.empty() && is_said(given, "validation"))
    refuse("--validation", "is not of --text, whose end measures");
  if (s.instructions.empty() && is_said(given, "template"))
    refuse("--template", "is of --instructions, and there are none");
  for (char const* const name : {"rank", "alpha", "rank-stabilised", "target", "adapters", "lora-plus"})
    if (s.method != "lora" && is_said(given, name)) refuse("--" + std::string(name), "is of --method lora");
  for (char const* const name : {"rank", "alpha", "rank-stabilised", "target"})
    if (!s.adapters.empty() && is_said(given, name))
      refuse("--" + std::string(name), "is said by the files of --adapters");
  if (s.method != "prompt" && is_said(given, "prompt-tokens"))
    refuse("--prompt-tokens", "is of --method prompt");
  if (s.method != "adapter" && is_said(given, "width")) refuse("--width", "is of --method adapter");
  if (s.random_weights && s.method != "full")
    refuse("--random-weights", "with --method " + s.method + " would freeze them; leave one out");
  if (s.lr == 0) s.lr = s.method == "full" ? 2e-4 : 1e-3;
  return s;
}

}  // namespace pretrain
