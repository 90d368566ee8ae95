// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>
#include <kernels/arrays.hpp>
#include <simd/archs.hpp>
#include <support/types.hpp>

#include <tessera/kernels/product.hpp>
#include <tessera/kernels/transposition.hpp>

// Products of a matrix in blocks with a panel, in registers of every width that the flags allow.

using namespace tessera;
using namespace support;

namespace {

template <class Arch, class Types, class Block, bool Transposed, class Tree> void check_product() {
  using in_lines = std::conditional_t<Transposed, block_shape<Block::cols, Block::rows>, Block>;
  using kernel = kernels::sparse_product<Arch, Types, in_lines, Tree>;
  using X = typename Types::activation;
  using Y = typename Types::result;
  using T = typename Types::accumulator;
  blocks<typename Types::weight, Block> w;
  constexpr int in = Transposed ? rows : cols, out = Transposed ? cols : rows;
  for (const int tokens : {1, 15, 33, 64}) {
    INFO("blocks of ", Block::rows, " x ", Block::cols, Transposed ? ", transposed, " : ", ", tokens,
         " tokens, ", simd::lanes<T, Arch>, " lanes, bytes of w, x, y: ", sizeof(typename Types::weight),
         sizeof(X), sizeof(Y));
    const auto x = panel<X>(in, stored_cols, tokens, 2);
    std::vector<Y> y(stored_rows * panel_tokens, Y(0));
    kernels::product_arguments<Types, Tree> a{};
    a.weights = w.values.data();
    using index = kernels::block_index;
    a.index = Transposed ? index::sparse(w.columns, w.lines, w.col_start.data(), w.row.data(), w.slot.data())
                         : index::sparse(w.lines, w.columns, w.row_start.data(), w.col.data());
    std::vector<typename Types::weight> in_order(w.values.size());
    if constexpr (Transposed) {
      kernels::transpose_blocks<Arch, Block>(a.index, a.weights, in_order.data(), 1, a.index.lines());
      kernels::transpose_blocks<Arch, Block>(a.index, a.weights, in_order.data(), 0, 1);
      a.weights = in_order.data();
    }
    a.x = x.data();
    a.y = y.data();
    a.last_line = a.index.lines();
    a.rows = out;
    a.depth = stored_cols;
    a.tokens = tokens;
    std::vector<T> sums(kernel::sums_bytes(a.index, a.depth) / sizeof(T) + 1);
    a.sums = sums.data();
    kernel::run(a);
    for (int f = 0; f < stored_rows; ++f)
      for (int t = 0; t < panel_tokens; ++t) {
        T sum = 0;
        if (f < out && t < tokens)
          for (int k = 0; k < in; ++k)
            sum += T(Transposed ? w.value(k, f) : w.value(f, k)) * T(x[std::size_t(place_in_panel<X>(k, t))]);
        REQUIRE(y[std::size_t(place_in_panel<Y>(f, t))] == Y(sum));
      }
  }
}

template <class Arch, class Types, class Block> void check_products() {
  check_product<Arch, Types, Block, false, kernels::tree::sum>();
  check_product<Arch, Types, Block, true, costly_sum>();
}

}  // namespace

TEST_CASE_TEMPLATE_DEFINE("product: results are exact on integers", Arch, exact) {
  using kernels::product_types;
  using in_float = product_types<float, float, float>;
  using in_double = product_types<double, double, double>;
  check_products<Arch, in_float, block_shape<16>>();
  check_products<Arch, in_float, block_shape<4>>();
  check_products<Arch, in_double, block_shape<8>>();
  check_products<Arch, in_float, block_shape<1>>();
  check_products<Arch, in_double, block_shape<10, 6>>();
}
TEST_CASE_TEMPLATE_APPLY(exact, support::archs);

TEST_CASE_TEMPLATE_DEFINE("product: results of narrow elements are exact on integers", Arch, exact_narrow) {
  const auto all = []<class E>(E) {
    check_product<Arch, kernels::product_types<E, E, E, engine::pairs>, block_shape<4>, false,
                  kernels::tree::sum>();
    check_product<Arch, kernels::product_types<E, E, float>, block_shape<6, 10>, true, costly_sum>();
  };
  all(bfloat16{});
  all(float16{});
}
TEST_CASE_TEMPLATE_APPLY(exact_narrow, support::archs);

// In registers of one width, for compile time is dear: other flags bring others.
TEST_CASE_TEMPLATE_DEFINE("product: results of narrow and of mixed elements are exact on integers", E,
                          exact_mixed) {
  using Arch = simd::native;
  using kernels::product_types;
  using narrow = product_types<E, E, E, engine::pairs>;
  using narrow_to_float = product_types<E, E, float>;
  using narrow_weights = product_types<E, float, E>;
  using narrow_activations = product_types<float, E, float>;
  check_products<Arch, narrow, block_shape<16>>();
  check_products<Arch, narrow, block_shape<4>>();
  check_products<Arch, narrow, block_shape<1>>();
  check_products<Arch, narrow, block_shape<6, 10>>();
  check_products<Arch, narrow_to_float, block_shape<5, 3>>();
  check_products<Arch, narrow_weights, block_shape<3, 4>>();
  check_products<Arch, narrow_activations, block_shape<8>>();
}
TEST_CASE_TEMPLATE_APPLY(exact_mixed, support::narrow_elements);

TEST_CASE("product: results are exact on integers in blocks larger than a tile") {
  using kernels::product_types;
  check_products<simd::native, product_types<float, float, float>, block_shape<32>>();
  check_products<simd::native, product_types<double, double, double>, block_shape<4, 16>>();
}
