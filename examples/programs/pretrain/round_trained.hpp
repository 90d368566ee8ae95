// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include <tessera/core/error.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/nn/freeze.hpp>

#include "../common/format.hpp"
#include "reader_settings.hpp"
#include "trained_model.hpp"
#include "validation.hpp"

// freeze --to: a trained model keeps its weights and its token table in fewer bits, to be used. Activations
// stay float.

namespace pretrain {

/// Throws option_error for a model that has no such form.
inline void require_roundable(freezing_settings const& s, trained_model const& trained) {
  if (s.format != "tessera") refuse("--to", s.to + ": --format " + s.format + " has no such weights");
  if (s.density < 1)
    refuse("--to", "and --density are two commands: prune first, and freeze what that wrote");
  if (trained.made_of.family == "rnn") refuse("--to", s.to + " is of transformers, not of --model rnn");
  if (trained.adapters && trained.adapters->method != "lora")
    refuse("--to", s.to + ": adapters of --method " + trained.adapters->method + " cannot be merged");
  if (trained.adapters && s.merge == "none")
    refuse("--to", s.to + ": the model has adapters; say --merge stored or --merge all, too");
}

/// What the model becomes.
inline model_description rounded(freezing_settings const& s, trained_model const& trained) {
  model_description what = trained.made_of;
  what.method = "frozen";
  what.precision = s.to;
  return what;
}

/// The validation text of a run, or nothing, said on the error stream, if it is not there and was not given.
inline std::optional<token_text> text_if_any(freezing_settings const& s, trained_model const& trained,
                                             std::string const& folder) {
  try {
    return text_of_run(s.text, trained.origin, folder);
  } catch (tessera::error const& why) {
    if (!s.text.empty()) throw;
    std::fprintf(stderr, "note: no loss is measured: %s; --text says where it is now\n",
                 tessera::io::printable(why.what()).c_str());
    return std::nullopt;
  }
}

/// Rounds the weights of a trained model, and prints the loss before and after.
///   folder   the checkpoint that it comes from
inline void round_trained(freezing_settings const& s, trained_model& trained, std::string const& folder) {
  settings const& asked = trained.origin.asked;
  const model_description what = rounded(s, trained);
  auto made = trained.classes.empty()
                  ? make_model(what)
                  : make_classifier(what, nullptr, static_cast<int>(trained.classes.size()));
  nn::freeze(trained.network.network->layer(), made->layer());
  trained.made_of = what;
  if (!trained.classes.empty()) {  // the text of the run is not theirs
    trained.network.network = std::move(made);
    return;
  }
  const std::optional<token_text> text = text_if_any(s, trained, folder);
  std::optional<validation> sample;
  if (text)
    sample.emplace(windows_of(asked, text->validation, text->validation_ends, text->symbols),
                   validation::sample_tokens);
  const auto loss = [&] {
    return sample ? sample->loss_of(trained.network, asked.batch, [] { return false; }).mean() : 0.0;
  };
  const double before = loss();
  trained.network.network = std::move(made);
  if (sample)
    std::printf("loss %s before, %s in %s: nats per %s, of %zu tokens of the validation text\n",
                fixed(before, 4).c_str(), fixed(loss(), 4).c_str(), s.to.c_str(), unit_of_loss(asked).c_str(),
                sample->tokens());
}

}  // namespace pretrain
