// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/panel_matrix.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Throws error unless a layer's `saved` is of as many tokens as the gradient that comes to its backward: it
/// is of none before a forward.
TESSERA_COLD inline void require_forward(char const* layer, std::int64_t saved, std::int64_t tokens) {
  if (saved != tokens)
    throw error(message("[", layer, "] backward of ", tokens, " tokens with `saved` of ", saved,
                        saved == 0 ? ": no forward has filled it" : ": it is of another forward",
                        "; call forward with this `saved` first"));
}

/// The panel_matrix for a layer's result, or for the gradient by its input, and optionally a second one that
/// is added to the value. A residual connection adds its input here, so that the sum needs no further pass.
/// Null for a gradient that nobody needs.
template <element T> class destination {
 public:
  destination(panel_matrix<T>& to, panel_matrix<T> const* plus = nullptr) : to_(&to), plus_(plus) {}
  destination(panel_matrix<T>* to, panel_matrix<T> const* plus = nullptr) : to_(to), plus_(plus) {}

  explicit operator bool() const { return to_; }
  panel_matrix<T>* to() const { return to_; }
  panel_matrix<T> const* plus() const { return plus_; }

  /// A statement that stores a value in this destination: `run(p.ctx, dx = transposed(weight) * dy)`
  template <expression Value> auto operator=(Value const& value) const {
    return statements(when(to_ && !plus_, [&] { return *to_ = value; }),
                      when(to_ && plus_, [&] { return *to_ = *plus_ + value; }));
  }

  /// This destination if the condition holds, else none.
  destination only_if(bool wanted) const { return {wanted ? to_ : nullptr, plus_}; }

  /// Throws shape_error if the result would overwrite an activation that is still read after it is written.
  void require_apart(char const* layer, panel_matrix<T> const& x, panel_matrix<T> const& dy) const {
    if (to_ && (to_ == &x || to_ == &dy))
      throw shape_error(message("[", layer, "] the gradient by the input would overwrite ",
                                to_ == &x ? "x" : "dy",
                                ", which the weight gradient reads: give it a panel_matrix "
                                "of its own"));
  }

  /// This destination with `other` as its second term; add_term adds the earlier term afterwards.
  destination with(panel_matrix<T> const& other) const { return {to_, &other}; }
  void add_term(pass<T> const& p) const {
    if (to_ && plus_) run(p.ctx, *to_ = *to_ + *plus_);
  }

 private:
  panel_matrix<T>* to_;
  panel_matrix<T> const* plus_;
};

}}}  // namespace tessera::TESSERA_ISA::nn
