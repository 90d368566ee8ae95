// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 9: saving and loading. Tensors go to files that Python reads; a training goes to a checkpoint,
// from which it continues as if it had never stopped.
//
//   g++ -std=c++20 -O3 -march=native -I include examples/tutorials/9_save_and_load.cpp -pthread && ./a.out

#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <tessera/io/read_tensors.hpp>
#include <tessera/io/scipy.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/training.hpp>

using namespace tessera;
using layer = nn::linear<float, block_shape<4>>;

// Ten steps in which the layer learns to return its input.
template <class Training> void learn(context& ctx, Training& student) {
  const sequences windows = sequences::of_equal_length(64, 1);
  nn::workspace<float> room;
  panel_matrix<float> x(32, 64), y(32, 64);
  layer::saved saved;
  for (int i = 0; i < 10; ++i) {
    const auto step = static_cast<std::uint64_t>(student.progress.step);
    train::train_step(ctx, student, {.rate = 0.01}, [&](int) -> train::token_loss {
      const nn::pass<float> pass = student.pass(ctx, windows, room);
      run(ctx, x = uniform(100 + step) - 0.5);
      student.model.forward(x, y, saved, pass);
      run(ctx, y = y - x);
      const double loss = total(ctx, square(y)) / 2;
      student.model.backward(x, saved, y, nullptr, student.gradients, pass);
      return {loss, 64, pass};
    });
  }
}

int main() {
  context ctx;
  const std::string folder = (std::filesystem::temp_directory_path() / "tessera-tutorial").string() + "/";
  std::filesystem::create_directories(folder);

  // Tensors: safetensors for anything, .npz of SciPy for a sparse matrix.
  block_sparse_matrix<float, block_shape<4>> w(32, 32, random_pattern(8, 8, 0.5, /*seed*/ 1));
  w.fill(0.5f);
  const std::vector<float> bias(32, 0.25f);
  io::write_scipy(folder + "w.npz", w);  // scipy.sparse.load_npz("w.npz")
  io::write_safetensors(folder + "bias.safetensors",
                        std::vector{io::make_safetensor("bias", {32}, std::span<float const>(bias))});
  const auto same = io::read_scipy<float, block_shape<4>>(folder + "w.npz");
  feature_vector<float> b(32);
  io::read(io::safetensors_file(folder + "bias.safetensors"), "bias", b);
  std::printf("%d blocks, b[0] = %g\n", int(same.pattern().blocks()), b[0]);

  // A checkpoint holds parameters, patterns, moments and the program's own state, each with a checksum.
  layer net(32, 32, w.pattern()), other_net(32, 32, w.pattern());
  nn::initialise(net.weight, nn::distribution::xavier, /*seed*/ 1, /*its name*/ "weight");
  train::training student(net, train::adamw{}), other(other_net, train::adamw{});  // they refer to the layers
  learn(ctx, student);
  train::save(student, folder + "step-10", io::json::object{{"note", "after ten steps"}});
  learn(ctx, student);

  const train::checkpoint from(folder + "step-10");
  train::resume(other, from);
  std::printf("%s, at step %lld\n", train::program_state(from).at("note").as_string().c_str(),
              static_cast<long long>(other.progress.step));
  learn(ctx, other);
  bool equal = true;
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 32; ++j) equal &= net.weight(i, j) == other_net.weight(i, j);
  std::puts(equal ? "twenty steps: the same bits" : "twenty steps: they differ");

  // A damaged file is refused before anything is changed.
  try {
    static_cast<void>(train::checkpoint(folder + "step-11"));
  } catch (io_error const& e) {
    std::string what = e.what();
    std::printf("%s\n", what.replace(what.find(folder), folder.size(), "…/").c_str());
  }
  std::filesystem::remove_all(folder);
}

// Prints
//   32 blocks, b[0] = 0.25
//   after ten steps, at step 10
//   twenty steps: the same bits
//   [read …/step-11/tensors.safetensors] No such file or directory
