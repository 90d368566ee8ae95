// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <pretrain/windows.hpp>

#include "pretrain_programs.hpp"

namespace pretrain_phases_test {

using namespace pretrain;
namespace nn = tessera::nn;

TEST_CASE("windows: of two segments half follow each other, and the other half come from elsewhere") {
  // Token t stands at place t - 10 of the text; 1 and 2 are [CLS] and [SEP].
  std::vector<token> text(3000);
  std::iota(text.begin(), text.end(), 10);
  masked_task task{1, 2, {.mask = 3, .kinds = {}}, true};
  task.rule.kinds.assign(3010, tessera::train::token_kind::begins_word);
  std::fill_n(task.rule.kinds.begin(), 10, tessera::train::token_kind::special);
  const std::vector<std::size_t> ends{1000, 1001, 1500, 3000};
  const window_text windows(text, ends, 32, task);
  const auto document = [&](token t) {
    return std::upper_bound(ends.begin(), ends.end(), std::size_t(t - 10)) - ends.begin();
  };
  batch all;
  for (std::uint64_t step = 0; step < 400; ++step) {
    batch shown;
    windows.sample(1, step, 4, shown);
    CHECK(shown.inputs.size() <= 128);
    for (std::size_t t = 0; t < shown.inputs.size(); ++t)
      if (shown.targets[t] != nn::ignored) shown.inputs[t] = shown.targets[t];
    for (auto [from, to] : {std::pair{&shown.inputs, &all.inputs},
                            {&shown.segments, &all.segments},
                            {&shown.labels, &all.labels}})
      to->insert(to->end(), from->begin(), from->end());
    all.lengths.insert(all.lengths.end(), shown.lengths.begin(), shown.lengths.end());
  }
  REQUIRE(all.segments.size() == all.inputs.size());
  REQUIRE(all.labels.size() == all.lengths.size());
  std::size_t begin = 0;
  double lonely = 0;
  for (std::size_t i = 0; i < all.lengths.size(); ++i) {
    const auto at = all.inputs.begin() + std::ptrdiff_t(begin), end = at + all.lengths[i];
    const auto middle = std::find(at, end, 2);
    REQUIRE(*at == 1);
    REQUIRE(middle < end - 1);
    REQUIRE(*(end - 1) == 2);
    for (auto t = at; t < end; ++t)
      REQUIRE(all.segments[std::size_t(t - all.inputs.begin())] == (t > middle ? 1 : 0));
    const bool single = document(at[1]) == 1;
    lonely += single;
    if (single) {
      CHECK(end - at == 4);  // nothing follows it
      CHECK(all.labels[i] == 1);
    } else if (all.labels[i] == 0) {
      CHECK(end - at == 32);
      CHECK(*(middle + 1) == *(middle - 1) + 1);
    } else {
      CHECK(document(*(middle + 1)) != document(at[1]));
      CHECK(document(*(middle + 1)) == document(*(end - 2)));
    }
    begin += std::size_t(all.lengths[i]);
  }
  const double share = (double(std::accumulate(all.labels.begin(), all.labels.end(), 0)) - lonely) /
                       (double(all.lengths.size()) - lonely);
  CHECK(std::abs(share - 0.5) < 0.05);
}

#if defined(PRETRAIN) && defined(GENERATE) && defined(FILL_MASK) && defined(FREEZE) && defined(FINETUNE)

using namespace pretrain_programs;

TEST_CASE("pretrain: a second phase with longer sequences begins with what the first one learned") {
  const workplace here;
  std::string articles;
  for (int i = 0; i < 60; ++i)
    for (const char* part : {"one two three four five. ", "six seven eight nine ten. ", "\n\n"})
      articles += std::to_string(i) + " " + part;
  put(here.in("articles"), articles);
  const std::string first = "--model bert --vocabulary 100 --documents blank-lines --next-sentence --text " +
                            here.in("articles") + " --positions 40 ";
  const outcome one = shell(here.pretrain("one", first));
  CHECK(one.code == 0);
  CHECK(contains(one, "next sentences told rightly"));

  const std::string from = PRETRAIN " --out " + here.in("runs") + " --quiet --from " + here.in("runs/one");
  const outcome two = shell(from + " --name two --context 40 --steps 1 --lr 1e-30 --sparse-lr 1e-30");
  CHECK(two.code == 0);
  for (const char* variant : {"/dense", "/sparse"}) {  // a step so small that it leaves all as it was
    const auto positions = [&](std::string const& run) {
      std::set<std::string> of_checkpoints;
      for (std::string const& file : here.files(run)) {
        if (!("/" + file).starts_with(variant) || !file.ends_with("/tensors.safetensors")) continue;
        const tessera::io::safetensors_file tensors(here.in("runs/" + run + "/" + file));
        auto const& table = tensors.at("position_embedding");
        of_checkpoints.emplace(reinterpret_cast<const char*>(table.bytes.data()), table.bytes.size());
      }
      return of_checkpoints;
    };
    REQUIRE(positions("two").size() == 1);
    CHECK(positions("one").contains(*positions("two").begin()));
  }
  // A dense model goes on from the sparse one.
  CHECK(shell(from + " --name full --only dense --densify --steps 1 --lr 1e-30").code == 0);
  const tessera::io::safetensors_file full(here.in("runs/full/dense/step-00000001/tensors.safetensors")),
      origin(here.in("runs/full/densified/tensors.safetensors"));
  bool had_absent_blocks = false;
  for (auto const& [name, tensor] : origin.tensors()) {
    CHECK(!name.ends_with(".pattern.cols"));
    const std::size_t size = full.at(name).bytes.size();
    const auto values = [&](auto const& of) {
      std::vector<float> all(size / sizeof(float));
      std::memcpy(all.data(), in_rows(of).data(), size);
      return all;
    };
    const auto now = values(full.at(name)), then = values(tensor);
    CHECK(std::ranges::equal(now, then, [](float x, float y) { return std::abs(x - y) < 1e-20f; }));
    if (name.ends_with("up.weight"))
      had_absent_blocks = std::ranges::count(then, 0.0f) > 3 * std::ssize(then) / 5;
  }
  CHECK(had_absent_blocks);
  // It is a run as any other: it is resumed, and has the same bits.
  CHECK(shell(from + " --name whole --context 40 --steps 40").code == 0);
  CHECK(shell(from + " --name parts --context 40 --steps 40 --until-tokens 60").code == 0);
  CHECK(shell(here.resume("parts", "--until-tokens 0")).code == 0);
  for (std::string const variant : {"/dense/step-00000040", "/sparse/step-00000040"})
    CHECK(same_tensors(here.in("runs/whole") + variant, here.in("runs/parts") + variant));

  // One that was interrupted before it had a checkpoint of its own needs that of the first, as it was.
  fs::copy(here.in("runs/whole"), here.in("runs/begun"), fs::copy_options::recursive);
  fs::remove_all(here.in("runs/begun/sparse"));
  CHECK(shell(here.resume("begun")).code == 0);
  CHECK(same_tensors(here.in("runs/whole/sparse/step-00000040"), here.in("runs/begun/sparse/step-00000040")));
  // Also where it was interrupted before it had written its first checkpoints.
  fs::remove_all(here.in("runs/begun/dense")), fs::remove_all(here.in("runs/begun/sparse"));
  fs::remove(here.in("runs/begun/from.json"));
  CHECK(shell(here.resume("begun")).code == 0);
  CHECK(same_tensors(here.in("runs/whole/sparse/step-00000040"), here.in("runs/begun/sparse/step-00000040")));
  const auto refused = [&](std::string const& command, int code, std::string const& why) {
    const outcome result = shell(command);
    CHECK(result.code == code);
    CHECK(contains(result, why));
  };
  refused(from + " --name no --context 41", 2, "[--context] 41 tokens are more than the 40 positions");
  refused(from + " --name no --hidden 64", 2, "[--hidden] is 32 in the run of --from, not 64");
  refused(from + " --name no --densify", 2, "[--densify] makes a dense model of a sparse one: say --from");
  fs::copy(here.in("runs/one"), here.in("swapped"), fs::copy_options::recursive);
  fs::remove_all(here.in("swapped/sparse"));
  fs::copy(here.in("swapped/dense"), here.in("swapped/sparse"), fs::copy_options::recursive);
  refused(PRETRAIN " --out " + here.in("runs") + " --quiet --only sparse --name no --steps 1 --from " +
              here.in("swapped"),
          1, "should be \"sparse\"");
  refused(from + " --name no --preset mini", 2, "[--preset] has no meaning with --from");
  refused(from + " --name no --config x", 2, "[--config] has no meaning with --from");
  refused(here.pretrain("no", "--config " + here.in("runs/whole/settings.json")), 2,
          "whole/settings.json is of a run that began from another: begin with --from");
  refused(PRETRAIN " --from " + here.in("nothing"), 2, "nothing is not the folder of a run");
  refused(here.pretrain("no", "--next-sentence"), 2, "[--next-sentence] has no meaning with --model gpt");
  refused(here.pretrain("no", "--model bert --vocabulary 300 --next-sentence"), 2,
          "the training part of " + here.in("text") + " has 1 document");
  CHECK(shell(from + " --name stopped --context 40 --steps 40 --until-tokens 60").code == 0);
  fs::remove_all(here.in("runs/one/dense"));
  refused(from + " --name no", 2, "runs/one has no checkpoint of a dense model; say --only sparse");
  CHECK(!fs::exists(here.in("runs/no")));
  fs::remove_all(here.in("runs/begun/sparse"));
  for (auto const& entry : fs::recursive_directory_iterator(here.in("runs/one")))
    if (entry.path().filename() == "state.json")
      put(entry.path().string(), contents(entry.path().string()) + "\n");
  refused(here.resume("begun"), 2, "with which the sparse model of this run begins, has changed");
  fs::remove_all(here.in("runs/stopped/sparse"));  // refused before the dense model is trained to its end
  refused(here.resume("stopped", "--until-tokens 0"), 2,
          "with which the sparse model of this run begins, has changed");
  CHECK(!here.files("stopped").contains("dense/step-00000040/state.json"));
  fs::remove_all(here.in("runs/one"));
  CHECK(shell(here.resume("whole")).code == 0);
}

#endif

}  // namespace pretrain_phases_test
