// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include <dlfcn.h>
#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/adamw.hpp>

// Saves a checkpoint over an earlier one again and again, while failing_calls.cpp makes each call of the
// system fail in turn: the folder must hold one of the two, whole, and the next checkpoint must be saved.

using namespace tessera;

namespace {

using model = toy::model<float>;

struct training_state {
  explicit training_state(std::uint64_t seed) : parameters(seed) {
    for (char const* moment : {"first_moment", "second_moment"})
      train::set_elements(adam, moment, parameters);
    adam.updates = std::int64_t(seed);
  }
  model parameters;
  train::optimizer_state adam = train::initial_state(train::adamw{}, parameters);

  void save(std::string const& folder) const {
    train::save_checkpoint(folder, io::json::object{{"seed", adam.updates}}, parameters, adam);
  }
};

/// The seed of the checkpoint in a folder, of which every tensor must be right.
std::uint64_t saved_in(std::string const& folder) {
  training_state found(1000);
  model gradients(1);
  const train::checkpoint file(folder);
  file.load(found.parameters, found.adam, gradients);
  const auto seed = std::uint64_t(found.adam.updates);
  const training_state expected(seed);
  if (!toy::same_bits(found.parameters, expected.parameters) || !(found.adam == expected.adam))
    throw error("a mixture of two checkpoints");
  return seed;
}

}  // namespace

int main() try {
  const auto fail_call = reinterpret_cast<void (*)(int, int)>(::dlsym(RTLD_DEFAULT, "fail_call"));
  const auto calls_made = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "calls_made"));
  if (!fail_call || !calls_made) throw error("run it with LD_PRELOAD=libfailing_calls.so");
  std::uint64_t seed = 1;
  for (int how = 1; how <= 4; ++how) {
    const scratch_folder scratch;
    const std::string folder = scratch / "step-1";
    training_state(seed).save(folder);
    int refused = 0, saved = 0;
    for (int at = 1;; ++at) {
      const std::uint64_t earlier = seed++;
      bool throws = false;
      fail_call(how, at);
      try {
        training_state(seed).save(folder);
      } catch (io_error const&) {
        throws = true;
      }
      const int calls = calls_made();
      const std::uint64_t found = saved_in(folder);
      if (found != seed && (found != earlier || !throws))
        throw error(
            message("fault ", how, " in call ", at, ": saved, but the folder holds another checkpoint"));
      if (throws && how >= 3) throw error(message("fault ", how, " in call ", at, " is none, but was one"));
      throws ? ++refused : ++saved;
      seed = std::max(seed, found);
      training_state(++seed).save(folder);
      if (saved_in(folder) != seed) throw error("the next checkpoint was not saved");
      if (scratch.files() != 1)
        throw error(message("fault ", how, " in call ", at, ": something is left behind"));
      if (calls < at) break;  // the last save was without a fault
    }
    std::printf("fault %d: %d saves refused, %d done, the folder always whole\n", how, refused, saved);
    if (how <= 2 && refused < 8) throw error("few calls were made to fail");
  }
} catch (std::exception const& e) {
  std::printf("FAILED: %s\n", e.what());
  return 1;
}
