// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/text.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train { namespace detail {

#ifdef TESSERA_BODY

/// The files in a folder that hold a model's weights, as from_pretrained chooses them: the file that the
/// configuration names, model.safetensors, or the files that model.safetensors.index.json lists.
///   named    transformers_weights of the configuration, or ""
///   reader   the class of transformers that reads other formats, for the error that says how to convert them
class weight_files {
 public:
  weight_files(std::string folder, std::string const& named, std::string reader)
      : folder_(std::move(folder)), reader_(std::move(reader)) {
    const bool is_index = named.ends_with(".safetensors.index.json");
    if (!named.empty() && (named.find('/') != named.npos || !(named.ends_with(".safetensors") || is_index)))
      fail(message("transformers_weights of config.json is ", io::in_quotes(named),
                   ", but should be a safetensors file of this folder, or an index of such files"));
    if (has("adapter_config.json"))
      fail(
          "adapter_config.json: an adapter changes the weights of this model; merge it in Python "
          "(merge_and_unload() of peft) and save the model that results");
    if (is_index)
      list(named);
    else if (!named.empty())
      paths_ = {in_folder(named)};
    else if (has("model.safetensors"))
      paths_ = {in_folder("model.safetensors")};
    else if (has("model.safetensors.index.json"))
      list("model.safetensors.index.json");
    else
      refuse();
  }
  /// The tensors of these files. Throws io_error if a file has not a tensor that the index promises.
  io::safetensors_files tensors() const {
    io::safetensors_files all(paths_);
    if (index_.empty()) return all;
    const io::json_place map = io::json_place(document_, index_).at("weight_map");
    for (io::json_member const& tensor : map.members()) {
      std::string const& file = map.at(tensor).as_string();
      if (!all.contains(tensor.key) || all.file_of(tensor.key).path() != in_folder(file))
        map.at(tensor).fail(message("is ", io::in_quotes(file), ", but that file has no such tensor"));
    }
    return all;
  }

 private:
  std::string in_folder(std::string const& name) const { return folder_ + "/" + name; }
  bool has(std::string const& name) const {
    std::error_code unreadable;
    return std::filesystem::is_regular_file(in_folder(name), unreadable);
  }
  [[noreturn]] void fail(std::string const& what) const {
    throw io_error(message("[pretrained ", folder_, "] ", what));
  }

  void list(std::string const& name) {
    index_ = in_folder(name);
    document_ = io::read_json(index_);
    std::set<std::string> names;
    const io::json_place map = io::json_place(document_, index_).at("weight_map");
    for (io::json_member const& tensor : map.members()) {
      std::string const& file = map.at(tensor).as_string();
      if (file.find('/') != file.npos) map.at(tensor).fail("is no file of this folder");
      if (names.insert(file).second && !has(file))
        map.at(tensor).fail(message("is ", io::in_quotes(file), ", but that file is not in the folder"));
    }
    if (names.empty()) map.fail("lists no files");
    for (std::string const& file : names) paths_.push_back(in_folder(file));
  }

  /// There are no weights: names the files that are there instead, and says how they become
  /// model.safetensors.
  [[noreturn]] void refuse() const {
    std::vector<std::string> names;
    std::error_code unreadable;
    for (auto at = std::filesystem::directory_iterator(folder_, unreadable);
         !unreadable && at != std::filesystem::directory_iterator(); at.increment(unreadable))
      names.push_back(at->path().filename().string());
    std::sort(names.begin(), names.end());
    const std::string none = "no model.safetensors and no model.safetensors.index.json, but ";
    for (std::string const& name : names)
      if (const auto argument = argument_for(name))
        fail(message(none, name, ": convert it in Python, with transformers", argument->first,
                     ":\n  from transformers import ", reader_, "\n  ", reader_, ".from_pretrained(\"",
                     folder_, "\"", argument->second, ").save_pretrained(\"", folder_, "\")"));
    if (std::find(names.begin(), names.end(), "adapter_model.safetensors") != names.end())
      fail(none +
           "adapter_model.safetensors: changes to the weights of another model; merge them in Python "
           "(merge_and_unload() of peft) and save the model that results");
    fail(none + (names.empty() ? "nothing else either" : io::some_of(names, io::excerpt)));
  }

  /// Which transformers reads a file of weights in another format, and the argument of from_pretrained for
  /// it.
  static std::optional<std::pair<std::string, std::string>> argument_for(std::string const& name) {
    using pair = std::pair<std::string, std::string>;
    // The name stands in a line of Python for the user to run: no other characters.
    constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (name.find_first_not_of(plain) != name.npos) return std::nullopt;
    if (name == "pytorch_model.bin" || name == "pytorch_model.bin.index.json") return pair();
    if (name.ends_with(".gguf")) return pair("", message(", gguf_file=\"", name, "\""));
    if (name == "tf_model.h5") return pair(" 4", ", from_tf=True");
    if (name == "flax_model.msgpack") return pair(" 4", ", from_flax=True");
    for (std::string_view begin : {"model.", "pytorch_model."})
      for (std::string_view end : {".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json"})
        if (name.starts_with(begin) && name.ends_with(end) && name.size() > begin.size() + end.size())
          return pair("", message(", variant=\"",
                                  name.substr(begin.size(), name.size() - begin.size() - end.size()), "\""));
    return std::nullopt;
  }

  std::string folder_, reader_, index_;
  io::json document_;  // of the index
  std::vector<std::string> paths_;
};

#endif

}}}}  // namespace tessera::TESSERA_ISA::train::detail
