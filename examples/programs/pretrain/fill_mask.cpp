// SPDX-License-Identifier: BSD-3-Clause

// Prints the tokens that a trained masked model expects where a text has [MASK].

#include <cstdio>
#include <string>
#include <vector>

#include <tessera/exec/available_threads.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/io/text.hpp>

#include "../common/guarded_main.hpp"
#include "../common/options_help.hpp"
#include "expectation.hpp"
#include "reader_settings.hpp"
#include "trained_model.hpp"

namespace pretrain { namespace {

using namespace programs;

int command(string_list const& arguments) {
  const filling_settings s = new_filling_settings(arguments);
  if (s.help) {
    std::printf("fill_mask: says what a masked model expects where a text has [MASK]\n%s",
                help_text(filling_table()).c_str());
    return 0;
  }
  check_threads(s.threads, tessera::exec::available_threads());
  tessera::context ctx(s.threads > 0 ? s.threads : tessera::exec::available_threads());
  trained_model trained = read_trained(s.checkpoint, ctx, s.weights);
  if (!trained.classes.empty())
    refuse("--checkpoint", s.checkpoint + " is a classifier; classify tells the class of a text");
  auto const* words = trained.origin.symbols.words();
  if (objective_of(trained.origin.asked) != objective::masked_token || !words)
    throw tessera::option_error("[--checkpoint] " + s.checkpoint +
                                " is of a model that predicts the next token; generate lets it write");
  std::vector<token> inputs = words->encode(s.text);
  inputs.insert(inputs.begin(), words->classification());
  inputs.push_back(words->separator());
  const std::size_t most =
      trained.network.context > 0 ? trained.network.context : std::size_t(trained.origin.asked.context);
  if (inputs.size() > most)
    refuse("--text",
           tessera::message("has ", inputs.size(), " tokens with [CLS] and [SEP]; this model takes ", most));
  bool is_masked = false;
  for (std::size_t at = 0; at < inputs.size(); ++at) {
    if (inputs[at] != words->mask()) continue;
    is_masked = true;
    const auto expected = expected_at(trained.network, inputs, at, static_cast<std::size_t>(s.top));
    std::printf("%s\n", tessera::io::printable(text_of(expected, trained.origin.symbols)).c_str());
  }
  if (!is_masked) refuse("--text", "'" + tessera::io::excerpt(s.text) + "' has no [MASK]");
  return 0;
}

}}  // namespace pretrain

int main(int count, char** arguments) {
  return pretrain::guarded_main("fill_mask", count, arguments, pretrain::command);
}
