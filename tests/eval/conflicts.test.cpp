// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <span>
#include <vector>

#include <doctest/doctest.h>
#include <support/conflicts.hpp>
#include <support/evaluation.hpp>

#include <tessera/statements/account.hpp>
#include <tessera/statements/attention.hpp>
#include <tessera/statements/embedding.hpp>
#include <tessera/tensor/pattern_algebra.hpp>

namespace conflicts_test {

// The bytes that tiles of every kind of statement say that they read and write: two tasks of one phase never
// touch the same bytes if one of them writes, for machines of few workers and of many.

using namespace tessera;
using support::conflict;
using support::filled;
using support::random_matrix;

/// A statement whose tiles claim to write what their neighbours read.
struct careless {
  using statement_tag = void;
  panel_matrix<float>* x;
  struct body {
    eval::operand x;
    void compute(eval::tile const&) const noexcept {}
    void describe(eval::tile const& t, exec::task_description& d) const {
      d.read({x.owner, x.at + x.stride * std::size_t(t.index + 1), 64});
      d.write({x.owner, x.at + x.stride * std::size_t(t.index), 64});
    }
  };
  void lower(eval::plan& p) const {
    eval::step_draft s("careless", eval::cut::panels);
    s.tiles = int(x->panels());
    const eval::operand of = s.writes(eval::by_panel(*x));
    p.add(s, body{of});
  }
};

TEST_CASE("conflicts: a statement whose tasks disturb each other is found") {
  panel_matrix<float> x(16, 200);
  CHECK(conflict({2}, careless{&x}) == "tasks 0 (careless) and 1 (careless) of phase 0 touch the same bytes");
}

#ifndef TESSERA_REDUCED_TYPES  // it computes nothing, and takes long to compile under a sanitizer
TEST_CASE_TEMPLATE("conflicts: no kind of statement has two tasks that touch the same bytes, one writing", T,
                   SUPPORT_ONE_ELEMENT) {
  using block = block_shape<8>;
  const std::int64_t tokens = 64 * 5 + 9;
  auto w = random_matrix<T, block>(150, 133, 0.3, 1);
  auto ones = random_matrix<T, block_shape<1>>(150, 133, 0.3, 1);
  auto g = block_sparse_matrix<float, block>(150, 133, w.pattern());
  auto table = random_matrix<float, block_shape<16>>(40, 133, 1.0, 1);
  panel_matrix<T> x(133, tokens), y(150, tokens), z = y, few(133, 70), qkv(3 * 32, tokens), dqkv = qkv,
                                                  head(32, tokens);
  panel_matrix<float> log_sums(4, tokens);
  feature_vector<float> b(150);
  token_vector<float> r(tokens), m(tokens);
  panel_matrix<T> one_x(133, 1), one_y(150, 1), few_x(133, 70), few_y(150, 70), pooled(133, 4);
  panel_matrix<T> first(50, tokens), second(100, tokens);
  const sequences layout = sequences::from_lengths(std::vector<std::int64_t>{100, 40, 64, tokens - 204});
  std::vector<std::int32_t> ids(std::size_t(tokens), 3), positions;
  for (std::int32_t i = 0; i < 70; ++i) positions.push_back(4 * i);
  for (const int workers : {1, 2, 7, 60, 1472}) {
    INFO(workers, " workers");
    const machine on{workers};
    CHECK(conflict(on, y = relu(w * x + b), z = y * r) == "");
    CHECK(conflict(on, x = transposed(w) * y) == "");
    CHECK(conflict(on, y = ones * x, x = transposed(ones) * z) == "");
    CHECK(conflict(on, one_y = w * one_x, one_x = transposed(ones) * one_y) == "");
    CHECK(conflict(on, one_x = transposed(w) * one_y, few_x = transposed(ones) * few_y) == "");
    CHECK(conflict(on, concat_features(first, second) = w * x, y = concat_features(second, first)) == "");
    CHECK(conflict(on, pooled = sum_tokens(x, layout), x = repeat_tokens(pooled, layout)) == "");
    CHECK(conflict(on, g += sampled(y * transposed(x)), b += sum_tokens(y)) == "");
    CHECK(conflict(on, y = w * gelu(transposed(w) * y), r = max_features(y)) == "");
    CHECK(conflict(on, in_one_pass(b = sum_tokens(y), r = sum_features(y * z))) == "");
    CHECK(conflict(on, b = sum_tokens(y), y = y * b) == "");
    CHECK(conflict(on, g = g * 2, w = converted(g), b = b * 3) == "");
    CHECK(conflict(on, attention(qkv, layout, 4, mask::causal, head, log_sums)) == "");
    CHECK(conflict(on, attention_backward(qkv, head, log_sums, head, layout, 4, mask::bidirectional, dqkv)) ==
          "");
    CHECK(conflict(on, gather_rows(x, table, ids)) == "");
    CHECK(conflict(on, add_rows(x, table, ids)) == "");
    CHECK(conflict(on, scatter_rows(table, x, ids)) == "");
    CHECK(conflict(on, gather_tokens(few, x, positions)) == "");
    CHECK(conflict(on, scatter_tokens(x, few, positions)) == "");
  }
  if constexpr (std::is_same_v<T, float>)
    for (const int workers : {1, 7, 1472}) {
      const auto a = random_matrix<float, block>(150, 133, 0.3, 1);
      const auto c = random_matrix<float, block>(133, 90, 0.3, 2);
      block_sparse_matrix<float, block> ac(150, 90);
      CHECK(conflict({workers}, ac = a * c) == "");
      CHECK(conflict({workers}, ac += sampled(a * c)) == "");
    }
}
#endif

TEST_CASE("conflicts: what a machine of 1472 workers is given does not depend on the host") {
  const auto w = random_matrix<float, block_shape<8>>(400, 300, 0.2, 1);
  auto g = w;
  panel_matrix<float> x(300, 1000), y(400, 1000);
  const workload all = account(machine{1472}, y = w * x, g = sampled(y * transposed(x)));
  CHECK(all.tasks.size() > 800);
  context one(1), three(3, oversubscribe::allowed);
  CHECK(account(one, y = w * x).tasks.size() == account(machine{1}, y = w * x).tasks.size());
  CHECK(account(three, y = w * x).tasks.size() == account(machine{3}, y = w * x).tasks.size());
}

}  // namespace conflicts_test
