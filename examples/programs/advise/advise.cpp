// SPDX-License-Identifier: BSD-3-Clause

// Which block size for a weight on this machine: the expected times of the three products of a linear layer
// beside the times of a dense one, and the density up to which sparse is faster.

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include <unistd.h>

#include <tessera/exec/available_threads.hpp>
#include <tessera/nn/advise.hpp>
#include <tessera/tessera.hpp>

#include "../common/format.hpp"
#include "../common/guarded_main.hpp"
#include "../common/options_help.hpp"
#include "../common/table.hpp"

namespace advise { namespace {

using namespace tessera;
using programs::fixed, programs::number, programs::table, programs::table_row;

struct settings {
  int rows = 3072, cols = 768, tokens = 4096, threads = 0;
  double density = 0.1;
  std::string element = "float";
  bool check = false, break_even = false, help = false;
};

programs::option_table<settings> const& options() {
  using s = settings;
  static const programs::option_table<settings> all{
      {"Weight",
       {{"rows", &s::rows, "[1, 1000000]", "outputs of the layer"},
        {"cols", &s::cols, "[1, 1000000]", "its inputs"},
        {"density", &s::density, "(0, 1]", "stored blocks of all"},
        {"tokens", &s::tokens, "[1, 1000000]", "of a batch: its sequences times their length"},
        {"element", &s::element, "float|bfloat16", "of weights and activations"}}},
      {"Running",
       {{"threads", &s::threads, "[0, 1024]", "0: one a core"},
        {"check", &s::check, "", "compute the whole products, too, and print how far off the times were"},
        {"break-even", &s::break_even, "",
         "times by density, and the density at which sparse training takes as long as dense"},
        {"help", &s::help, "", "this text"}}}};
  return all;
}

template <class... Blocks> struct block_list {
  template <class Visit> static void for_each(Visit&& visit) { (visit.template operator()<Blocks>(), ...); }
  template <element T> static advice advise(context& ctx, settings const& s) {
    return tessera::advise<T, Blocks...>(ctx, s.rows, s.cols, s.density, s.tokens);
  }
};
#ifdef TESSERA_REDUCED_TYPES  // a build for tests alone
using blocks = block_list<block_shape<16>, block_shape<1>>;
#else
using blocks = block_list<block_shape<16>, block_shape<8>, block_shape<4>, block_shape<1>>;
#endif

std::string name_of_block(int block) { return message(block, "x", block); }
std::string milliseconds(double seconds) { return number(1e3 * seconds, 3); }

template <class Block> pattern pattern_of(settings const& s, double density) {
  return random_pattern(int(ceil_div(s.rows, Block::rows)), int(ceil_div(s.cols, Block::cols)), density,
                        random_stream(1, random_purpose::initial_pattern));
}

template <element T> void print_advice(context& ctx, settings const& s) {
  const advice a = blocks::advise<T>(ctx, s);
  table t{{"blocks", "engine", "W·x, ms", "Wᵀ·dy", "dy·xᵀ", "training", "of dense"}, {}};
  const auto add = [&](std::string name, block_advice const& b) {
    t.rows.push_back({std::move(name), name_of(b.by), milliseconds(b.seconds.forward),
                      milliseconds(b.seconds.backward), milliseconds(b.seconds.gradient),
                      milliseconds(b.seconds.training()),
                      fixed(b.seconds.training() / a.dense.seconds.training(), 2)});
  };
  for (block_advice const& b : a.blocks) add(name_of_block(b.block_rows), b);
  add("dense", a.dense);
  if (s.check) {
    t.header.push_back("measured, ms"), t.header.push_back("off by, %");
    const auto check = [&](table_row& row, block_advice const& b, product_seconds const& whole) {
      row.push_back(milliseconds(whole.training()));
      row.push_back(fixed(100 * (b.seconds.training() / whole.training() - 1), 0));
    };
    blocks::for_each([&]<class Block>() {
      const auto at = std::ranges::find(a.blocks, Block::rows, &block_advice::block_rows);
      check(t.rows[std::size_t(at - a.blocks.begin())], *at,
            measured_seconds<T, Block>(ctx, s.rows, s.cols, pattern_of<Block>(s, s.density), s.tokens));
    });
    using dense = block_shape<granule>;
    check(t.rows.back(), a.dense,
          measured_seconds<T, dense>(ctx, s.rows, s.cols, pattern_of<dense>(s, 1), s.tokens));
  }
  std::fputs(aligned(t).c_str(), stdout);
}

/// Times of sparse training as shares of dense, by density, and where they are 1: between two densities on
/// the line through both.
template <element T> void print_break_even(context& ctx, settings const& s) {
  constexpr double densities[] = {0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9};
  using dense = block_shape<granule>;
  const double whole =
      expected_seconds<T, dense>(ctx, s.rows, s.cols, pattern_of<dense>(s, 1), s.tokens).training();
  table t{{"blocks"}, {}};
  for (const double density : densities) t.header.push_back(number(100 * density) + " %");
  t.header.push_back("as dense at");
  blocks::for_each([&]<class Block>() {
    table_row row{name_of_block(Block::rows)};
    std::string even = message("more than ", number(100 * std::end(densities)[-1]));
    double before = 0, share_before = 0;
    for (const double density : densities) {
      const double share =
          expected_seconds<T, Block>(ctx, s.rows, s.cols, pattern_of<Block>(s, density), s.tokens)
              .training() /
          whole;
      row.push_back(fixed(share, 2));
      if (share_before <= 1 && share > 1)
        even = fixed(100 * (before + (density - before) * (1 - share_before) / (share - share_before)), 0);
      before = density, share_before = share;
    }
    row.push_back(even + " %");
    t.rows.push_back(std::move(row));
  });
  std::fputs(aligned(t).c_str(), stdout);
}

/// Throws option_error if the dense weight, its gradient and the activations do not fit this machine.
void require_memory(settings const& s) {
  const double memory = double(sysconf(_SC_PHYS_PAGES)) * double(sysconf(_SC_PAGE_SIZE));
  const double weight = double(s.rows) * s.cols, activations = (double(s.rows) + s.cols) * s.tokens;
  const double bytes = (s.element == "float" ? 4 : 2) * (weight + activations) + 4 * weight;
  if (bytes > memory)
    programs::refuse("memory", message("a dense weight and the activations need ", programs::quantity(bytes),
                                       "B, but this machine has ", programs::quantity(memory),
                                       "B; make --rows, --cols or --tokens smaller"));
}

int main_of(std::vector<std::string> const& arguments) {
  settings s;
  const auto given = programs::read_arguments(options(), arguments);
  programs::assign(options(), s, given);
  if (s.help) {
    std::printf(
        "advise: which block size for a weight on this machine\n\nusage: advise [--option value …]\n%s",
        programs::help_text(options()).c_str());
    return 0;
  }
  for (std::string const name : {"check", "density"})
    if (s.break_even && is_said(given, name))
      programs::refuse("--" + name, "has no meaning with --break-even; leave it out");
  require_memory(s);
  context ctx(s.threads == 0 ? exec::available_threads() : s.threads);
  std::printf("W (%d, %d), %s, %d tokens, %d threads, %s\n\n", s.rows, s.cols, s.element.c_str(), s.tokens,
              ctx.concurrency(), TESSERA_ISA_NAME);
  const auto print = [&]<element T>(std::type_identity<T>) {
    s.break_even ? print_break_even<T>(ctx, s) : print_advice<T>(ctx, s);
  };
  s.element == "float" ? print(std::type_identity<float>()) : print(std::type_identity<bfloat16>());
  return 0;
}

}}  // namespace advise

int main(int argc, char** argv) { return programs::guarded_main("advise", argc, argv, advise::main_of); }
