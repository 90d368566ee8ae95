// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/io/read_tensors.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/io/text.hpp>
#include <tessera/nn/lora_settings.hpp>
#include <tessera/tensor/any_tensor.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/hugging_face_tensors.hpp>
#include <tessera/train/peft_modules.hpp>

// Adapters as PEFT, the library of Hugging Face, saves them: a folder with adapter_config.json and
// adapter_model.safetensors, for a model that is GPT-2 or BERT (see pretrained.hpp).
//
//   const auto found = train::read_peft("adapters", model);
//   nn::add_lora(model, found.settings, found.targets, 1);
//   train::load_peft("adapters", model);

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The adapters of a folder of PEFT, without their values.
struct peft_adapters {
  nn::lora_settings settings;
  nn::lora_targets targets;  // qkv of GPT-2, where Q, K and V are one module; q, k and v of BERT
  std::string base;          // the name or folder of the model that they were trained on; "" without
};

/// Reads which adapters a folder has, and compares the names and shapes of all their tensors with a model.
///   base   an nn::gpt, nn::encoder or nn::sequence_classifier, with adapters or without
/// Throws io_error, with the file and the place: for adapters that are not LoRA's, or that change more than
/// the matrices of lora_targets, have several ranks, or belong to another base; for a member of the
/// configuration that is not known here, and says something; for a tensor that is missing, has another shape,
/// or has no place. Throws option_error for a model that is neither GPT-2 nor BERT.
peft_adapters read_peft(std::string const& folder, any_layer const& base);

/// Gives the adapters of a model, made by nn::add_lora with the results of read_peft, the values of the
/// folder, converted to their element. Throws as read_peft, and option_error for a model of other adapters,
/// before anything is changed.
void load_peft(std::string const& folder, mutable_any_layer const& model);

/// Writes the adapters of a model as a folder of PEFT, for PeftModel.from_pretrained with GPT2LMHeadModel,
/// BertForMaskedLM or BertForSequenceClassification; heads are not written. The folder is new or has only
/// files of these names, and appears as a whole. Tensors keep their element. Where several of Q, K and V of
/// GPT-2 have adapters, they become one of the sum of their ranks, B having zeros where they do not meet; all
/// other adapters then get this rank by zeros, and alpha follows, so that no scale changes.
///   how          the settings that nn::add_lora was called with
///   base_model   the name or folder of the model without adapters, as from_pretrained takes it, or ""
/// Throws option_error for a model that is neither GPT-2 nor BERT, or has no adapters or others than `how`
/// says, and io_error for a folder that cannot be written.
void save_peft(std::string const& folder, any_layer const& model, nn::lora_settings const& how,
               std::string const& base_model);

#ifdef TESSERA_BODY

namespace detail {

inline constexpr char const *peft_config = "adapter_config.json", *peft_tensors = "adapter_model.safetensors";

/// Whether a member of a configuration says nothing.
TESSERA_BODY bool is_empty(io::json const& value) {
  auto const* const text = value.get_if<std::string>();
  auto const* const elements = value.get_if<io::json::array>();
  auto const* const members = value.get_if<io::json::object>();
  return value.is_null() || value == io::json(false) || (text && text->empty()) ||
         (elements && elements->empty()) || (members && members->empty());
}

/// A folder of PEFT, compared with a model.
class peft_files {
 public:
  peft_files(std::string const& folder, peft_base const& base)
      : config_path_(folder + "/" + peft_config),
        config_(io::read_json(config_path_)),
        file_(folder + "/" + peft_tensors) {
    read_config(base.family);
    find_modules(base);
    compare_names(base);
  }
  peft_adapters const& adapters() const { return adapters_; }
  /// All that have adapters.
  std::vector<peft_module> const& modules() const { return modules_; }

  /// Gives an adapter of the model the values of the files.
  void read_into(peft_adapter const& to, peft_part part) const {
    io::safetensor const& tensor = file_.at(key(*to.module, part));
    element_type const& element = to.down.element();
    const std::int64_t rank = adapters_.settings.rank, cols = part == peft_part::a ? to.module->inputs : rank;
    io::detail::with_type_of(file_, tensor, [&]<class From>(From) {
      to.for_each_value(
          part, rank,
          [&](std::byte* value, std::int64_t row, std::int64_t col) {
            const double number = io::detail::number_at<From, double>(tensor.bytes.data(), row * cols + col);
            element.from_double(&number, 1, value);
          },
          [&](std::byte* value) { std::fill_n(value, element.bytes, std::byte()); });
    });
  }

 private:
  io::json_place config() const { return io::json_place(config_, config_path_); }

  void read_config(hugging_face_model family) {
    const bool is_gpt2 = family == hugging_face_model::gpt2;
    static_cast<void>(config().at("peft_type"));  // throws io_error if it is missing
    expect("peft_type", {}, {"LORA"}, "the adapters that are read are");
    refuse_unknown();
    expect("bias", "none", {"none"}, "biases of these adapters are");
    expect("fan_in_fan_out", false, {is_gpt2}, is_gpt2 ? "of GPT-2 it is" : "of BERT it is");
    // Others change the weights of the base, too.
    expect("init_lora_weights", true, {true, false, {}, "gaussian", "eva", "orthogonal"},
           "adapters that leave the base as it is have");
    nn::lora_settings& settings = adapters_.settings;
    settings.rank = config().at("r").as_integer();
    settings.alpha = config().at("lora_alpha").as_number();
    settings.rank_stabilised = config().contains("use_rslora") && config().at("use_rslora").as_bool();
    if (settings.rank < 1) config().at("r").fail(message("is ", settings.rank, ", but should be at least 1"));
    if (!std::isfinite(settings.alpha)) config().at("lora_alpha").fail(message("is ", settings.alpha));
    io::json const* const base = config_.find("base_model_name_or_path");
    if (base && !base->is_null()) adapters_.base = config().at("base_model_name_or_path").as_string();
  }
  /// Throws io_error unless a member of the configuration, or `missing` without it, has one of these values.
  void expect(char const* key, io::json const& missing, std::vector<io::json> const& known,
              char const* why) const {
    io::json const* const found = config_.find(key);
    io::json const& value = found ? *found : missing;
    if (std::find(known.begin(), known.end(), value) != known.end()) return;
    std::string all;
    for (io::json const& one : known) all += (all.empty() ? "" : " or ") + io::to_text(one);
    io::json_place(value, config_path_, key)
        .fail(message("is ", io::excerpt(io::to_text(value)), ", but ", why, " ", all));
  }
  /// Throws io_error for a member that is not known, unless it says nothing.
  void refuse_unknown() const {
    constexpr std::array<std::string_view, 17> known{"auto_mapping",
                                                     "base_model_name_or_path",
                                                     "bias",
                                                     "fan_in_fan_out",
                                                     "inference_mode",
                                                     "init_lora_weights",
                                                     "lora_alpha",
                                                     "lora_dropout",
                                                     "megatron_core",
                                                     "peft_type",
                                                     "peft_version",
                                                     "qalora_group_size",
                                                     "r",
                                                     "revision",
                                                     "target_modules",
                                                     "task_type",
                                                     "use_rslora"};
    for (io::json_member const& member : config().members())
      if (std::find(known.begin(), known.end(), member.key) == known.end() && !is_empty(member.value))
        config().at(member).fail(
            message("is ", io::excerpt(io::to_text(member.value)), ", which adapters here cannot have"));
  }

  void find_modules(peft_base const& base) {
    nn::lora_targets& targets = adapters_.targets;
    for (peft_module const& module : base.modules)
      if (file_.contains(key(module, peft_part::a)) || file_.contains(key(module, peft_part::b)))
        targets.*module.target = true;
    std::set<std::string, std::less<>> places;
    for (peft_module const& module : base.modules) {
      if (!(targets.*module.target)) continue;
      const std::int64_t rank = adapters_.settings.rank, most = std::min(module.outputs(), module.inputs);
      if (rank > most)
        config().at("r").fail(
            message("is ", rank, ", but ", module.theirs, " has ", most, " rows or columns"));
      require(*places.insert(key(module, peft_part::a)).first, {rank, module.inputs});
      require(*places.insert(key(module, peft_part::b)).first, {module.outputs(), rank});
      modules_.push_back(module);
    }
    std::vector<std::string> others;
    for (auto const& [name, tensor] : file_.tensors())
      if (!places.contains(name)) others.push_back(name);
    if (!others.empty())
      file_.fail(
          message("this model has no place for ", others.size(),
                  others.size() == 1 ? " tensor: " : " tensors: ", io::some_of(others, io::in_quotes)));
    if (modules_.empty()) file_.fail("there are no tensors");
  }
  void require(std::string const& name, std::vector<std::int64_t> const& shape) const {
    io::safetensor const& tensor = file_.at(name);
    io::detail::require_tensor(file_, tensor, shape);
    if (tensor.dtype.find('F') == std::string::npos)
      file_.fail(message("tensor ", io::in_quotes(name), " is ", io::excerpt(tensor.dtype),
                         ": adapters are floating-point numbers"));
    io::detail::with_type_of(file_, tensor, [](auto) {});
  }

  /// Throws io_error unless target_modules means the modules that the files have adapters of. If it is no
  /// list it is a regular expression, and is not compared.
  void compare_names(peft_base const& base) const {
    io::json const* const names = config_.find("target_modules");
    if (!names || !names->get_if<io::json::array>()) return;
    const io::json_place place = config().at("target_modules");
    for (peft_module const& module : base.modules) {
      bool is_meant = false;
      for (std::size_t i = 0; i < place.size(); ++i)
        is_meant = is_meant || module.is_meant_by(place.at(i).as_string());
      const bool is_there = adapters_.targets.*module.target;
      if (is_meant && !is_there)
        place.fail(message("means ", module.theirs, ", of which the files have no adapter"));
      if (is_there && !is_meant)
        place.fail(message("does not mean ", module.theirs, ", of which the files have an adapter"));
    }
  }

  /// The name of a tensor, which begins otherwise if the base had no head.
  std::string key(peft_module const& module, peft_part part) const {
    const std::string bare = peft_key(module.theirs.substr(module.theirs.find('.') + 1), part);
    return file_.contains(bare) ? bare : peft_key(module.theirs, part);
  }

  std::string config_path_;
  io::json config_;
  io::safetensors_file file_;
  peft_adapters adapters_;
  std::vector<peft_module> modules_;
};

/// The adapters of a model, as files of PEFT.
class outgoing_peft {
 public:
  outgoing_peft(any_layer const& model, nn::lora_settings const& how)
      : base_(model), how_(how), adapters_(adapters_of(model, base_, how)) {
    if (adapters_.empty())
      throw option_error("[save_peft] the model has no adapters: nn::add_lora makes them");
    for (peft_adapter const& each : adapters_) groups_ = std::max(groups_, each.groups());
    for (peft_adapter const& each : adapters_) add(each, peft_part::a), add(each, peft_part::b);
  }

  io::json::object configuration(std::string const& base_model) const {
    const bool is_gpt2 = base_.family == hugging_face_model::gpt2;
    const auto groups = static_cast<double>(groups_);
    const double alpha = how_.alpha * (how_.rank_stabilised ? std::sqrt(groups) : groups);
    return {{"peft_type", "LORA"},
            {"task_type", is_gpt2 ? io::json("CAUSAL_LM") : io::json()},
            {"base_model_name_or_path", base_model.empty() ? io::json() : io::json(base_model)},
            {"target_modules", target_modules()},
            {"r", rank()},
            {"lora_alpha", alpha == std::trunc(alpha) && std::abs(alpha) < 1e9 ? io::json(std::int64_t(alpha))
                                                                               : io::json(alpha)},
            {"use_rslora", how_.rank_stabilised},
            {"lora_dropout", 0.0},
            {"bias", "none"},
            {"fan_in_fan_out", is_gpt2},
            {"init_lora_weights", true},
            {"inference_mode", true}};
  }
  std::span<io::safetensor const> tensors() const { return written_; }

 private:
  /// Of all adapters in the files.
  std::int64_t rank() const { return groups_ * how_.rank; }

  void add(peft_adapter const& each, peft_part part) {
    element_type const& element = each.down.element();
    const std::vector<std::int64_t> shape = part == peft_part::a
                                                ? std::vector{rank(), each.module->inputs}
                                                : std::vector{each.module->outputs(), rank()};
    std::vector<std::byte>& values = values_.emplace_back(std::size_t(shape[0] * shape[1]) * element.bytes);
    each.for_each_value(
        part, how_.rank,
        [&](std::byte const* value, std::int64_t row, std::int64_t col) {
          std::memcpy(values.data() + std::size_t(row * shape[1] + col) * element.bytes, value,
                      element.bytes);
        },
        [&](std::byte const* value) {
          double number = 0;
          element.to_double(value, 1, &number);
          if (number != 0)
            throw option_error(message("[save_peft] the adapters of ", each.module->ours,
                                       " have another rank than ", how_.rank));
        });
    written_.push_back({peft_key(each.module->theirs, part), element.name, shape, values});
  }

  /// Names of modules without the number of the layer, where these mean no module that has no adapter.
  io::json::array target_modules() const {
    std::set<std::string> names, adapted;
    for (peft_adapter const& each : adapters_) adapted.insert(each.module->theirs);
    for (std::string const& whole : adapted) {
      std::string name = whole.substr(whole.find_first_of("0123456789"));
      name = name.substr(name.find('.') + 1);
      const bool is_clear = std::ranges::all_of(base_.modules, [&](peft_module const& other) {
        return !other.is_meant_by(name) || adapted.contains(other.theirs);
      });
      names.insert(is_clear ? name : whole);
    }
    return {names.begin(), names.end()};
  }

  peft_base base_;
  nn::lora_settings how_;
  std::vector<peft_adapter> adapters_;
  std::int64_t groups_ = 1;
  std::vector<std::vector<std::byte>> values_;
  std::vector<io::safetensor> written_;
};

}  // namespace detail

TESSERA_COLD TESSERA_BODY peft_adapters read_peft(std::string const& folder, any_layer const& base) {
  return detail::peft_files(folder, detail::peft_base(base)).adapters();
}

TESSERA_COLD TESSERA_BODY void load_peft(std::string const& folder, mutable_any_layer const& model) {
  const detail::peft_base base(model);
  const detail::peft_files files(folder, base);
  nn::lora_settings const& how = files.adapters().settings;
  const std::vector<detail::peft_adapter> adapters = detail::adapters_of(model, base, how);
  const auto is_its_own = [&](detail::peft_adapter const& each, detail::peft_module const& module) {
    const auto parts = std::ranges::count(files.modules(), module.ours, &detail::peft_module::ours);
    return each.module->theirs == module.theirs && each.groups() == 1 &&
           each.down.rows() == parts * round_up<std::int64_t>(how.rank, 4);
  };
  if (!std::ranges::equal(adapters, files.modules(), is_its_own))
    throw option_error(message("[load_peft ", folder,
                               "] the model has not the adapters of these files: nn::add_lora makes them, "
                               "with the results of read_peft"));
  for (detail::peft_adapter const& each : adapters)
    files.read_into(each, detail::peft_part::a), files.read_into(each, detail::peft_part::b);
}

TESSERA_COLD TESSERA_BODY void save_peft(std::string const& folder, any_layer const& model,
                                         nn::lora_settings const& how, std::string const& base_model) {
  how.check();
  const detail::outgoing_peft out(model, how);
  const std::string configuration = io::to_text(out.configuration(base_model), 2) + "\n";
  io::write_folder_atomically(
      folder, {detail::peft_config, detail::peft_tensors}, [&](std::string const& partial) {
        io::write_atomically(partial + "/" + detail::peft_config, configuration);
        io::write_safetensors(partial + "/" + detail::peft_tensors, out.tensors(), {{"format", "pt"}});
      });
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
