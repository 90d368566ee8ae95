// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include <tessera/core/bfloat16.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/float16.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/sequences.hpp>
#include <tessera/tensor/vectors.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// Resizes an activation that a layer saves. Allocates only to grow.
template <element T> void fit(panel_matrix<T>& x, std::int64_t features, std::int64_t tokens) {
  if (x.features() != features) x = panel_matrix<T>(features, tokens);
  x.resize(tokens);
}
template <element T> void fit(token_vector<T>& x, std::int64_t tokens) { x.resize(tokens); }

/// Lends activations that live only inside the backward of one layer, and `saved` values of layers that are
/// recomputed there. Loans are returned and lent again: all layers of a model share them, and a second step
/// allocates nothing.
template <element T> class workspace {
  struct lendable {
    void const* type;
    std::int64_t features;  // of an activation; else 0
    std::shared_ptr<void> value;
  };

 public:
  /// A loan of an activation, or of another value; an earlier borrower may have filled it.
  template <class Value> class loan {
   public:
    explicit loan(workspace& from) : from_(from), lent_(from.template take<Value>(0)) {}
    loan(workspace& from, std::int64_t features, std::int64_t tokens)
        : from_(from), lent_(from.template take<Value>(features)) {
      fit(**this, features, tokens);
    }
    loan(loan const&) = delete;
    loan& operator=(loan const&) = delete;
    ~loan() { from_.free_.push_back(std::move(lent_)); }  // the capacity suffices: see take

    Value& operator*() const { return *get(); }
    Value* get() const { return static_cast<Value*>(lent_.value.get()); }

   private:
    workspace& from_;
    lendable lent_;
  };

 private:
  template <class Value> static constexpr char type_of = 0;  // its address tells types apart
  template <class Value> lendable take(std::int64_t features) {
    for (auto& candidate : free_)
      if (candidate.type == &type_of<Value> && candidate.features == features) {
        std::swap(candidate, free_.back());
        lendable found = std::move(free_.back());
        free_.pop_back();
        return found;
      }
    free_.reserve(std::size_t(++owned_));
    return {&type_of<Value>, features, std::make_shared<Value>()};
  }

  std::vector<lendable> free_;
  int owned_ = 0;
};

enum class purpose { training, evaluation };

/// Observes activations, called as observer(ctx, number, operand…): operands of products with weights, one
/// panel_matrix<T> for each name in Operand. No observer by default. Refers to a callable observer and to the
/// list of parameters that has the weights, or the gradients, by whose number it is called; both must outlive
/// it.
template <element T, class... Operand> class operand_observer {
  template <class> using activation = panel_matrix<T> const&;

 public:
  using call = void (*)(void const* observer, context&, std::size_t number, activation<Operand>...);

  operand_observer() = default;
  template <class Observer>
  operand_observer(Observer& observer TESSERA_LIFETIMEBOUND, parameter_list const& list TESSERA_LIFETIMEBOUND)
      : operand_observer(&observer, list, call_of<Observer>) {}
  template <class Observer>
  operand_observer(Observer&, parameter_list const&&) = delete;  // the list must live longer: name it
  operand_observer(void const* observer, parameter_list const& list, call made)
      : observer_(observer), list_(&list), call_(made) {}

  explicit operator bool() const { return observer_ != nullptr; }

  /// For layers, which do not know their place in a model: the address of a parameter, or of its gradient,
  /// says which it is. One that is not in the list is not observed.
  void operator()(context& ctx, void const* parameter, activation<Operand>... operand) const {
    for (std::size_t number = 0; number < list_->size(); ++number)
      if ((*list_)[number].tensor.address() == parameter) return call_(observer_, ctx, number, operand...);
  }

  template <class Observer>
  static void call_of(void const* observer, context& ctx, std::size_t number,
                      activation<Operand>... operand) {
    (*static_cast<Observer*>(const_cast<void*>(observer)))(ctx, number, operand...);
  }

 private:
  void const* observer_ = nullptr;
  parameter_list const* list_ = nullptr;
  call call_ = nullptr;
};

/// An observer for passes whose element is not known: refers to an observer that has operator() for every
/// element.
template <class... Operand> class any_operand_observer {
  template <element T> using of = operand_observer<T, Operand...>;

 public:
  any_operand_observer() = default;
  template <class Observer>
  any_operand_observer(Observer& observer TESSERA_LIFETIMEBOUND,
                       parameter_list const& list TESSERA_LIFETIMEBOUND)
      : observer_(&observer),
        list_(&list),
        calls_(of<float>::template call_of<Observer>, of<double>::template call_of<Observer>,
               of<bfloat16>::template call_of<Observer>, of<float16>::template call_of<Observer>) {}
  template <class Observer>
  any_operand_observer(Observer&, parameter_list const&&) = delete;  // the list must live longer: name it

  explicit operator bool() const { return observer_ != nullptr; }
  template <element T> operator operand_observer<T, Operand...>() const {
    if (!observer_) return {};
    return {observer_, *list_, std::get<typename of<T>::call>(calls_)};
  }

 private:
  void const* observer_ = nullptr;
  parameter_list const* list_ = nullptr;
  std::tuple<typename of<float>::call, typename of<double>::call, typename of<bfloat16>::call,
             typename of<float16>::call>
      calls_{};
};

namespace operands {
struct dy;
struct x;
}  // namespace operands

/// Observes, during a backward, the operands of each weight gradient dW = dy xᵀ. A sparse gradient has only
/// the stored blocks; an observer can compute the absent blocks. Called as observer(ctx, number, dy, x), with
/// the list of the gradients that the backward fills:
///   number   of the weight among the parameters of the model; to its gradient the product has been added
///   dy (rows, tokens)   x (cols, tokens)
template <element T> using gradient_observer = operand_observer<T, operands::dy, operands::x>;
using any_gradient_observer = any_operand_observer<operands::dy, operands::x>;

/// Observes, during a forward, the input x of each weight, and so of a token table where logits are its
/// product; see nn/layer_inputs.hpp. Called as observer(ctx, number, x), with the list of the model, when the
/// layer around the weight has computed its result:
///   number   of the weight among the parameters of the model
///   x (cols, tokens)
template <element T> using input_observer = operand_observer<T, operands::x>;
using any_input_observer = any_operand_observer<operands::x>;

template <element T> class token_cache;

/// The arguments of every layer besides activations: the context, the sequences of the batch, a workspace to
/// borrow from, the keys of random choices, and the cache of earlier tokens of the sequences, if they go on
/// with some (see decoding).
template <element T> struct pass {
  context& ctx;
  tessera::sequences const& sequences;
  nn::workspace<T>& workspace;
  nn::purpose purpose = nn::purpose::training;
  std::uint64_t seed = 0, step = 0;
  double loss_scale = 1;  // factor of the gradients: train::loss_scaling
  gradient_observer<T> weight_gradients = {};
  input_observer<T> layer_inputs = {};
  token_cache<T>* cache = nullptr;

  std::int64_t tokens() const { return sequences.tokens(); }
  /// This pass without its observers.
  pass unobserved() const {
    pass p = *this;
    p.weight_gradients = {};
    p.layer_inputs = {};
    return p;
  }
  using activation_loan = typename nn::workspace<T>::template loan<panel_matrix<T>>;
  activation_loan borrow(std::int64_t features) const { return borrow(features, tokens()); }
  activation_loan borrow(std::int64_t features, std::int64_t tokens) const {
    return activation_loan(workspace, features, tokens);
  }
  template <class Saved> typename nn::workspace<T>::template loan<Saved> borrow_saved() const {
    return typename nn::workspace<T>::template loan<Saved>(workspace);
  }
};

/// The arguments of the passes of a model whose element is not known.
struct any_pass {
  context& ctx;
  nn::purpose purpose = nn::purpose::training;
  std::uint64_t seed = 0, step = 0;
  double loss_scale = 1;
  any_gradient_observer weight_gradients = {};
  any_input_observer layer_inputs = {};

  /// A pass over sequences.
  template <element T> pass<T> over(tessera::sequences const& batch, workspace<T>& room) const {
    return {ctx, batch, room, purpose, seed, step, loss_scale, weight_gradients, layer_inputs};
  }
};

}}}  // namespace tessera::TESSERA_ISA::nn
