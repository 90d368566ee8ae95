// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/train/sparsity/policies/suggested_rate.hpp>

#include "../common/element_and_block.hpp"
#include "../common/options.hpp"

namespace pretrain {

using namespace programs;

/// All that a pre-training run can be told; settings_table() explains each setting.
struct settings {
  string_list text;
  std::string level = "char", documents = "files", vocabulary_file;
  int vocabulary = 4096;

  std::string model = "gpt", preset;
  int layers = 4, repeats = 1, hidden = 384, embedding = 0, heads = 6, key_heads = 0, mlp_features = 0,
      window = 0;
  int context = 128, positions = 0;
  std::string output_weight = "tied";
  double dropout = 0;
  std::string norm = "pre", residual = "plain", init = "default";
  std::string precision = "float";

  std::string only = "both";
  int block = 16;
  double density = 0.1;
  std::string densities = "uniform";
  bool static_pattern = false;
  std::string initial_pattern = "random", policy = "magnitude";
  double initial_density = 0.5;
  int updates = 80, period = 100;
  double prune_fraction = 0.1;
  std::string block_norm = "l1", prune_decay = "cosine", prune_score = "norm";
  int grace = 0;
  std::string newborn = "mean";
  int newborn_warmup = 0;
  double newborn_values = 0;

  seconds time{60};
  int steps = 0;
  double until_loss = 0;
  std::uint64_t until_tokens = 0;
  int batch = 8;
  double lr = 1e-3, sparse_lr = 0, final_lr = 0.1, warmup = 0.05;
  int reference_batch = 0;
  std::string lr_scaling = "sqrt";
  std::uint64_t warmup_tokens = 0;
  std::string parameterisation = "standard";
  int base_hidden = 256;
  std::string optimizer = "adamw", bias_correction = "on";
  double momentum = 0.9, trust_coefficient = 0.001, weight_decay = 0.1, clip = 1, mask_share = 0.15;
  std::string average = "none";
  int average_every = 0, average_keep = 10;
  double average_decay = 0.999;
  std::string average_patterns = "reset";
  std::string mask = "words", decay = "cosine";
  bool next_sentence = false;
  std::uint64_t seed = 1, data_seed = 0;

  std::string out = "runs", name;
  int eval_every = 0, checkpoint_every = 0, keep = 2, frames = 0;
  int threads = 0, recompute = 0;
  bool quiet = false, tensorboard = false;

  std::string from, config, resume, plan;
  int branch = 0;
  bool densify = false;
  bool dry_run = false, help = false;
};

inline option_table<settings> const& settings_table() {
  using s = settings;
  using enum option_role;
  static const option_table<settings> table{
      {"Text",
       {{"text", &s::text, "FILE",
         "train on these files, the last tenth of each validates; without, on the project's own sources and "
         "documents",
         session},
        {"level", &s::level, "char|byte|wordpiece|bpe",
         "what a token is; wordpiece has the pieces of BERT, and is what --model bert takes unless said "
         "otherwise, bpe those of GPT-2"},
        {"vocabulary", &s::vocabulary, "[6, 1000000]",
         "pieces that wordpiece and bpe learn from the training text, at most"},
        {"vocabulary-file", &s::vocabulary_file, "FILE",
         "pieces that are learned already: BERT's vocab.txt, and for bpe GPT-2's merges.txt or a "
         "tokenizer.json"},
        {"documents", &s::documents, "files|blank-lines",
         "what ends a document, which no sequence of a masked model leaves"}}},
      {"Model",
       {{"model", &s::model, "gpt|llama|bert|rnn",
         "gpt predicts the next token (GPT-2: Radford et al. 2019), llama too, with RMS norms, gated MLPs "
         "and "
         "rotary positions (LLaMA: Touvron et al. 2023), bert masked ones (Devlin et al. 2019), "
         "rnn the next one by LSTM cells, of which there are --layers (Narang et al. 2017)"},
        {"preset", &s::preset, "NAME",
         "the shape of a published model: tiny, mini, small, medium, base of BERT; tiny, mini, small, "
         "medium, "
         "large, xl of GPT; tiny, mini, 68m, 160m, 1b, 7b of LLaMA"},
        {"layers", &s::layers, "[1, 1000]", "transformer blocks"},
        {"repeats", &s::repeats, "[1, 1000]",
         "how often the layers are used, one round after the other, with the same weights: 12, with --layers "
         "1, in ALBERT (Lan et al. 2020)"},
        {"hidden", &s::hidden, "[1, 65536]", "features of a token"},
        {"embedding", &s::embedding, "[0, 65536]",
         "features of a token in the table, which a dense matrix projects to --hidden: 128 in ALBERT; 0: "
         "--hidden, without a projection"},
        {"heads", &s::heads, "[1, 1024]", "attention heads, a divisor of --hidden"},
        {"key-heads", &s::key_heads, "[0, 1024]",
         "heads of keys and values, each for a group of --heads, a divisor of them (Ainslie et al. 2023); 0: "
         "one for each head"},
        {"mlp-features", &s::mlp_features, "[0, 1000000]",
         "inner features of an MLP; 0: 4 times --hidden, with llama 8 ÷ 3 times, up to a multiple of 32"},
        {"output-weight", &s::output_weight, "tied|own",
         "whether the table of tokens is the weight of the logits, too, or these have a weight of their own, "
         "as with llama unless said otherwise"},
        {"context", &s::context, "[1, 1000000]", "tokens of a sequence"},
        {"window", &s::window, "[0, 1000000]",
         "tokens at a distance below it are seen, of gpt and llama the newest; 0: all"},
        {"positions", &s::positions, "[0, 1000000]",
         "tokens of the longest sequence that the model will ever see, in a later phase of training; 0: "
         "--context"},
        {"dropout", &s::dropout, "[0, 1)", "share of activations left out while training"},
        {"norm", &s::norm, "pre|post|none",
         "where the layers normalise: before each branch (pre, which gpt and llama do), after each sum "
         "(post, which "
         "bert does), or nowhere; none unless said otherwise with --residual rezero and skipinit, and with "
         "--init fixup and t-fixup"},
        {"residual", &s::residual, "plain|rezero|skipinit|layerscale",
         "how a layer adds its branches: as they are, or times learned numbers, one for each block (rezero: "
         "Bachlechner et al. 2020) or branch (skipinit: De, Smith 2020), 0 at first, which go with --init "
         "xavier, or one for each feature, 0.1, 1e-5 or 1e-6 at first by --layers (layerscale: Touvron et "
         "al. 2021)"},
        {"init", &s::init, "default|xavier|fixup|t-fixup",
         "first values of the weights: those of GPT-2 and BERT; Xavier's; or, for models without norms, "
         "Fixup's (Zhang et al. 2019), with a learned number for each branch, or T-Fixup's (Huang et al. "
         "2020), which need no --warmup"},
        {"precision", &s::precision, precisions,
         "of weights and activations; gradients, masters of the weights and moments are float. float8, "
         "int8: floats, whose products in linear layers are of 8 bits, with delayed scaling"}}},
      {"Sparsity",
       {{"only", &s::only, "dense|sparse|both", "which of the two models to train"},
        {"block", &s::block, block_sizes, "rows and columns of a block, a divisor of --hidden"},
        {"density", &s::density, "(0, 1]",
         "share of the blocks of each weight matrix that the sparse model stores"},
        {"densities", &s::densities, "uniform|erdos-renyi",
         "the same density for each weight of a layer, or more for small ones (Mocanu et al. 2018, equation "
         "3; of matrices, RigL's ERK)"},
        {"initial-pattern", &s::initial_pattern, "random|magnitude|snip|grasp",
         "which blocks the sparse model begins with: random ones, the largest of each matrix of a dense "
         "model, or those of all matrices that matter most to the first batches (snip: Lee et al. 2019; "
         "grasp: Wang et al. 2020)"},
        {"static", &s::static_pattern, "", "keep the first pattern: no policy"},
        {"policy", &s::policy, "magnitude|set|rigl|itop|snfs|deep-r|gradual|granet",
         "blocks of least norm give way to random ones (magnitude: Dietrich et al. 2021), of either sign "
         "alike "
         "(set: Mocanu et al. 2018) or against drawn signs (deep-r: Bellec et al. 2018), to those of largest "
         "gradient, until three quarters of the run (rigl: Evci et al. 2020) or until its end (itop: Liu et "
         "al. "
         "2021), or of its average over 30 steps (snfs: Dettmers, Zettlemoyer 2019); or a dense model "
         "becomes sparse (gradual: Zhu, Gupta 2017), or one of --initial-density sparser, while blocks give "
         "way "
         "to those of largest gradient (granet: Liu et al. 2021)"},
        {"initial-density", &s::initial_density, "(0, 1]",
         "share of the blocks with which --policy granet begins; it falls to --density until half of the "
         "run"},
        {"updates", &s::updates, "[0, 1000000]", "pattern updates in a run, at most, evenly spaced"},
        {"period", &s::period, "[1, 1000000]",
         "least steps from a pattern update to the next, in which new blocks grow; 1 if --updates is given "
         "alone"},
        {"prune-fraction", &s::prune_fraction, "(0, 1]",
         "share of the blocks that an update replaces, at first; 0.5 in the papers of magnitude and granet, "
         "0.3 in those of set and rigl"},
        {"prune-decay", &s::prune_decay, "cosine|linear|constant",
         "how that share falls to none until the end; with --policy set and deep-r it stays"},
        {"block-norm", &s::block_norm, "l1|l2|max",
         "what a block is measured by: the sum of its absolute values, the root of that of their squares, or "
         "the greatest"},
        {"prune-score", &s::prune_score, "norm|age|momentum",
         "which blocks are pruned: those of least norm, of least norm for the root of their age, or those "
         "whose "
         "first moment has the least norm"},
        {"grace", &s::grace, "[0, 1000000]",
         "pattern updates in which a block that grew is pruned after all others only; with --policy set, "
         "after "
         "all others of its sign"},
        {"newborn", &s::newborn, "zero|mean|age|smet",
         "the moments of a block that grew, in AdamW: zero, the mean second moment of the blocks that stay, "
         "zero and corrected by the age of the block, or so with --newborn-warmup 100 (smet: Xiao et al. "
         "2026)"},
        {"newborn-warmup", &s::newborn_warmup, "[0, 1000000]",
         "steps in which the learning rate of a block that grew rises"},
        {"newborn-values", &s::newborn_values, "[0, 1]",
         "deviation of the weights of new blocks, as a share of the root mean square of those that stay; 0: "
         "they are zero"}}},
      {"Training",
       {{"time", &s::time, "(0, 1e9]",
         "time of each model, evaluations included, of which half at least is for steps; turned into a "
         "number of steps by timing the first ones"},
        {"steps", &s::steps, "[0, 2e9]", "steps of each model, in place of --time; 0: as many as fit"},
        {"until-loss", &s::until_loss, "[0, inf)",
         "end when an evaluation is not above this, in nats; 0: at the last step", session},
        {"until-tokens", &s::until_tokens, "[0, 9e18]",
         "end after so many tokens, of a masked model those that it predicted; 0: at the last step", session},
        {"batch", &s::batch, "[1, 65536]", "sequences of a step, from random places of the text"},
        {"lr", &s::lr, "(0, inf)",
         "highest learning rate of the dense model; 2e-4 for --model bert unless said otherwise"},
        {"sparse-lr", &s::sparse_lr, "[0, inf)",
         "highest learning rate of the sparse model; 0: suggested by --lr and --density, or --lr with supar"},
        {"parameterisation", &s::parameterisation, "standard|mup|supar",
         "how initial values and rates follow the size of a model: not at all; by --hidden (mup: Yang et al. "
         "2021) or also by --density (supar: Dey et al. 2024), so that an --lr that was found with a dense "
         "model of --base-hidden features holds, if heads are as large as there"},
        {"base-hidden", &s::base_hidden, "[1, 65536]", "features of the model with which --lr was found"},
        {"decay", &s::decay, "cosine|linear|wsd|power|constant",
         "how the learning rate falls from the highest: to --final-lr along a cosine or a line, or as 1 - "
         "root "
         "x in the last fifth of the steps alone (wsd, warm-up-stable-decay: Hägele et al. 2024), or with "
         "the "
         "square root of the steps, in which the warm-up is one (power); or stays (constant), as it does "
         "with "
         "--optimizer schedule-free unless said otherwise"},
        {"final-lr", &s::final_lr, "[0, 1]", "last learning rate, as a share of the highest"},
        {"warmup", &s::warmup, "[0, 1]", "share of the steps in which the learning rate rises"},
        {"warmup-tokens", &s::warmup_tokens, "[0, 9e18]",
         "tokens shown while the learning rate rises, --batch x --context in a step, in place of --warmup; "
         "0: "
         "--warmup says when"},
        {"reference-batch", &s::reference_batch, "[0, 65536]",
         "the --batch for which --lr and --sparse-lr are good; with another one they are scaled, by "
         "--lr-scaling; 0: they are as they are"},
        {"lr-scaling", &s::lr_scaling, "linear|sqrt",
         "how learning rates follow --batch ÷ --reference-batch: in proportion, for SGD (Goyal et al. 2017), "
         "or with its root, for Adam (Malladi et al. 2022)"},
        {"optimizer", &s::optimizer, "adamw|adamw-8bit|adam-mini|schedule-free|sgd|lion|lars|lamb",
         "AdamW (Loshchilov, Hutter 2019); with moments in 8 bits (after Dettmers et al. 2022); with a "
         "second "
         "moment for each block (Adam-mini: Zhang et al. 2024); with an average of the weights in place of a "
         "falling rate (Defazio et al. 2024); SGD with momentum, whose rates are greater; Lion (Chen et al. "
         "2023), "
         "whose rates are a third to a tenth of AdamW's; or, for large batches, LARS (You et al. 2017), "
         "which is "
         "SGD, and LAMB (You et al. 2020), which is AdamW, with a rate for each matrix"},
        {"momentum", &s::momentum, "[0, 1)", "of SGD and LARS"},
        {"trust-coefficient", &s::trust_coefficient, "(0, inf)",
         "of LARS: the share of the norm of a matrix by which a rate of 1 moves it"},
        {"bias-correction", &s::bias_correction, "on|off",
         "of the moments of LAMB: on as in the paper, off as in pytorch-lamb"},
        {"weight-decay", &s::weight_decay, "[0, inf)", "of the optimizer, on matrices"},
        {"average", &s::average, "none|ema|lawa",
         "also evaluate and save an average of the weights: exponential moving (ema), or the mean of "
         "snapshots (lawa: Kaddour 2022)"},
        {"average-every", &s::average_every, "[0, 2e9]",
         "steps between its samples of the weights; 0: each step of ema, a hundredth of the run of lawa"},
        {"average-keep", &s::average_keep, "[1, 1000]", "snapshots of lawa"},
        {"average-decay", &s::average_decay, "[0, 1)", "share of the old average of ema"},
        {"average-patterns", &s::average_patterns, "reset|union",
         "after an update of the pattern the average begins anew, or goes on, in which a new block was zero"},
        {"clip", &s::clip, "[0, inf)", "longest gradient, by its norm over all parameters; 0: any"},
        {"mask-share", &s::mask_share, "(0, 1]", "share of the tokens that a masked model predicts"},
        {"mask", &s::mask, "words|tokens", "what is masked: whole words, or tokens one by one"},
        {"next-sentence", &s::next_sentence, "",
         "a masked model also says whether one half of a sequence follows the other in its document"},
        {"seed", &s::seed, "[0, inf)", "decides all that is random"},
        {"data-seed", &s::data_seed, "[0, inf)",
         "decides the order of the data, and dropout, in the place of --seed; 0: --seed does"}}},
      {"Running",
       {{"threads", &s::threads, "[0, 4096]", "0: as many as this process may use", session},
        {"recompute", &s::recompute, "[0, 1000]",
         "segments of layers that keep their input alone, from which the backward pass computes the rest "
         "again: less memory, the same results; the square root of --layers is usual, --layers saves most; "
         "0: keep all",
         session},
        {"eval-every", &s::eval_every, "[0, 2e9]", "steps between evaluations; 0: up to twelve in a run"},
        {"checkpoint-every", &s::checkpoint_every, "[0, 2e9]",
         "steps between checkpoints, besides those after the best evaluations; 0: five in a run", session},
        {"keep", &s::keep, "[1, 1000]", "checkpoints kept beside the best", session},
        {"out", &s::out, "DIR", "where the folders of runs are", session},
        {"name", &s::name, "NAME", "folder of this run; without, made from the settings"},
        {"from", &s::from, "DIR",
         "begin with the weights, patterns, vocabulary and settings of the run in this folder; the other "
         "options override settings that leave the model as it is"},
        {"branch", &s::branch, "[0, 2e9]",
         "with --from: go on with its checkpoint of this step, as --resume would, in the order of the data "
         "of "
         "another --data-seed (Frankle et al. 2020); 0: begin a new training"},
        {"densify", &s::densify, "",
         "with --from and --only dense: begin with the weights of its sparse model, and zeros in the absent "
         "blocks (SPDF, Thangarasa et al. 2023)"},
        {"config", &s::config, "FILE.json", "settings to begin with; the other options override them",
         command},
        {"resume", &s::resume, "DIR", "go on with the run in this folder", command},
        {"dry-run", &s::dry_run, "",
         "print sizes and expected time, say what would keep the run from going to its end, and train "
         "nothing",
         command},
        {"plan", &s::plan, "BUDGET",
         "say which model to train on how many tokens with so many FLOPs, 1e15, or in a time, 10min, by "
         "measured "
         "steps, and train nothing: with 20 tokens a parameter, and by the fits of Hoffmann et al. 2022 and "
         "Besiroglu et al. 2024",
         command},
        {"tensorboard", &s::tensorboard, "",
         "write event files of TensorBoard, too, beside log.csv and log.jsonl of each model", session},
        {"frames", &s::frames, "[0, 9999]",
         "pictures of the patterns, evenly spaced, with the blocks that are new since the one before in "
         "orange: frames/ of the sparse model",
         session},
        {"quiet", &s::quiet, "", "no progress lines", session},
        {"help", &s::help, "", "print this", command}}}};
  return table;
}

/// Whether the sparse model has more blocks when training begins than at its end.
inline bool density_falls(settings const& s) {
  return (s.policy == "gradual" || s.policy == "granet") && !s.static_pattern && s.updates > 0;
}
/// The share of its blocks that the sparse model stores when training begins. One that begins with the
/// weights of another run has its pattern.
inline double first_density(settings const& s) {
  const bool has_pattern = !s.from.empty() && s.branch == 0;
  if (!density_falls(s) || has_pattern) return s.density;
  return s.policy == "gradual" ? 1 : s.initial_density;
}

/// The mean over the run of the share of its blocks: of a cubic a quarter lies above its end.
inline double mean_density(settings const& s) {
  const double falling = s.policy == "gradual" ? 0.75 : 0.5;  // share of the run
  return !density_falls(s) ? s.density : s.density + (first_density(s) - s.density) * falling / 4;
}

/// The seed of the order of the data, and of dropout.
inline std::uint64_t seed_of_data(settings const& s) { return s.data_seed > 0 ? s.data_seed : s.seed; }

/// Throws option_error if --threads asks for more than this process may use.
inline void check_threads(int asked, int available) {
  if (asked > available)
    refuse("--threads", tessera::message(asked, " is more than the ", available,
                                         " that this process may use; 0 takes all of them"));
}

/// Whether each branch is multiplied by 0 at first.
inline bool begins_without_branches(settings const& s) {
  return s.residual == "rezero" || s.residual == "skipinit";
}
/// Whether the first values are for models without norms.
inline bool begins_without_norms(settings const& s) { return s.init == "fixup" || s.init == "t-fixup"; }

/// The norms of a model whose settings do not say them.
inline char const* usual_norm(settings const& s) {
  if (s.model != "rnn" && (begins_without_branches(s) || begins_without_norms(s))) return "none";
  return s.model == "bert" ? "post" : "pre";
}

/// The learning rate of the sparse model of a run, by the density with which it begins.
inline double suggested_sparse_lr(settings const& s) {
  if (s.parameterisation == "supar") return s.lr;  // which holds for every density
  return tessera::train::suggested_rate(s.lr, first_density(s));
}

/// The settings in a JSON object, on top of the defaults; `document` names it in errors. Commands are none.
inline settings stored_settings(tessera::io::json const& object, std::string const& document) {
  settings s;
  for (given_option const& given : read_json(settings_table(), object, document)) {
    const auto& row = find_option(settings_table(), given.name, given.where);
    if (row.role == option_role::command)
      refuse(given.where, "is no setting; say --" + given.name + " in the command");
    assign(row, s, given);
  }
  return s;
}

/// Settings with the steps and the time of others, by which a run may be longer than it was planned.
inline settings with_length_of(settings s, settings const& other) {
  s.steps = other.steps, s.time = other.time;
  return s;
}

/// The settings that a run stored. An older one had not all of them: the moments of its new blocks begin with
/// zeros, and its pattern may change at each step.
inline settings settings_of_run(tessera::io::json const& object, std::string const& document) {
  settings s = stored_settings(object, document);
  if (!object.find("newborn")) s.newborn = "zero";
  if (!object.find("period")) s.period = 1;
  if (!object.find("norm")) s.norm = usual_norm(s);
  return s;
}

}  // namespace pretrain
