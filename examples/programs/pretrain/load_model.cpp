// SPDX-License-Identifier: BSD-3-Clause

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>

#include <dlfcn.h>
#include <link.h>

#include <tessera/core/error.hpp>

#include "../common/element_and_block.hpp"
#include "../common/option_values.hpp"
#include "model_module.hpp"

namespace pretrain {

using namespace programs;
namespace {

namespace fs = std::filesystem;

/// Where a module is: beside the program or, installed, in the library's folder.
fs::path path_of_module(std::string const& name) {
  std::error_code none;
  const fs::path here = fs::read_symlink("/proc/self/exe", none).parent_path();
  const fs::path beside = here / "models" / (name + ".so"),
                 installed = (here / TESSERA_INSTALLED_MODELS / (name + ".so")).lexically_normal();
  return !fs::exists(beside, none) && fs::exists(installed, none) ? installed : beside;
}

/// Whether a file of the linker is as long as its header says. The loader would end the program at the first
/// byte that is missing.
bool is_whole(fs::path const& path) {
  std::ifstream file(path, std::ios::binary);
  ElfW(Ehdr) header{};
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  std::error_code failure;
  return file &&
         fs::file_size(path, failure) >= header.e_shoff + std::uint64_t{header.e_shnum} * header.e_shentsize;
}

std::string name_of(model_description const& what) {
  if (!among(precisions, what.precision))
    throw tessera::option_error(
        tessera::message("[model] precision ", what.precision, "; there are ", precisions));
  const std::string rows = std::to_string(what.block);
  if (!among(block_sizes, rows))
    throw tessera::option_error(tessera::message("[model] blocks of ", rows, "; there are ", block_sizes));
  return (what.method == "full" || what.method == "prompt" ? "" : what.method + "_") +
         (what.family == "llama" ? "llama_" : "") + what.precision + "_" + rows + "x" + rows;
}

model_module const& load(std::string const& name) {
  const fs::path path = path_of_module(name);
  const auto refuse_module = [&](std::string const& why) {
    throw tessera::option_error(tessera::message("[model] ", path.string(), " ", why, "; build it by\n  ",
                                                 TESSERA_BUILD_COMMAND, " --target model_", name));
  };
  // ./dev compiles a module that is missing or has changed.
  if (char const* const build = std::getenv("TESSERA_BUILD_MODEL"))
    if (std::system((std::string(build) + " model_" + name).c_str()) != 0)
      refuse_module("could not be compiled");
  std::error_code failure;
  if (!fs::exists(path, failure)) refuse_module("does not exist: this kind of model is not compiled");
  if (!fs::is_regular_file(path, failure)) refuse_module("is not a file");
  if (!is_whole(path)) refuse_module("is not whole");
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // for good: its models run its code
  if (!library) refuse_module(std::string("cannot be loaded: ") + dlerror());
  auto const* const module = static_cast<model_module const*>(dlsym(library, "pretrain_model_module"));
  if (!module) refuse_module("is no module of models");
  if (std::strcmp(module->build, this_build) != 0)
    refuse_module(tessera::message("was compiled with other sources, flags or another compiler (",
                                   module->build, ") than this program (", this_build, ")"));
  if (name != module->name) refuse_module(tessera::message("is the module ", module->name));
  return *module;
}

model_module const& module_for(model_description const& what) {
  static std::map<std::string, model_module const*> loaded;
  model_module const*& module = loaded[name_of(what)];
  if (!module) module = &load(name_of(what));
  return *module;
}

}  // namespace

std::unique_ptr<train::any_model> make_model(model_description const& what) {
  return module_for(what).make(what);
}

std::unique_ptr<train::any_model> make_classifier(model_description const& what,
                                                  train::checkpoint const* from, int classes) {
  model_module const& module = module_for(what);
  if (!module.make_classifier)
    throw tessera::option_error("[model] there are no classifiers of --model " + what.family);
  return module.make_classifier(what, from, classes);
}

void add_adapters(model_description const& what, train::any_model& model, adapter_description const& added) {
  model_module const& module = module_for(what);
  if (!module.add_adapters)
    throw tessera::option_error("[model] weights of --method " + what.method + " take no adapters");
  module.add_adapters(model, added);
}

double merge_adapters(model_description const& what, train::any_model& model, nn::merge_blocks into) {
  model_module const& module = module_for(what);
  if (!module.merge_adapters)
    throw tessera::option_error(tessera::message("[model] adapters of --method ", what.method,
                                                 " are layers: no weights can take them"));
  return module.merge_adapters(model, into);
}

tessera::nn::model_size size_of(model_description const& what) { return module_for(what).size(what); }

product_speed speed_of(model_description const& what, tessera::context& ctx) {
  return module_for(what).speed(ctx);
}

}  // namespace pretrain
