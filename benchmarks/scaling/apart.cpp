// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include <harness/contestant.hpp>
#include <harness/timing.hpp>

// A product by each of several threads, with operands of its own: without contention they would be as many
// times as fast as one.

namespace bench { namespace {

constexpr std::string_view suffix = " apart";

struct products_apart {
  std::vector<job> each;

  /// The time in which all together do one product each, if each goes on at its own speed: ns.
  double timed(int times) const {
    std::vector<double> ns(each.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < each.size(); ++i)
      threads.emplace_back([&, i] { ns[i] = time_of(each[i], times); });
    for (std::thread& t : threads) t.join();
    double speed = 0;
    for (const double t : ns) speed += 1 / t;
    return double(each.size()) / speed;
  }
};

std::optional<job> prepare(workload what) {
  what.operation.resize(what.operation.size() - suffix.size());
  const auto who = std::ranges::find_if(contestants(), [&](contestant const& c) {
    return c.name == "tessera" && c.operation == what.operation;
  });
  const int threads = what.threads;
  what.threads = 1;
  auto all = std::make_shared<products_apart>();
  for (int i = 0; i < threads; ++i)
    if (std::optional<job> one = who->prepare(what)) all->each.push_back(std::move(*one));
  if (all->each.empty()) return std::nullopt;
  job const& first = all->each.front();
  return job{.useful_flops = first.useful_flops * threads,
             .run = [all] { all->timed(1); },
             .results = first.results,
             .result = first.result,
             .timed = [all](int times) { return all->timed(times); }};
}

const registered forward({"tessera", "forward apart", prepare}),
    sampled({"tessera", "sampled apart", prepare}), dense({"tessera", "dense apart", prepare});

}}  // namespace bench
