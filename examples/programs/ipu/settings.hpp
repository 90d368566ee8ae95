// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../common/options.hpp"

namespace ipu_program {

using programs::string_list;

/// What the commands of this program are told.
struct settings {
  int m = 4096, k = 4096, n = 256, groups = 1;
  int block = 16;
  double density = 1.0 / 16;
  std::string pattern;
  std::string type = "half", mode = "static", pass = "forward";
  string_list option;

  string_list sizes{"512", "1024", "2048", "4096", "8192"}, columns{"4", "16", "64", "256", "1024"},
      blocks{"1", "4", "8", "16"}, densities{"1/4", "1/8", "1/16", "1/32"};

  std::string model = "bert";
  int tokens = 0, hidden = 0, layers = 0;
  bool charge = false;

  std::string target = "bow";
  double clock = 0, memory = 0, exchange = 0;
  int tiles = 0, threads = 0;
  std::uint64_t seed = 1;
  std::string html, json, csv;
  bool help = false;

  bool one_mode = false;  ///< whether --mode was said: plan then shows that product alone
};

inline programs::option_table<settings> const& table() {
  using s = settings;
  using enum programs::option_role;
  // The commands that use an option.
  constexpr char const *one = "plan|emulate|host", *planned = "plan|emulate", *many = "sweep|map",
                       *all_products = "plan|emulate|sweep|map", *emulated = "emulate|train",
                       *machines = "plan|emulate|sweep|map|train", *computed = "emulate|train|host",
                       *drawn = "plan|emulate|sweep|map|train|host";
  static const programs::option_table<settings> rows{
      {"The product Y = W X",
       {{"m", &s::m, "[1, 65536]", "rows of W and Y", run, one},
        {"k", &s::k, "[1, 65536]", "columns of W, rows of X", run, one},
        {"n", &s::n, "[1, 65536]", "columns of X and Y", run, one},
        {"groups", &s::groups, "[1, 1472]", "products side by side (dynamic, dense)", run, planned},
        {"block", &s::block, "[1, 16]", "side of a block: 1, 4, 8 or 16", run, one},
        {"density", &s::density, "(0, 1]", "stored blocks of all, drawn at random, such as 1/16", run,
         "plan|emulate|train|host"},
        {"pattern", &s::pattern, "FILE",
         "a pattern instead: .smtx or Matrix Market (.mtx), whose size is m x k", run, one},
        {"type", &s::type, "half|float", "of the elements", run, all_products},
        {"mode", &s::mode, "static|dynamic|dense",
         "whether the pattern is known when the product is planned, or every block is stored; without it, "
         "plan "
         "shows all three",
         run, all_products},
        {"pass", &s::pass, "forward|all", "all: the gradients of X and of W too, checked as well", run,
         "emulate"},
        {"option", &s::option, "NAME=VALUE",
         "options of popsparse, such as nSplit=2 or metaInfoBucketOversizeProportion=0.5", run,
         all_products}}},
      {"Many products",
       {{"sizes", &s::sizes, "M", "m = k", run, many},
        {"columns", &s::columns, "N", "n", run, many},
        {"blocks", &s::blocks, "B", "sides of blocks", run, many},
        {"densities", &s::densities, "D", "such as 1/16", run, many}}},
      {"A training step",
       {{"model", &s::model, "bert|gpt", "a layer of BERT, or a small GPT", run, "train"},
        {"tokens", &s::tokens, "[0, 1048576]", "of the batch; 0: one that nearly fills the machine", run,
         "train"},
        {"hidden", &s::hidden, "[0, 16384]", "features; 0: 768 for bert, 256 for gpt", run, "train"},
        {"layers", &s::layers, "[0, 100]", "of gpt; 0: 4", run, "train"}}},
      {"The machine",
       {{"target", &s::target, "bow|gc200|gc2", "whose numbers the options below change", run, machines},
        {"tiles", &s::tiles, "[0, 65535]", "0: the target's", run, machines},
        {"clock", &s::clock, "[0, 100]", "GHz; 0: the target's", run, machines},
        {"memory", &s::memory, "[0, 1048576]", "KiB of a tile; 0: the target's", run, machines},
        {"exchange", &s::exchange, "[0, 1024]", "bytes that a tile receives in a cycle; 0: the target's", run,
         machines},
        {"charge", &s::charge, "", "go on where the memory is too small, with a remark", run, emulated},
        {"threads", &s::threads, "[0, 1024]", "of this computer; 0: one a core", session, computed},
        {"seed", &s::seed, "[0, 1e18]", "of random patterns and values", run, drawn}}},
      {"Output",
       {{"html", &s::html, "FILE", "the report, or the map, as a page with pictures", session,
         "plan|emulate|map|train|host"},
        {"json", &s::json, "FILE", "the report as JSON", session, "plan|emulate|train|host"},
        {"csv", &s::csv, "FILE", "a line for each product", session, "plan|sweep"},
        {"help", &s::help, "", "this text; behind a command, its options alone", command}}}};
  return rows;
}

/// Throws option_error for an option that was given and would change nothing.
inline void require_effect(settings const& s, std::vector<programs::given_option> const& given,
                           std::string const& command) {
  programs::require_used(table(), given, command);
  const std::pair<char const*, std::string const&> files[] = {
      {"html", s.html}, {"json", s.json}, {"csv", s.csv}};
  for (auto const& [name, path] : files) {
    if (path.empty() && is_said(given, name))
      programs::refuse("--" + std::string(name), "is empty; give the name of a file, or leave it out");
    for (auto const& [other, its] : files)
      if (!path.empty() && path == its && std::string_view(name) < other)
        programs::refuse("--" + std::string(name),
                         path + " is the file of --" + other + ", too; each needs a file of its own");
  }
  const auto without_meaning = [&](char const* name, std::string const& where) {
    if (is_said(given, name))
      programs::refuse("--" + std::string(name), "has no meaning with " + where + "; leave it out");
  };
  if (!s.pattern.empty())
    for (char const* name : {"m", "k", "density"}) without_meaning(name, "--pattern, which says it");
  if (s.model == "bert") without_meaning("layers", "--model bert, which is one layer");
  if (s.mode != "dense") return;
  without_meaning("option", "--mode dense");
  without_meaning("pass", "--mode dense, whose forward product alone is emulated");
  if (command == "sweep" || command == "map")
    programs::refuse("--mode", "dense is what " + command + " compares with; say static or dynamic");
  if (command == "emulate")
    for (char const* name : {"block", "density", "pattern"})
      without_meaning(name, "--mode dense, which stores every block");
}

}  // namespace ipu_program
