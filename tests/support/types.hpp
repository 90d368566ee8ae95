// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tuple>
#include <utility>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/element.hpp>

// The types of typed tests: every element and every block shape. TESSERA_ALL_TYPES, set by the preset `slow`,
// combines every element with every block shape. TESSERA_REDUCED_TYPES, set by sanitizer builds, keeps one of
// each kind.

namespace support {

template <class Element, class Block> struct types {
  using element = Element;
  using block = Block;
};

template <class Element>
using shapes_of =
#ifdef TESSERA_REDUCED_TYPES
    std::tuple<types<Element, tessera::block_shape<16>>, types<Element, tessera::block_shape<4>>,
               types<Element, tessera::block_shape<1>>>;
#else
    std::tuple<types<Element, tessera::block_shape<16>>, types<Element, tessera::block_shape<8>>,
               types<Element, tessera::block_shape<4>>, types<Element, tessera::block_shape<1>>,
               types<Element, tessera::block_shape<32>>, types<Element, tessera::block_shape<4, 16>>,
               types<Element, tessera::block_shape<10, 6>>>;
#endif

template <class... Tuples> using joined = decltype(std::tuple_cat(std::declval<Tuples>()...));

using element_and_block =
#ifdef TESSERA_REDUCED_TYPES
    joined<shapes_of<float>, std::tuple<types<double, tessera::block_shape<4>>>>;
#elif defined(TESSERA_ALL_TYPES)
    joined<shapes_of<float>, shapes_of<double>>;
#else
    joined<shapes_of<float>,
           std::tuple<types<double, tessera::block_shape<4>>, types<double, tessera::block_shape<10, 6>>>>;
#endif

/// Elements narrower than their accumulators.
using narrow_elements =
#ifdef TESSERA_REDUCED_TYPES
    std::tuple<tessera::bfloat16>;
#else
    std::tuple<tessera::bfloat16, tessera::float16>;
#endif

}  // namespace support

/// For TEST_CASE_TEMPLATE: all elements, or one wide and one narrow one.
#ifdef TESSERA_REDUCED_TYPES
#define SUPPORT_ELEMENTS float, tessera::bfloat16
#define SUPPORT_ONE_ELEMENT float
#else
#define SUPPORT_ELEMENTS float, double, tessera::bfloat16, tessera::float16
#define SUPPORT_ONE_ELEMENT float, tessera::bfloat16
#endif
