// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/sequences.hpp>
#include <tessera/tensor/vectors.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Activations that live only inside one layer's backward. They are lent, come back, and are lent again: all
/// layers of a model share them, and a second step allocates nothing.
template <element T> class workspace {
 public:
  class loan {
   public:
    explicit loan(workspace& from, std::int64_t features, std::int64_t tokens)
        : from_(from), values_(from.take(features)) {
      values_->resize(tokens);
    }
    loan(loan const&) = delete;
    loan& operator=(loan const&) = delete;
    ~loan() { from_.free_.push_back(std::move(values_)); }  // there is room: see take

    panel_matrix<T>& operator*() const { return *values_; }
    panel_matrix<T>* get() const { return values_.get(); }

   private:
    workspace& from_;
    std::unique_ptr<panel_matrix<T>> values_;
  };

 private:
  std::unique_ptr<panel_matrix<T>> take(std::int64_t features) {
    for (auto& candidate : free_)
      if (candidate->features() == features) {
        std::swap(candidate, free_.back());
        auto found = std::move(free_.back());
        free_.pop_back();
        return found;
      }
    free_.reserve(std::size_t(++owned_));
    return std::make_unique<panel_matrix<T>>(features, 0);
  }

  std::vector<std::unique_ptr<panel_matrix<T>>> free_;
  int owned_ = 0;
};

enum class purpose { training, evaluation };

/// Who sees, during a backward, which activations a weight's gradient dW = dy xᵀ is the product of: of a
/// sparse weight it keeps the stored blocks alone, and here is what the absent ones would get. None by
/// default. Refers to a callable, which must outlive it:
///   observer(ctx, dw, dy, x)   dw: the address of the gradient's matrix (rows, cols), to which this product
///   has
///                              been added   dy (rows, tokens)   x (cols, tokens)
template <element T> class gradient_observer {
  using activation = panel_matrix<T> const&;
  using function = function_ref<void(context&, void const*, activation, activation)>;

 public:
  gradient_observer() = default;
  /// None, if null.
  template <class Observer>
    requires std::constructible_from<function, Observer&>
  gradient_observer(Observer* observer) {
    if (observer) function_.emplace(*observer);
  }

  explicit operator bool() const { return function_.has_value(); }
  void operator()(context& ctx, void const* dw, activation dy, activation x) const {
    (*function_)(ctx, dw, dy, x);
  }

 private:
  std::optional<function> function_;
};

/// What every layer gets besides activations: where to compute, which tokens belong together, room for what
/// it needs meanwhile, and what random choices depend on.
template <element T> struct pass {
  context& ctx;
  sequences const& batch;
  workspace<T>& room;
  purpose what_for = purpose::training;
  std::uint64_t seed = 0, step = 0;
  double loss_scale = 1;  // of the gradients: train::loss_scaling
  gradient_observer<T> weight_gradients = {};

  std::int64_t tokens() const { return batch.tokens(); }
  typename workspace<T>::loan borrow(std::int64_t features) const {
    return typename workspace<T>::loan(room, features, tokens());
  }
  typename workspace<T>::loan borrow(std::int64_t features, std::int64_t tokens) const {
    return typename workspace<T>::loan(room, features, tokens);
  }
};

/// Gives what a layer saves its size. Allocates only to grow.
template <element T> void fit(panel_matrix<T>& x, std::int64_t features, std::int64_t tokens) {
  if (x.features() != features) x = panel_matrix<T>(features, tokens);
  x.resize(tokens);
}
template <element T> void fit(token_vector<T>& x, std::int64_t tokens) { x.resize(tokens); }

/// What is done to a layer's result before it is stored: nothing. A residual connection adds its input here,
/// so that the sum costs no pass of its own.
struct as_it_is {
  template <class Expression> Expression const& operator()(Expression const& value) const { return value; }
};

}}}  // namespace tessera::TESSERA_ISA::nn
