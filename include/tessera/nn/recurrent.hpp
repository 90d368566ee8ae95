// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/nn/destination.hpp>
#include <tessera/nn/layer_inputs.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/model_size.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/nn/saved.hpp>
#include <tessera/statements/run.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/panel_slice.hpp>
#include <tessera/tensor/sequences.hpp>

// Recurrent layers. A batch is time steps one after the other: a time step is a sequence of the pass, whose
// keys are one token of each series that still goes on; it begins at a panel, and the rest of its panels is
// padding. So gates of all steps come from x in one product, and the gradients of both weights are one
// sampled product each.

namespace tessera { inline namespace TESSERA_ISA { namespace nn {

/// The sequences of a pass over `steps` time steps of `series` series, side by side. Series i, step t is
/// token i + t · (series, rounded up to 64).
inline sequences time_steps(std::int64_t steps, std::int64_t series) {
  const auto count = std::size_t(steps < 0 ? 0 : steps);
  return sequences::from_lengths(
      std::vector<std::int64_t>(count, round_up<std::int64_t>(series, panel_tokens)),
      std::vector<std::int64_t>(count, series));
}
/// Series of different lengths: series_at[t] of them still go on at step t, the first ones of the step
/// before.
inline sequences time_steps(std::vector<std::int64_t> series_at) {
  const std::int64_t most = series_at.empty() ? 0 : series_at[0];
  for (std::size_t t = 1; t < series_at.size(); ++t)
    if (series_at[t] > series_at[t - 1])
      throw shape_error(message("[time_steps] ", series_at[t], " series at step ", t, " after ",
                                series_at[t - 1], ": a series that has ended cannot go on"));
  const std::vector<std::int64_t> lengths(series_at.size(), round_up<std::int64_t>(most, panel_tokens));
  return sequences::from_lengths(lengths, std::move(series_at));
}

namespace detail {

/// The time steps of a pass.
class time_axis {
 public:
  /// Throws shape_error unless all steps have one length, a multiple of 64.
  TESSERA_COLD explicit time_axis(sequences const& of) : of_(of) {
    for (std::int64_t t = 0; t < steps(); ++t)
      if (of.length(t) % panel_tokens != 0 || of.length(t) != of.length(0))
        throw shape_error(message("[recurrent] time step ", t, " has ", of.length(t),
                                  " tokens: all must have one number of tokens, a multiple of ", panel_tokens,
                                  ": make the sequences of the pass with nn::time_steps"));
  }
  std::int64_t steps() const { return of_.count(); }
  std::int64_t step_tokens() const { return steps() == 0 ? 0 : of_.length(0); }
  /// The live tokens of step t of an activation over all steps.
  template <class Panels> auto at(Panels& x, std::int64_t t) const {
    return slice_tokens(x, of_.begin(t), of_.begin(t) + of_.keys(t));
  }
  /// As many tokens of step `from`, or of an activation of one step.
  template <class Panels> auto at(Panels& x, std::int64_t from, std::int64_t t) const {
    return slice_tokens(x, of_.begin(from), of_.begin(from) + of_.keys(t));
  }

 private:
  sequences const& of_;
};

/// Gate i of the rows of gates.
template <class Gates> auto gate(Gates&& gates, std::int64_t i, std::int64_t hidden) {
  return slice_features(gates, i * hidden, (i + 1) * hidden);
}

/// Makes a state that was never set, or of another size, one of zeros.
template <element T> void fit_state(panel_matrix<T>& state, std::int64_t hidden, std::int64_t tokens) {
  if (state.features() != hidden || state.tokens() != tokens) state = panel_matrix<T>(hidden, tokens);
}

/// previous(t) = hidden(t - 1), and at step 0 the state before it.
template <element T>
void shift_in_time(panel_matrix<T> const& hidden, panel_matrix<T> const& initial, panel_matrix<T>& previous,
                   pass<T> const& p) {
  const std::int64_t step = initial.tokens(), all = hidden.tokens();
  if (all == 0) return;
  run(p.ctx, slice_tokens(previous, 0, step) = initial,
      slice_tokens(previous, step, all) = slice_tokens(hidden, 0, all - step));
}

/// The inputs of both weights of a cell: x, and the hidden states before.
template <class Cell, element T>
void show_cell_inputs(Cell const& cell, panel_matrix<T> const& x, typename Cell::saved const& s,
                      pass<T> const& p) {
  const auto previous = p.borrow(cell.hidden(), x.tokens());
  shift_in_time(s.hidden, s.initial, *previous, p);
  nn::show_inputs(cell.input, x, {}, p);
  nn::show_inputs(cell.recurrent, *previous, {}, p);
}

/// A cell of Cell::gate_count gates, of hidden features in and out, with random patterns.
template <class Cell>
Cell random_cell(std::int64_t hidden, double density, std::uint64_t seed, parameter_name const& name) {
  const auto matrix = [&](char const* part) {
    return decltype(Cell::input)::random(Cell::gate_count * hidden, hidden, density, bias_term::present, seed,
                                         name.child(part));
  };
  return {matrix("input"), matrix("recurrent")};
}
template <class T, class Cell> model_size cell_size(std::int64_t hidden, double density) {
  const std::int64_t gates = Cell::gate_count * hidden;
  return model_size::of<T>()
      .part(decltype(Cell::input)::size(gates, hidden, density, bias_term::present), 2)
      .keeps(Cell::unfilled(hidden))
      .lends(gates, 2)
      .lends(hidden, 2);
}

}  // namespace detail

/// Gated recurrent unit (Cho et al. 2014), with the gates of torch.nn.GRU, r, z, n, one below the other:
///   r = σ(W_r x + b_r + U_r h + c_r)   z = σ(W_z x + b_z + U_z h + c_z)
///   n = tanh(W_n x + b_n + r ∘ (U_n h + c_n))   h ← n + z ∘ (h - n)
///   x (in, tokens)   input W, b (3 hidden, in), recurrent U, c (3 hidden, hidden)   y (hidden, tokens): h
/// The sequences of the pass are time steps. Gradients do not reach the state before the first step: a long
/// series is learned in pieces, each of which begins with the state that `carry` took over from the last
/// (truncated back-propagation through time).
template <element T, class Block> struct gru {
  static constexpr int gate_count = 3;
  linear<T, Block> input, recurrent;

  struct saved {
    panel_matrix<T> initial;  // state before the first step (hidden, tokens of a step); zeros if not set
    panel_matrix<T> gates, hidden;  // r, z, n; all h
    panel_matrix<T> candidate;      // U_n h + c_n
    static void parts(auto& each, auto&... of) {
      each.apart("initial", of.initial...);
      each("gates", of.gates...), each("hidden", of.hidden...), each("candidate", of.candidate...);
    }
  };
  using gradients = gru<accumulator_t<T>, Block>;

  static void parts(auto& each, auto&... of) {
    each.stacked("input", {1, 1, 1}, of.input...);
    each.stacked("recurrent", {1, 1, 1}, of.recurrent...);
  }
  /// A cell of zeros with `hidden` features in and out, on random patterns.
  ///   name   of the cell in the model, which begins the keys of its random patterns
  static gru random(std::int64_t hidden, double density, std::uint64_t seed, parameter_name const& name) {
    return detail::random_cell<gru>(hidden, density, seed, name);
  }
  static model_size size(std::int64_t hidden, double density) {
    return detail::cell_size<T, gru>(hidden, density);
  }
  static saved unfilled(std::int64_t hidden) {
    return {{}, {gate_count * hidden, 0}, {hidden, 0}, {hidden, 0}};
  }
  std::int64_t hidden() const { return recurrent.weight.cols(); }
  std::int64_t outputs(std::int64_t) const { return hidden(); }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const;
  void show_inputs(panel_matrix<T> const& x, saved const& s, pass<T> const& p) const {
    detail::show_cell_inputs(*this, x, s, p);
  }

  /// With dh the gradient by h: dn = dh ∘ (1 - z) ∘ (1 - n²), dz = dh ∘ (h₋₁ - n) ∘ z (1 - z),
  /// dr = dn ∘ (U_n h₋₁ + c_n) ∘ r (1 - r), dh₋₁ = dh ∘ z + Uᵀ (dr, dz, dn ∘ r)
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;

  /// Takes the state after the last step over to the next piece of the series.
  void carry(saved& s, pass<T> const& p) const {
    if (p.sequences.count() == 0) return;
    run(p.ctx, s.initial = slice_tokens(s.hidden, s.hidden.tokens() - s.initial.tokens(), s.hidden.tokens()));
  }
};

template <element T, class Block>
void gru<T, Block>::forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
  const detail::time_axis time(p.sequences);
  const std::int64_t h = hidden();
  fit(s, unfilled(h), x.tokens());
  detail::fit_state(s.initial, h, time.step_tokens());
  const auto room = p.borrow(3 * h, time.step_tokens());
  run(p.ctx, s.gates = input.value(x), s.hidden = 0);
  for (std::int64_t t = 0; t < time.steps(); ++t) {
    const auto step = [&](auto const& last) {
      const auto gates = time.at(s.gates, t), now = time.at(s.hidden, t), m = time.at(s.candidate, t),
                 from_h = time.at(*room, 0, t);
      const auto r = detail::gate(gates, 0, h), z = detail::gate(gates, 1, h), n = detail::gate(gates, 2, h);
      run(p.ctx, from_h = recurrent.value(last), r = sigmoid(r + detail::gate(from_h, 0, h)),
          z = sigmoid(z + detail::gate(from_h, 1, h)), m = detail::gate(from_h, 2, h), n = tanh(n + r * m),
          now = n + z * (last - n));
    };
    t == 0 ? step(time.at(s.initial, 0, 0)) : step(time.at(s.hidden, t - 1, t));
  }
  run(p.ctx, y = converted(s.hidden));
  observe_forward(*this, x, y, s, p);
}

template <element T, class Block>
void gru<T, Block>::backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy,
                             destination<T> dx, gradients& g, pass<T> const& p) const {
  dx.require_apart("gru", x, dy);
  require_forward("gru", s.hidden.tokens(), dy.tokens());
  if (!dx && !any_wanted(g)) return;
  const detail::time_axis time(p.sequences);
  const std::int64_t h = hidden();
  const auto dgates_room = p.borrow(3 * h), drecurrent_room = p.borrow(3 * h), previous_room = p.borrow(h),
             state_room = p.borrow(h, time.step_tokens());
  panel_matrix<T>&dgates = *dgates_room, &drecurrent = *drecurrent_room, &previous = *previous_room,
  &state = *state_room;
  detail::shift_in_time(s.hidden, s.initial, previous, p);
  run(p.ctx, dgates = 0, drecurrent = 0, state = 0);
  for (std::int64_t t = time.steps() - 1; t >= 0; --t) {
    const auto gates = time.at(s.gates, t), m = time.at(s.candidate, t);
    const auto last = time.at(previous, t);
    const auto r = detail::gate(gates, 0, h), z = detail::gate(gates, 1, h), n = detail::gate(gates, 2, h);
    const auto d = time.at(dgates, t), by_u = time.at(drecurrent, t), dh = time.at(state, 0, t);
    const auto dr = detail::gate(d, 0, h), dz = detail::gate(d, 1, h), dn = detail::gate(d, 2, h);
    run(p.ctx, dh += time.at(dy, t), dn = dh * (1.0 - z) * (1.0 - square(n)),
        dz = dh * (last - n) * z * (1.0 - z), dr = dn * m * r * (1.0 - r), detail::gate(by_u, 0, h) = dr,
        detail::gate(by_u, 1, h) = dz, detail::gate(by_u, 2, h) = dn * r,
        dh = transposed(recurrent.weight) * by_u + dh * z);
  }
  run(p.ctx, input.bias_gradient(dgates, g.input), recurrent.bias_gradient(drecurrent, g.recurrent),
      dx = transposed(input.weight) * dgates);
  input.add_weight_gradient(dgates, x, g.input, p);
  recurrent.add_weight_gradient(drecurrent, previous, g.recurrent, p);
}

/// Long short-term memory (Hochreiter, Schmidhuber 1997), with the gates of torch.nn.LSTM, i, f, g, o, one
/// below the other: (i, f, g, o) = (σ, σ, tanh, σ)(W x + b + U h + c), cell ← f ∘ cell + i ∘ g, h ← o ∘
/// tanh(cell)
///   x (in, tokens)   input W, b (4 hidden, in), recurrent U, c (4 hidden, hidden)   y (hidden, tokens): h
/// Time steps, and series in pieces, as for gru.
template <element T, class Block> struct lstm {
  static constexpr int gate_count = 4;
  linear<T, Block> input, recurrent;

  struct saved {
    panel_matrix<T> initial,
        initial_cell;  // before the first step (hidden, tokens of a step); zeros if not set
    panel_matrix<T> gates, hidden, cell;  // i, f, g, o; all h; all cells
    static void parts(auto& each, auto&... of) {
      each.apart("initial", of.initial...), each.apart("initial_cell", of.initial_cell...);
      each("gates", of.gates...), each("hidden", of.hidden...), each("cell", of.cell...);
    }
  };
  using gradients = lstm<accumulator_t<T>, Block>;

  static void parts(auto& each, auto&... of) {
    each.stacked("input", {1, 1, 1, 1}, of.input...);
    each.stacked("recurrent", {1, 1, 1, 1}, of.recurrent...);
  }
  /// A cell of zeros with `hidden` features in and out, on random patterns.
  ///   name   of the cell in the model, which begins the keys of its random patterns
  static lstm random(std::int64_t hidden, double density, std::uint64_t seed, parameter_name const& name) {
    return detail::random_cell<lstm>(hidden, density, seed, name);
  }
  static model_size size(std::int64_t hidden, double density) {
    return detail::cell_size<T, lstm>(hidden, density);
  }
  static saved unfilled(std::int64_t hidden) {
    return {{}, {}, {gate_count * hidden, 0}, {hidden, 0}, {hidden, 0}};
  }
  std::int64_t hidden() const { return recurrent.weight.cols(); }
  std::int64_t outputs(std::int64_t) const { return hidden(); }

  void forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const;
  void show_inputs(panel_matrix<T> const& x, saved const& s, pass<T> const& p) const {
    detail::show_cell_inputs(*this, x, s, p);
  }

  /// do = dh ∘ tanh(cell) ∘ o (1 - o), dcell += dh ∘ o ∘ (1 - tanh²(cell)), di = dcell ∘ g ∘ i (1 - i),
  /// df = dcell ∘ cell₋₁ ∘ f (1 - f), dg = dcell ∘ i ∘ (1 - g²), dcell₋₁ = dcell ∘ f, dh₋₁ = Uᵀ (di, df, dg,
  /// do)
  void backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy, destination<T> dx,
                gradients& g, pass<T> const& p) const;

  /// Takes the states after the last step over to the next piece of the series.
  void carry(saved& s, pass<T> const& p) const {
    if (p.sequences.count() == 0) return;
    const std::int64_t first = s.hidden.tokens() - s.initial.tokens();
    run(p.ctx, s.initial = slice_tokens(s.hidden, first, s.hidden.tokens()),
        s.initial_cell = slice_tokens(s.cell, first, s.hidden.tokens()));
  }
};

template <element T, class Block>
void lstm<T, Block>::forward(panel_matrix<T> const& x, destination<T> y, saved& s, pass<T> const& p) const {
  const detail::time_axis time(p.sequences);
  const std::int64_t h = hidden();
  fit(s, unfilled(h), x.tokens());
  detail::fit_state(s.initial, h, time.step_tokens());
  detail::fit_state(s.initial_cell, h, time.step_tokens());
  run(p.ctx, s.gates = input.value(x), s.hidden = 0, s.cell = 0);
  for (std::int64_t t = 0; t < time.steps(); ++t) {
    const auto step = [&](auto const& last, auto const& last_cell) {
      const auto gates = time.at(s.gates, t), now = time.at(s.hidden, t), cell = time.at(s.cell, t);
      const auto i = detail::gate(gates, 0, h), f = detail::gate(gates, 1, h), g = detail::gate(gates, 2, h),
                 o = detail::gate(gates, 3, h);
      run(p.ctx, gates += recurrent.value(last), i = sigmoid(i), f = sigmoid(f), g = tanh(g), o = sigmoid(o),
          cell = f * last_cell + i * g, now = o * tanh(cell));
    };
    if (t == 0)
      step(time.at(s.initial, 0, 0), time.at(s.initial_cell, 0, 0));
    else
      step(time.at(s.hidden, t - 1, t), time.at(s.cell, t - 1, t));
  }
  run(p.ctx, y = converted(s.hidden));
  observe_forward(*this, x, y, s, p);
}

template <element T, class Block>
void lstm<T, Block>::backward(panel_matrix<T> const& x, saved const& s, panel_matrix<T> const& dy,
                              destination<T> dx, gradients& g, pass<T> const& p) const {
  dx.require_apart("lstm", x, dy);
  require_forward("lstm", s.hidden.tokens(), dy.tokens());
  if (!dx && !any_wanted(g)) return;
  const detail::time_axis time(p.sequences);
  const std::int64_t h = hidden();
  const auto dgates_room = p.borrow(4 * h), previous_room = p.borrow(h), cells_room = p.borrow(h),
             state_room = p.borrow(h, time.step_tokens()), dcell_room = p.borrow(h, time.step_tokens());
  panel_matrix<T>&dgates = *dgates_room, &previous = *previous_room, &cells = *cells_room,
  &state = *state_room, &dcells = *dcell_room;
  detail::shift_in_time(s.hidden, s.initial, previous, p);
  detail::shift_in_time(s.cell, s.initial_cell, cells, p);
  run(p.ctx, dgates = 0, state = 0, dcells = 0);
  for (std::int64_t t = time.steps() - 1; t >= 0; --t) {
    const auto gates = time.at(s.gates, t), cell = time.at(s.cell, t);
    const auto last_cell = time.at(cells, t);
    const auto i = detail::gate(gates, 0, h), f = detail::gate(gates, 1, h),
               candidate = detail::gate(gates, 2, h), o = detail::gate(gates, 3, h);
    const auto d = time.at(dgates, t), dh = time.at(state, 0, t), dcell = time.at(dcells, 0, t);
    run(p.ctx, dh += time.at(dy, t), detail::gate(d, 3, h) = dh * tanh(cell) * o * (1.0 - o),
        dcell += dh * o * (1.0 - square(tanh(cell))),
        detail::gate(d, 0, h) = dcell * candidate * i * (1.0 - i),
        detail::gate(d, 1, h) = dcell * last_cell * f * (1.0 - f),
        detail::gate(d, 2, h) = dcell * i * (1.0 - square(candidate)), dcell = dcell * f,
        dh = transposed(recurrent.weight) * d);
  }
  run(p.ctx, input.bias_gradient(dgates, g.input), recurrent.bias_gradient(dgates, g.recurrent),
      dx = transposed(input.weight) * dgates);
  input.add_weight_gradient(dgates, x, g.input, p);
  recurrent.add_weight_gradient(dgates, previous, g.recurrent, p);
}

}}}  // namespace tessera::TESSERA_ISA::nn
