// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/statements/attention_shape.hpp>
#include <tessera/tensor/vectors.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Relative position biases (T5: Raffel et al. 2020, §2.1): adds a learned number to each score, one for each
/// head and bucket of distances. A score functor, for layers with sums in T. Causal attention has one
/// direction of distances, bidirectional attention two, which share the buckets equally. In each direction
/// the first half of the buckets hold one distance each; the others hold ranges that grow by a constant
/// factor up to `farthest`, and the last also holds all distances beyond.
template <element T> struct relative_bias {
  feature_vector<T> table;  // (heads · buckets): head h has the numbers h buckets … (h + 1) buckets - 1

  relative_bias() = default;
  /// A table of zeros. Throws option_error.
  TESSERA_COLD relative_bias(int heads, mask seen, int buckets = 32, int farthest = 128)
      : buckets_(buckets), farthest_(farthest) {
    const int directions = seen == mask::causal ? 1 : 2, each = buckets / directions, exact = each / 2;
    if (heads < 1)
      throw option_error(message("[relative_bias] ", heads, " heads: there must be at least one"));
    if (each < 2 || buckets % directions != 0)
      throw option_error(message("[relative_bias] ", buckets, " buckets: there must be at least two",
                                 directions == 1 ? "" : " for each direction, which both have as many"));
    if (farthest <= exact)
      throw option_error(message("[relative_bias] the farthest distance is ", farthest, " but ", exact,
                                 " buckets hold one distance each: it must be at least ", exact + 1));
    table = feature_vector<T>(std::int64_t(heads) * buckets);
    for (int distance = -farthest; distance <= farthest; ++distance) {
      const int away = directions == 1 ? std::max(0, distance) : std::abs(distance);
      const double growth =
          std::log(std::max(away, exact) / double(exact)) / std::log(farthest / double(exact));
      const int bucket = away < exact ? away : std::min(each - 1, exact + int(growth * (each - exact)));
      bucket_.push_back(bucket + (directions == 2 && distance < 0 ? each : 0));
    }
  }

  int buckets() const { return buckets_; }
  /// The bucket of a distance: position of the query minus position of the key.
  int bucket(std::int64_t distance) const {
    return bucket_[std::size_t(std::clamp<std::int64_t>(distance, -farthest_, farthest_) + farthest_)];
  }

  /// Throws option_error.
  void check(int heads) const {
    if (table.size() != std::int64_t(heads) * buckets_ || buckets_ == 0)
      throw option_error(message("[relative_bias] there are ", table.size(), " numbers in ", buckets_,
                                 " buckets but attention has ", heads, " heads: make it relative_bias(",
                                 heads, ", …)"));
  }
  T term(int head, std::int64_t distance) const {
    return table[std::int64_t(head) * buckets_ + bucket(distance)];
  }
  template <class V> V operator()(V score, V term) const { return score + term; }
  template <class V> V derivative(V, V) const { return V(1); }

  int parameters() const { return buckets_; }
  template <class V> V term_derivative(V, V) const { return V(1); }
  template <class Sum> void add_gradient(int, std::int64_t distance, Sum dterm, Sum* to) const {
    to[bucket(distance)] += dterm;
  }

  static void parts(auto& each, auto&... of) {
    each("bias", of.table...);
    each.setting("farthest", of.farthest_...);
  }

 private:
  int buckets_ = 0, farthest_ = 0;
  std::vector<int> bucket_;  // bucket of each distance -farthest … farthest
};

}}}  // namespace tessera::TESSERA_ISA::nn
