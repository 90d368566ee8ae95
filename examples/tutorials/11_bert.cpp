// SPDX-License-Identifier: BSD-3-Clause

// Tutorial 11: a small BERT, 75 % of whose weights are absent, reads sentences about countries, with words
// hidden, and then says the hidden words. ./dev pretrain --model bert learns so from books.

#include <algorithm>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include <tessera/nn/encoder.hpp>
#include <tessera/tessera.hpp>
#include <tessera/tokenizers/wordpiece.hpp>
#include <tessera/train/loop.hpp>
#include <tessera/train/masking.hpp>
#include <tessera/train/optimizers/adamw.hpp>

using namespace tessera;
using model = nn::encoder<float, block_shape<8>>;
using token_ids = std::vector<std::int32_t>;

std::vector<std::string> sentences() {
  std::istringstream in("japan tokyo japanese poland warsaw polish italy rome italian peru lima spanish");
  std::vector<std::string> all;
  for (std::string country, city, language; in >> country >> city >> language;) {
    all.push_back(language + " is what people speak in " + country + ".");
    all.push_back("the capital of " + country + " is " + city + ".");
    all.push_back("people in " + country + " speak " + language + ".");
    all.push_back(city + " is the capital of " + country + ".");
  }
  return all;
}

/// All that train::run_training must be told: the batches to learn from, and the loss to measure.
struct lesson : train::program {
  context& ctx;
  std::vector<token_ids> const& read;
  train::masking const& rule;
  train::training<model, train::adamw>& student;
  nn::workspace<float> room{};
  model::saved saved{};
  token_ids inputs{}, targets{};
  std::int64_t hidden = 0;  // tokens to be predicted: 15 %, and one in each sentence at least

  // 32 sentences. They are as long as they are: nothing is padded.
  sequences batch(random_stream const& random) {
    inputs.clear(), targets.clear(), hidden = 0;
    std::vector<std::int64_t> lengths;
    for (std::uint64_t s = 0; s < 32; ++s) {
      token_ids const& sentence = read[random.below(s, read.size())];
      const std::size_t at = inputs.size(), end = at + sentence.size();
      inputs.resize(end), targets.resize(end);
      hidden += rule.apply(sentence, {random.key(), random_purpose::masking, s},
                           std::span(inputs).subspan(at), std::span(targets).subspan(at));
      lengths.push_back(std::ssize(sentence));
    }
    return sequences::from_lengths(lengths);
  }
  train::token_loss accumulate(std::int64_t step, int) {
    const auto shown = batch({1, random_purpose::batches, 0, std::uint64_t(step)});
    const auto pass = student.pass(ctx, shown, room);
    const double loss = student.model.forward({inputs}, targets, saved, pass);
    student.model.backward({inputs}, saved, student.gradients, pass);
    return {loss, hidden, pass};
  }
  train::token_loss evaluate() {
    const auto shown = batch({2, random_purpose::batches});
    const double loss =
        student.model.forward({inputs}, targets, saved, {ctx, shown, room, nn::purpose::evaluation});
    std::printf("step %4d  loss %.2f\n", int(student.progress.step), loss / double(hidden));
    return {loss, hidden};
  }
};

int main() {
  // Pieces of words, learned from the text; BERT's own vocab.txt can be read instead.
  std::string text;
  for (std::string const& sentence : sentences()) text += sentence + "\n";
  const auto words = tokenizers::wordpiece::trained(text, 200);
  std::vector<token_ids> read;
  for (std::string const& sentence : sentences())
    read.push_back(words.encode("[CLS] " + sentence + " [SEP]"));
  train::masking rule{.mask = words.mask(), .kinds = {}};
  for (std::int32_t t = 0; t < words.size(); ++t)
    rule.kinds.push_back(words.is_special(t)       ? train::token_kind::special
                         : words.continues_word(t) ? train::token_kind::continues_word
                                                   : train::token_kind::begins_word);
  const nn::transformer_config shape{
      .layers = 2, .hidden = 64, .heads = 4, .context = 16, .vocabulary = words.size(), .density = 0.25};
  model bert(shape, /*seed*/ 1);

  // The blocks of least magnitude move to new places every 40 steps, ever fewer of them.
  constexpr int steps = 900;
  context ctx;
  train::training student(bert, train::adamw{.beta2 = 0.99, .weight_decay = 0.01},
                          train::evolving_pattern{.interval = 40, .steps = steps, .fraction = 0.2});
  lesson course{{}, ctx, read, rule, student};
  train::run_training(ctx, student, {.steps = steps, .clip = 1, .evaluate_every = 450},
                      train::warmed_up<train::cosine>{100, {3e-3, 1e-4, steps - 100}}, course);
  for (std::string const sentence : {"people in japan speak [MASK].", "[MASK] is the capital of peru.",
                                     "polish is what people [MASK] in poland."}) {
    const token_ids shown = words.encode("[CLS] " + sentence + " [SEP]");
    const token_ids place{std::int32_t(std::ranges::find(shown, words.mask()) - shown.begin())};
    const auto one = sequences::of_equal_length(1, std::ssize(shown));
    panel_matrix<float> logits(words.size(), 1);
    bert.predict({shown}, place, logits, course.saved, {ctx, one, course.room, nn::purpose::evaluation});
    std::int32_t best = 0;
    for (std::int32_t t = 1; t < words.size(); ++t)
      if (logits(t, 0) > logits(best, 0)) best = t;
    std::printf("%s  %s\n", sentence.c_str(), words.decode(token_ids{best}).c_str());
  }
}

// Prints
//   step  450  loss …
//   step  900  loss 0.…
//   people in japan speak [MASK].  japanese
//   [MASK] is the capital of peru.  lima
//   polish is what people [MASK] in poland.  speak
