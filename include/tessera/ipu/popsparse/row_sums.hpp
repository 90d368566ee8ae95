// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/graph/program.hpp>
#include <tessera/ipu/target.hpp>

// Rows of matrices as slices, and vertices that add up partial sums of rows.

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace detail {

/// The rows [first, last) of a row-major matrix of n columns, at columns [n_first, n_last): one slice where
/// they are one behind the other.
void add_rows(std::vector<slice>& to, slice matrix, std::int64_t n, std::int64_t first, std::int64_t last,
              std::int64_t n_first, std::int64_t n_last);

/// Adds vertices for the workers of each tile that holds a part of `to`: they share it in whole vectors, and
/// each adds up the same part of all of `from`, in order, in float.
template <class In, class Out>
void add_sum(graph& g, compute_set set, std::vector<slice> const& from, slice to) {
  constexpr std::int64_t wide = sizeof(In) == 2 ? 8 : 4;
  auto const& code = g.add_codelet([depth = from.size()](target const&, ports const& p) {
    const auto all = p.in<In>(0);
    const auto sums = p.out<Out>(1);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      float sum = 0;
      for (std::size_t d = 0; d < depth; ++d) sum += float(all[d * sums.size() + i]);
      sums[i] = Out(sum);
    }
    const auto loops = ceil_div(std::int64_t(sums.size()), wide);
    return 16 +
           loops * codelets::static_reduce_loop(std::int64_t(depth), precision_of<In>, precision_of<Out>);
  });
  g.for_each_interval(to, [&](std::size_t i, std::int64_t first, std::int64_t last) {
    const std::int64_t each = round_up(ceil_div(last - first, std::int64_t(g.target().workers)), wide);
    for (std::int64_t begin = first; begin < last; begin += each) {
      const std::int64_t end = std::min(last, begin + each);
      std::vector<slice> parts;
      for (slice const& s : from) parts.push_back(s.part(begin - to.first, end - to.first));
      g.add_vertex(set, g.at(to).mapping[i].tile, code,
                   {in(std::move(parts)), out(slice{to.variable, begin, end})}, runs_on::worker);
    }
  });
}

#ifdef TESSERA_BODY

TESSERA_BODY void add_rows(std::vector<slice>& to, slice matrix, std::int64_t n, std::int64_t first,
                           std::int64_t last, std::int64_t n_first, std::int64_t n_last) {
  if (n_first == 0 && n_last == n) {
    to.push_back(matrix.part(first * n, last * n));
    return;
  }
  for (std::int64_t r = first; r < last; ++r) to.push_back(matrix.part(r * n + n_first, r * n + n_last));
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::ipu::detail
