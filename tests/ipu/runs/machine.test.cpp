// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/ipu/report/report_page.hpp>
#include <tessera/ipu/runs/machine.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/transformer_block.hpp>
#include <tessera/tessera.hpp>

namespace machine_test { namespace {

using namespace tessera;

template <class T> void fill(panel_matrix<T>& x, int seed) {
  for (int f = 0; f < int(x.features()); ++f)
    for (int t = 0; t < int(x.tokens()); ++t) x(f, t) = T(float((f * 7 + t * 5 + seed) % 23) / 11.0f - 1.0f);
}
template <class X> bool same_bits(X const& a, X const& b) {
  return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// A layer, forward and backward, and its weight gradients, on a context.
struct outcome {
  panel_matrix<float> y{64, 150}, dx{64, 150};
  std::string gradients;
};
outcome train_layer(context& ctx, double density) {
  nn::transformer_config config;
  config.hidden = 64, config.heads = 2, config.layers = 1, config.density = density;
  using layer = nn::transformer_block<float, block_shape<8>, nn::norm_order::post>;
  layer one = layer::random(config, mask::causal, 3, "");
  auto g = nn::zeros_like(one);
  typename layer::saved saved;
  const sequences batch(std::vector<std::int64_t>{0, 50, 150});
  panel_matrix<float> x(64, 150), dy(64, 150);
  fill(x, 1), fill(dy, 2);
  nn::workspace<float> room;
  const nn::pass<float> p{ctx, batch, room, nn::purpose::training, 1, 0};
  outcome o;
  one.forward(x, o.y, saved, p);
  one.backward(x, saved, dy, o.dx, g, p);
  nn::for_each_parameter(g, [&](nn::parameter_name const&, auto const& values) {
    o.gradients.append(reinterpret_cast<char const*>(values.data()), values.size_bytes());
  });
  return o;
}

TEST_CASE("ipu machine: runs have the bits of any other context, for any number of host threads") {
  context plain(2);
  for (const double density : {0.3, 1.0}) {
    const outcome want = train_layer(plain, density);
    for (const int threads : {1, 2, 8}) {
      ipu::machine bow(ipu::bow(), threads);
      context ctx(bow);
      const outcome got = train_layer(ctx, density);
      CHECK(same_bits(got.y, want.y));
      CHECK(same_bits(got.dx, want.dx));
      CHECK((got.gradients == want.gradients));
    }
  }
}

TEST_CASE("ipu machine: the charge does not depend on the host's threads and addresses, and adds up") {
  std::vector<ipu::profile> all;
  std::vector<std::vector<char>> between;  // moves the next allocations
  for (const int threads : {1, 8, 3}) {
    ipu::machine bow(ipu::bow(), threads);
    context ctx(bow);
    between.emplace_back(std::size_t(1000 + 88 * threads));
    train_layer(ctx, 0.3);
    all.push_back(bow.report());
    bow.forget();  // memory that the layer freed has homes, and is given out again
    block_sparse_matrix<float, block_shape<16>> w(256, 192, random_pattern(16, 12, 0.5, 1));
    between.emplace_back(std::size_t(4000 + 88 * threads));
    panel_matrix<float> x(192, 200), y(256, 200);
    w.fill(0.5f), fill(x, 1);
    run(ctx, y = relu(w * x));
    const auto p = bow.report();
    CHECK(p.multiplies() == double(w.size()) * 200);
    CHECK(p.cycles() == p.cycles(ipu::activity::compute) + p.cycles(ipu::activity::exchange) +
                            p.cycles(ipu::activity::sync));
    CHECK(p.active_tiles() == 64);  // 4 panels of 16 rows of blocks
    CHECK(p.remarks.empty());
    for (std::size_t t = 0; t < p.memory.size(); ++t) CHECK(p.peak(t) <= bow.target().bytes_per_tile);
    all.push_back(p);
  }
  for (std::size_t i = 2; i < all.size(); ++i) {
    ipu::profile const &a = all[i % 2], &b = all[i];
    REQUIRE(a.steps.size() == b.steps.size());
    for (std::size_t k = 0; k < a.steps.size(); ++k) {
      CAPTURE(k);
      CHECK(a.steps[k].name == b.steps[k].name);
      CHECK((a.steps[k].by_tile == b.steps[k].by_tile));
      CHECK(a.steps[k].bytes == b.steps[k].bytes);
    }
    CHECK(a.cycles() == b.cycles());
    CHECK((a.peaks == b.peaks));
  }
}

TEST_CASE("ipu machine: data that stays at home is not exchanged again, but for pages that two tiles share") {
  ipu::machine bow(ipu::bow(), 2);
  context ctx(bow);
  panel_matrix<float> x(64, 640), y(64, 640);
  fill(x, 1);
  run(ctx, y = x + 1.0f);
  run(ctx, y = y * 2.0f);
  bow.clear_report();
  run(ctx, y = y * 2.0f);
  CHECK(bow.report().exchanged_bytes() < std::int64_t(y.size_bytes()) / 8);
}

TEST_CASE(
    "ipu machine: a run that does not fit ends before anything is computed, says why, and leaves the machine "
    "as it was") {
  ipu::target small = ipu::bow();
  small.bytes_per_tile = 40000;
  block_sparse_matrix<float, block_shape<16>> w(512, 512, pattern::dense(32, 32));
  panel_matrix<float> x(512, 6400), y(512, 6400);
  w.fill(1), fill(x, 1);
  {
    ipu::machine refuses(small, 2);
    context ctx(refuses);
    const std::string why = error_of<ipu::memory_error>([&] { run(ctx, y = w * x); });
    CHECK(why.find("[ipu::machine] tile ") == 0);
    CHECK(why.find("bytes for \"product\" and has 40000") != std::string::npos);
    CHECK(y(0, 0) == 0);
    panel_matrix<float> a(16, 64), b(16, 64);
    fill(a, 1);
    run(ctx, b = a + 1.0f);
    CHECK(b(3, 5) == a(3, 5) + 1);
    CHECK(refuses.report().memory_of(ipu::storage::variables) < 20000);
  }
  ipu::machine charges(small, 2, ipu::overflow::charged);
  context ctx(charges);
  run(ctx, y = w * x);
  CHECK(y(0, 0) != 0);
  CHECK(charges.report().remarks.size() == 1);
}

TEST_CASE("ipu machine: the host is measured") {
  ipu::machine here(ipu::host(2), 2);
  context ctx(here);
  panel_matrix<float> x(64, 640), y(64, 640);
  block_sparse_matrix<float, block_shape<16>> w(64, 64, pattern::dense(4, 4));
  fill(x, 1);
  run(ctx, y = w * x);
  const auto p = here.report("a product");
  CHECK(p.on.measured);
  CHECK(p.multiplies() == 64.0 * 64 * 640);
  CHECK(p.cycles() > 0);
  CHECK(p.on.tiles == 2);
  CHECK(ipu::to_text(p).find("2 threads") != std::string::npos);
}

TEST_CASE("ipu machine: the host has a thread for each of its tiles; an odd target is still charged") {
  ipu::machine one(ipu::host(1), 2);
  CHECK(one.concurrency() == 1);
  ipu::target slow = ipu::bow();
  slow.clock_hz = 1e9, slow.workers = 1;
  CHECK(ipu::machine(slow, 1).stands_for().worker_bytes == slow.bytes_per_tile);
}

TEST_CASE("ipu report: text, JSON and page say the same, and the page needs nothing from elsewhere") {
  ipu::machine bow(ipu::bow(), 2);
  context ctx(bow);
  train_layer(ctx, 0.3);
  const auto p = bow.report("a layer <of> one");
  const std::string text = ipu::to_text(p), page = ipu::to_page(p);
  CHECK(text.find("a layer <of> one on Bow: 1472 tiles") == 0);
  CHECK(text.find("estimated") != std::string::npos);
  for (char const* part : {"<h1>a layer &lt;of&gt; one on Bow</h1>", "<svg", "prefers-color-scheme:dark",
                           "Memory", "attention *"})
    CHECK(page.find(part) != std::string::npos);
  for (char const* from : {"http:", "https:", "src=", "@import"}) CHECK(page.find(from) == std::string::npos);
  const auto json = ipu::to_json(p);
  CHECK(json.at("cycles").as_integer() == p.cycles());
  CHECK(json.find("steps")->get_if<io::json::array>()->size() == p.steps.size());
}

}}  // namespace machine_test
