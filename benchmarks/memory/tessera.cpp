// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <harness/operands.hpp>

#include <tessera/nn/cross_entropy.hpp>
#include <tessera/nn/norm.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/optimizers/adamw.hpp>

// What a training step does besides products and attention: m features (of weights: rows), k classes, symbols
// or columns, n tokens.

namespace bench { namespace {

template <class T> struct activations {
  context ctx;
  sequences batch;
  nn::workspace<T> room;
  nn::pass<T> pass{ctx, batch, room};
  panel_matrix<T> x, z, y;

  explicit activations(workload const& what)
      : ctx(what.threads),
        batch(sequences::of_equal_length(1, what.n)),
        x(activation<T>(what.m, what.n, 1)),
        z(activation<T>(what.m, what.n, 2)),
        y(what.m, what.n) {}

  job timed(std::function<void()> run,
            std::function<checked_value(std::int64_t, std::int64_t)> result) const {
    return {0, std::move(run), y.features() * y.tokens(),
            [tokens = y.tokens(), result](std::int64_t r) { return result(r / tokens, r % tokens); }};
  }
};

/// Some operations in float, stored as T, on numbers of about one.
template <class T> checked_value about(T got, double want, double operations) {
  const double relative =
      operations * unit_roundoff<float> + (std::is_same_v<T, float> ? 0 : unit_roundoff<T>);
  return {double(got), want, relative * (1 + std::abs(want))};
}

/// An activation from rows of tokens, and to them.
template <class T> job copy_rows(workload const& what, bool in) {
  auto p = std::make_shared<activations<T>>(what);
  auto rows = std::make_shared<std::vector<T>>(std::size_t(what.m * what.n));
  const auto view = [=] { return transposed(row_major(rows->data(), what.n, what.m)); };
  copy(p->x, view());
  return p->timed([=] { in ? copy(p->ctx, view(), p->y) : copy(p->ctx, p->x, view()); },
                  [=](auto f, auto t) {
                    const T got = in ? p->y(f, t) : (*rows)[std::size_t(t * what.m + f)];
                    return about(got, double(p->x(f, t)), 0);
                  });
}
template <class T> job copy_in(workload const& what) { return copy_rows<T>(what, true); }
template <class T> job copy_out(workload const& what) { return copy_rows<T>(what, false); }

template <class T> job residual(workload const& what) {
  auto p = std::make_shared<activations<T>>(what);
  return p->timed(
      [p] { run(p->ctx, p->y = p->x + p->z); },
      [p](auto f, auto t) { return about(p->y(f, t), double(p->x(f, t)) + double(p->z(f, t)), 1); });
}

template <class T> job activate(workload const& what) {
  auto p = std::make_shared<activations<T>>(what);
  return p->timed([p] { run(p->ctx, p->y = apply<ops::gelu_polynomial>(p->x)); },
                  [p](auto f, auto t) {
                    const auto x = double(p->x(f, t));
                    return about(p->y(f, t), .5 * x * std::erfc(-x / std::sqrt(2.0)), 8);
                  });
}

/// Mean and variance of a token.
template <class T> struct moments {
  double mean = 0, scale = 0;
  moments(panel_matrix<T> const& x, std::int64_t token) {
    const auto count = double(x.features());
    for (std::int64_t f = 0; f < x.features(); ++f) mean += double(x(f, token)) / count;
    for (std::int64_t f = 0; f < x.features(); ++f) scale += std::pow(double(x(f, token)) - mean, 2) / count;
    scale = 1 / std::sqrt(scale + nn::layer_norm<T>().epsilon);
  }
  double of(T x) const { return (double(x) - mean) * scale; }
};

template <class T> struct normalised : activations<T> {
  nn::layer_norm<T> norm;
  typename nn::layer_norm<T>::gradients gradients;
  typename nn::layer_norm<T>::saved saved;
  explicit normalised(workload const& what)
      : activations<T>(what), norm(what.m), gradients(nn::zeros_like(norm)) {
    nn::fit(saved, norm.unfilled(), this->x.tokens());
    run(this->pass.ctx, norm.prepare(this->x, saved, this->pass));
  }
};

template <class T> job layer_norm(workload const& what) {
  auto p = std::make_shared<normalised<T>>(what);
  return p->timed([p] { p->norm.forward(p->x, p->y, p->saved, p->pass); },
                  [p](auto f, auto t) {
                    return about(p->y(f, t), moments<T>(p->x, t).of(p->x(f, t)), double(p->x.features()));
                  });
}

template <class T> job layer_norm_back(workload const& what) {
  auto p = std::make_shared<normalised<T>>(what);
  return p->timed([p] { p->norm.backward(p->x, p->saved, p->z, &p->y, p->gradients, p->pass); },
                  [p](auto f, auto t) {
                    const moments<T> of(p->x, t);
                    const auto count = double(p->x.features());
                    double mean = 0, slope = 0;
                    for (std::int64_t i = 0; i < p->x.features(); ++i) {
                      mean += double(p->z(i, t)) / count;
                      slope += double(p->z(i, t)) * of.of(p->x(i, t)) / count;
                    }
                    const double dx = of.scale * (double(p->z(f, t)) - mean - of.of(p->x(f, t)) * slope);
                    return about(p->y(f, t), dx, 4 * count);
                  });
}

template <class T> job bias_gradient(workload const& what) {
  struct biased : activations<T> {
    feature_vector<float> sum;
    explicit biased(workload const& w) : activations<T>(w), sum(w.m) {}
  };
  auto p = std::make_shared<biased>(what);
  return {0, [p] { run(p->ctx, p->sum = sum_tokens(p->x)); }, what.m,
          [p](std::int64_t f) {
            return beside_sum(
                p->sum[f], p->x.tokens(), [&](std::int64_t t) { return p->x(f, t); },
                [](std::int64_t) { return 1; });
          }};
}

/// The gradient overwrites the logits, and so becomes the logits of the next run.
template <class T> job cross_entropy(workload const& what) {
  struct classified : activations<T> {
    std::vector<std::int32_t> targets;
    typename nn::cross_entropy<T>::saved saved;
    explicit classified(workload const& w) : activations<T>(w) {
      this->y = this->x;
      for (std::int64_t t = 0; t < w.n; ++t) targets.push_back(std::int32_t(t * 7 % w.m));
    }
  };
  auto p = std::make_shared<classified>(what);
  return p->timed([p] { nn::cross_entropy<T>().forward(p->y, p->targets, 1, &p->y, p->saved, p->pass); },
                  [p](auto f, auto t) {
                    double sum = 0;
                    for (std::int64_t i = 0; i < p->x.features(); ++i) sum += std::exp(double(p->x(i, t)));
                    return about(p->y(f, t),
                                 std::exp(double(p->x(f, t))) / sum - (p->targets[std::size_t(t)] == f),
                                 double(p->x.features()));
                  });
}

template <class T> job embed(workload const& what) {
  struct embedded : activations<T> {
    dense_matrix<T> table;
    std::vector<std::int32_t> ids;
    explicit embedded(workload const& w)
        : activations<T>(w), table(weights_of<block_shape<16>, T>({"", w.k, w.m, 0, 1})) {
      const random_stream random(6, random_purpose::test);
      for (std::int64_t t = 0; t < w.n; ++t)
        ids.push_back(std::int32_t(random.below(std::uint64_t(t), std::uint64_t(w.k))));
    }
  };
  auto p = std::make_shared<embedded>(what);
  return p->timed([p] { run(p->ctx, gather_rows(p->y, p->table, p->ids)); },
                  [p](auto f, auto t) {
                    return checked_value{double(p->y(f, t)), double(p->table(p->ids[std::size_t(t)], f)), 0};
                  });
}

struct one_weight {
  dense_matrix<float> w;
  using gradients = one_weight;
  static void parts(auto& each, auto&... of) { each("w", of.w...); }
};

/// In float, of which bfloat16 keeps a master.
job adamw(workload const& what) {
  struct updated {
    context ctx;
    const one_weight first;
    one_weight model, gradient;
    train::optimizer_state state;
    explicit updated(workload const& w_)
        : ctx(w_.threads),
          first{weights_of<block_shape<16>>(w_)},
          model(first),
          gradient(first),
          state(train::initial_state(train::adamw{}, model)) {}
  };
  auto p = std::make_shared<updated>(what);
  constexpr double rate = 1e-3;
  return {0, [p] { train::update_parameters(p->ctx, train::adamw{}, p->model, p->gradient, p->state, rate); },
          what.m * what.k,
          [p, what](std::int64_t r) {
            const auto w = double(p->first.w(r / what.k, r % what.k));  // which is its gradient, too
            const train::adamw rule;
            return about(std::as_const(p->model.w)(r / what.k, r % what.k),
                         w * (1 - rate * rule.weight_decay) - rate * w / (std::abs(w) + rule.epsilon), 16);
          }};
}

template <class Float, class Narrow>
contestant entered(char const* operation, Float in_float, Narrow in_bfloat16) {
  return {"tessera", operation, [=](workload const& what) {
            return std::optional(what.element == "bfloat16" ? in_bfloat16(what) : in_float(what));
          }};
}
const registered all[] = {
    registered(entered("residual", residual<float>, residual<bfloat16>)),
    registered(entered("gelu", activate<float>, activate<bfloat16>)),
    registered(entered("layer norm", layer_norm<float>, layer_norm<bfloat16>)),
    registered(entered("norm back", layer_norm_back<float>, layer_norm_back<bfloat16>)),
    registered(entered("bias gradient", bias_gradient<float>, bias_gradient<bfloat16>)),
    registered(entered("cross-entropy", cross_entropy<float>, cross_entropy<bfloat16>)),
    registered(entered("copy in", copy_in<float>, copy_in<bfloat16>)),
    registered(entered("copy out", copy_out<float>, copy_out<bfloat16>)),
    registered(entered("embedding", embed<float>, embed<bfloat16>)),
    registered(entered("AdamW", adamw, adamw)),
};

}}  // namespace bench
