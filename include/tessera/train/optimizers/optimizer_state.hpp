// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/range.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>

// What an optimizer keeps for each parameter: arrays that it declares, which checkpoints write and updates of
// patterns move (moved_state.hpp).

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The parts of a parameter for each of which an array of an optimizer's state has a number. A vector is one
/// block, of one column.
enum class state_per {
  element,  // stored values, in their order
  group,    // groups of consecutive stored values
  block,    // stored blocks
  row,      // rows, of new blocks too: stay as they are when the pattern changes
  col,      // columns
  whole,    // the parameter itself
};

/// What an array has in new blocks when a pattern changes.
enum class in_new_blocks {
  zero,
  mean,   // the mean of its numbers in the blocks that stay; zero if none does
  count,  // the number of updates until then
};

/// Numbers in 8 bits, as shares of the greatest magnitude of their group. nearest(0) stands for 0.
struct eight_bits {
  float (*value)(std::uint8_t code);     // in [-1, 1]
  std::uint8_t (*nearest)(float share);  // of [-1, 1]
};
/// In equal steps of 1 ÷ 127, with a sign.
inline constexpr eight_bits linear_eight_bits{
    [](std::uint8_t code) { return float(std::int8_t(code)) / 127; },
    [](float share) { return std::uint8_t(std::int8_t(std::lround(share * 127))); }};

/// The sizes of a parameter, from which the sizes of its arrays follow.
struct parameter_sizes {
  std::int64_t elements, blocks, rows, cols;

  static parameter_sizes of(any_tensor const& parameter) {
    return parameter.is_matrix() ? with(parameter, parameter.pattern())
                                 : parameter_sizes{parameter.size(), 1, parameter.rows(), 1};
  }
  /// Of a matrix, if it had a pattern.
  static parameter_sizes with(any_tensor const& matrix, pattern const& stored) {
    return {stored.blocks() * matrix.block_elements(), stored.blocks(), matrix.rows(), matrix.cols()};
  }
};

/// An array of an optimizer's state for one parameter.
struct state_array {
  std::string name;  // NAME.first_moment in a checkpoint
  element_type const* element;
  state_per per;
  int group = 1;                     // values of a group
  eight_bits const* code = nullptr;  // of elements: their scales are the next array
  in_new_blocks begins = in_new_blocks::zero;
  aligned_array<std::byte> bytes = {};

  std::int64_t size_for(parameter_sizes const& of) const;
  std::int64_t size() const { return static_cast<std::int64_t>(bytes.size() / element->bytes); }
  /// Zeros, as many as a parameter needs.
  void reset(parameter_sizes const& of);
  /// Its numbers; of 8 bits their codes.
  std::vector<double> values() const;
  template <class T> T* data() { return reinterpret_cast<T*>(bytes.data()); }
  template <class T> T const* data() const { return reinterpret_cast<T const*>(bytes.data()); }

  friend bool operator==(state_array const& a, state_array const& b) {
    return a.name == b.name && std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
  }
};

/// The arrays of one parameter. An optimizer declares them, once for each parameter:
///
///   void state(train::state_list& each, any_tensor const& parameter) const {
///     each.elements("first_moment");
///     each.blocks("second_moment");
///   }
class state_list {
 public:
  explicit state_list(any_tensor const& parameter, std::vector<state_array> so_far = {})
      : parameter_(parameter), arrays_(std::move(so_far)) {}

  /// Accumulators, zero at first: one for each stored value, block, row or column.
  void elements(std::string name, in_new_blocks begins = in_new_blocks::zero) {
    add(std::move(name), accumulator(), state_per::element);
    arrays_.back().begins = begins;
  }
  void blocks(std::string name, in_new_blocks begins = in_new_blocks::zero) {
    add(std::move(name), accumulator(), state_per::block);
    arrays_.back().begins = begins;
  }
  void rows(std::string name) { add(std::move(name), accumulator(), state_per::row); }
  void cols(std::string name) { add(std::move(name), accumulator(), state_per::col); }
  /// One accumulator.
  void number(std::string name) { add(std::move(name), accumulator(), state_per::whole); }
  /// An accumulator for each block of a matrix, "born": the number of updates before it grew, zero for blocks
  /// of the first pattern. Once, whoever asks.
  void births();
  /// Of any type of numbers. Groups must divide the blocks of a matrix, with which they move.
  template <class T> void array(std::string name, state_per per, int group = 1) {
    if (per == state_per::group && parameter_.is_matrix() &&
        (group < 1 || parameter_.block_elements() % group != 0))
      throw option_error(message("[optimizer] groups of ", name, " have ", group, " values, and blocks ",
                                 parameter_.block_elements(), ": groups must divide them"));
    add(std::move(name), element_type_of<T>, per, group);
  }
  /// Two arrays: a code for each stored value, and NAME.scale, the greatest magnitude of each `group` of them
  /// (float). When a pattern changes, values that were in one group before and are so again keep their bits;
  /// a group of values of several gets a new scale, the greatest magnitude in it, and the nearest codes.
  ///   code   must live longer than the state: a constant
  void scaled(std::string name, int group, eight_bits const& code,
              in_new_blocks begins = in_new_blocks::zero) {
    add(name, element_type_of<std::uint8_t>, state_per::element, group, &code);
    arrays_.back().begins = begins;
    add(name + ".scale", element_type_of<float>, state_per::group, group);
  }

  std::vector<state_array> take() { return std::move(arrays_); }

 private:
  void add(std::string name, element_type const& element, state_per per, int group = 1,
           eight_bits const* code = nullptr);
  element_type const& accumulator() const { return *parameter_.element().accumulator; }

  any_tensor parameter_;
  std::vector<state_array> arrays_;
};

namespace detail {

/// Sets values that overhang a matrix to zero, should an optimizer have changed them.
///   values   one for each stored value of the matrix
template <class T> TESSERA_COLD void clear_overhang(any_tensor const& matrix, T* values) {
  const std::int64_t height = matrix.block_rows(), width = matrix.block_cols(), rows = matrix.rows(),
                     cols = matrix.cols();
  if (rows % height == 0 && cols % width == 0) return;
  pattern const& stored = matrix.pattern();
  const auto clear = [&](std::int64_t slot, std::int64_t block_row, std::int64_t block_col) {
    for (std::int64_t k = 0; k < height * width; ++k)
      if (block_row * height + k / width >= rows || block_col * width + k % width >= cols)
        values[slot * height * width + k] = 0;
  };
  for (int i = 0; i < stored.block_rows(); ++i) {
    const auto row = stored.row(i);
    if (row.empty()) continue;
    const std::int64_t first = stored.first_slot(i), last = first + std::ssize(row) - 1;
    if (row.back() + 1 == stored.block_cols()) clear(last, i, row.back());
    if (i + 1 == stored.block_rows())
      for (std::int64_t slot = first; slot <= last; ++slot) clear(slot, i, row[std::size_t(slot - first)]);
  }
}

}  // namespace detail

/// The state of an optimizer, and of hooks beside it (add_state): the arrays of each parameter of a model, in
/// its order, the number of updates, and numbers of hooks by name.
struct optimizer_state {
  std::vector<std::vector<state_array>> parameters;
  std::int64_t updates = 0;
  std::map<std::string, double> numbers = {};

  std::size_t size_bytes() const {
    std::size_t all = 0;
    for (auto const& arrays : parameters)
      for (state_array const& array : arrays) all += array.bytes.size();
    return all;
  }
  bool has(std::size_t parameter, std::string const& name) const {
    auto const& arrays = parameters.at(parameter);
    return std::any_of(arrays.begin(), arrays.end(),
                       [&](state_array const& array) { return array.name == name; });
  }
  /// The array of this name of a parameter. Throws option_error if it has none.
  state_array& at(std::size_t parameter, std::string const& name);
  state_array const& at(std::size_t parameter, std::string const& name) const {
    return const_cast<optimizer_state*>(this)->at(parameter, name);
  }
  friend bool operator==(optimizer_state const&, optimizer_state const&) = default;
};

/// Throws shape_error, which begins with the operation, unless gradients and a state belong to a model with
/// its present patterns.
void require_state(char const* operation, nn::parameter_list const& model, optimizer_state const& state);
void require_state(char const* operation, nn::parameter_list const& model,
                   nn::parameter_list const& gradients, optimizer_state const& state);

#ifdef TESSERA_BODY

TESSERA_BODY std::int64_t state_array::size_for(parameter_sizes const& of) const {
  switch (per) {
    case state_per::element:
      return of.elements;
    case state_per::group:
      return ceil_div<std::int64_t>(of.elements, group);
    case state_per::block:
      return of.blocks;
    case state_per::row:
      return of.rows;
    case state_per::col:
      return of.cols;
    case state_per::whole:
      return 1;
  }
  return 0;
}

TESSERA_BODY void state_array::reset(parameter_sizes const& of) {
  bytes = aligned_array<std::byte>(checked_multiply(std::size_t(size_for(of)), element->bytes));
  if (code) std::fill(bytes.begin(), bytes.end(), std::byte{code->nearest(0)});
}

TESSERA_BODY std::vector<double> state_array::values() const {
  std::vector<double> all(static_cast<std::size_t>(size()));
  element->to_double(bytes.data(), size(), all.data());
  return all;
}

TESSERA_BODY void state_list::births() {
  const bool has = std::any_of(arrays_.begin(), arrays_.end(),
                               [](state_array const& array) { return array.name == "born"; });
  if (has || !parameter_.is_matrix()) return;
  blocks("born");
  arrays_.back().begins = in_new_blocks::count;
}

TESSERA_COLD TESSERA_BODY void state_list::add(std::string name, element_type const& element, state_per per,
                                               int group, eight_bits const* code) {
  if (group < 1) throw option_error(message("[optimizer] groups of ", name, " have ", group, " values"));
  const bool taken = std::any_of(arrays_.begin(), arrays_.end(),
                                 [&](state_array const& array) { return array.name == name; });
  if (taken || name.starts_with("pattern."))
    throw option_error(message("[optimizer] an array of the state is called ", name,
                               taken ? ", and so is an earlier one" : ", which stands for patterns"));
  arrays_.push_back({std::move(name), &element, per, group, code});
}

TESSERA_BODY state_array& optimizer_state::at(std::size_t parameter, std::string const& name) {
  for (state_array& array : parameters.at(parameter))
    if (array.name == name) return array;
  throw option_error(message("[optimizer_state] parameter ", parameter, " has no ", name));
}

TESSERA_COLD TESSERA_BODY void require_state(char const* operation, nn::parameter_list const& model,
                                             optimizer_state const& state) {
  if (state.parameters.size() != model.size())
    throw shape_error(message("[", operation, "] the model has ", model.size(),
                              " parameters, and the state of ", "the optimizer is for ",
                              state.parameters.size(), ": initial_state makes one"));
  for (std::size_t i = 0; i < model.size(); ++i) {
    auto const& arrays = state.parameters[i];
    if (model[i].is_narrow() && (arrays.empty() || arrays[0].name != "master" ||
                                 arrays[0].element != model[i].tensor.element().accumulator))
      throw shape_error(message("[", operation, "] ", model.name(i), " is of ",
                                model[i].tensor.element().name,
                                ", but the state of the optimizer has no master of it"));
    for (state_array const& array : arrays)
      if (const std::int64_t size = array.size_for(parameter_sizes::of(model[i].tensor));
          array.size() != size)
        throw shape_error(message("[", operation, "] ", array.name, " of ", model.name(i), " has ",
                                  array.size(), " numbers, and should have ", size,
                                  ": the state must be of this model and its patterns (initial_state)"));
  }
}

TESSERA_COLD TESSERA_BODY void require_state(char const* operation, nn::parameter_list const& model,
                                             nn::parameter_list const& gradients,
                                             optimizer_state const& state) {
  nn::require_alike(operation, model, gradients);
  require_state(operation, model, state);
  for (std::size_t i = 0; i < model.size(); ++i)
    if (&gradients[i].tensor.element() != model[i].tensor.element().accumulator)
      throw shape_error(message("[", operation, "] the gradient of ", model.name(i), " is of ",
                                gradients[i].tensor.element().name, ", but should be of ",
                                model[i].tensor.element().accumulator->name));
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
