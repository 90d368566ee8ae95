// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/ipu/report/report_page.hpp>
#include <tessera/ipu/runs/machine.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

#include "commands.hpp"
#include "products.hpp"

namespace ipu_program {

using namespace tessera;

namespace {

template <class Body>
void reported(settings const& s, ipu::machine& machine, std::string const& name, Body&& step) {
  step();                  // homes are found, and everything is allocated
  machine.clear_report();  // the second step is the one that repeats
  const auto begin = std::chrono::steady_clock::now();
  step();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  deliver(s, machine.report(name));
  std::printf("\nemulated in %.1f s\n", seconds);
}

template <class T> void fill(panel_matrix<T>& x, std::uint64_t seed) {
  for (std::int64_t f = 0; f < x.features(); ++f)
    for (std::int64_t t = 0; t < x.tokens(); ++t)
      x(f, t) = T(random_value(seed, std::uint64_t(f * x.tokens() + t)));
}

/// Sequences of `each` tokens; the last one may be shorter.
sequences cut(std::int64_t tokens, std::int64_t each) {
  std::vector<std::int64_t> lengths(std::size_t(tokens / each), each);
  if (tokens % each != 0) lengths.push_back(tokens % each);
  return sequences::from_lengths(lengths);
}

/// A layer of BERT, forward and backward, in bfloat16 with 16 x 16 blocks: 2 bytes an element, as half.
template <class Block> void train_bert(settings const& s, ipu::machine& machine, context& ctx) {
  using T = bfloat16;
  nn::transformer_config config;
  config.hidden = s.hidden > 0 ? s.hidden : 768;
  config.heads = std::max<std::int64_t>(1, config.hidden / 64), config.layers = 1, config.density = s.density;
  const std::int64_t tokens = s.tokens > 0 ? s.tokens : 8192;
  using layer = nn::transformer_block<T, Block, nn::norm_order::post>;
  layer one = layer::random(config, mask::bidirectional, s.seed, "");
  typename layer::gradients g = nn::zeros_like(one);
  typename layer::saved saved;
  const sequences batch = cut(tokens, 128);
  panel_matrix<T> x(config.hidden, tokens), y(config.hidden, tokens), dy(config.hidden, tokens),
      dx(config.hidden, tokens);
  fill(x, s.seed), fill(dy, s.seed + 1);
  nn::workspace<T> room;
  const nn::pass<T> p{ctx, batch, room, nn::purpose::training, s.seed, 0};
  reported(
      s, machine,
      message("a layer of BERT, ", config.hidden, " features, ", tokens, " tokens, forward and backward"),
      [&] {
        one.forward(x, y, saved, p);
        one.backward(x, saved, dy, dx, g, p);
      });
}

template <class Block> void train_gpt(settings const& s, ipu::machine& machine, context& ctx) {
  using T = bfloat16;
  nn::transformer_config config;
  config.hidden = s.hidden > 0 ? s.hidden : 256;
  config.heads = std::max<std::int64_t>(1, config.hidden / 64), config.layers = s.layers > 0 ? s.layers : 4;
  config.context = 128, config.vocabulary = 256, config.density = s.density;
  const std::int64_t tokens = s.tokens > 0 ? s.tokens : 8192;
  using model_type = nn::gpt<T, Block>;
  model_type model(config, s.seed);
  train::training t(model, train::adamw{});
  const sequences batch = cut(tokens, config.context);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens)), targets(static_cast<std::size_t>(tokens));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = std::int32_t(i * 7919 % 251), targets[i] = std::int32_t((i + 1) * 7919 % 251);
  typename model_type::saved saved;
  nn::workspace<T> room;
  reported(s, machine,
           message("a step of GPT, ", config.layers, " layers of ", config.hidden, " features, ", tokens,
                   " tokens"),
           [&] {
             train::train_step(ctx, t, {.rate = 0.001}, [&](int) {
               const auto p = t.pass(ctx, batch, room, s.seed);
               const double loss = model.forward(ids, targets, saved, p);
               model.backward(ids, saved, t.gradients, p);
               return train::token_loss(loss, tokens, p);
             });
           });
}

}  // namespace

int train_step(settings const& s) {
  const ipu::target on = asked_target(s);
  ipu::machine machine(on, asked_threads(s), s.charge ? ipu::overflow::charged : ipu::overflow::refused);
  context ctx(machine);
  using block = block_shape<16>;
  s.model == "bert" ? train_bert<block>(s, machine, ctx) : train_gpt<block>(s, machine, ctx);
  return 0;
}

namespace {

template <int Side> int measure(settings const& s, sparse_product const& p) {
  const int threads = asked_threads(s);
  ipu::machine machine(ipu::host(threads), threads);
  context ctx(machine);
  block_sparse_matrix<float, block_shape<Side>> w(p.shape.m, p.shape.k, p.stored);
  panel_matrix<float> x(p.shape.k, p.shape.n), y(p.shape.m, p.shape.n);
  w.fill(0.01f), fill(x, s.seed);
  run(ctx, y = w * x);
  machine.clear_report();
  for (int i = 0; i < 10; ++i) run(ctx, y = w * x);
  deliver(s, machine.report(message("ten products, ", p.shape.m, " x ", p.shape.k, " x ", p.shape.n,
                                    " in blocks of ", Side)));
  return 0;
}

}  // namespace

int measure_host(settings const& s) {
  const sparse_product p = asked_product(s);
  return s.block == 1   ? measure<1>(s, p)
         : s.block == 4 ? measure<4>(s, p)
         : s.block == 8 ? measure<8>(s, p)
                        : measure<16>(s, p);
}

}  // namespace ipu_program
