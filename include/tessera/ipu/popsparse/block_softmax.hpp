// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/codelets.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/graph/program.hpp>
#include <tessera/ipu/target.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// The entries of a block on the diagonal that are zeroed, as popsparse names them.
enum class sub_block_mask : std::uint8_t { none, zero_upper_triangle, zero_lower_triangle };

/// Softmax along each row over the entries of stored blocks only, and its gradient (popsparse, experimental).
/// Absent entries are no zeros in the denominator; masked ones give 0; a row without entries gives nothing.
/// Blocks are by slot, row-major inside. Throws option_error if a mask is asked for and a block lies wholly
/// on its wrong side.
template <element T> class block_softmax {
 public:
  block_softmax(pattern stored, int block, sub_block_mask mask, std::string name)
      : pattern_(std::move(stored)), block_(block), mask_(mask), name_(std::move(name)) {
    pattern_.for_each([&](int i, int j, std::int64_t) {
      if ((mask_ == sub_block_mask::zero_upper_triangle && j > i) ||
          (mask_ == sub_block_mask::zero_lower_triangle && j < i))
        throw option_error(message("[ipu::block_softmax] block (", i, ", ", j,
                                   ") lies wholly in the triangle that the mask zeroes"));
    });
  }

  /// y = softmax of x, both by slot.
  program softmax(graph& g, slice x, slice y) const {
    return by_row(g, {x}, y, ": softmax", [](std::size_t width, auto&& is_live, auto&& at, auto&& store) {
      float most = -std::numeric_limits<float>::infinity(), sum = 0;
      const auto power = [&](std::size_t k) { return is_live(k) ? std::exp(at(0, k) - most) : 0.0f; };
      for (std::size_t k = 0; k < width; ++k)
        if (is_live(k)) most = std::max(most, at(0, k));
      for (std::size_t k = 0; k < width; ++k) sum += power(k);
      for (std::size_t k = 0; k < width; ++k) store(k, sum > 0 ? power(k) / sum : 0.0f);
    });
  }
  /// dx = y (dy - the sum over the row of y dy).
  program gradient(graph& g, slice y, slice dy, slice dx) const {
    return by_row(g, {y, dy}, dx, ": gradient of softmax",
                  [](std::size_t width, auto&& is_live, auto&& at, auto&& store) {
                    float sum = 0;
                    for (std::size_t k = 0; k < width; ++k) sum += is_live(k) ? at(0, k) * at(1, k) : 0.0f;
                    for (std::size_t k = 0; k < width; ++k)
                      store(k, is_live(k) ? at(0, k) * (at(1, k) - sum) : 0.0f);
                  });
  }

 private:
  /// A tile computes rows of blocks, whose blocks are one behind the other.
  template <class Of>
  program by_row(graph& g, std::vector<slice> const& operands, slice to, char const* what, Of of) const {
    const std::int64_t area = std::int64_t(block_) * block_;
    for (slice const& s : operands) require(s);
    require(to);
    const compute_set set = g.add_compute_set(name_ + what, true);
    for (int i = 0; i < pattern_.block_rows(); ++i) {
      const std::int64_t first = pattern_.first_slot(i), count = pattern_.row_count(i);
      if (count == 0) continue;
      std::vector<std::int32_t> columns(pattern_.row(i).begin(), pattern_.row(i).end());
      auto const& code = g.add_codelet([=, block = std::size_t(block_), mask = mask_,
                                        operands_ = operands.size()](target const& on, ports const& f) {
        const std::size_t width = columns.size() * block;
        const auto result = f.template out<T>(operands_);
        for (std::size_t r = 0; r < block; ++r) {
          const auto place = [&](std::size_t k) { return k / block * block * block + r * block + k % block; };
          const auto is_live = [&](std::size_t k) {
            const bool diagonal = columns[k / block] == i;
            return !(diagonal && ((mask == sub_block_mask::zero_upper_triangle && k % block > r) ||
                                  (mask == sub_block_mask::zero_lower_triangle && k % block < r)));
          };
          of(
              width, is_live,
              [&](std::size_t o, std::size_t k) { return float(f.template in<T>(o)[place(k)]); },
              [&](std::size_t k, float value) { result[place(k)] = T(value); });
        }
        const std::int64_t elements = std::int64_t(width * block);
        return codelets::elementwise(on, 16 * elements,
                                     std::int64_t(operands_) * 3 * elements * bytes_of(precision_of<T>),
                                     elements * bytes_of(precision_of<T>), precision_of<T>);
      });
      std::vector<field> fields;
      for (slice const& s : operands) fields.push_back(in(s.part(first * area, (first + count) * area)));
      fields.push_back(out(to.part(first * area, (first + count) * area)));
      g.add_vertex(set, i % g.target().tiles, code, std::move(fields));
    }
    return execute(set);
  }
  void require(slice s) const {
    const std::int64_t all = pattern_.blocks() * block_ * block_;
    if (s.size() != all)
      throw shape_error(message("[ipu::block_softmax] ", s.size(), " elements: the pattern has ", all));
  }

  pattern pattern_;
  int block_;
  sub_block_mask mask_;
  std::string name_;
};

}}}  // namespace tessera::TESSERA_ISA::ipu
