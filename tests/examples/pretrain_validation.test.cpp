// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <pretrain/validation.hpp>

namespace pretrain_validation_test {

using namespace pretrain;

/// Its loss is the number of tokens shown; it remembers which.
class listener final : public model {
 public:
  std::vector<token> seen;
  int calls = 0;

  std::int64_t next_sentences_right(batch const& shown) override { return std::ssize(shown.lengths) - 1; }
  double evaluate(batch const& shown) override {
    ++calls;
    seen.insert(seen.end(), shown.inputs.begin(), shown.inputs.end());
    CHECK(
        std::equal(shown.inputs.begin() + 1, shown.inputs.begin() + shown.lengths[0], shown.targets.begin()));
    return static_cast<double>(shown.inputs.size());
  }

  void load(train::checkpoint const&) override {}
  void densify() override {}
  void prune(std::string const&, double, chosen_policy const&, training_program&) override {}
  void save_weights(std::string const&, tessera::io::json) const override {}
  std::vector<float> logits(std::span<token const>, std::size_t) override { return {}; }
  void begin_training(train::adamw const&) override {}
  train::token_loss learn(batch const&) override { return {}; }
  std::int64_t steps_within(double, train::planned_run const&, chosen_policy const&,
                            training_program&) override {
    return 0;
  }
  train::stop_reason train(training_settings const&, training_program&) override { return {}; }
  void save(std::string const&, tessera::io::json) const override {}
  void resume(train::checkpoint const&, chosen_policy const&) override {}
  train::progress const& progress() const override { return progress_; }
  double explored() const override { return 0; }
  train::model_patterns patterns(bool) const override { return {}; }
  std::vector<train::layer_row> layers() const override { return {}; }

 private:
  train::progress progress_;
};

std::vector<token> counting(std::size_t size) {
  std::vector<token> text(size);
  std::iota(text.begin(), text.end(), 0);
  return text;
}
const auto never = [] { return false; };

TEST_CASE("validation: the whole text is every token but the first, predicted once") {
  const auto text = counting(1003);
  const validation whole(window_text(text, 20));
  listener heard;
  const train::token_loss all = whole.loss_of(heard, 8, never);
  CHECK(whole.tokens() == 1002);
  CHECK(all.tokens == 1002);
  CHECK(all.mean() == 1);
  CHECK(heard.seen == counting(1002));
}

TEST_CASE("validation: next sentences are told of all windows") {
  const auto text = counting(1001);
  listener heard;  // is wrong once in a batch
  CHECK(validation(window_text(text, 10)).next_right(heard, 20, never) == 0.95);
  CHECK(!validation(window_text(text, 10)).next_right(heard, 20, [] { return true; }));
}

TEST_CASE("validation: a sample is spread over the text and the same every time") {
  const auto text = counting(100'001);
  const validation sample(window_text(text, 100), 1000);
  listener first, second;
  CHECK(sample.loss_of(first, 4, never).tokens == 1000);
  sample.loss_of(second, 3, never);
  CHECK(first.seen == second.seen);
  CHECK(sample.tokens() == 1000);
  std::set<int> tenths;
  for (const token t : first.seen) tenths.insert(int(t) / 10'000);
  CHECK(tenths.size() == 10);
}

TEST_CASE(
    "validation: a run has twelve evaluations, or fewer where they would take more than a tenth of it") {
  CHECK(validation::evaluations(seconds(90), seconds(0.5)) == 12);
  CHECK(validation::evaluations(seconds(90), seconds(1.5)) == 6);
  CHECK(validation::evaluations(seconds(10), seconds(5)) == 2);
  CHECK(validation::evaluations(seconds(90), seconds(0)) == 12);
}

TEST_CASE("validation: a signal ends it between two batches, without a loss") {
  const auto text = counting(1001);
  listener heard;
  int asked = 0;
  const auto all = validation(window_text(text, 10)).loss_of(heard, 5, [&] { return ++asked > 3; });
  CHECK(all.tokens == 0);
  CHECK(heard.calls == 3);
}

}  // namespace pretrain_validation_test
