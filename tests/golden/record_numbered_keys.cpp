// SPDX-License-Identifier: BSD-3-Clause
// Writes numbered_keys/: a checkpoint of a training whose keys of random choices were numbers, and the
// weights that it went on to. The library of commit 447e68e recorded them, of version 4 of checkpoints:
//   g++ -std=c++20 -O2 -march=native -I include -I tests record_numbered_keys.cpp && ./a.out numbered_keys
#include <string>

#include <train/numbered_keys.hpp>

int main(int, char** arguments) {
  using namespace numbered_keys;
  const std::string folder = arguments[1];
  context ctx(1);
  network model = some_network();
  training t = training_of(model);
  train_until(ctx, t, saved_at);
  train::save(t, folder + "/saved", io::json::object{});
  train_until(ctx, t, last);
  train::save_weights(folder + "/last", io::json::object{}, model);
}
