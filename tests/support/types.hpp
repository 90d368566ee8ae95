// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <tuple>
#include <utility>

#include <tessera/core/block_shape.hpp>
#include <tessera/core/element.hpp>

// The types of typed tests. Kernels are tested with every element and every block shape; statements and
// layers with few that together cover both accumulators, pairs of elements in a lane, and square, single and
// odd blocks: compile time is dear. TESSERA_ALL_TYPES, set by the preset `slow`, combines every element with
// every block shape, and takes all of them everywhere. TESSERA_REDUCED_TYPES, set by sanitizer builds, keeps
// one of each kind.

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

/// For statements and layers.
using fewer = std::tuple<types<float, tessera::block_shape<8>>, types<double, tessera::block_shape<1>>>;
#ifdef TESSERA_REDUCED_TYPES
using few = fewer;
#elif defined(TESSERA_ALL_TYPES)
using few = element_and_block;
#else
using few = std::tuple<types<float, tessera::block_shape<16>>, types<float, tessera::block_shape<1>>,
                       types<double, tessera::block_shape<10, 6>>>;
#endif
#ifdef TESSERA_ALL_TYPES
using few_narrow = narrow_elements;
#else
using few_narrow = std::tuple<tessera::bfloat16>;
#endif

}  // namespace support

/// Lists for TEST_CASE_TEMPLATE: elements of statements and layers, and one wide and one narrow one.
#ifdef TESSERA_ALL_TYPES
#define SUPPORT_ELEMENTS float, double, tessera::bfloat16, tessera::float16
#else
#define SUPPORT_ELEMENTS float, tessera::bfloat16
#endif
#ifdef TESSERA_REDUCED_TYPES
#define SUPPORT_ONE_ELEMENT float
#else
#define SUPPORT_ONE_ELEMENT float, tessera::bfloat16
#endif
