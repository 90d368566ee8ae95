// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 6: a language model. A small GPT, 70 % of whose weights are absent, learns to write this program:
// it is trained on its own source, a character at a time, and then goes on by itself. ./dev pretrain does the
// same at a larger scale, with all that a long run needs.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/io/file.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/loop.hpp>
#include <tessera/train/optimizers/adamw.hpp>

using namespace tessera;
using model = nn::gpt<float, block_shape<8>>;

constexpr std::int64_t context_length = 64, sequences_a_step = 16;

// The batches to learn from and the loss to measure: all that train::run_training must be told.
struct lesson : train::program {
  context& ctx;
  std::vector<std::int32_t> const& text;
  train::training<model, train::adamw>& student;
  sequences windows = sequences::of_equal_length(sequences_a_step, context_length);
  nn::workspace<float> room{};
  model::saved saved{};
  std::vector<std::int32_t> ids{}, targets{};

  // Adds the gradient of one batch: windows of the text at random places, each to be continued by one
  // character.
  train::token_loss accumulate(std::int64_t step, int) {
    const random_stream random(1, random_purpose::batches, 0, static_cast<std::uint64_t>(step));
    ids.clear();
    targets.clear();
    for (std::uint64_t s = 0; s < sequences_a_step; ++s) {
      const auto first =
          text.begin() + static_cast<std::ptrdiff_t>(random.below(s, text.size() - context_length));
      ids.insert(ids.end(), first, first + context_length);
      targets.insert(targets.end(), first + 1, first + context_length + 1);
    }
    const auto pass = student.pass(ctx, windows, room);
    const double loss = student.model.forward(ids, targets, saved, pass);
    student.model.backward(ids, saved, student.gradients, pass);
    return {loss, pass.tokens(), pass};
  }

  // Nothing is held back from so short a text: the windows that it begins with.
  train::token_loss evaluate() {
    const auto count = static_cast<std::size_t>(windows.tokens());
    const double loss = student.model.forward({text.data(), count}, {text.data() + 1, count}, saved,
                                              {ctx, windows, room, nn::purpose::evaluation}, 1);
    const train::token_loss all{loss, windows.tokens()};
    std::printf("step %3lld  loss %.3f\n", static_cast<long long>(student.progress.step), all.mean());
    return all;
  }
};

int main() {
  // Characters are numbered in the order of their codes.
  const std::string source = io::read_file("examples/tutorials/6_character_model.cpp");
  std::string alphabet = source;
  std::sort(alphabet.begin(), alphabet.end());
  alphabet.erase(std::unique(alphabet.begin(), alphabet.end()), alphabet.end());
  std::vector<std::int32_t> text;
  for (const char c : source) text.push_back(static_cast<std::int32_t>(alphabet.find(c)));

  nn::transformer_config shape;
  shape.layers = 2;
  shape.hidden = 128;
  shape.heads = 4;
  shape.context = context_length;
  shape.vocabulary = static_cast<std::int64_t>(alphabet.size());
  shape.density = 0.3;
  model gpt(shape, /*seed*/ 1);

  context ctx;
  train::training student(gpt, train::adamw{.beta2 = 0.99, .weight_decay = 0.01},
                          train::evolving_pattern{.interval = 40, .steps = 600, .fraction = 0.3, .seed = 1});
  lesson course{{}, ctx, text, student};
  train::run_training(ctx, student, {.steps = 600, .clip = 1, .evaluate_every = 100},
                      train::warmed_up<train::cosine>{20, {4e-3, 4e-4, 580}}, course);

  // The likeliest next character, again and again.
  std::string written = "// Tutorial 6: ";
  panel_matrix<float> logits(shape.vocabulary, 1);
  for (int n = 0; n < 200; ++n) {
    const std::size_t length = std::min<std::size_t>(written.size(), context_length);
    std::vector<std::int32_t> ids;
    for (const char c : written.substr(written.size() - length))
      ids.push_back(static_cast<std::int32_t>(alphabet.find(c)));
    const auto one = sequences::of_equal_length(1, static_cast<std::int64_t>(length));
    const std::vector<std::int32_t> last{static_cast<std::int32_t>(length) - 1};
    gpt.predict(ids, last, logits, course.saved, {ctx, one, course.room, nn::purpose::evaluation});
    std::int32_t best = 0;
    for (std::int32_t c = 1; c < shape.vocabulary; ++c)
      if (logits(c, 0) > logits(best, 0)) best = c;
    written += alphabet[static_cast<std::size_t>(best)];
  }
  std::printf("%s\n", written.c_str());
}

// Prints
//   step 100  loss …
//   step 200  loss …
//   step 300  loss …
//   step 400  loss …
//   step 500  loss …
//   step 600  loss …
//   // Tutorial 6: …
//   …
