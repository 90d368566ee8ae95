// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>

#include <doctest/doctest.h>
#include <support/conflicts.hpp>
#include <support/evaluation.hpp>

#include <tessera/statements/account.hpp>
#include <tessera/statements/run.hpp>

// Kinds of statements and nodes of a user, in the user's namespace, behind the library's headers.

namespace own_kinds_test {

using namespace tessera;
using support::conflict;
using support::filled;

// ---- a statement that is no assignment: it lowers itself ----

/// Features of an activation in the opposite order, in place. A tile is a panel.
struct [[nodiscard]] reversed {
  using statement_tag = void;
  panel_matrix<float>* x;

  struct body {
    eval::operand x;
    std::int64_t features, tokens;

    void compute(eval::tile const& t) const noexcept {
      float* const panel = t.address<float>(x);
      for (std::int64_t f = 0; f < features / 2; ++f)
        std::swap_ranges(panel + f * panel_tokens, panel + (f + 1) * panel_tokens,
                         panel + (features - 1 - f) * panel_tokens);
    }
    void describe(eval::tile const& t, exec::task_description& d) const {
      const auto panel = eval::part_of_panel<float>(x.owner, eval::place_of(x, t), 0, features,
                                                    eval::tokens_of(t.index, tokens));
      d.read(panel);
      d.write(panel);
    }
  };
  void lower(eval::plan& p) const {
    eval::step_draft s("reversal", eval::cut::panels);
    s.divides = eval::division::never;
    s.tiles = int(x->panels());
    const eval::operand of = s.writes(eval::by_panel(*x));
    p.add(s, body{of, x->features(), x->tokens()});
  }
};

// ---- a node over panels: an overload of lower_to ----

/// y(f, t) = x(0, t) + … + x(f, t).
template <class X> struct prefix_sum {
  using node_tag = void;
  using value_type = typename X::value_type;
  static constexpr domain laid_over = domain::panels;
  X x;
  expr::extent size() const { return expr::extent_of(x); }
};
template <expression X> auto prefix_sums(X&& x) {
  return prefix_sum<expr::held<X>>{expr::hold(std::forward<X>(x))};
}

struct prefix_sum_body {
  eval::operand to, from;
  std::int64_t features, tokens;

  void compute(eval::tile const& t) const noexcept {
    float const* const x = t.address<float const>(from);
    float* const y = t.address<float>(to);
    for (std::int64_t i = 0; i < features * panel_tokens; ++i)
      y[i] = x[i] + (i >= panel_tokens ? y[i - panel_tokens] : 0);
    eval::clear_padding(to, features, y, t);
  }
  void describe(eval::tile const& t, exec::task_description& d) const {
    const int live = eval::tokens_of(t.index, tokens);
    d.read(eval::part_of_panel<float>(from.owner, eval::place_of(from, t), 0, features, live));
    d.write(eval::part_of_panel<float>(to.owner, eval::place_of(to, t), 0, features, live));
  }
};
template <class X> void lower_to(eval::plan& p, eval::panels_to<float> const& to, prefix_sum<X> const& node) {
  eval::step_draft s("prefix sum", eval::cut::panels);
  s.divides = eval::division::never;
  s.tiles = to.panels();
  s.writes(to.at);
  const eval::operand from = s.reads(eval::compute_before<float>(p, to.tokens, node.x));
  p.add(s, prefix_sum_body{to.at, from, to.features, to.tokens});
}

// ---- an assignment of its own: an overload of lower ----

/// The features of one token.
struct token_of {
  using node_tag = void;
  using value_type = float;
  static constexpr domain laid_over = domain::features;
  panel_matrix<float> const* x;
  std::int64_t token;
  expr::extent size() const { return {x->features(), -1}; }
};

struct token_body {
  eval::operand to, from;
  std::int64_t features, token;

  void compute(eval::tile const& t) const noexcept {
    float const* const panel = t.address<float const>(from, token / panel_tokens);
    for (std::int64_t f = 0; f < features; ++f)
      t.address<float>(to)[f] = panel[f * panel_tokens + token % panel_tokens];
  }
  void describe(eval::tile const&, exec::task_description& d) const {
    d.read({from.owner, from.at + std::uintptr_t(token / panel_tokens) * from.stride, features * 256});
    d.write({to.owner, to.at, features * 4});
  }
};
void lower(eval::plan& p, expr::statement<feature_vector<float>, token_of, false> const& s) {
  eval::step_draft made("token", eval::cut::lines);
  made.tiles = 1;
  const eval::operand to = made.writes(eval::all_of(s.destination()));
  eval::operand from = made.reads(eval::all_of(*s.value.x));
  from.stride = eval::by_panel(*s.value.x).stride;
  p.add(made, token_body{to, from, s.value.x->features(), s.value.token});
}

TEST_CASE("own kinds: a statement, a node and an assignment of a user run among those of the library") {
  const std::int64_t features = 37, tokens = 200;
  auto x = filled(panel_matrix<float>(features, tokens), 1);
  const panel_matrix<float> old = x;
  panel_matrix<float> y(features, tokens), z(features, tokens);
  feature_vector<float> b(features);
  const auto sums = [&](std::int64_t f, std::int64_t t) {
    float sum = 0;
    for (std::int64_t i = 0; i <= f; ++i) sum += old(i, t);
    return sum;
  };
  for (const int threads : {1, 2, 8}) {
    INFO(threads, " threads");
    context ctx(threads, oversubscribe::allowed);
    x = old;
    run(ctx, y = prefix_sums(x), z = relu(prefix_sums(x * 2.0)) + 1.0, b = token_of{&x, 130}, reversed{&x});
    bool same = true;
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t f = 0; f < features; ++f)
        same = same && y(f, t) == sums(f, t) && x(f, t) == old(features - 1 - f, t) && b[f] == old(f, 130) &&
               z(f, t) == std::max(0.0f, 2 * sums(f, t)) + 1;
    CHECK(same);
  }
  for (const int workers : {1, 2, 60})
    CHECK(conflict({workers}, y = prefix_sums(x), z = relu(prefix_sums(x * 2.0)), b = token_of{&x, 130},
                   reversed{&x}) == "");
}

}  // namespace own_kinds_test
