// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/hash.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/io/text.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/architecture.hpp>
#include <tessera/train/checkpoint_tensors.hpp>
#include <tessera/train/optimizers/optimizer_state.hpp>
#include <tessera/train/save_checkpoint.hpp>

// A checkpoint is a folder of two files, written under a temporary name and renamed when both are complete:
//   tensors.safetensors  NAME for each parameter and each frozen tensor, NAME.ARRAY for each array of the
//                        optimizer's state, such as NAME.master, the float master of a narrow one. A vector
//                        is (size), a dense matrix (rows, cols), row by row. A sparse matrix is (stored
//                        blocks, rows of a block, columns of a block), with its pattern (BSR) in
//                        NAME.pattern.row_start (block rows + 1) and NAME.pattern.cols (stored blocks),
//                        numbers of 32 bits, or of 16 (save_weights, where a dense matrix is (block rows,
//                        block columns, rows of a block, columns of a block), as in memory). The metadata
//                        hold a checksum of each tensor and of the header, and the size of each matrix of
//                        blocks.
//   state.json           everything else. Its hash is in the metadata of the tensors, so that files of two
//                        checkpoints are never mixed.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// A checkpoint, open to be read. Every fault of its files throws io_error, before anything is changed.
class checkpoint {
 public:
  /// Checks that both files are complete, have this format and a known version, and belong to one checkpoint.
  explicit checkpoint(std::string const& folder);

  /// The `state` that the program gave to save_checkpoint; a part of this checkpoint.
  io::json_place state() const& { return place().at("state"); }
  void state() const&& = delete;

  /// Warnings for a model that is read on this machine: differences that are no errors.
  std::vector<std::string> notes(any_layer const& model, machine const& on = this_machine()) const;

  /// Throws io_error if a setting of the model is another one in the checkpoint.
  void require_architecture(any_layer const& model) const;

  /// Compares the checksums of all tensors, as `load` does, of a checkpoint that is to be read only later.
  void require_whole() const;

  // `load` finds every tensor and compares its checksum before it changes anything.

  /// Reads the parameters and their patterns.
  void load(mutable_any_layer const& model) const;

  /// As load, but of a file of save_weights matrices borrow their values, which are read as they are used, if
  /// these begin and end at multiples of 64 bytes: values in blocks of a multiple of 64 bytes always do.
  /// Their checksums are not compared: require_whole() does that. The checkpoint must outlive the model, and
  /// nobody may change the file meanwhile. Changes to the model leave the file as it is.
  void map(mutable_any_layer const& model) const&;
  void map(mutable_any_layer const& model) const&& = delete;

  /// Reads the parameters, their patterns, and the state of the optimizer, which must be one for this model
  /// (initial_state); gradients get the patterns. The file may hold no other tensor, but masters of float
  /// parameters of a narrow model, which older ones have.
  void load(mutable_any_layer const& model, optimizer_state& optimizer,
            nn::mutable_parameter_list gradients) const;
  friend void load_masters(checkpoint const&, nn::parameter_list const&, nn::mutable_parameter_list);
  friend void load_array(checkpoint const&, std::string const&, nn::mutable_parameter_list);
  friend bool has_array(checkpoint const&, std::string const&, nn::parameter_list const&);

 private:
  io::json_place place() const { return io::json_place(document_, path_); }

  /// Checks every tensor and returns the patterns of the matrices, in the order of the list, then of frozen
  /// matrices.
  ///   sums   whether checksums are compared of values that a model can borrow, too
  std::vector<pattern> checked(nn::parameter_list const& model, optimizer_state const* optimizer,
                               bool sums = true) const;

  void expect(std::string const& name, std::string_view dtype, std::vector<std::int64_t> const& shape,
              bool sums = true) const;
  /// Whether a tensor is a dense matrix that stands row by row in the file, and not as blocks.
  bool in_rows(std::string const& name, pattern const* stored) const {
    return stored && stored->is_dense() && tensors_.at(name).shape.size() == 2;
  }
  /// Whether a model can borrow the values of a tensor.
  bool lends(std::string const& name, pattern const* stored) const {
    return stored && !in_rows(name, stored) && any_tensor::can_borrow(tensors_.at(name).bytes);
  }

  void expect_size(std::string const& name, any_tensor const& matrix) const;

  void check(std::string const& name) const {
    if (version_ >= 2) tensors_.check(name);
  }

  /// The pattern of a matrix in the file, which must have the size and the block shape of `matrix`.
  pattern read_pattern(std::string const& name, any_tensor const& matrix) const;

  void assign(std::vector<pattern> const& patterns, nn::mutable_parameter_list model,
              optimizer_state* optimizer, bool borrows = false) const;
  static void set_patterns(std::vector<pattern> const& patterns, nn::mutable_parameter_list gradients);

  /// Reads the stored values of a tensor, or an array that belongs to it.
  ///   in_rows   they are blocks of a dense matrix, and rows in the file
  void read(std::string const& name, any_tensor const& of, element_type const& element,
            std::vector<std::int64_t> const& shape, std::span<std::byte> to, bool in_rows) const;

  /// Checks and reads an array with a number for each stored value of a parameter, which has its pattern.
  void read_array(std::string const& name, any_tensor const& of, element_type const& element,
                  std::span<std::byte> to) const;

  std::string path_;
  io::safetensors_file tensors_;
  io::json document_;
  int version_ = checkpoint_version;
};

#ifdef TESSERA_BODY

TESSERA_BODY checkpoint::checkpoint(std::string const& folder)
    : path_(detail::state_path(folder)), tensors_(detail::tensors_path(folder)) {
  version_ = tensors_.expect_format(checkpoint_format, checkpoint_version);
  if (version_ >= 3) tensors_.check_header();
  const std::string text = io::read_file(path_);
  const auto hash = tensors_.metadata().find("tessera.state");
  if (hash == tensors_.metadata().end() || hash->second != std::to_string(content_hash(text)))
    throw io_error(message("[read ", path_, "] not the file that was written with ", tensors_.path(),
                           ": one of them was changed or replaced"));
  document_ = io::parse_json(text, path_);
  const io::json_place top = place();
  if (top.at("format").as_string() != checkpoint_format)
    top.at("format").fail(message("should be \"", checkpoint_format, "\""));
  if (const auto found = top.at("version").as_integer<int>(); found != version_)
    top.at("version").fail(message("is ", found, ", but ", tensors_.path(), " is of version ", version_));
  top.at("arithmetic").as_string();
  if (version_ >= 3) top.at("architecture").members();
  top.at("updates").as_integer();
  top.at("state");
}

TESSERA_COLD TESSERA_BODY std::vector<std::string> checkpoint::notes(any_layer const& model,
                                                                     machine const& on) const {
  std::vector<std::string> all;
  std::string const& written = place().at("arithmetic").as_string();
  if (const std::string here = arithmetic_of_model(model, model, on); written != here)
    all.push_back(message(path_, " was written by a program for ", io::excerpt(written),
                          ", and is read by one for ", here, ": results will differ in their last bits"));
  if (version_ < 2)
    all.push_back(message(path_, " is of version ", version_, ", which has no checksums: tensors that were ",
                          "changed since they were written would be taken as they are"));
  if (version_ < 3)
    all.push_back(message(path_, " is of version ", version_, ", which says nothing of heads, activations ",
                          "and others that no tensor shows: those of another model would not be noticed"));
  if (version_ < 4)
    all.push_back(message(path_, " is of version ", version_,
                          ", which says nothing of the blocks that heads ",
                          "see, of residual connections, and of the settings of optimizer, policy and ",
                          "dropout: others would not be noticed"));
  return all;
}

TESSERA_COLD TESSERA_BODY void checkpoint::require_architecture(any_layer const& model) const {
  if (version_ < 3) return;
  const auto knows = [&](std::string const& setting) {
    for (char const* later_than_version_4 : {"fraction_bits", "centred"})  // which goes on without them
      if (setting.ends_with(later_than_version_4)) return false;
    return version_ >= 4 || !(setting.ends_with("visible_blocks") || setting.ends_with("residual"));
  };
  detail::require_settings(place().at("architecture"), architecture(model), "model", "", knows);
}

TESSERA_BODY void checkpoint::require_whole() const {
  for (auto const& [name, tensor] : tensors_.tensors()) check(name);
}

TESSERA_BODY void checkpoint::load(mutable_any_layer const& model) const {
  require_architecture(model);
  const std::vector<pattern> patterns = checked(model, nullptr);
  assign(patterns, model, nullptr);
}

TESSERA_BODY void checkpoint::map(mutable_any_layer const& model) const& {
  require_architecture(model);
  const std::vector<pattern> patterns = checked(model, nullptr, false);
  if (auto const& all = tensors_.tensors(); !all.empty())  // of the whole file, before anything is changed
    static_cast<void>(tensors_.writable_bytes(all.begin()->first));
  assign(patterns, model, nullptr, true);
}

TESSERA_BODY void checkpoint::load(mutable_any_layer const& model, optimizer_state& optimizer,
                                   nn::mutable_parameter_list gradients) const {
  require_architecture(model);
  if (const nn::parameter_list its(model); its.size() != gradients.size())
    throw shape_error(message("[read ", tensors_.path(), "] the model has ", its.size(),
                              " parameters, but there are gradients of ", gradients.size()));
  const std::vector<pattern> patterns = checked(model, &optimizer);
  assign(patterns, model, &optimizer);
  set_patterns(patterns, gradients);
  optimizer.updates = place().at("updates").as_integer();
}

TESSERA_COLD TESSERA_BODY std::vector<pattern> checkpoint::checked(nn::parameter_list const& model,
                                                                   optimizer_state const* optimizer,
                                                                   bool sums) const {
  if (optimizer && optimizer->parameters.size() != model.size())  // its arrays may be of other patterns
    throw shape_error(message("[read ", tensors_.path(), "] the state of the optimizer is for ",
                              optimizer->parameters.size(), " parameters, but the model has ", model.size(),
                              ": initial_state makes one"));
  std::vector<pattern> patterns;
  std::set<std::string> expected, others;  // older files have masters of float parameters, some have births
  const bool any_narrow =
      std::any_of(model.begin(), model.end(), [](auto const& p) { return p.is_narrow(); });
  const auto check_tensor = [&](std::string const& name, any_tensor const& tensor) -> pattern const* {
    pattern const* stored = nullptr;
    if (tensor.is_matrix()) {
      stored = &patterns.emplace_back(read_pattern(name, tensor));
      if (!stored->is_dense())
        for (char const* part : {".pattern.row_start", ".pattern.cols"}) expected.insert(name + part);
    }
    expect(name, tensor.element().name, detail::shape_in_file(tensor, stored, in_rows(name, stored)),
           sums || !lends(name, stored));
    if (stored && !in_rows(name, stored)) {
      if (stored->is_dense()) expect_size(name, tensor);
      if (!detail::overhang_is_zero(tensor, *stored, tensors_.at(name).bytes))
        tensors_.fail(message("matrix ", io::in_quotes(name), " has numbers beyond its rows or columns"));
    }
    expected.insert(name);
    return stored;
  };
  const std::vector<std::string> names = model.names(), frozen = model.frozen_names();
  std::set<std::string> arrays;  // older files have them of frozen parameters, too
  if (optimizer)
    for (auto const& of : optimizer->parameters)
      for (state_array const& array : of) arrays.insert(array.name);
  for (std::size_t i = 0; i < model.size(); ++i) {
    pattern const* const stored = check_tensor(names[i], model[i].tensor);
    if (optimizer)
      for (state_array const& array : optimizer->parameters[i]) {
        const std::string in_file = names[i] + "." + array.name;
        if (array.begins == in_new_blocks::count && !tensors_.contains(in_file)) continue;  // all are old
        expect(in_file, array.element->name,
               detail::shape_in_file(array, model[i].tensor, stored, in_rows(names[i], stored)));
        expected.insert(in_file);
      }
    if (optimizer && tensors_.contains(names[i] + ".born")) others.insert(names[i] + ".born");
    for (std::string const& array : arrays) others.insert(names[i] + "." + array);
    if (const std::string master = names[i] + ".master";
        any_narrow && !model[i].is_narrow() && tensors_.contains(master)) {
      expect(master, model[i].tensor.element().name,
             detail::shape_in_file(model[i].tensor, stored, in_rows(names[i], stored)));
      others.insert(master);
    }
  }
  for (std::size_t i = 0; i < frozen.size(); ++i) check_tensor(frozen[i], model.frozen()[i].tensor);
  for (auto const& [name, tensor] : tensors_.tensors())
    if (optimizer && !expected.contains(name) && !others.contains(name))
      tensors_.fail(message(tensors_.tensors().size(), " tensors, but this model and optimizer have ",
                            expected.size(), ": ", io::in_quotes(name),
                            " is none of them; if a hook keeps it, tell the training so: keep(hook)"));
  return patterns;
}

TESSERA_BODY void checkpoint::expect(std::string const& name, std::string_view dtype,
                                     std::vector<std::int64_t> const& shape, bool sums) const {
  io::safetensor const& found = tensors_.at(name);
  if (found.dtype != dtype || found.shape != shape)
    tensors_.fail(message("tensor ", io::in_quotes(name), " is ",
                          io::detail::tensor_text(found.dtype, found.shape), " but should be ",
                          io::detail::tensor_text(dtype, shape)));
  if (sums) check(name);
}

TESSERA_COLD TESSERA_BODY void checkpoint::expect_size(std::string const& name,
                                                       any_tensor const& matrix) const {
  const auto compare = [&](std::string const& found, std::string const& wanted) {
    if (found != wanted)
      tensors_.fail(
          message("matrix ", io::in_quotes(name), " is ", io::excerpt(found), " but should be ", wanted));
  };
  if (version_ >= 2) {
    const auto found = tensors_.metadata().find(detail::matrix_key(name));
    compare(found == tensors_.metadata().end() ? "of no known size" : found->second,
            detail::matrix_text(matrix));
  } else if (auto const& shape = tensors_.at(name).shape; shape.size() == 3) {
    compare(message("in blocks of ", shape[1], " x ", shape[2]),
            message("in blocks of ", matrix.block_rows(), " x ", matrix.block_cols()));
  }
}

TESSERA_COLD TESSERA_BODY pattern checkpoint::read_pattern(std::string const& name,
                                                           any_tensor const& matrix) const {
  pattern const& like = matrix.pattern();
  if (!tensors_.contains(name + ".pattern.cols")) return pattern::dense(like.block_rows(), like.block_cols());
  expect_size(name, matrix);
  const auto numbers = [&]<class N>(std::string const& part, std::int64_t count, N) {
    check(name + part);
    std::vector<N> all(static_cast<std::size_t>(count));
    tensors_.read_into(name + part, {count}, std::span(all));
    return std::vector<std::int32_t>(all.begin(), all.end());
  };
  io::safetensor const& in_file = tensors_.at(name + ".pattern.cols");
  const std::int64_t stored = in_file.shape.size() == 1 ? in_file.shape[0] : 0;
  auto row_start = numbers(".pattern.row_start", std::int64_t{like.block_rows()} + 1, std::int32_t());
  auto cols = in_file.dtype == "U16" ? numbers(".pattern.cols", stored, std::uint16_t())
                                     : numbers(".pattern.cols", stored, std::int32_t());
  try {
    return pattern::from_rows(like.block_rows(), like.block_cols(), std::move(row_start), std::move(cols));
  } catch (shape_error const& fault) {
    throw io_error(
        message("[read ", tensors_.path(), "] the pattern of ", io::in_quotes(name), ": ", fault.what()));
  }
}

TESSERA_COLD TESSERA_BODY void checkpoint::assign(std::vector<pattern> const& patterns,
                                                  nn::mutable_parameter_list model,
                                                  optimizer_state* optimizer, bool borrows) const {
  std::size_t next = 0;
  const auto read_tensor = [&](std::string const& name, any_tensor& tensor) -> pattern const* {
    pattern const* const stored = tensor.is_matrix() ? &patterns[next++] : nullptr;
    if (borrows && lends(name, stored)) {
      tensor.borrow(tensors_.writable_bytes(name), *stored);
      return stored;
    }
    if (stored) tensor.reset(*stored);
    read(name, tensor, tensor.element(), detail::shape_in_file(tensor, stored, in_rows(name, stored)),
         {tensor.data(), tensor.size_bytes()}, in_rows(name, stored));
    return stored;
  };
  const std::vector<std::string> names = model.names(), frozen = model.frozen_names();
  for (std::size_t i = 0; i < model.size(); ++i) {
    any_tensor& tensor = model[i].tensor;
    pattern const* const stored = read_tensor(names[i], tensor);
    if (optimizer)
      for (state_array& array : optimizer->parameters[i]) {
        array.reset(parameter_sizes::of(tensor));
        if (array.begins == in_new_blocks::count && !tensors_.contains(names[i] + "." + array.name)) continue;
        read(names[i] + "." + array.name, tensor, *array.element,
             detail::shape_in_file(array, tensor, stored, in_rows(names[i], stored)), array.bytes.span(),
             array.per == state_per::element && in_rows(names[i], stored));
      }
  }
  for (std::size_t i = 0; i < frozen.size(); ++i) read_tensor(frozen[i], model.frozen()[i].tensor);
}

TESSERA_BODY void checkpoint::set_patterns(std::vector<pattern> const& patterns,
                                           nn::mutable_parameter_list gradients) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (any_tensor& gradient = gradients[i].tensor; gradient.is_matrix()) {
      pattern const& its = patterns[next++];
      if (nn::is_wanted(gradient)) gradient.set_pattern(its);
    }
}

TESSERA_COLD TESSERA_BODY void checkpoint::read(std::string const& name, any_tensor const& of,
                                                element_type const& element,
                                                std::vector<std::int64_t> const& shape,
                                                std::span<std::byte> to, bool in_rows) const {
  if (!in_rows) return tensors_.read_into(name, element.name, shape, to);
  std::vector<std::byte> rows(std::size_t(of.rows() * of.cols()) * element.bytes);
  tensors_.read_into(name, element.name, shape, rows);
  detail::copy_rows(of, element.bytes, to.data(), rows.data(), false);
}

TESSERA_COLD TESSERA_BODY void checkpoint::read_array(std::string const& name, any_tensor const& of,
                                                      element_type const& element,
                                                      std::span<std::byte> to) const {
  pattern const* const stored = of.is_matrix() ? &of.pattern() : nullptr;
  const bool rows = in_rows(name, stored);
  const std::vector<std::int64_t> shape = detail::shape_in_file(of, stored, rows);
  expect(name, element.name, shape);
  read(name, of, element, shape, to, rows);
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
