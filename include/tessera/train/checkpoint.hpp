// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/eval/engines.hpp>
#include <tessera/exec/machine.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/io/text.hpp>
#include <tessera/nn/parameter.hpp>
#include <tessera/tensor/block_sparse_matrix.hpp>
#include <tessera/tensor/matrix_view.hpp>
#include <tessera/train/architecture.hpp>
#include <tessera/train/checkpoint_tensors.hpp>
#include <tessera/train/optimizers/optimizer.hpp>

// A checkpoint is a folder of two files, written under a temporary name and renamed when both are complete:
//   tensors.safetensors  NAME for each parameter and each frozen tensor, NAME.MOMENT for each of its moments,
//   and NAME.master for
//                        the float master of a narrow one. A vector is (size), a dense matrix (rows, cols),
//                        row by row. A sparse matrix is (stored blocks, rows of a block, columns of a block),
//                        with its pattern (BSR) in NAME.pattern.row_start (block rows + 1) and
//                        NAME.pattern.cols (stored blocks), numbers of 32 bits, or of 16 (save_weights). The
//                        metadata hold a checksum of each tensor and of the header, and the size of each
//                        sparse matrix.
//   state.json           everything else. Its hash is in the metadata of the tensors, so that files of two
//                        checkpoints are never mixed.

namespace tessera { inline namespace TESSERA_ISA { namespace train {

namespace detail {

// The files of a checkpoint.
inline constexpr char const *tensors_file = "tensors.safetensors", *state_file = "state.json";
inline std::string tensors_path(std::string const& folder) { return folder + "/" + tensors_file; }
inline std::string state_path(std::string const& folder) { return folder + "/" + state_file; }

/// Writes a checkpoint of the parameters and of models that are shaped like the gradients: masters and
/// moments.
template <class Optimizer, class Model, class Like>
void write_checkpoint(std::string const& folder, io::json state, std::int64_t updates, Model const& model,
                      Like const& of_optimizer, machine const& on) {
  io::json all = io::json::object{{"format", checkpoint_format},
                                  {"version", checkpoint_version},
                                  {"arithmetic", detail::arithmetic_of_model(model, on)},
                                  {"architecture", architecture(model)},
                                  {"updates", updates},
                                  {"state", std::move(state)}};
  const std::string text = io::to_text(all, 1) + "\n";
  outgoing_tensors tensors(std::is_same_v<Optimizer, no_optimizer>);
  const auto add = [&](std::string name, auto const& tensor) { tensors.add(std::move(name), tensor); };
  std::apply(
      [&](auto&... like) {
        nn::for_each_parameter(
            model,
            [&](nn::parameter_name const& name, auto const& parameter, auto const&... its) {
              detail::for_each_tensor<Optimizer, Model>(add, name.text(), parameter, its...);
              if constexpr (nn::is_matrix<decltype(parameter)>) tensors.add_pattern(name.text(), parameter);
            },
            like...);
      },
      of_optimizer);
  nn::for_each_frozen(model, [&](nn::parameter_name const& name, auto const& tensor) {
    tensors.add(name.text(), tensor);
    if constexpr (nn::is_matrix<decltype(tensor)>) tensors.add_pattern(name.text(), tensor);
  });
  tensors.metadata["tessera.state"] = std::to_string(io::content_hash(text));

  io::write_folder_atomically(folder, {detail::tensors_file, detail::state_file},
                              [&](std::string const& partial) {
                                io::write_safetensors(detail::tensors_path(partial), tensors.all(),
                                                      tensors.metadata, io::checksums::in_metadata);
                                io::write_atomically(detail::state_path(partial), text);
                              });
}

}  // namespace detail

/// Makes or replaces the checkpoint in `folder`, whose parents it also makes. If something throws (io_error,
/// say for a full disk), no part of the new checkpoint is left, and an earlier one is unchanged.
///   state   the program's own data, returned by checkpoint::state
///   on      the machine that the model was trained on
template <class Model, class Optimizer>
void save_checkpoint(std::string const& folder, io::json state, Model const& model,
                     optimizer_state<Optimizer, Model> const& optimizer, machine const& on = this_machine()) {
  detail::write_checkpoint<Optimizer>(folder, std::move(state), optimizer.updates, model, optimizer.tensors,
                                      on);
}

/// The same of a model that has been trained, for inference: its parameters and patterns alone, the numbers
/// of blocks in 16 bits where they fit. Training cannot go on from it.
template <class Model>
void save_weights(std::string const& folder, io::json state, Model const& model,
                  machine const& on = this_machine()) {
  detail::write_checkpoint<detail::no_optimizer>(folder, std::move(state), 0, model, std::tuple<>(), on);
}

/// A checkpoint, open to be read. Every fault throws io_error, before anything is changed.
class checkpoint {
 public:
  /// Checks that both files are complete, have this format and a known version, and belong to one checkpoint.
  explicit checkpoint(std::string const& folder)
      : path_(detail::state_path(folder)), tensors_(detail::tensors_path(folder)) {
    version_ = tensors_.expect_format(checkpoint_format, checkpoint_version);
    if (version_ >= 3) tensors_.check_header();
    const std::string text = io::read_file(path_);
    const auto hash = tensors_.metadata().find("tessera.state");
    if (hash == tensors_.metadata().end() || hash->second != std::to_string(io::content_hash(text)))
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

  /// The `state` that the program gave to save_checkpoint; a part of this checkpoint.
  io::json_place state() const& { return place().at("state"); }
  void state() const&& = delete;

  /// Warnings for a model that is read on this machine: differences that are no errors.
  template <class Model>
  std::vector<std::string> notes(Model const& model, machine const& on = this_machine()) const {
    std::vector<std::string> all;
    std::string const& written = place().at("arithmetic").as_string();
    if (const std::string here = detail::arithmetic_of_model(model, on); written != here)
      all.push_back(message(path_, " was written by a program for ", io::excerpt(written),
                            ", and is read by one for ", here, ": results will differ in their last bits"));
    if (version_ < 2)
      all.push_back(message(path_, " is of version ", version_,
                            ", which has no checksums: tensors that were ",
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

  /// Throws io_error if a setting of the model is another one in the checkpoint.
  template <class Model> void require_architecture(Model const& model) const {
    if (version_ < 3) return;
    const auto knows = [&](std::string const& setting) {
      if (setting.ends_with("fraction_bits")) return false;  // later than version 4, which goes on without
      return version_ >= 4 || !(setting.ends_with("visible_blocks") || setting.ends_with("residual"));
    };
    detail::require_settings(place().at("architecture"), architecture(model), "model", "", knows);
  }

  /// Compares the checksums of all tensors, as `load` does, of a checkpoint that is to be read only later.
  void require_whole() const {
    for (auto const& [name, tensor] : tensors_.tensors()) check(name);
  }

  // `load` finds every tensor and compares its checksum before it changes anything.

  /// Reads the parameters and their patterns.
  template <class Model> void load(Model& model) const {
    const std::vector<pattern> patterns = checked<no_optimizer>(model);
    assign<no_optimizer>(patterns, model);
  }

  /// Reads the parameters, their patterns, masters and moments; gradients get the patterns. The file may hold
  /// no other tensor.
  template <class Model, class Optimizer>
  void load(Model& model, optimizer_state<Optimizer, Model>& optimizer,
            typename Model::gradients& gradients) const {
    std::apply(
        [&](auto&... like) {
          const std::vector<pattern> patterns = checked<Optimizer>(model, like...);
          assign<Optimizer>(patterns, model, like...);
          std::size_t next = 0;
          nn::for_each_parameter(gradients, [&](nn::parameter_name const&, auto& gradient) {
            if constexpr (nn::is_matrix<decltype(gradient)>) gradient.set_pattern(patterns[next++]);
          });
        },
        optimizer.tensors);
    optimizer.updates = place().at("updates").as_integer();
  }

 private:
  using no_optimizer = detail::no_optimizer;

  io::json_place place() const { return io::json_place(document_, path_); }

  /// Checks every tensor and returns the patterns of the matrices, in the order of for_each_parameter.
  template <class Optimizer, class Model, class... Like>
  std::vector<pattern> checked(Model const& model, Like const&... like) const {
    require_architecture(model);
    std::vector<pattern> patterns;
    std::set<std::string> expected;
    nn::for_each_parameter(
        model,
        [&](nn::parameter_name const& place, auto const& parameter, auto const&... its) {
          check_tensors<Optimizer, Model>(place.text(), patterns, expected, parameter, its...);
        },
        like...);
    nn::for_each_frozen(model, [&](nn::parameter_name const& place, auto const& tensor) {
      check_tensors<no_optimizer, Model>(place.text(), patterns, expected, tensor);
    });
    for (auto const& [name, tensor] : tensors_.tensors())
      if (sizeof...(Like) > 0 && !expected.contains(name))
        tensors_.fail(message(tensors_.tensors().size(), " tensors, but this model and optimizer have ",
                              expected.size(), ": ", io::in_quotes(name), " is none of them"));
    return patterns;
  }

  /// Checks a parameter, or a frozen tensor, its master and moments; adds its pattern and the names of its
  /// tensors.
  template <class Optimizer, class Model, class Parameter, class... Its>
  void check_tensors(std::string const& name, std::vector<pattern>& patterns, std::set<std::string>& expected,
                     Parameter const& parameter, Its const&... its) const {
    pattern const* stored = nullptr;
    if constexpr (nn::is_matrix<Parameter>) {
      stored = &patterns.emplace_back(read_pattern(name, parameter));
      if (!stored->is_dense())
        for (char const* part : {".pattern.row_start", ".pattern.cols"}) expected.insert(name + part);
    }
    const auto check = [&](std::string const& in_file, auto const& tensor) {
      using T = typename std::remove_cvref_t<decltype(tensor)>::value_type;
      expect(in_file, io::dtype_name<T>(), detail::shape_in_file(tensor, stored));
      expected.insert(in_file);
    };
    detail::for_each_tensor<Optimizer, Model>(check, name, parameter, its...);
  }

  void expect(std::string const& name, std::string_view dtype, std::vector<std::int64_t> const& shape) const {
    io::safetensor const& found = tensors_.at(name);
    if (found.dtype != dtype || found.shape != shape)
      tensors_.fail(message("tensor ", io::in_quotes(name), " is ",
                            io::detail::tensor_text(found.dtype, found.shape), " but should be ",
                            io::detail::tensor_text(dtype, shape)));
    check(name);
  }

  template <class Matrix> void expect_size(std::string const& name, Matrix const& matrix) const {
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
              message("in blocks of ", Matrix::block::rows, " x ", Matrix::block::cols));
    }
  }

  void check(std::string const& name) const {
    if (version_ >= 2) tensors_.check(name);
  }

  /// The pattern of a matrix in the file, whose size and block shape must be those of `matrix`.
  template <class Matrix> pattern read_pattern(std::string const& name, Matrix const& matrix) const {
    pattern const& like = matrix.pattern();
    if (!tensors_.contains(name + ".pattern.cols"))
      return pattern::dense(like.block_rows(), like.block_cols());
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

  template <class Optimizer, class Model, class... Like>
  void assign(std::vector<pattern> const& patterns, Model& model, Like&... like) const {
    std::size_t next = 0;
    nn::for_each_parameter(
        model,
        [&](nn::parameter_name const& name, auto& parameter, auto&... its) {
          pattern const* stored = nullptr;
          if constexpr (nn::is_matrix<decltype(parameter)>) stored = &patterns[next++];
          const auto fill = [&](std::string const& in_file, auto& tensor) { read(in_file, stored, tensor); };
          detail::for_each_tensor<Optimizer, Model>(fill, name.text(), parameter, its...);
        },
        like...);
    nn::for_each_frozen(model, [&](nn::parameter_name const& name, auto& tensor) {
      pattern const* stored = nullptr;
      if constexpr (nn::is_matrix<decltype(tensor)>) stored = &patterns[next++];
      read(name.text(), stored, tensor);
    });
  }

  template <class Tensor>
  void read(std::string const& name, [[maybe_unused]] pattern const* stored, Tensor& tensor) const {
    using T = typename Tensor::value_type;
    const std::vector<std::int64_t> shape = detail::shape_in_file(tensor, stored);
    if constexpr (nn::is_matrix<Tensor>) {
      tensor = Tensor(tensor.rows(), tensor.cols(), *stored);
      if (stored->is_dense()) {
        std::vector<T> rows(static_cast<std::size_t>(tensor.rows() * tensor.cols()));
        tensors_.read_into(name, shape, std::span(rows));
        return copy(row_major<T const>(rows.data(), tensor.rows(), tensor.cols()), tensor);
      }
    }
    tensors_.read_into(name, shape, std::span(tensor.begin(), tensor.end()));
  }

  std::string path_;
  io::safetensors_file tensors_;
  io::json document_;
  int version_ = checkpoint_version;
};

}}}  // namespace tessera::TESSERA_ISA::train
