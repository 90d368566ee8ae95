// SPDX-License-Identifier: BSD-3-Clause
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <fuzz/memory_file.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/adamw.hpp>

using namespace tessera;

// The header of a file of tensors, with its length, that belongs to another state.json.
std::string header_for(std::string header, std::string const& right_state, std::string_view state) {
  const std::string was = std::to_string(content_hash(right_state));
  header.replace(header.find(was), was.size(), std::to_string(content_hash(std::string(state))));
  while (header.size() % 8 != 0) header += ' ';
  const std::size_t at = io::detail::own_checksum_at(header);
  const std::string own = io::detail::own_checksum(header, at);
  const std::uint64_t length = header.replace(at, own.size(), own).size();
  return std::string(reinterpret_cast<char const*>(&length), sizeof(length)) + header;
}

// A checkpoint of which one file is the fuzzer's, named by the first byte, and the other is right. They
// belong to each other, and checksums are right or absent. Both are in memory: opening files takes longer.
extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* bytes, std::size_t size) {
  using model = toy::model<float>;
  static const std::string folder = "/dev/shm/tessera-fuzz-checkpoint-" + std::to_string(::getpid());
  static model parameters(1), gradients(1);
  static train::optimizer_state state = train::initial_state(train::adamw{}, parameters);
  static const memory_file tensors_file, state_file;
  static std::string right_header, right_data, right_state;
  if (right_state.empty()) {
    for (char const* moment : {"first_moment", "second_moment"})
      train::set_elements(state, moment, parameters);
    train::save_checkpoint(folder, io::json::object{{"answer", 42}}, parameters, state);
    const std::string tensors_path = train::detail::tensors_path(folder),
                      state_path = train::detail::state_path(folder);
    const std::string right_tensors = io::read_file(tensors_path);
    right_state = io::read_file(state_path);
    std::uint64_t length = 0;
    std::memcpy(&length, right_tensors.data(), sizeof(length));
    right_header = right_tensors.substr(sizeof(length), length);
    right_data = right_tensors.substr(sizeof(length) + length);
    for (auto const& [path, file] :
         {std::pair(tensors_path, &tensors_file), std::pair(state_path, &state_file)}) {
      std::filesystem::remove(path);
      std::filesystem::create_symlink(file->path, path);
    }
    std::atexit([] { std::filesystem::remove_all(folder); });
  }
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<char const*>(bytes) + 1, size - 1);
  if (bytes[0] == 't') {
    tensors_file.put(input);
    state_file.put(right_state);
  } else {
    tensors_file.put(header_for(right_header, right_state, input) + right_data);
    state_file.put(input);
  }
  try {
    train::checkpoint(folder).load(parameters, state, gradients);
  } catch (error const&) {
  }
  return 0;
}
