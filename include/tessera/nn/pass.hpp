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

/// Activations that live only inside one layer's backward, and what layers save that are computed again
/// there. They are lent, come back, and are lent again: all layers of a model share them, and a second step
/// allocates nothing.
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

  /// A `saved` of some type of layer, filled or not by an earlier borrower.
  template <class Saved> class saved_loan {
   public:
    explicit saved_loan(workspace& from) : from_(from), value_(from.template take_saved<Saved>()) {}
    saved_loan(saved_loan const&) = delete;
    saved_loan& operator=(saved_loan const&) = delete;
    ~saved_loan() { from_.free_saved_.push_back({&type_of<Saved>, std::move(value_)}); }

    Saved& operator*() const { return *static_cast<Saved*>(value_.get()); }

   private:
    workspace& from_;
    std::shared_ptr<void> value_;
  };

 private:
  template <class Saved> static constexpr char type_of = 0;  // its address tells types apart
  struct any_saved {
    void const* type;
    std::shared_ptr<void> value;
  };
  template <class Saved> std::shared_ptr<void> take_saved() {
    for (auto& candidate : free_saved_)
      if (candidate.type == &type_of<Saved>) {
        std::swap(candidate, free_saved_.back());
        auto found = std::move(free_saved_.back().value);
        free_saved_.pop_back();
        return found;
      }
    free_saved_.reserve(std::size_t(++owned_saved_));
    return std::make_shared<Saved>();
  }

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
  std::vector<any_saved> free_saved_;
  int owned_ = 0, owned_saved_ = 0;
};

enum class purpose { training, evaluation };

/// Who sees, during a backward, which activations a weight's gradient dW = dy xᵀ is the product of. A sparse
/// gradient keeps the stored blocks alone; an observer can compute those of absent blocks. None by default.
/// Refers to a callable observer(ctx, dw, dy, x), which must outlive it:
///   dw   the address of the gradient's matrix (rows, cols), which this product has been added to
///   dy (rows, tokens)   x (cols, tokens)
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
  template <class Saved> typename workspace<T>::template saved_loan<Saved> borrow_saved() const {
    return typename workspace<T>::template saved_loan<Saved>(room);
  }
};

/// Gives what a layer saves its size. Allocates only to grow.
template <element T> void fit(panel_matrix<T>& x, std::int64_t features, std::int64_t tokens) {
  if (x.features() != features) x = panel_matrix<T>(features, tokens);
  x.resize(tokens);
}
template <element T> void fit(token_vector<T>& x, std::int64_t tokens) { x.resize(tokens); }

}}}  // namespace tessera::TESSERA_ISA::nn
