// SPDX-License-Identifier: BSD-3-Clause

// Writes text as a trained model would go on.

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include <tessera/exec/available_threads.hpp>

#include "guarded_main.hpp"
#include "options_help.hpp"
#include "run_record.hpp"
#include "sampling.hpp"

namespace pretrain { namespace {

/// The checkpoint that is meant by the folder of a checkpoint, of a variant or of a run: of several the best,
/// and of both variants the sparse one.
std::string find_checkpoint(std::string const& folder) {
  namespace fs = std::filesystem;
  if (fs::exists(fs::path(folder) / "state.json")) return folder;
  for (std::string const& variant : {folder, folder + "/sparse", folder + "/dense"}) {
    const auto steps = train::checkpoint_steps(variant);
    if (steps.empty()) continue;
    const std::string newest = train::checkpoint_folder(variant, steps.back());
    const train::checkpoint from(newest);
    const auto best = from.state().at("best_step").as_integer();
    const std::string best_folder = train::checkpoint_folder(variant, best);
    return fs::exists(best_folder) ? best_folder : newest;
  }
  throw tessera::io_error(tessera::message(
      "[--checkpoint] ", folder, fs::exists(folder) ? " holds" : " does not exist, so it holds",
      " no checkpoint; give the folder of a run, or one of its checkpoints"));
}

int command(string_list const& arguments) {
  const sampling_settings s = new_sampling_settings(arguments);
  if (s.help) {
    std::printf("generate: writes text as a trained model would go on\n%s",
                help_text(sampling_table()).c_str());
    return 0;
  }
  check_threads(s.threads, tessera::exec::available_threads());
  const std::string folder = find_checkpoint(s.checkpoint);
  const train::checkpoint from(folder);
  for (std::string const& note : from.notes())
    std::fprintf(stderr, "note: %s: %s\n", folder.c_str(), note.c_str());
  const auto program = train::program_state(from);
  const run_origin origin = read_origin(program, folder);
  const run_record record = read_record(program.at("record"));

  std::vector<token> text = origin.symbols.encode(s.prompt);
  if (text.empty()) text = line_break(origin.symbols);
  tessera::context ctx(s.threads > 0 ? s.threads : tessera::exec::available_threads());
  const auto trained = [&] {
    for (variant const& v : variants_of(origin.asked))
      if (v.name == record.variant)
        return make_model(description_of(origin.asked, v, origin.symbols.size()), ctx);
    throw tessera::io_error("[--checkpoint] " + folder + " is of a variant '" + record.variant +
                            "' that its settings do not have");
  }();
  trained->load(from);

  std::fprintf(stderr, "%s\n", folder.c_str());
  std::fputs(s.prompt.c_str(), stdout);
  sample(*trained, text, origin.asked.context, s.tokens, {s.temperature, s.top_k}, s.seed, [&](token t) {
    const std::string symbol = origin.symbols.decode(std::array{t});
    std::fwrite(symbol.data(), 1, symbol.size(), stdout);  // a byte of it may be zero
    std::fflush(stdout);
  });
  std::fputs("\n", stdout);
  return 0;
}

}}  // namespace pretrain

int main(int count, char** arguments) {
  return pretrain::guarded_main("generate", count, arguments, pretrain::command);
}
