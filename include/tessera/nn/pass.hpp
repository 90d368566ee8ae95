// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/sequences.hpp>
#include <tessera/tensor/vectors.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Lends activations that live only inside the backward of one layer, and `saved` values of layers that are
/// recomputed there. Loans are returned and lent again: all layers of a model share them, and a second step
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
    ~loan() { from_.free_.push_back(std::move(values_)); }  // the capacity suffices: see take

    panel_matrix<T>& operator*() const { return *values_; }
    panel_matrix<T>* get() const { return values_.get(); }

   private:
    workspace& from_;
    std::unique_ptr<panel_matrix<T>> values_;
  };

  /// A loan of a layer's `saved`, possibly filled by an earlier borrower.
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

/// Observes, during a backward, the operands of each weight gradient dW = dy xᵀ. A sparse gradient has only
/// the stored blocks; an observer can compute the absent blocks. No observer by default. Refers to a callable
/// observer(ctx, dw, dy, x), which must outlive it:
///   dw   address of the gradient (rows, cols), to which the product has already been added
///   dy (rows, tokens)   x (cols, tokens)
template <element T> class gradient_observer {
  using activation = panel_matrix<T> const&;
  using function = function_ref<void(context&, void const*, activation, activation)>;

 public:
  gradient_observer() = default;
  /// No observer if null.
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

/// An observer of passes whose element is not known. Refers to one that has operator() of gradient_observer
/// for every element.
class any_gradient_observer {
  template <element T>
  using call = void (*)(void*, context&, void const*, panel_matrix<T> const&, panel_matrix<T> const&);

 public:
  any_gradient_observer() = default;
  /// No observer if null.
  template <class Observer>
  explicit any_gradient_observer(Observer* observer)
      : observer_(observer),
        calls_(call_of<Observer, float>, call_of<Observer, double>, call_of<Observer, bfloat16>,
               call_of<Observer, float16>) {}

  explicit operator bool() const { return observer_ != nullptr; }
  template <element T>
  void operator()(context& ctx, void const* dw, panel_matrix<T> const& dy, panel_matrix<T> const& x) const {
    std::get<call<T>>(calls_)(observer_, ctx, dw, dy, x);
  }

 private:
  template <class Observer, element T>
  static void call_of(void* observer, context& ctx, void const* dw, panel_matrix<T> const& dy,
                      panel_matrix<T> const& x) {
    (*static_cast<Observer*>(observer))(ctx, dw, dy, x);
  }

  void* observer_ = nullptr;
  std::tuple<call<float>, call<double>, call<bfloat16>, call<float16>> calls_{};
};

/// The arguments of every layer besides activations: the context, the sequences of the batch, a workspace to
/// borrow from, and the keys of random choices.
template <element T> struct pass {
  context& ctx;
  tessera::sequences const& sequences;
  nn::workspace<T>& workspace;
  nn::purpose purpose = nn::purpose::training;
  std::uint64_t seed = 0, step = 0;
  double loss_scale = 1;  // factor of the gradients: train::loss_scaling
  gradient_observer<T> weight_gradients = {};

  std::int64_t tokens() const { return sequences.tokens(); }
  typename nn::workspace<T>::loan borrow(std::int64_t features) const {
    return typename nn::workspace<T>::loan(workspace, features, tokens());
  }
  typename nn::workspace<T>::loan borrow(std::int64_t features, std::int64_t tokens) const {
    return typename nn::workspace<T>::loan(workspace, features, tokens);
  }
  template <class Saved> typename nn::workspace<T>::template saved_loan<Saved> borrow_saved() const {
    return typename nn::workspace<T>::template saved_loan<Saved>(workspace);
  }
};

/// The arguments of a model whose element is not known, besides its batch: those of its passes.
struct any_pass {
  context& ctx;
  nn::purpose purpose = nn::purpose::training;
  std::uint64_t seed = 0, step = 0;
  double loss_scale = 1;
  any_gradient_observer weight_gradients = {};

  /// A pass over sequences; it refers to this.
  template <element T> pass<T> over(tessera::sequences const& batch, workspace<T>& room) const {
    return {ctx,  batch, room,       purpose,
            seed, step,  loss_scale, weight_gradients ? &weight_gradients : nullptr};
  }
};

/// Resizes an activation that a layer saves. Allocates only to grow.
template <element T> void fit(panel_matrix<T>& x, std::int64_t features, std::int64_t tokens) {
  if (x.features() != features) x = panel_matrix<T>(features, tokens);
  x.resize(tokens);
}
template <element T> void fit(token_vector<T>& x, std::int64_t tokens) { x.resize(tokens); }

}}}  // namespace tessera::TESSERA_ISA::nn
