// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>

#include <tessera/core/error.hpp>

#include "settings.hpp"

// Settings that do not go together.

namespace pretrain {

/// Throws option_error for sizes of the model, or of a step, that do not go together.
inline void check_sizes(settings const& s) {
  using tessera::message;
  if (s.model != "rnn" && s.hidden % s.heads != 0) {
    int below = s.heads, above = s.heads;
    while (s.hidden % below != 0) --below;
    while (above < s.hidden && s.hidden % above != 0) ++above;
    refuse("--heads", s.heads > s.hidden ? message(s.heads, " heads for ", s.hidden, " features; at most ",
                                                   s.hidden, " are possible")
                                         : message(s.heads, " is no divisor of --hidden ", s.hidden, "; ",
                                                   below, " and ", above, " are"));
  }
  if (s.model != "rnn" && s.key_heads > 0 && s.heads % s.key_heads != 0)
    refuse("--key-heads", message(s.key_heads, " is no divisor of --heads ", s.heads));
  if (s.model == "llama" && s.hidden / s.heads % 2 != 0)
    refuse("--heads", message(s.heads, " make heads of ", s.hidden / s.heads,
                              " features; rotary positions rotate pairs"));
  if (const int block = s.only == "dense" ? 1 : s.block; s.hidden % block != 0) {
    const int unit = s.model == "rnn" ? block : std::lcm(s.heads, block), below = s.hidden / unit * unit;
    refuse("--hidden",
           message(s.hidden, " is not a multiple of blocks of ", block, "; ",
                   s.model == "rnn" ? "" : message("with ", s.heads, " heads "),
                   below > 0 ? message(below, " and ") : "", below + unit, below > 0 ? " are" : " is"));
  }
  if (const int layers = s.layers * s.repeats; s.recompute > layers)
    refuse("--recompute",
           message(s.recompute, " segments of ", layers, " layers; 0 … ", layers, " are possible"));
  if (std::int64_t{s.batch} * s.context > std::numeric_limits<int>::max())
    refuse("--batch",
           message(s.batch, " sequences of ", s.context, " tokens are too many for a step; at most ",
                   std::numeric_limits<int>::max() / s.context, " are possible"));
}

/// Throws option_error if a matrix of the sparse model would have no block, or all of them.
inline void check_density(settings const& s) {
  using tessera::message;
  if (s.only == "dense") return;
  // The smallest matrix is square, or a little more.
  const double side = std::ceil(double(s.hidden) / s.block), blocks = side * side;
  if (s.density * blocks < 0.5)
    refuse("--density", message(s.density, " leaves a matrix of ", s.hidden, " x ", s.hidden,
                                " features, of ", std::int64_t(blocks), " blocks, none; ",
                                std::ceil(1e4 * 1 / blocks) / 1e4, " is the least that leaves one"));
  if (const double largest = 4 * blocks;
      s.density < 1 && std::llround(s.density * largest) >= std::llround(largest))
    refuse("--density", message(s.density, " leaves none of the ", std::int64_t(largest),
                                " blocks of the largest matrix out; say --only dense"));
  if (density_falls(s) && first_density(s) < s.density)
    refuse("--initial-density",
           message(first_density(s), " is less than --density ", s.density, ", to which it falls; say more"));
}

/// Throws option_error for norms, residual connections and first values that do not go together.
inline void check_start(settings const& s) {
  if (s.model == "rnn") {
    for (auto const& [name, value, none] : {std::array{"norm", s.norm.c_str(), "pre"},
                                            {"residual", s.residual.c_str(), "plain"},
                                            {"init", s.init.c_str(), "default"}})
      if (std::string(value) != none) refuse("--" + std::string(name), "has no meaning with --model rnn");
    return;
  }
  if (char const* const other = s.model == "bert" ? "pre" : "post"; s.norm == other)
    refuse("--norm", s.norm + " has no meaning with --model " + s.model + ", whose layers have " +
                         (s.model == "bert" ? "post" : "pre") + "-norm or none");
  if (s.model == "llama" && s.init == "fixup")
    refuse("--init", "fixup has no meaning with --model llama, which has no biases");
  if (s.parameterisation != "standard" && (s.norm == "none" || s.init != "default"))
    refuse("--parameterisation",
           s.parameterisation + (s.norm == "none" ? " has no meaning with --norm none: the last norm's gain "
                                                    "scales the logits"
                                                  : " has first values of its own: leave --init out"));
  if (begins_without_norms(s) && s.norm != "none")
    refuse("--norm", s.norm + " has no meaning with --init " + s.init +
                         ", which is for models without norms; say none");
  if (begins_without_norms(s) && s.residual != "plain")
    refuse("--residual",
           s.residual + " has no meaning with --init " + s.init +
               (s.init == "fixup" ? ", which has numbers of its own" : ", which needs no numbers") +
               "; leave one of them out");
  if (s.residual != "plain" && s.norm == "post")
    refuse(
        "--residual",
        s.residual + " has no meaning with post-norm layers, which would normalise the sum; say --norm none");
}

/// Throws option_error if no first pattern can be chosen in the way that is asked for.
inline void check_initial_pattern(settings const& s) {
  std::string const& by = s.initial_pattern;
  if (by == "random") return;
  const bool in_8_bits = s.precision == "float8" || s.precision == "int8";
  const char* const where = s.only == "dense" || s.density == 1 ? "a dense model"
                            : !s.from.empty()                   ? "--from, which has a pattern"
                            : density_falls(s) && s.policy == "gradual"
                                ? "--policy gradual, which begins dense"
                            : density_falls(s)         ? "--policy granet, which begins with more blocks"
                            : s.densities != "uniform" ? "--densities, which is of random patterns"
                            : s.init == "fixup" ? "--init fixup, where the last matrix of each branch is zero"
                            : by != "magnitude" && begins_without_branches(s)
                                ? "--residual, where at first no branch has a gradient; say magnitude"
                            // Differences of gradients drown in fewer bits; float16 has no loss scale yet.
                            : by == "grasp" && in_8_bits               ? "8-bit products; say snip"
                            : by == "grasp" && s.precision != "float"  ? "16-bit weights; say snip"
                            : by == "snip" && s.precision == "float16" ? "float16; say bfloat16"
                                                                       : nullptr;
  if (where) refuse("--initial-pattern", tessera::message(by, " has no meaning with ", where));
}

/// Throws option_error for settings that do not go together; `available_threads` is what this process may
/// use.
inline void check(settings const& s, int available_threads) {
  using tessera::message;
  check_sizes(s), check_density(s), check_start(s), check_initial_pattern(s);
  const bool learns_pieces = s.level == "wordpiece" || s.level == "bpe";
  if (!s.vocabulary_file.empty() && !learns_pieces)
    refuse("--vocabulary-file", "has no meaning with --level " + s.level + "; say --level wordpiece or bpe");
  if (s.model == "bert" && s.level != "wordpiece")
    refuse("--level",
           s.level + " has no token that stands for a masked one; --model bert needs --level wordpiece");
  if (s.model == "rnn" && s.precision != "float")
    refuse("--precision", s.precision + ": --model rnn computes in float");
  if (s.positions > 0 && s.context > s.positions)
    refuse("--context", message(s.context, " tokens are more than the ", s.positions,
                                " positions of the model; --positions is for its longest sequence"));
  if (s.output_weight == "own" && (s.model == "rnn" || s.model == "bert"))
    refuse("--output-weight", "own: the logits of --model " + s.model + " are of the table of tokens");
  if (s.densities != "uniform" && s.model == "rnn") refuse("--densities", "has no meaning with --model rnn");
  for (auto const& [name, value, none] : {std::tuple{"positions", s.positions, 0},
                                          {"repeats", s.repeats, 1},
                                          {"embedding", s.embedding, 0},
                                          {"key-heads", s.key_heads, 0},
                                          {"window", s.window, 0},
                                          {"mlp-features", s.mlp_features, 0}})
    if (value != none && s.model == "rnn")
      refuse("--" + std::string(name), "has no meaning with --model rnn");
  if (s.model == "bert" && s.context < 8)
    refuse("--context", message(s.context, " tokens are too few for a masked model; 8 is the least"));
  check_threads(s.threads, available_threads);
}

}  // namespace pretrain
