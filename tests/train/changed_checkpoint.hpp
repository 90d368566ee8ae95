// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <io/scratch_folder.hpp>

#include <tessera/train/checkpoint.hpp>

// Checkpoints whose files are changed: their metadata, state or version.

namespace changed_checkpoint {

using namespace tessera;

/// Writes the tensors again, with other metadata.
void put_metadata(std::string const& folder, io::checksums wanted, auto const& change) {
  const io::safetensors_file file(folder + "/tensors.safetensors");
  std::vector<io::safetensor> all;
  for (auto const& [name, tensor] : file.tensors()) all.push_back(tensor);
  auto metadata = file.metadata();
  change(metadata);
  io::write_safetensors(file.path(), all, metadata, wanted);
}

/// Replaces the state by a text, and its hash.
inline void put_state(std::string const& folder, std::string const& text,
                      io::checksums wanted = io::checksums::in_metadata) {
  put(folder + "/state.json", text);
  put_metadata(folder, wanted,
               [&](auto& metadata) { metadata["tessera.state"] = std::to_string(content_hash(text)); });
}

/// Makes a checkpoint one of version 1 or 2.
inline void make_version(int version, std::string const& folder) {
  io::json state = io::parse_json(io::read_file(folder + "/state.json"), folder);
  io::json::object older;
  for (io::json_member const& member : *state.get_if<io::json::object>())
    if (version >= 3 || member.key != "architecture") older.push_back(member);
  state = std::move(older);
  state["version"] = version;
  // Tensors that are carried over have checksums already, in version 2.
  const auto checks = version < 3 ? io::checksums::none : io::checksums::in_metadata;
  put_state(folder, io::to_text(state, 1), checks);
  put_metadata(folder, checks, [&](auto& metadata) {
    metadata["tessera.version"] = std::to_string(version);
    if (version == 1)
      std::erase_if(metadata, [](auto const& entry) {
        return entry.first.starts_with("tessera.checksum.") || entry.first.starts_with("tessera.matrix.");
      });
  });
}

inline bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != text.npos;
}

}  // namespace changed_checkpoint
