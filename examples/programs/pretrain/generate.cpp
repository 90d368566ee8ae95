// SPDX-License-Identifier: BSD-3-Clause

// Writes text as a trained model would go on.

#include <cstdio>
#include <string>

#include <tessera/exec/available_threads.hpp>

#include "../common/guarded_main.hpp"
#include "../common/options_help.hpp"
#include "instructions.hpp"
#include "reader_settings.hpp"
#include "sampling.hpp"
#include "text_output.hpp"
#include "trained_model.hpp"

namespace pretrain { namespace {

using namespace programs;

int command(string_list const& arguments) {
  const sampling_settings s = new_sampling_settings(arguments);
  if (s.help) {
    std::printf("generate: writes text as a trained model would go on\n%s",
                help_text(sampling_table()).c_str());
    return 0;
  }
  check_threads(s.threads, tessera::exec::available_threads());
  tessera::context ctx(s.threads > 0 ? s.threads : tessera::exec::available_threads());
  trained_model trained = read_trained(s.checkpoint, ctx, s.weights);
  vocabulary const& symbols = trained.origin.symbols;
  if (objective_of(trained.origin.asked) == objective::masked_token)
    throw tessera::option_error(
        "[--checkpoint] " + s.checkpoint +
        " is of a masked model, which writes no text; fill_mask says what it expects");
  const bool instructed = !s.instruction.empty();
  if (instructed && trained.form.empty())
    refuse("--instruction", s.checkpoint + " was not taught instructions; give a --prompt");
  std::vector<token> text =
      symbols.encode(instructed ? prompt_of({s.instruction, s.input}, trained.form) : s.prompt);
  if (text.empty()) text = symbols.beginning();
  const std::vector<token> end = trained.form.empty() ? std::vector<token>() : end_of_response(symbols);

  text_output out(stdout);
  out.add(s.prompt);
  sample(
      trained.network, text, trained.origin.asked.context, s.tokens, {s.temperature, s.top_k}, s.seed,
      [&](token t) { out.add(symbols.text_after_others(t)); }, end);
  out.end();
  out.add("\n");
  return 0;
}

}}  // namespace pretrain

int main(int count, char** arguments) {
  return pretrain::guarded_main("generate", count, arguments, pretrain::command);
}
