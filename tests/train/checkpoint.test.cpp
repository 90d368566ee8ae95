// SPDX-License-Identifier: BSD-3-Clause
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <sys/resource.h>
#include <train/changed_checkpoint.hpp>
#include <train/toy_model.hpp>

#include <tessera/train/checkpoint.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/optimizers/sgd.hpp>

namespace checkpoint_test {

using namespace tessera;
using namespace changed_checkpoint;
using train::adamw;
using train::checkpoint;

using model = toy::model<float>;

/// A model, moments and gradients that are all different.
struct everything {
  explicit everything(std::uint64_t seed) : parameters(seed), gradients(parameters) {
    nn::set_zero(gradients);
    model moment = parameters;
    for (auto* tensor : {&moment.up, &gradients.up}) support::fill(*tensor, seed + 10);
    train::set_elements(state, "first_moment", moment);
    support::fill(moment.down, seed + 20);
    support::fill(moment.bias, seed + 30);
    train::set_elements(state, "second_moment", moment);
    state.updates = std::int64_t(seed);
  }
  model parameters, gradients;
  train::optimizer_state state = train::initial_state(adamw{}, parameters);

  void save(std::string const& folder) const {
    train::save_checkpoint(folder, io::json::object{{"answer", 42}}, parameters, state);
  }
  void load(std::string const& folder) { checkpoint(folder).load(parameters, state, gradients); }

  friend bool operator==(everything const& a, everything const& b) {
    return toy::same_bits(a.parameters, b.parameters) && a.state == b.state;
  }
};

/// The message of the io_error with which loading fails, after a look that nothing has changed.
std::string refusal(std::string const& folder) {
  everything target(2);
  const everything before = target;
  const std::string what = error_of<io_error>([&] { target.load(folder); });
  CHECK(target == before);
  CHECK(target.gradients.up.pattern() == before.gradients.up.pattern());
  return what;
}

TEST_CASE("checkpoint: all bits come back and patterns with them") {
  const scratch_folder scratch;
  const everything saved(1);
  saved.save(scratch / "runs/one/step");
  everything loaded(2);
  REQUIRE(!(loaded == saved));
  const checkpoint file(scratch / "runs/one/step");
  CHECK(file.state().at("answer").as_integer() == 42);
  CHECK(file.notes(loaded.parameters).empty());
  file.load(loaded.parameters, loaded.state, loaded.gradients);
  CHECK(loaded == saved);
  CHECK(loaded.gradients.up.pattern() == saved.parameters.up.pattern());
}

TEST_CASE("checkpoint: the parameters can be read without the moments") {
  const scratch_folder scratch;
  const everything saved(1);
  saved.save(scratch / "c");
  model loaded(2);
  checkpoint(scratch / "c").load(loaded);
  CHECK(toy::same_bits(loaded, saved.parameters));
}

TEST_CASE("checkpoint: weights alone are read for inference, and no training goes on from them") {
  const scratch_folder scratch;
  const everything saved(1);
  train::save_weights(scratch / "frozen", io::json::object{{"answer", 43}}, saved.parameters);
  everything loaded(2);
  const checkpoint file(scratch / "frozen");
  CHECK(file.state().at("answer").as_integer() == 43);
  file.load(loaded.parameters);
  CHECK(toy::same_bits(loaded.parameters, saved.parameters));
  CHECK(contains(refusal(scratch / "frozen"), "no tensor"));
}

TEST_CASE("checkpoint: dense matrices are stored row by row and need no pattern") {
  const scratch_folder scratch;
  everything saved(1);
  saved.save(scratch / "c");
  const io::safetensors_file file(scratch / "c/tensors.safetensors");
  CHECK(!file.contains("down.pattern.cols"));
  CHECK(file.contains("up.pattern.cols"));
  std::vector<float> down(5 * 24);
  file.read_into("down", {5, 24}, std::span(down));
  for (int i = 0; i < 5; ++i)
    for (int j = 0; j < 24; ++j) CHECK(down[std::size_t(i * 24 + j)] == saved.parameters.down(i, j));
  CHECK(file.at("up.second_moment").shape ==
        std::vector<std::int64_t>{saved.parameters.up.pattern().blocks(), 4, 4});
}

TEST_CASE("checkpoint: a new one replaces that of the same folder") {
  const scratch_folder scratch;
  everything(1).save(scratch / "c");
  everything(3).save(scratch / "c");
  everything loaded(2);
  loaded.load(scratch / "c");
  CHECK(loaded == everything(3));
  CHECK(scratch.files() == 1);
}

TEST_CASE("checkpoint: a folder that holds something else stays as it is") {
  const scratch_folder scratch;
  const everything first(1), second(2);
  first.save(scratch / "step");
  io::write_atomically(scratch / "step/notes.txt", "mine");
  const std::string what = error_of<io_error>([&] { second.save(scratch / "step"); });
  CHECK(contains(what, "notes.txt"));
  everything loaded(3);
  loaded.load(scratch / "step");
  CHECK(loaded == first);
}

TEST_CASE("checkpoint: errors and notes are short whatever its files hold") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c", name(10'000, 'x');
  const auto check_short = [&](std::string const& text) {
    INFO(text);
    CHECK((text.size() > 0 && text.size() < 450));
    CHECK(contains(text, std::string(90, 'x')));
  };
  const everything saved(1);
  saved.save(folder);
  put_metadata(folder, io::checksums::in_metadata, [&](auto& metadata) {
    for (auto& [key, text] : metadata)
      if (key.starts_with("tessera.matrix.")) text = name;
  });
  check_short(refusal(folder));

  saved.save(folder);
  {
    const io::safetensors_file file(folder + "/tensors.safetensors");
    std::vector<io::safetensor> all{{name, "U8", {0}, {}}};
    for (auto const& [its_name, tensor] : file.tensors()) all.push_back(tensor);
    io::write_safetensors(file.path(), all, file.metadata(), io::checksums::in_metadata);
  }
  check_short(refusal(folder));

  const auto with = [&](auto&& change) {
    saved.save(folder);
    io::json state = io::parse_json(io::read_file(folder + "/state.json"));
    change(state);
    put_state(folder, io::to_text(state));
  };
  with([&](io::json& state) { state["arithmetic"] = name; });
  check_short(train::checkpoint(folder).notes(saved.parameters).at(0));
  with([&](io::json& state) { state["architecture"][name] = 1; });
  check_short(refusal(folder));
  with([&](io::json& state) { state["architecture"][name + ".1"] = 1; });
  check_short(refusal(folder));
  with([&](io::json& state) { state["architecture"]["other"] = name; });
  check_short(refusal(folder));
}

TEST_CASE("checkpoint: truncated or missing files are refused and change nothing") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c", tensors = folder + "/tensors.safetensors",
                    state = folder + "/state.json";
  everything(1).save(folder);
  const std::string tensor_bytes = io::read_file(tensors), state_bytes = io::read_file(state);
  for (const std::size_t length :
       {std::size_t(0), std::size_t(5), std::size_t(200), tensor_bytes.size() / 2, tensor_bytes.size() - 1}) {
    put(tensors, tensor_bytes.substr(0, length));
    CHECK(contains(refusal(folder), tensors));
  }
  put(tensors, tensor_bytes);
  for (const std::size_t length : {std::size_t(0), std::size_t(10), state_bytes.size() - 3}) {
    put(state, state_bytes.substr(0, length));
    CHECK(contains(refusal(folder), state));
  }
  std::filesystem::remove(state);
  CHECK(contains(refusal(folder), state));
  put(state, state_bytes);
  std::filesystem::remove(tensors);
  CHECK(contains(refusal(folder), tensors));
  CHECK(contains(refusal(scratch / "nowhere"), "nowhere"));
}

TEST_CASE("checkpoint: a changed bit anywhere in the tensors is found and changes nothing") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c", tensors = folder + "/tensors.safetensors";
  everything(1).save(folder);
  const std::string bytes = io::read_file(tensors);
  everything target(2);
  const everything before = target;
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  // A header without its checksum's key is parsed, and one of another length may end before it.
  const std::string key = "\"tessera.header\":\"";
  const std::size_t key_at = bytes.find(key);
  const auto is_told = [&](std::size_t i) { return i >= 8 && (i < key_at || i >= key_at + key.size()); };
  std::size_t tried = 0, found = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (std::size_t bit = 0; bit < 8; ++bit) {
      if (i >= 8 + header && bit != (i + i / 8) % 8) continue;  // in the data one bit of each byte
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      put(tensors, changed);
      ++tried;
      const std::string what = error_of<io_error>([&] { target.load(folder); });
      found += contains(what, i >= 8 + header ? "some were changed" : is_told(i) ? "the header" : tensors);
    }
  CHECK(found == tried);
  CHECK(target == before);
}

TEST_CASE("checkpoint: a changed bit is found before the tensors are read") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c", tensors = folder + "/tensors.safetensors";
  everything(1).save(folder);
  train::checkpoint(folder).require_whole();
  std::string bytes = io::read_file(tensors);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put(tensors, bytes);
  const std::string what = error_of<io_error>([&] { train::checkpoint(folder).require_whole(); });
  CHECK(contains(what, "some were changed"));
  everything target(2);
  CHECK(error_of<io_error>([&] { target.load(folder); }) == what);
}

TEST_CASE("checkpoint: one of an earlier version is read and notes say what it lacks") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c";
  const everything saved(1);
  for (const int version : {1, 2, 3}) {
    saved.save(folder);
    make_version(version, folder);
    everything loaded(2);
    const checkpoint file(folder);
    const std::vector<std::string> notes = file.notes(loaded.parameters);
    REQUIRE(notes.size() == std::size_t(4 - version));
    if (version == 1) CHECK(contains(notes[0], "is of version 1, which has no checksums"));
    if (version < 3) CHECK(contains(notes[std::size_t(2 - version)], "which says nothing of heads, "));
    CHECK(contains(notes.back(),
                   message("is of version ", version, ", which says nothing of the blocks that heads see")));
    file.load(loaded.parameters, loaded.state, loaded.gradients);
    CHECK(loaded == saved);
  }
}

TEST_CASE("checkpoint: masters of float parameters, which older files have, are read over; others are not") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c";
  using narrow = toy::model<bfloat16>;
  narrow m(1);
  auto state = train::initial_state(adamw{}, m);
  for (char const* extra : {"bias.master", "bias.other"}) {
    train::save_checkpoint(folder, io::json::object{}, m, state);
    {
      const io::safetensors_file file(folder + "/tensors.safetensors");
      CHECK(file.contains("up.master"));
      CHECK(!file.contains("bias.master"));
      std::vector<io::safetensor> all;
      for (auto const& [name, tensor] : file.tensors()) all.push_back(tensor);
      all.push_back(io::make_safetensor(extra, {m.bias.size()}, std::span<float const>(m.bias.data(), 24)));
      const auto metadata = file.metadata();
      io::write_safetensors(file.path(), all, metadata, io::checksums::in_metadata);
    }
    narrow other(2);
    auto its = train::initial_state(adamw{}, other);
    auto gradients = nn::zeros_like(other);
    const auto load = [&] { checkpoint(folder).load(other, its, gradients); };
    if (std::string(extra) == "bias.master") {
      load();
      CHECK(toy::same_bits(other, m));
      CHECK(its == state);
    } else {
      CHECK(contains(error_of<io_error>(load), "\"bias.other\" is none of them"));
    }
  }
}

TEST_CASE("checkpoint: one that lacks a checksum its version has is refused") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c";
  const auto without = [&](char const* key) {
    return [key](auto& metadata) { CHECK(metadata.erase(key) == 1); };
  };
  everything(1).save(folder);
  put_metadata(folder, io::checksums::none, without("tessera.header"));
  CHECK(contains(refusal(folder), "byte 8: no checksum of the header"));
  everything(1).save(folder);
  make_version(2, folder);
  put_metadata(folder, io::checksums::none, without("tessera.checksum.up.pattern.cols"));
  CHECK(contains(refusal(folder), "no checksum of tensor \"up.pattern.cols\""));
}

TEST_CASE("checkpoint: foreign and future files and halves of two checkpoints are refused") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c", state = folder + "/state.json";
  everything(1).save(folder);
  const std::string bytes = io::read_file(state);
  const auto changed = [&](std::string const& from, std::string const& to) {
    std::string text = bytes;
    REQUIRE(contains(text, from));
    return text.replace(text.find(from), from.size(), to);
  };
  const auto with = [&](std::string const& from, std::string const& to) {
    put_state(folder, changed(from, to));
    return refusal(folder);
  };
  CHECK(contains(with("\"tessera.checkpoint\"", "\"other\""), "should be \"tessera.checkpoint\""));
  CHECK(contains(with("\"version\": 6", "\"version\": 2"),
                 "is 2, but " + folder + "/tensors.safetensors is of version 6"));
  CHECK(contains(with("\"version\"", "\"edition\""), "has no member \"version\""));
  CHECK(contains(with("\"architecture\"", "\"building\""), "has no member \"architecture\""));
  put_state(folder, bytes);
  CHECK(everything(1) == [&] {
    everything e(2);
    e.load(folder);
    return e;
  }());
  put_metadata(folder, io::checksums::in_metadata, [](auto& metadata) { metadata["tessera.version"] = "7"; });
  CHECK(contains(refusal(folder), "of version 7, but versions 1 to 6 can be read"));

  everything(1).save(folder);
  for (std::string const& text : {changed("42", "43"), changed("{", "?"), std::string()}) {
    put(state, text);
    CHECK(refusal(folder) == "[read " + state + "] not the file that was written with " + folder +
                                 "/tensors.safetensors: one of them was changed or replaced");
  }
  everything(3).save(scratch / "d");
  std::filesystem::copy_file(scratch / "d/state.json", state,
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(contains(refusal(folder), "one of them was changed"));
}

TEST_CASE("checkpoint: tensors of another model or optimizer are refused") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c";
  const auto refused_after = [&](auto change) {
    everything(1).save(folder);
    const io::safetensors_file file(folder + "/tensors.safetensors");
    std::vector<io::safetensor> tensors;
    for (auto const& [name, tensor] : file.tensors()) tensors.push_back(tensor);
    change(tensors);
    io::write_safetensors(folder + "/tensors.safetensors", tensors, file.metadata(),
                          io::checksums::in_metadata);
    return refusal(folder);
  };
  const auto named = [](std::vector<io::safetensor>& all, std::string const& name) {
    return std::find_if(all.begin(), all.end(), [&](io::safetensor const& t) { return t.name == name; });
  };
  const std::vector<float> numbers(1000);
  const std::vector<std::int32_t> indices(1000, 7);
  CHECK(contains(refused_after([&](auto& all) { all.erase(named(all, "bias")); }), "no tensor \"bias\""));
  CHECK(contains(refused_after([&](auto& all) { all.erase(named(all, "down.second_moment")); }),
                 "no tensor \"down.second_moment\""));
  CHECK(contains(refused_after([&](auto& all) { all.erase(named(all, "up.pattern.row_start")); }),
                 "no tensor \"up.pattern.row_start\""));
  CHECK(contains(refused_after([&](auto& all) {
                   all.push_back(io::make_safetensor("more", {3}, std::span(numbers).first(3)));
                 }),
                 "12 tensors, but this model and optimizer have 11: \"more\" is none of them"));
  CHECK(contains(refused_after([&](auto& all) {
                   *named(all, "bias") = io::make_safetensor("bias", {25}, std::span(numbers).first(25));
                 }),
                 "should be F32 (24)"));
  CHECK(contains(refused_after([&](auto& all) {
                   auto const cols = named(all, "up.pattern.cols");
                   *cols = io::make_safetensor(cols->name, cols->shape,
                                               std::span(indices).first(cols->bytes.size() / 4));
                 }),
                 "the pattern of \"up\""));

  toy::model<double> wide(1);
  everything(1).save(folder);
  CHECK(contains(error_of<io_error>([&] { checkpoint(folder).load(wide); }), "should be F64"));
  model other(1);
  auto momentum = train::initial_state(train::sgd{}, other);
  auto gradients = nn::zeros_like(other);
  CHECK(
      contains(error_of<io_error>([&] { checkpoint(folder).load(other, momentum, gradients); }), "momentum"));
}

TEST_CASE("checkpoint: a full disk leaves the earlier ones as they were") {
  const scratch_folder scratch;
  everything(1).save(scratch / "old");
  auto const handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  for (const rlim_t limit : {rlim_t(100), rlim_t(3000)}) {
    const rlimit tight{limit, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &tight) == 0);
    const std::string same = error_of<io_error>([&] { everything(3).save(scratch / "old"); });
    const std::string another = error_of<io_error>([&] { everything(3).save(scratch / "new"); });
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK(contains(same, "File too large"));
    CHECK(contains(another, "File too large"));
  }
  std::signal(SIGXFSZ, handler);
  CHECK(scratch.files() == 1);
  everything loaded(2);
  loaded.load(scratch / "old");
  CHECK(loaded == everything(1));
}

TEST_SUITE_BEGIN("slow");

TEST_CASE("checkpoint: every random edit of one of its files is found and changes nothing") {
  const scratch_folder scratch;
  const std::string folder = scratch / "c";
  everything(1).save(folder);
  everything target(2);
  const everything before = target;
  const random_stream random(11, random_purpose::test);
  std::uint64_t drawn = 0;
  const auto below = [&](std::size_t n) { return std::size_t(random.below(drawn++, n)); };
  for (const char* name : {"/tensors.safetensors", "/state.json"}) {
    const std::string file = folder + name, whole = io::read_file(file);
    int tried = 0, found = 0;
    for (int round = 0; round < 50000; ++round) {
      std::string bytes = whole;
      for (std::size_t n = 1 + below(4); n > 0; --n) {
        const std::size_t at = below(bytes.size()), other = below(bytes.size());
        switch (below(5)) {
          case 0:
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
            break;
          case 1:
            std::swap(bytes[at], bytes[other]);
            break;
          case 2:
            bytes.erase(at, 1 + below(16));
            break;
          case 3:
            bytes.insert(at, bytes.substr(other, 1 + below(16)));
            break;
          default:
            bytes.replace(at, 8, bytes.substr(other, 8));
        }
      }
      if (bytes == whole) continue;
      put(file, bytes);
      ++tried;
      found += !error_of<io_error>([&] { target.load(folder); }).empty();
    }
    CHECK(tried > 40000);
    CHECK(found == tried);
    put(file, whole);
  }
  CHECK(target == before);
  target.load(folder);
  CHECK(target == everything(1));
}

TEST_SUITE_END();

}  // namespace checkpoint_test
