// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>
#include <train/numbered_keys.hpp>

#include <tessera/core/hash.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/dropout.hpp>
#include <tessera/nn/linear.hpp>
#include <tessera/nn/top_kast.hpp>
#include <tessera/train/any_layer.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/random_keys.hpp>

namespace random_keys_test { namespace {

using namespace numbered_keys;

const std::string recorded = TESSERA_SOURCE_DIR "/tests/golden/numbered_keys";

/// Whether two models have the same patterns, and values that differ by the last bits of an instruction set.
bool agree(network const& one, network const& other) {
  const nn::parameter_list a(one), b(other);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].tensor.is_matrix() && a[i].tensor.pattern() != b[i].tensor.pattern()) return false;
    const std::vector<double> x = a[i].tensor.values(), y = b[i].tensor.values();
    for (std::size_t k = 0; k < x.size(); ++k)
      if (!(std::abs(x[k] - y[k]) <= 1e-4)) return false;
  }
  return true;
}
network recorded_end() {
  network end = some_network();
  train::checkpoint(recorded + "/last").load(end);
  return end;
}
void resume(training& t, std::string const& folder) { train::resume(t, train::checkpoint(folder)); }

TEST_CASE("random keys: a run from a checkpoint whose keys were numbers goes on as it would have then") {
  context ctx(2);
  const network end = recorded_end();
  const scratch_folder folder;
  for (const std::int64_t between : {saved_at, std::int64_t{9}, last}) {
    network model = some_network(), again = some_network();
    training t = training_of(model), u = training_of(again);
    resume(t, recorded + "/saved");
    train_until(ctx, t, between);
    train::save(t, folder / "saved", io::json::object{});
    resume(u, folder / "saved");
    CHECK(u.keys == train::stream_keys::numbers);
    train_until(ctx, u, last);
    CHECK(agree(again, end));
  }
}

TEST_CASE("random keys: neither by the names of matrices nor by those of dropouts would it go on so") {
  context ctx(2);
  const network end = recorded_end();
  network by_matrices = some_network(), by_dropouts = some_network();
  training t = training_of(by_matrices), u = training_of(by_dropouts);
  resume(t, recorded + "/saved");
  t.keys = train::stream_keys::names;
  train_until(ctx, t, last);
  CHECK(!agree(by_matrices, end));
  resume(u, recorded + "/saved");
  by_dropouts.next_sentence.pooled_dropout.key = "next_sentence.pooled_dropout";
  train_until(ctx, u, last);
  CHECK(!agree(by_dropouts, end));
}

/// The keys of dropouts with which a model goes on.
std::vector<std::uint64_t> kept(io::json const& state, train::mutable_any_layer const& model) {
  std::vector<std::uint64_t> all;
  for (auto const& one : train::detail::kept_keys(io::json_place(state), model)) all.push_back(one.key.value);
  return all;
}
std::vector<std::uint64_t> kept(io::json const& state) {
  network model = some_network();
  return kept(state, model);
}

/// Two dropouts, of which a layer around it keeps a copy.
struct two_dropouts {
  nn::linear<float, block_shape<4>> first, second;
  nn::dropout<float> drop, next;

  using gradients = two_dropouts;
  struct saved {};

  static void parts(auto& each, auto&... of) {
    each("first", of.first...);
    each("drop", of.drop...);
    each("second", of.second...);
    each("next", of.next...);
  }
};

TEST_CASE(
    "random keys: a program's own numbers stay, and a frozen copy of a dropout has the key of the dropout") {
  const two_dropouts named{{8, 8}, {8, 8}, {0.1, "drop"}, {0.1, "next"}},
      numbered{{8, 8}, {8, 8}, {0.1, 7}, {0.1, 5}};
  const io::json before = io::json::object{{"step", 6}};
  nn::top_kast<float, two_dropouts> copied(named, 0.5), own(numbered, 0.5);
  CHECK(kept(before, copied) == std::vector<std::uint64_t>{0, 1, 0, 1});
  CHECK(kept(before, own) == std::vector<std::uint64_t>{7, 5, 7, 5});
}

TEST_CASE("random keys: a checkpoint that says nothing of dropout numbered the layers in their order") {
  CHECK(kept(io::json::object{{"step", 6}}) == std::vector<std::uint64_t>{0, 1, 2, 3, 4, 9});
}

TEST_CASE("random keys: a dropout that a checkpoint does not know has its name as key") {
  const io::json state =
      io::json::object{{"settings", io::json::object{{"model.block.1.mlp_dropout.layer", 7}}}};
  const std::vector<std::uint64_t> keys = kept(state);
  CHECK(keys[0] == content_hash("embedding_dropout"));
  CHECK(keys[4] == 7);
  CHECK(keys[5] == content_hash("next_sentence.pooled_dropout"));
}

TEST_CASE("random keys: dropouts that would drop the same features are refused, unless they drop nothing") {
  network model = some_network();
  model.blocks.layers[1].mlp_dropout.key = model.embedding_dropout.key;
  CHECK(error_of<option_error>([&] { training_of(model); }) ==
        "[training] embedding_dropout and block.1.mlp_dropout would drop the same features, because they "
        "have one "
        "key: construct each with its own name in the model, nn::dropout(rate, \"block.1.mlp_dropout\")");
  model.blocks.layers[1].mlp_dropout.rate = 0;
  training_of(model);
}

TEST_CASE("random keys: a new run keeps names, and an unknown kind of keys is refused") {
  const scratch_folder folder;
  network model = some_network(), again = some_network();
  training t = training_of(model), u = training_of(again);
  train::save(t, folder / "new", io::json::object{});
  again.embedding_dropout.key = 5;  // a checkpoint's key wins
  u.keys = train::stream_keys::numbers;
  resume(u, folder / "new");
  CHECK(u.keys == train::stream_keys::names);
  CHECK(again.embedding_dropout.key == random_key("embedding_dropout"));
  const io::json state = io::json::object{{"random_keys", "colours"}};
  CHECK(error_of<io_error>([&] { train::detail::stream_keys_in(io::json_place(state)); }) ==
        "[json] random_keys should be \"names\" or \"numbers\"");
}

}}  // namespace random_keys_test
