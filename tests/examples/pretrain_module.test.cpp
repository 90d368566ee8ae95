// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "pretrain_programs.hpp"

namespace pretrain_module_test {

#if defined(PRETRAIN) && defined(GENERATE) && defined(FILL_MASK) && defined(FREEZE) && defined(FINETUNE)

using namespace pretrain_programs;

TEST_CASE(
    "pretrain: a model that is not compiled, or is of another build, is refused before anything is done") {
  const workplace here;
  fs::copy_file(PRETRAIN, here.in("pretrain"));
  const std::string module = here.in("models/float_16x16.so");
  const auto refused = [&](std::string const& message) {
    const outcome result =
        shell(here.in("pretrain") + here.pretrain("a").substr(std::string(PRETRAIN).size()));
    CHECK(result.code == 2);
    CHECK(contains(result, "pretrain: [model] " + module + " " + message));
    CHECK(contains(result, "--target model_float_16x16"));
    CHECK(!fs::exists(here.in("runs")));
  };
  refused("does not exist");
  fs::create_directories(module);
  refused("is not a file");
  fs::remove(module);
  const std::string built = fs::path(PRETRAIN).parent_path().string() + "/models/";
  const auto copied = [&](std::string const& from) {
    fs::copy_file(from, module, fs::copy_options::overwrite_existing);
  };
  copied(built + "float_16x16.so");
  fs::resize_file(module, 100'000);
  refused("is not whole");
  put(module, "half of a modu");
  refused("is not whole");
  copied(built + "int8_16x16.so");
  refused("is the module int8_16x16");
  copied(OTHER_MODULE);
  refused("was compiled with other sources, flags or another compiler (of another compiler ");
  copied(built + "float_16x16.so");
  CHECK(shell(here.in("pretrain") + here.pretrain("a").substr(std::string(PRETRAIN).size())).code == 0);
}

TEST_CASE("pretrain: every element and size of blocks that is compiled is trained and read") {
  const workplace here;
  int models = 0;
  for (auto const& entry : fs::directory_iterator(fs::path(PRETRAIN).parent_path() / "models")) {
    const std::string name = entry.path().stem();  // float_16x16
    const bool is_other = name.starts_with("lora") || name.starts_with("adapter") ||
                          name.starts_with("llama") || name.starts_with("frozen");
    if (entry.path().extension() != ".so" || is_other) continue;
    INFO(name);
    const std::size_t split = name.find('_');
    const std::string options = " --only sparse --precision " + name.substr(0, split) + " --block " +
                                name.substr(split + 1, name.find('x') - split - 1);
    for (std::string const& command :
         {here.pretrain(name, options), here.resume(name, "--quiet"), here.generate(name + "/sparse")}) {
      const outcome result = shell(command);
      CHECK_MESSAGE(result.code == 0, result.output);
    }
    ++models;
  }
  CHECK(models > 0);
}

#endif

}  // namespace pretrain_module_test
