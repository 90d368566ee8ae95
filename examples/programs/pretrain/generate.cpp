// SPDX-License-Identifier: BSD-3-Clause

// Writes text as a trained model would go on.

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/exec/available_threads.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/json.hpp>
#include <tessera/train/interrupt.hpp>

#include "../common/guarded_main.hpp"
#include "../common/options_help.hpp"
#include "generation.hpp"
#include "generation_stats.hpp"
#include "instructions.hpp"
#include "reader_settings.hpp"
#include "text_output.hpp"
#include "trained_model.hpp"

namespace pretrain { namespace {

using namespace programs;

/// A prompt, the tokens of it that a model is shown, and the text that it adds.
struct growing_text {
  std::string prompt;
  std::vector<token> shown;
  text_before ends;
  std::string added = {};
  bool is_done = false;
};

/// The lines of --prompts, or the one prompt. Throws option_error, with the line, for symbols that the model
/// does not know.
std::vector<growing_text> texts_of(sampling_settings const& s, trained_model const& by) {
  vocabulary const& symbols = by.origin.symbols;
  std::vector<growing_text> all;
  const auto add = [&](std::string const& prompt, std::string const& shown) {
    std::vector<token> tokens = symbols.encode(shown);
    if (tokens.empty()) tokens = symbols.beginning();
    all.push_back({prompt, std::move(tokens), text_before(s.stop)});
  };
  if (s.prompts.empty()) {
    const bool instructed = !s.instruction.empty();
    add(s.prompt, instructed ? prompt_of({s.instruction, s.input}, by.form) : s.prompt);
    return all;
  }
  require_no_folder("prompts", s.prompts);
  const std::string bytes = tessera::io::read_file(s.prompts, all_memory());
  for (std::string_view rest = without_byte_order_mark(bytes); !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string line(rest.substr(0, end));
    if (line.ends_with('\r')) line.pop_back();
    rest.remove_prefix(std::min(end + 1, rest.size()));
    try {
      add(line, line);
    } catch (tessera::option_error const& fault) {
      throw tessera::option_error(
          tessera::message("[prompts] ", s.prompts, " line ", all.size() + 1, ": ", fault.what()));
    }
  }
  if (all.empty())
    throw tessera::option_error("[prompts] " + s.prompts + " is empty: give a prompt in each line");
  return all;
}

generation_settings settings_of(sampling_settings const& s, trained_model const& by) {
  generation_settings made;
  made.rule = {s.repetition_penalty, s.temperature, s.top_k, s.top_p, s.min_p};
  made.tokens = s.tokens;
  made.context = by.network.context > 0 ? std::int64_t(by.network.context) : seen_tokens(by.origin.asked);
  made.window = by.made_of.shape.window;
  made.seed = s.seed;
  made.batch = s.batch;
  made.cache = s.cache == "bfloat16" ? tessera::cached_as::bfloat16 : tessera::cached_as::same;
  if (!by.form.empty()) made.end = end_of_response(by.origin.symbols);
  return made;
}

/// Prints texts in their order: the next one as it grows.
class shown_texts {
 public:
  explicit shown_texts(std::vector<growing_text>& all) : all_(all) { begin_next(); }

  void add(std::size_t number, std::string const& piece) {
    all_[number].added += piece;
    if (number == shown_) out_->add(piece);
  }
  void end(std::size_t number) {
    all_[number].is_done = true;
    while (shown_ < all_.size() && all_[shown_].is_done) {
      end_shown();
      ++shown_;
      begin_next();
    }
  }
  /// Of a text that was interrupted.
  void end_shown() {
    if (!out_) return;
    out_->end();
    out_->add("\n");
    out_.reset();
  }

 private:
  void begin_next() {
    if (shown_ == all_.size()) return;
    if (shown_ > 0) std::fputs("---\n", stdout);
    out_.emplace(stdout);
    out_->add(all_[shown_].prompt + all_[shown_].added);
  }

  std::vector<growing_text>& all_;
  std::size_t shown_ = 0;
  std::optional<text_output> out_;
};

void write_json(std::string const& path, std::vector<growing_text> const& all) {
  tessera::io::json::array texts;
  for (growing_text const& each : all)
    if (each.is_done)
      texts.push_back(tessera::io::json::object{{"prompt", each.prompt}, {"text", each.added}});
  tessera::io::write_atomically(path, tessera::io::to_text(std::move(texts), 2) + "\n");
}

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
  if (!s.instruction.empty() && trained.form.empty())
    refuse("--instruction", s.checkpoint + " was not taught instructions; give a --prompt");
  if (!s.json.empty()) tessera::io::require_writable(s.json);

  std::vector<growing_text> texts = texts_of(s, trained);
  std::vector<std::vector<token>> prompts;
  for (growing_text& each : texts) prompts.push_back(std::move(each.shown));
  const train::interrupt_guard signals;
  generation by_model(trained.network, settings_of(s, trained));
  try {
    by_model.make_room(prompts);
  } catch (tessera::machine_error const& fault) {
    throw tessera::machine_error(std::string(fault.what()) +
                                 "; fewer --tokens, shorter prompts, a smaller --batch or --cache bfloat16 "
                                 "need less");
  }
  shown_texts shown(texts);
  by_model.run(
      prompts,
      [&](std::size_t number, token t) {
        text_before& ends = texts[number].ends;
        shown.add(number, ends.add(symbols.text_after_others(t)));
        if (signals.signal() != 0) by_model.stop();
        return !ends.ended();
      },
      [&](std::size_t number) {
        shown.add(number, texts[number].ends.end());
        shown.end(number);
      });
  shown.end_shown();
  if (!s.json.empty()) write_json(s.json, texts);
  if (s.stats) std::fputs(stats_of(by_model, trained).c_str(), stderr);
  return signals.signal() != 0 ? 128 + signals.signal() : 0;
}

}}  // namespace pretrain

int main(int count, char** arguments) {
  return pretrain::guarded_main("generate", count, arguments, pretrain::command);
}
