// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/transformer_config.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/train/hugging_face_tensors.hpp>
#include <tessera/train/weight_files.hpp>

// A folder of Hugging Face: config.json, and the tensors of one model in one or several safetensors files.
// It is read as from_pretrained of transformers 5 does, which also has a default for each member that the
// configuration lacks.

namespace tessera { inline namespace TESSERA_ISA { namespace train { namespace detail {

inline constexpr std::int64_t most_ids = std::int64_t(1) << 24;  // see transformer_config::check

/// The configuration and the tensors of a model.
class hugging_face {
 public:
  /// One tensor of a model has several names: see spellings.
  ///   readers   {model_type, class of transformers that such a folder belongs to}; without model_type, the
  ///             first
  ///   base      with which the names of all tensors begin but the heads'
  hugging_face(std::string const& folder, std::vector<std::pair<std::string, std::string>> const& readers,
               std::string base);
  /// The tensor of a head has the values of another tensor.
  void tie(std::string const& name, std::string const& of_head) { tied_[name] = of_head; }

  /// Throws io_error about a member of the configuration, whether it is there or not.
  [[noreturn]] void fail(std::string const& key, std::string const& what) const;
  /// A member of the configuration, by its name or by `other`, the name that transformers also takes.
  std::optional<io::json_place> setting(std::string const& key, std::string const& other = {}) const;
  /// An integer, at least `least`; `missing` if the configuration has none.
  std::int64_t integer(std::string const& key, std::string const& other, std::int64_t missing,
                       std::int64_t least = 1, std::int64_t most = (std::int64_t(1) << 31) - 1) const;
  /// The epsilon that is added to a variance.
  double epsilon(std::string const& key, double missing) const;
  /// Throws io_error unless a member of the configuration, if it is there, has one of these values.
  void expect(std::string const& key, std::vector<io::json> const& known, char const* why) const;
  /// An op, by one of its names; a configuration without one means the first of `common`.
  void expect_activation(std::string const& key, std::vector<io::json> const& names, char const* common,
                         char const* why) const;
  /// Throws io_error unless all elements of a member, if it is there and not null, have this value.
  void expect_all(std::string const& key, io::json const& value, char const* why) const;
  /// Inner features of an MLP ÷ hidden.
  std::int64_t times_hidden(std::string const& key, std::int64_t missing, std::int64_t hidden) const;

  bool has(std::string const& name) const;
  /// Reads all tensors of a model. They are looked up and their shapes compared before make() makes the
  /// model, so that no memory is taken for what the configuration alone claims. Throws io_error for tensors
  /// that the model has no place for if `unused` is null, else appends their names to it.
  void read(hugging_face_model model, nn::transformer_config const& shape, std::vector<std::string>* unused,
            function_ref<nn::mutable_parameter_list()> make, rotary_order rotary = rotary_order::halves);

 private:
  using place = std::pair<io::safetensors_file const*, io::safetensor const*>;

  void read_into(any_tensor& to, hugging_face_tensor const& each);

  std::string text_of(std::string const& key) const;
  std::string reader_among(std::vector<std::pair<std::string, std::string>> const& readers) const;

  /// The names that a tensor may have in the files: with and without that of the base model before it, that
  /// of a head's tensor that is tied to it, and gamma and beta for the weight and bias of a norm.
  std::vector<std::string> spellings(std::string const& name) const;
  /// Throws io_error if the tensor is nowhere, or has two names and is not the same under both.
  place const& place_of(std::string const& name);
  /// `is […], but … is read` if the configuration names a class of transformers with another head; else "".
  std::string other_head() const;
  [[noreturn]] void refuse(std::vector<std::string> const& names) const;
  /// Buffers of old files, which follow from the configuration: masks of attention, numbers of positions.
  static bool is_buffer(std::string_view name);

  std::string folder_, config_path_;
  io::json config_;
  std::string reader_, base_;
  std::map<std::string, std::string> tied_;
  io::safetensors_files files_;
  std::map<std::string, place> places_;
  std::set<std::string, std::less<>> declared_;
};

/// Throws io_error about a member whose value does not divide `all`, the number of `what`.
void require_divisible(hugging_face const& from, std::string const& key, std::int64_t all, char const* what,
                       std::int64_t value);

#ifdef TESSERA_BODY

TESSERA_BODY void require_divisible(hugging_face const& from, std::string const& key, std::int64_t all,
                                    char const* what, std::int64_t value) {
  if (all % value != 0) from.fail(key, message("is ", value, ", but should divide the ", all, " ", what));
}

TESSERA_BODY hugging_face::hugging_face(std::string const& folder,
                                        std::vector<std::pair<std::string, std::string>> const& readers,
                                        std::string base)
    : folder_(folder),
      config_path_(folder + "/config.json"),
      config_(io::read_json(config_path_)),
      reader_(reader_among(readers)),
      base_(std::move(base)),
      files_(weight_files(folder, text_of("transformers_weights"), reader_).tensors()) {
  if (const auto at = setting("quantization_config"); at && !at->value().is_null())
    at->fail("is given, but weights of a quantised model are not read");
}

TESSERA_BODY void hugging_face::fail(std::string const& key, std::string const& what) const {
  io::json_place(config_, config_path_, key).fail(what);
}

TESSERA_BODY std::optional<io::json_place> hugging_face::setting(std::string const& key,
                                                                 std::string const& other) const {
  const io::json_place all(config_, config_path_);
  static_cast<void>(all.members());
  const bool there = all.contains(key), other_there = !other.empty() && all.contains(other);
  if (there && other_there && !(all.at(key).value() == all.at(other).value()))
    fail(key, message("differs from ", other, ", which means the same"));
  if (!there && !other_there) return std::nullopt;
  return all.at(there ? key : other);
}

TESSERA_BODY std::int64_t hugging_face::integer(std::string const& key, std::string const& other,
                                                std::int64_t missing, std::int64_t least,
                                                std::int64_t most) const {
  const auto at = setting(key, other);
  const std::int64_t value = at ? at->as_integer() : missing;
  if (value < least || value > most)
    at->fail(message("is ", value, ", but should be from ", least, " to ", most));
  return value;
}

TESSERA_BODY double hugging_face::epsilon(std::string const& key, double missing) const {
  const auto at = setting(key);
  const double value = at ? at->as_number() : missing;
  if (!(value >= 0 && value <= 1)) at->fail(message("is ", value, ", but should be from 0 to 1"));
  return value;
}

TESSERA_BODY void hugging_face::expect(std::string const& key, std::vector<io::json> const& known,
                                       char const* why) const {
  const auto at = setting(key);
  if (!at || std::find(known.begin(), known.end(), at->value()) != known.end()) return;
  std::string all;
  for (io::json const& one : known) all += (all.empty() ? "" : " or ") + io::to_text(one);
  at->fail(message("is ", io::excerpt(io::to_text(at->value())), ", but ", why, " ", all));
}

TESSERA_BODY void hugging_face::expect_activation(std::string const& key, std::vector<io::json> const& names,
                                                  char const* common, char const* why) const {
  if (setting(key)) return expect(key, names, why);
  if (std::find(names.begin(), names.end(), io::json(common)) == names.end())
    fail(key, message("is missing, which means \"", common, "\", but ", why, " another"));
}

TESSERA_BODY void hugging_face::expect_all(std::string const& key, io::json const& value,
                                           char const* why) const {
  const auto at = setting(key);
  if (!at || at->value().is_null()) return;
  for (std::size_t i = 0; i < at->size(); ++i)
    if (io::json_place const one = at->at(i); !(one.value() == value))
      one.fail(message("is ", io::excerpt(io::to_text(one.value())), ", but ", why, " ", io::to_text(value)));
}

TESSERA_BODY std::int64_t hugging_face::times_hidden(std::string const& key, std::int64_t missing,
                                                     std::int64_t hidden) const {
  const auto at = setting(key);
  const std::int64_t inner = at ? at->as_integer() : missing;
  if (inner < 1 || inner % hidden != 0)
    fail(key, message("is ", inner, ", but should be a multiple of the ", hidden, " hidden features"));
  return inner / hidden;
}

TESSERA_BODY void hugging_face::read(hugging_face_model model, nn::transformer_config const& shape,
                                     std::vector<std::string>* unused,
                                     function_ref<nn::mutable_parameter_list()> make, rotary_order rotary) {
  const auto look_up = [&](hugging_face_tensor const& each) {
    for (hugging_face_part const& part : each.theirs) {
      auto const& [file, found] = place_of(part.name);
      io::detail::require_tensor(*file, *found, each.shape(part));
    }
  };
  for_each_tensor(model, shape, look_up, rotary);
  std::vector<std::string> names;
  for (io::safetensors_file const& file : files_.files())
    for (auto const& [name, tensor] : file.tensors())
      if (!declared_.contains(name) && !is_buffer(name)) names.push_back(name);
  if (unused)
    unused->insert(unused->end(), names.begin(), names.end());
  else if (!names.empty())
    refuse(names);
  const nn::mutable_parameter_list made = make();
  const tensors_by_name all(made);
  const auto fill = [&](hugging_face_tensor const& each) {
    any_tensor const* const to = all.find(each.ours);
    if (!to || to->rows() != each.rows() || to->cols() != each.width())
      throw option_error(message("[pretrained ", folder_, "] the model has no ", each.ours, " of ",
                                 each.rows(), each.is_matrix() ? message(" x ", each.cols) : "", " numbers"));
    any_tensor writable = *to;
    read_into(writable, each);
  };
  for_each_tensor(model, shape, fill, rotary);
}

TESSERA_BODY void hugging_face::read_into(any_tensor& to, hugging_face_tensor const& each) {
  element_type const& element = to.element();
  std::int64_t first = 0;
  for (hugging_face_part const& part : each.theirs) {
    auto const& [file, found] = place_of(part.name);
    io::detail::with_type_of(*file, *found, [&, &from = *found]<class From>(From) {
      for_each_value(to, to.data(), element.bytes, [&](std::byte* value, std::int64_t row, std::int64_t col) {
        row -= first;
        if (row < 0 || row >= part.rows) return;
        const double number =
            io::detail::number_at<From, double>(from.bytes.data(), each.place(part, row, col));
        element.from_double(&number, 1, value);
      });
    });
    first += part.rows;
  }
}

TESSERA_BODY bool hugging_face::has(std::string const& name) const {
  for (std::string const& one : spellings(name))
    if (files_.contains(one)) return true;
  return false;
}

TESSERA_BODY std::string hugging_face::text_of(std::string const& key) const {
  const auto at = setting(key);
  return at && !at->value().is_null() ? at->as_string() : "";
}

TESSERA_BODY std::string hugging_face::reader_among(
    std::vector<std::pair<std::string, std::string>> const& readers) const {
  const auto at = setting("model_type");
  for (auto const& [type, reader] : readers)
    if (at && at->value() == io::json(type)) return reader;
  return readers.front().second;
}

TESSERA_BODY std::vector<std::string> hugging_face::spellings(std::string const& name) const {
  std::vector<std::string> all;
  const auto add = [&](std::string const& one) {
    all.push_back(one);
    all.push_back(one.starts_with(base_) ? one.substr(base_.size()) : base_ + one);
  };
  add(name);
  if (const auto at = tied_.find(name); at != tied_.end()) add(at->second);
  for (auto const& [now, once] : {std::pair<std::string, std::string>("LayerNorm.weight", "LayerNorm.gamma"),
                                  {"LayerNorm.bias", "LayerNorm.beta"}})
    if (name.ends_with(now)) add(name.substr(0, name.size() - now.size()) + once);
  return all;
}

TESSERA_BODY hugging_face::place const& hugging_face::place_of(std::string const& name) {
  const auto [at, is_new] = places_.try_emplace(name);
  if (!is_new) return at->second;
  auto& [file, found] = at->second;
  for (std::string const& one : spellings(name)) {
    if (!files_.contains(one)) continue;
    declared_.insert(one);
    io::safetensors_file const& holder = files_.file_of(one);
    io::safetensor const& here = holder.at(one);
    if (!found)
      file = &holder, found = &here;
    else if (here.dtype != found->dtype || here.shape != found->shape ||
             !std::equal(here.bytes.begin(), here.bytes.end(), found->bytes.begin(), found->bytes.end()))
      holder.fail(message("tensor ", io::in_quotes(one), " differs from ", io::in_quotes(found->name),
                          ", but in this model they are one"));
  }
  if (!found) {
    if (const std::string other = other_head(); !other.empty())
      fail("architectures", message(other, ", and its tensor ", io::in_quotes(name), " is not in the files"));
    static_cast<void>(files_.file_of(name));  // throws, and names tensors that are there
  }
  if (found->dtype.find('F') == std::string::npos)
    file->fail(message("tensor ", io::in_quotes(found->name), " is ", io::excerpt(found->dtype),
                       ": weights are floating-point numbers; those of a quantised model are not read"));
  return at->second;
}

TESSERA_BODY std::string hugging_face::other_head() const {
  const auto at = setting("architectures");
  if (!at || at->value().is_null()) return "";
  for (io::json const& one : at->elements())
    if (one == io::json(reader_)) return "";
  return message("is ", io::excerpt(io::to_text(at->value())), ", but ", reader_, " is read");
}

TESSERA_BODY void hugging_face::refuse(std::vector<std::string> const& names) const {
  const std::string other = other_head();
  throw io_error(message("[pretrained ", folder_, "] this model has no place for ", names.size(),
                         names.size() == 1 ? " tensor of the files: " : " tensors of the files: ",
                         io::some_of(names, io::in_quotes),
                         other.empty() ? other : "; architectures of config.json " + other,
                         "; with pretrained_settings::unused they are listed there, and left out"));
}

TESSERA_BODY bool hugging_face::is_buffer(std::string_view name) {
  for (std::string_view end : {".attn.bias", ".attn.masked_bias", ".position_ids"})
    if (name.ends_with(end) || name == end.substr(1)) return true;
  return false;
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::train::detail
