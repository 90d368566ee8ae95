// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "../pretrain/options.hpp"

namespace ipu_program {

using pretrain::string_list;

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
};

inline pretrain::option_table<settings> const& table() {
  using s = settings;
  using role = pretrain::option_role;
  static const pretrain::option_table<settings> rows{
      {"The product Y = W X (plan, emulate, host)",
       {{"m", &s::m, "[1, 65536]", "rows of W and Y"},
        {"k", &s::k, "[1, 65536]", "columns of W, rows of X"},
        {"n", &s::n, "[1, 65536]", "columns of X and Y"},
        {"groups", &s::groups, "[1, 1472]", "products side by side (dynamic)"},
        {"block", &s::block, "[1, 16]", "side of a block: 1, 4, 8 or 16"},
        {"density", &s::density, "(0, 1]", "stored blocks of all, drawn at random"},
        {"pattern", &s::pattern, "FILE",
         "a pattern instead: .smtx or Matrix Market (.mtx), whose size is m x k"},
        {"type", &s::type, "half|float", "of the elements"},
        {"mode", &s::mode, "static|dynamic|dense",
         "whether the pattern is known when the product is planned"},
        {"pass", &s::pass, "forward|all", "all: the gradients of X and of W too, checked as well"},
        {"option", &s::option, "NAME=VALUE",
         "options of popsparse, such as nSplit=2 or metaInfoBucketOversizeProportion=0.5"}}},
      {"Many products (sweep, map)",
       {{"sizes", &s::sizes, "M", "m = k"},
        {"columns", &s::columns, "N", "n"},
        {"blocks", &s::blocks, "B", "sides of blocks"},
        {"densities", &s::densities, "D", "such as 1/16"}}},
      {"A training step (train)",
       {{"model", &s::model, "bert|gpt", "a layer of BERT, or a small GPT"},
        {"tokens", &s::tokens, "[0, 1048576]", "of the batch; 0: one that nearly fills the machine"},
        {"hidden", &s::hidden, "[0, 16384]", "features; 0: 768 for bert, 256 for gpt"},
        {"layers", &s::layers, "[0, 100]", "of gpt; 0: 4"},
        {"charge", &s::charge, "", "go on where the memory is too small, with a remark"}}},
      {"The machine",
       {{"target", &s::target, "bow|gc200|gc2", "whose numbers the options below change"},
        {"tiles", &s::tiles, "[0, 65535]", "0: the target's"},
        {"clock", &s::clock, "[0, 100]", "GHz; 0: the target's"},
        {"memory", &s::memory, "[0, 1048576]", "KiB of a tile; 0: the target's"},
        {"exchange", &s::exchange, "[0, 1024]", "bytes that a tile receives in a cycle; 0: the target's"},
        {"threads", &s::threads, "[0, 1024]", "of the host; 0: one a core", role::session},
        {"seed", &s::seed, "[0, 1e18]", "of random patterns and values"}}},
      {"Output",
       {{"html", &s::html, "FILE", "the report as a page with pictures", role::session},
        {"json", &s::json, "FILE", "the report as JSON", role::session},
        {"csv", &s::csv, "FILE", "the sweep, a line for each product", role::session},
        {"help", &s::help, "", "this text", role::command}}}};
  return rows;
}

}  // namespace ipu_program
