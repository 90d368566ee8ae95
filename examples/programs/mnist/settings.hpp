// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "../common/options.hpp"

namespace mnist {

using programs::string_list;

/// What the program is told. The defaults are LeNet-300-100 as in Dettmers, Zettlemoyer 2019.
struct settings {
  string_list hidden{"300", "100"};
  int block = 1;
  double density = 0.1;
  std::string densities = "uniform", last = "sparse", initial = "random", pixels = "rows";

  std::string policy = "snfs", decay = "cosine";
  double initial_density = 0.5;
  double fraction = 0.5, stored = 0;
  int updates = 1;

  int tickets = 0, rewind = 0;
  double ticket_share = 0.2;
  std::string ticket_scope = "matrix";
  bool reinitialise = false;

  int epochs = 100, batch = 100, examples = 0, drop_every = 25000;
  std::string optimizer = "sgd";
  double rate = 0.1, weight_decay = 5e-4, dropout = 0;
  std::uint64_t seed = 1;
  int threads = 1;
  std::string json;
  bool made_up = false, help = false;
};

inline programs::option_table<settings> const& table() {
  using s = settings;
  using role = programs::option_role;
  static const programs::option_table<settings> rows{
      {"Network",
       {{"hidden", &s::hidden, "N", "features of each hidden layer, one number or more"},
        {"block", &s::block, programs::block_sizes, "rows and columns of a block"},
        {"density", &s::density, "(0, 1]", "stored blocks of all"},
        {"densities", &s::densities, "uniform|erdos-renyi",
         "the same for each matrix, or more for small ones (Mocanu et al. 2018, equation 3; RigL's ERK)"},
        {"last", &s::last, "sparse|dense", "the last matrix"},
        {"pixels", &s::pixels, "rows|tiles|random",
         "their order: row by row, so that a block sees a tile of the image, or a fixed permutation"}}},
      {"Sparsity",
       {{"initial", &s::initial, "random|magnitude|snip|grasp|synflow",
         "the first pattern: at random, or pruned from dense initial weights by their magnitude, by SNIP "
         "(Lee "
         "et al. 2019), GraSP (Wang et al. 2020) or SynFlow (Tanaka et al. 2020), which share out the "
         "density"},
        {"policy", &s::policy,
         "dense|static|magnitude|set|snfs|rigl|itop|deep-r|gradual|granet|top-kast|edge-popup",
         "no sparsity; the first pattern is kept; blocks of least norm give way to random ones (Dietrich et "
         "al. "
         "2021); SET (Mocanu et al. 2018); sparse momentum (Dettmers, Zettlemoyer 2019); RigL (Evci et al. "
         "2020), and with updates until the end (Liu et al. 2021); in the style of Deep R (Bellec et al. "
         "2018); from dense to sparse (Zhu, Gupta 2017); the same from --initial-density, with growth by "
         "gradients (GraNet, Liu et al. 2021); the "
         "largest of more blocks that are trained (Top-KAST, Jayakumar et al. 2020); those of random weights "
         "whose trained scores are greatest (Ramanujan et al. 2020)"},
        {"fraction", &s::fraction, "[0, 1]",
         "share of the blocks that the first update replaces; 0.3 in the papers of set and rigl"},
        {"initial-density", &s::initial_density, "(0, 1]",
         "share of the blocks with which granet begins; it falls to --density until half of the run"},
        {"decay", &s::decay, "cosine|linear|constant",
         "of this share; without this option that of set and deep-r stays"},
        {"updates", &s::updates, "[1, 1000]", "in an epoch"},
        {"stored", &s::stored, "[0, 1]",
         "share of the blocks that top-kast trains, or of edge-popup's random ones, among which --density "
         "are "
         "chosen; 0: twice --density, or all"}}},
      {"Lottery tickets",
       {{"tickets", &s::tickets, "[0, 1000]",
         "in the place of a policy: rounds of training from dense weights, of pruning, and of putting what "
         "is "
         "left back to early values (Frankle, Carbin 2019); 0: none"},
        {"ticket-share", &s::ticket_share, "(0, 1)", "of the blocks, which each round prunes"},
        {"ticket-scope", &s::ticket_scope, "matrix|model",
         "the share of each matrix, or of all blocks together"},
        {"rewind", &s::rewind, "[0, 1e9]", "step of the early values (Frankle et al. 2020)"},
        {"reinitialise", &s::reinitialise, "",
         "beside each ticket train new random weights on its pattern, for comparison"}}},
      {"Training",
       {{"epochs", &s::epochs, "[1, 10000]", "each of 54000 examples; 6000 are for validation"},
        {"batch", &s::batch, "[1, 10000]", "examples of a step, drawn at random; no more than there are"},
        {"examples", &s::examples, "[0, 54000]", "of the training set; 0: all"},
        {"optimizer", &s::optimizer, "sgd|adam|lion|lars|lamb",
         "SGD with Nesterov's momentum 0.9; Adam; Lion (Chen et al. 2023), whose rates are smaller; LARS "
         "(You "
         "et al. 2017), whose rates are about 1000 times larger; LAMB (You et al. 2020)"},
        {"rate", &s::rate, "(0, 100]", "learning rate at the first step"},
        {"drop-every", &s::drop_every, "[0, 1e9]", "steps until a tenth of the learning rate; 0: never"},
        {"weight-decay", &s::weight_decay, "[0, 1]", "of matrices"},
        {"dropout", &s::dropout, "[0, 0.9]", "of hidden features"},
        {"seed", &s::seed, "[0, 1e18]", "of patterns, weights and examples"},
        {"threads", &s::threads, "[0, 1024]", "0: one a core", role::session}}},
      {"Data and output",
       {{"made-up", &s::made_up, "", "digits of seven segments, where MNIST is not at hand"},
        {"json", &s::json, "FILE", "the result, added as a line", role::session},
        {"help", &s::help, "", "this text", role::command}}}};
  return rows;
}

/// Whether a network computes with a part of the blocks that it stores.
inline bool shows_part(settings const& s) { return s.policy == "top-kast" || s.policy == "edge-popup"; }

/// The share of the blocks that the first network stores.
inline double stored_share(settings const& s) {
  if (s.policy == "granet") return s.initial_density;
  if (!shows_part(s)) return s.density;
  if (s.stored > 0) return s.stored;
  return s.policy == "top-kast" ? std::min(1.0, 2 * s.density) : 1;
}

/// Throws option_error for an option that was given and would change nothing.
inline void require_effect(settings const& s, std::vector<programs::given_option> const& given) {
  using names = std::initializer_list<const char*>;
  const auto refuse_said = [&](names all, std::string const& why) {
    for (std::string const name : all)
      if (is_said(given, name)) programs::refuse("--" + name, why);
  };
  const auto without_meaning = [&](names all, std::string const& where) {
    refuse_said(all, "has no meaning with " + where + "; leave it out");
  };
  if (s.tickets > 0)
    without_meaning({"policy", "density", "densities", "last", "initial", "initial-density", "fraction",
                     "decay", "updates"},
                    "--tickets, which begins dense and prunes after each round");
  else
    refuse_said({"rewind", "reinitialise", "ticket-share", "ticket-scope"},
                "has a meaning with --tickets only");

  const std::string policy = "--policy " + s.policy;
  if (s.policy == "dense")
    without_meaning({"block", "density", "densities", "last", "initial", "pixels"}, policy);
  if (s.policy == "dense" || s.policy == "static") without_meaning({"fraction", "decay", "updates"}, policy);
  if (s.policy == "gradual" || s.policy == "granet")
    without_meaning({"densities", "last", "initial"}, policy + ", which prunes all matrices while it trains");
  if (s.policy == "gradual") without_meaning({"fraction", "decay"}, policy);
  if (s.policy != "granet") without_meaning({"initial-density"}, policy);
  if (s.policy == "granet" && s.initial_density < s.density)
    programs::refuse("--initial-density", "must not be less than --density, to which it falls; say more");
  if (s.policy == "deep-r") without_meaning({"decay"}, policy);
  if (!shows_part(s)) without_meaning({"stored"}, policy);
  if (shows_part(s))
    without_meaning({"densities", "last", "initial", "fraction", "decay"},
                    policy + ", which chooses a share of the blocks of each matrix");
  if (s.policy == "edge-popup") without_meaning({"updates"}, policy + ", which chooses at each step");
  if (shows_part(s) && s.density >= stored_share(s))
    programs::refuse("--stored", "must be greater than --density, the share of the blocks that " + policy +
                                     " computes with: it would have nothing to choose");
  if (s.initial != "random")
    without_meaning({"densities", "last"}, "--initial " + s.initial + ", which prunes all matrices");
  if (s.pixels == "tiles" && s.block == 1)
    programs::refuse("--pixels", "tiles has no meaning with --block 1; leave it out");
  if (s.density == 1) {
    without_meaning({"densities", "last", "initial"}, "--density 1");
    if (s.policy != "static")
      programs::refuse("--density", "1 leaves no block to " + policy + "; say less, or --policy static");
  }
  if (s.json.empty()) without_meaning({"json"}, "no path");
}

}  // namespace mnist
