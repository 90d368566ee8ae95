// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <pretrain/validation.hpp>

namespace pretrain_validation_test {

using namespace pretrain;

struct nothing {
  using gradients = nothing;
  static void parts(auto&, auto&...) {}
};

/// Its loss is the number of tokens shown; it remembers which. It is wrong about the first sequence of each
/// batch.
class listener final : public train::any_model {
 public:
  std::vector<token> seen;
  int calls = 0;

  double forward(batch const& shown, nn::any_pass const&) override {
    ++calls;
    seen.insert(seen.end(), shown.inputs.begin(), shown.inputs.end());
    CHECK(
        std::equal(shown.inputs.begin() + 1, shown.inputs.begin() + shown.lengths[0], shown.targets.begin()));
    return static_cast<double>(shown.inputs.size());
  }
  std::vector<float> sequence_logits(batch const& shown, nn::any_pass const&) override {
    std::vector<float> all;
    for (std::size_t i = 0; i < shown.labels.size(); ++i) {
      const auto is_next = float((shown.labels[i] == 0) == (i > 0));
      all.insert(all.end(), {is_next, 1 - is_next});
    }
    return all;
  }

  train::trainable_layer layer() override { return nothing_; }
  void backward(batch const&, train::owned_layer&, nn::any_pass const&) override {}
  std::vector<float> token_logits(batch const&, std::int64_t, nn::any_pass const&) override { return {}; }
  std::unique_ptr<nn::any_decoding> decoding(tessera::context&, nn::decoding_options const&) const override {
    return nullptr;
  }

 private:
  nothing nothing_;
};

/// A listener as a model.
struct heard_model {
  tessera::context ctx{1};
  model all{std::make_unique<listener>(), ctx};
  listener& heard = static_cast<listener&>(*all.network);
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
  heard_model m;
  const train::token_loss all = whole.loss_of(m.all, 8, never);
  CHECK(whole.tokens() == 1002);
  CHECK(all.tokens == 1002);
  CHECK(all.mean() == 1);
  CHECK(m.heard.seen == counting(1002));
}

TEST_CASE("validation: next sentences are told of all windows") {
  const auto text = counting(1001);
  const std::vector<std::size_t> ends{400, 1001};
  masked_task task{1, 2, {.mask = 3, .kinds = {}}, true};
  task.rule.kinds.assign(1001, train::token_kind::begins_word);
  const auto windows = [&] { return validation(window_text(text, ends, 13, task)); };
  heard_model m;
  const double sequences = 40 + 61;  // of ten tokens in each document; a batch of 20 is wrong once
  CHECK(*windows().next_right(m.all, 20, never) == doctest::Approx((sequences - 6) / sequences));
  CHECK(!windows().next_right(m.all, 20, [] { return true; }));
}

TEST_CASE("validation: a sample is spread over the text and the same every time") {
  const auto text = counting(100'001);
  const validation sample(window_text(text, 100), 1000);
  heard_model first, second;
  CHECK(sample.loss_of(first.all, 4, never).tokens == 1000);
  sample.loss_of(second.all, 3, never);
  CHECK(first.heard.seen == second.heard.seen);
  CHECK(sample.tokens() == 1000);
  std::set<int> tenths;
  for (const token t : first.heard.seen) tenths.insert(int(t) / 10'000);
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
  heard_model m;
  int asked = 0;
  const auto all = validation(window_text(text, 10)).loss_of(m.all, 5, [&] { return ++asked > 3; });
  CHECK(all.tokens == 0);
  CHECK(m.heard.calls == 3);
}

}  // namespace pretrain_validation_test
