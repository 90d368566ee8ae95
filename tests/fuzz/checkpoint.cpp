// SPDX-License-Identifier: BSD-3-Clause
#include <fstream>
#include <string>
#include <string_view>

#include <io/scratch_folder.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/adamw.hpp>

using namespace tessera;

// A checkpoint of which one file is the fuzzer's, named by the first byte, and the other is right. They
// belong to each other, and checksums are right or absent.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  using model = toy::model<float>;
  static const std::string folder = "/dev/shm/tessera-fuzz-checkpoint-" + std::to_string(::getpid());
  static model parameters(1), gradients(1);
  static train::optimizer_state<train::adamw, model> state;
  static std::string tensors_file, state_file, right_tensors, right_state;
  if (tensors_file.empty()) {
    for (auto& moment : state.tensors) moment = parameters;
    train::save_checkpoint(folder, io::json::object{{"answer", 42}}, parameters, state);
    tensors_file = train::detail::tensors_path(folder), state_file = train::detail::state_path(folder);
    right_tensors = io::read_file(tensors_file), right_state = io::read_file(state_file);
    std::atexit([] { std::filesystem::remove_all(folder); });
  }
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<char const*>(bytes) + 1, size - 1);
  const auto put_file = [](std::string const& path, std::string_view content) {
    std::ofstream(path, std::ios::binary).write(content.data(), std::streamsize(content.size()));
  };
  try {
    if (bytes[0] == 't') {
      put_file(tensors_file, input);
      put_file(state_file, right_state);
    } else {
      put_file(tensors_file, right_tensors);
      put_file(state_file, input);
      const io::safetensors_file right(tensors_file);
      std::vector<io::safetensor> all;
      for (auto const& [name, tensor] : right.tensors()) all.push_back(tensor);
      auto metadata = right.metadata();
      metadata["tessera.state"] = std::to_string(io::content_hash(std::string(input)));
      io::write_safetensors(tensors_file, all, metadata, io::checksums::in_metadata);
    }
    train::checkpoint(folder).load(parameters, state, gradients);
  } catch (error const&) {
  }
  return 0;
}
