// SPDX-License-Identifier: BSD-3-Clause

// Trains a small GPT, LLaMA, BERT or LSTM on text, dense and block-sparse, for the same time each, and
// compares them.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <tessera/core/hash.hpp>
#include <tessera/exec/available_threads.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/folder_lock.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/io/read_json.hpp>
#include <tessera/train/sparsity/scores/densify.hpp>

#include "../common/guarded_main.hpp"
#include "../common/options_help.hpp"
#include "expectation.hpp"
#include "forecast.hpp"
#include "generation.hpp"
#include "new_settings.hpp"
#include "plan.hpp"
#include "run_folder.hpp"
#include "trained_model.hpp"
#include "training_run.hpp"

namespace pretrain { namespace {

using namespace programs;

void print(std::string const& text) {
  std::fputs(tessera::io::printable(text).c_str(), stdout);
  std::fflush(stdout);
}

/// A path that ends in the name of the folder, without a slash.
std::filesystem::path folder_named(std::filesystem::path path) {
  return path.has_filename() ? path : path.parent_path();
}

/// The settings of the run in a folder, with the arguments over them.
settings settings_to_resume(string_list const& arguments, std::string const& folder) {
  const std::string path = folder + "/settings.json";
  if (!std::filesystem::exists(path))
    refuse("--resume", folder + " is not the folder of a run: it has no settings.json");
  const tessera::io::json stored = tessera::io::read_json(path);
  settings const s = resumed_settings(settings_of_run(stored, path), arguments);
  if (!stored.find("newborn") && !s.static_pattern && s.only != "dense" && s.optimizer == "adamw")
    print("The run is older than --newborn, and goes on as with --newborn zero.\n");
  return s;
}

bool has_checkpoint(std::filesystem::path const& run, std::string const& name) {
  return !train::checkpoint_steps((run / name).string()).empty();
}

std::uint64_t checkpoint_hash(std::string const& folder) {
  return tessera::content_hash(tessera::io::read_file(folder + "/state.json"));
}

/// The kind of model in --from with which one of a new run begins.
std::string origin_name(settings const& s, variant const& v) { return s.densify ? "sparse" : v.name; }

/// The checkpoint in --from with which a model of a new run begins.
std::string find_origin(settings const& s, variant const& v) {
  const std::string folder = s.from + "/" + origin_name(s, v);
  if (s.branch == 0) return find_checkpoint(folder);
  std::string steps;
  for (const std::int64_t step : train::checkpoint_steps(folder)) {
    if (step == s.branch) return train::checkpoint_folder(folder, step);
    steps += (steps.empty() ? "" : ", ") + std::to_string(step);
  }
  refuse("--branch", folder + " has no checkpoint of step " + std::to_string(s.branch) + ", but of " + steps +
                         "; --checkpoint-every and --keep say which a run keeps");
}

/// Writes the sparse model of the run in --from, with all blocks, into the folder of a new run, and returns
/// where. A dense matrix in a checkpoint has no blocks: a model of any block size reads it.
std::string write_densified(settings const& s, std::filesystem::path const& run, tessera::context& ctx) {
  const std::string folder = std::filesystem::absolute(run / "densified").string();
  trained_model sparse = read_trained(s.from + "/sparse", ctx);
  require_pretrained(sparse, s.from);
  const train::trainable_layer layer = sparse.network.network->layer();
  train::densify(layer);
  layer.refresh(0);
  tessera::io::json program = to_json(sparse.origin);
  program["record"] = to_json(sparse.record);
  sparse.network.save_weights(folder, tessera::io::json::object{{"program", std::move(program)}});
  return folder;
}

/// Writes down with which checkpoints of the run in --from a new run begins: from.json.
void write_origins(settings const& s, std::filesystem::path const& run, tessera::context& ctx) {
  tessera::io::json origins = tessera::io::json::object{};
  for (variant const& v : variants_of(s)) {
    const std::string folder = s.densify ? write_densified(s, run, ctx) : find_origin(s, v);
    origins[v.name] = tessera::io::json::object{{"checkpoint", folder}, {"hash", checkpoint_hash(folder)}};
  }
  tessera::io::write_atomically((run / "from.json").string(), tessera::io::to_text(origins, 1) + "\n");
}

/// That checkpoint. Throws option_error if it has changed since.
std::string origin_of(std::filesystem::path const& run, variant const& v) {
  const std::string path = (run / "from.json").string();
  const tessera::io::json file = tessera::io::read_json(path);
  const auto origin = tessera::io::json_place(file, path).at(v.name);
  const std::string folder = origin.at("checkpoint").as_string();
  if (checkpoint_hash(folder) != origin.at("hash").as_integer<std::uint64_t>())
    refuse("--from",
           folder + ", with which the " + v.name + " model of this run begins, has changed; start a new run");
  return folder;
}

/// Throws unless a checkpoint is whole, and of the kind of model with which a variant begins; with --branch
/// also unless its training goes on, on this text.
void require_origin(run_origin const& now, variant const& v, std::string const& folder) {
  settings const& s = now.asked;
  const train::checkpoint from(folder);
  const auto program = program_of(from, folder);
  const auto kind = program.at("record").at("variant");
  if (kind.as_string() != origin_name(s, v)) kind.fail("should be \"" + origin_name(s, v) + "\"");
  const std::int64_t planned = s.steps > 0 ? s.steps : program.at("record").at("steps").as_integer();
  if (s.branch > 0 && planned <= s.branch)
    refuse("--branch", std::to_string(s.branch) + " is the last step of the run of --from; say more --steps");
  if (s.branch > 0 && read_origin(program, folder).text_hash != now.text_hash)
    refuse("--branch", folder + " was trained on another text; go on with the text as it was");
  from.require_whole();
}

/// The settings of a branch, as long as the run was planned at that step unless the arguments say otherwise.
settings with_planned_length(settings const& s, string_list const& arguments) {
  const std::vector<given_option> given = read_arguments(settings_table(), arguments);
  if (s.branch == 0 || !s.resume.empty() || is_said(given, "steps") || is_said(given, "time")) return s;
  const std::string folder = find_origin(s, variants_of(s).front());
  const train::checkpoint from(folder);
  return with_length_of(s, read_origin(program_of(from, folder), folder).asked);
}

/// The vocabulary of the run in a folder.
vocabulary vocabulary_of(std::string const& run) {
  const std::string folder = find_checkpoint(run);
  const train::checkpoint from(folder);
  return read_origin(program_of(from, folder), folder).symbols;
}

bool any_checkpoint(settings const& s, std::string const& run) {
  const std::vector<variant> all = variants_of(s);
  return std::any_of(all.begin(), all.end(), [&](variant const& v) { return has_checkpoint(run, v.name); });
}

token_text read_text(settings const& s, std::string const& resumed) {
  const corpus text = corpus_of(s);
  const vocabulary symbols =
      s.from.empty()
          ? vocabulary_for(text, level_of(s), static_cast<std::size_t>(s.vocabulary), s.vocabulary_file)
          : vocabulary_of(!resumed.empty() && any_checkpoint(s, resumed) ? resumed : s.from);
  token_text tokens = tokenize(text, symbols, s.context, objective_of(s), s.next_sentence ? 2 : 0);
  print("text     " + text.source + ": " + quantity(double(tokens.training.size())) +
        " tokens to train on, " + quantity(double(tokens.validation.size())) + " to validate, " +
        std::to_string(tokens.symbols.size()) + " symbols\n");
  if (const std::int64_t shown = std::int64_t{s.batch} * s.context; shown > std::ssize(tokens.training))
    print("note     a step shows " + quantity(double(shown)) +
          " tokens, more than there are: parts of the text come more than once in it; a smaller --batch or "
          "--context avoids that\n");
  return tokens;
}

/// Throws option_error unless a checkpoint belongs to this run and text.
void require_same_run(run_origin const& now, run_origin const& stored, std::string const& checkpoint) {
  require_unchanged(settings_table(), with_length_of(stored.asked, now.asked), now.asked);
  if (stored.text_hash == now.text_hash && stored.symbols != now.symbols)
    refuse("--resume", checkpoint + " has another vocabulary, of " + std::to_string(stored.symbols.size()) +
                           " symbols; this one has " + std::to_string(now.symbols.size()) +
                           "; go on with the file of --vocabulary-file as it was");
  if (stored.text_hash != now.text_hash)
    refuse("--resume", checkpoint + " was trained on another text; its hash is " +
                           std::to_string(stored.text_hash) + ", that of this text " +
                           std::to_string(now.text_hash) + "; go on with the " +
                           (now.asked.text.empty() ? "project's sources as they were"
                                                   : "text as it was, which --text FILE may name"));
}

/// From where the training of a variant goes on: from its last checkpoint, if there is one, as `earlier`
/// says.
struct progress_so_far {
  std::optional<train::checkpoint> from;
  run_record earlier;
  settings planned;

  bool is_extended(settings const& now) const {
    return from && (planned.steps != now.steps || planned.time != now.time);
  }
};
progress_so_far find_progress(run_origin const& origin, std::string const& variant,
                              std::filesystem::path const& run) {
  progress_so_far found;
  const std::string folder = (run / variant).string();
  if (const auto steps = train::checkpoint_steps(folder); !steps.empty()) {
    const std::string newest = train::checkpoint_folder(folder, steps.back());
    found.from.emplace(newest);
    const auto program = program_of(*found.from, newest);
    const run_origin stored = read_origin(program, newest);
    require_same_run(origin, stored, newest);
    found.planned = stored.asked;
    const auto record = program.at("record");
    found.earlier = read_record(record);
    if (found.earlier.variant != variant) record.at("variant").fail("should be \"" + variant + "\"");
    const std::int64_t steps_of_run = found.earlier.steps;
    if (!found.from->state().contains("step"))
      refuse("--resume",
             newest + " has weights alone, as freeze writes them; begin a run with --from " + run.string());
    if (stored.asked.steps > 0 && steps_of_run != stored.asked.steps)
      record.at("steps").fail(tessera::message("should be ", stored.asked.steps, ", of --steps"));
    if (found.from->state().at("step").as_integer() > steps_of_run)
      found.from->state().at("step").fail(
          tessera::message("should be at most ", steps_of_run, ", of the run"));
  }
  return found;
}

/// The variants of a run that goes on which have not come to their end.
std::vector<variant> unfinished(run_origin const& origin, std::filesystem::path const& run) {
  std::vector<variant> all = variants_of(origin.asked);
  std::erase_if(all, [&](variant const& v) {
    const progress_so_far found = find_progress(origin, v.name, run);
    return found.from && !found.is_extended(origin.asked) && found.earlier.whole_loss &&
           found.from->state().at("step").as_integer() >= found.earlier.steps;
  });
  return all;
}

/// Throws the error that would keep a variant from going on, before one of them is trained.
void require_progress(run_origin const& origin, std::filesystem::path const& run) {
  for (char const* name : {"dense", "sparse"})  // one that the settings have no more would be forgotten
    static_cast<void>(find_progress(origin, name, run));
  for (variant const& v : variants_of(origin.asked))
    if (const auto newest = find_progress(origin, v.name, run).from)
      newest->require_whole();
    else if (std::filesystem::exists(run / "from.json"))
      require_origin(origin, v, origin_of(run, v));
}

/// Throws the error that would keep a variant of a new run from beginning with the run in --from.
void require_origins(run_origin const& origin) {
  for (variant const& v : variants_of(origin.asked)) require_origin(origin, v, find_origin(origin.asked, v));
}

/// Trains one variant, from the beginning or from its last checkpoint; nothing if a signal ended it, which is
/// left in `ended_by`.
std::optional<run_record> train_variant(run_origin const& origin, variant const& v, token_text const& text,
                                        std::filesystem::path const& run, tessera::context& ctx,
                                        tessera::io::folder_lock const& sole_writer, int& ended_by) {
  const std::string folder = (run / v.name).string();
  auto [from, earlier, planned] = find_progress(origin, v.name, run);

  if (!from && origin.asked.branch > 0) {
    const std::string branched = origin_of(run, v);
    from.emplace(branched);
    const auto program = program_of(*from, branched);
    earlier = read_record(program.at("record"));
    planned = read_origin(program, branched).asked;
  }
  training_run training(origin, v, text, folder, ctx, sole_writer);
  if (!from && !origin.asked.from.empty()) training.begin_from(train::checkpoint(origin_of(run, v)));
  if (from)
    training.resume(*from, earlier, planned);
  else
    training.begin();
  from.reset();
  if (training.train() == train::stop_reason::interrupted) {
    const std::string step = std::to_string(training.record().reached.step);
    print(padded(v.name, 9) + "interrupted after step " + step + ", which is saved; ");
    ended_by = training.ended_by();
    return {};
  }
  const std::string sampled =
      objective_of(origin.asked) == objective::masked_token
          ? filled_masks(training.trained(), training.validation_part(), origin.symbols)
          : sampled_text(training.trained(), origin.symbols, seen_tokens(origin.asked), origin.asked.seed);
  sole_writer.keep_in_place([&] { tessera::io::write_atomically(folder + "/sample.txt", sampled + "\n"); });
  return training.record();
}

/// Writes the results of all variants, and prints them.
void conclude(run_origin const& origin, token_text const& text, std::vector<ngram_floor> const& floors,
              std::filesystem::path const& run, std::vector<run_record> const& records,
              tessera::io::folder_lock const& sole_writer) {
  using tessera::io::write_atomically;
  std::vector<loss_curve> curves;
  for (run_record const& r : records) curves.push_back({r.variant, r.points});
  const std::string title = "Pre-training " + run.filename().string();
  const std::string table = report(origin.asked, records, text, floors);
  sole_writer.keep_in_place([&] {
    write_atomically((run / "loss.csv").string(), csv(curve_table(curves)));
    write_atomically((run / "loss_by_time.svg").string(),
                     svg(loss_plot(title, curves, floors, plot_over::time)));
    write_atomically((run / "loss_by_tokens.svg").string(),
                     svg(loss_plot(title, curves, floors, plot_over::tokens)));
    write_atomically((run / "table.txt").string(), table);
    write_atomically((run / "summary.json").string(),
                     tessera::io::to_text(summary(origin.asked, records, text), 1) + "\n");
  });
  for (run_record const& r : records) {
    const std::string path = (run / r.variant / "sample.txt").string();
    print("\n---- what the " + r.variant + " model writes\n" + tessera::io::read_file(path));
  }
  print(
      "\n" + table + "\nin " + run.string() +
      ": table.txt, summary.json, loss.csv, loss_by_time.svg, loss_by_tokens.svg, checkpoints and samples\n");
}

/// Throws option_error if a model cannot be made of the settings, or has no origin in the run of --from.
void require_models(settings const& s, bool resumes) {
  for (variant const& v : variants_of(s)) {
    const model_description what = description_of(s, v, 256);
    what.shape.check();
    static_cast<void>(size_of(what));  // its module is there
    if (!s.from.empty() && !resumes && !has_checkpoint(s.from, origin_name(s, v)))
      refuse("--from", s.from + " has no checkpoint of a " + origin_name(s, v) + " model; say --only " +
                           (origin_name(s, v) == "dense" ? "sparse, or --densify" : "dense"));
  }
}

/// The folder of a run, new or to be resumed, with the models that it begins with. A folder that was made
/// goes again if the run cannot begin.
run_folder begun_folder(run_origin const& origin, std::string const& resumed, tessera::context& ctx) {
  settings const& s = origin.asked;
  run_folder kept = resumed.empty()
                        ? make_run_folder(s)
                        : run_folder{folder_named(resumed), tessera::io::folder_lock(folder_named(resumed))};
  std::filesystem::path const& run = kept.path;
  for (char const* part : {"", "/dense", "/sparse", "/dense/frames", "/sparse/frames"})
    tessera::io::remove_unfinished(run.string() + part);
  try {
    if (!s.from.empty() && !std::filesystem::exists(run / "from.json")) write_origins(s, run, ctx);
    require_progress(origin, run);
    if (!resumed.empty()) write_length(run, s);
  } catch (...) {
    std::error_code ignored;
    if (resumed.empty()) std::filesystem::remove_all(run, ignored);
    throw;
  }
  return kept;
}

/// `typed` is how the program was called, by ./dev or itself.
int command(string_list const& arguments, std::string const& typed) {
  settings s = new_settings(arguments);
  if (s.help) {
    print(
        "pretrain: trains a small GPT, LLaMA, BERT or LSTM on text, dense and block-sparse, and compares "
        "them\n" +
        help_text(settings_table()));
    return 0;
  }
  s = with_planned_length(s, arguments);
  const std::string resumed = s.resume;
  if (!resumed.empty()) s = settings_to_resume(arguments, resumed);
  check(s, tessera::exec::available_threads());
  require_files(s.text);
  require_models(s, !resumed.empty());

  const token_text text = read_text(s, resumed);
  const run_origin origin{s, text.symbols, text.hash};
  tessera::context ctx(s.threads > 0 ? s.threads : tessera::exec::available_threads());
  if (!s.plan.empty()) {
    print(plan_text(s, text, ctx, typed, read_arguments(settings_table(), arguments)));
    return 0;
  }
  if (s.dry_run) print("\n" + forecast(s, text, ctx));
  require_memory(s, text.symbols.size());
  const std::vector<variant> to_train =
      resumed.empty() ? variants_of(s) : unfinished(origin, folder_named(resumed));
  require_run_folder(s, resumed, checkpoint_bytes(s, to_train, text.symbols.size(), resumed));
  if (s.dry_run) {
    if (!resumed.empty())
      require_progress(origin, folder_named(resumed));
    else if (!s.from.empty())
      require_origins(origin);
    return 0;
  }
  // Before the training: a text may have more n-grams than there is memory for.
  const std::vector<ngram_floor> floors = ngram_floors(text.training, text.validation, text.symbols.size());
  const run_folder kept = begun_folder(origin, resumed, ctx);
  std::filesystem::path const& run = kept.path;
  tessera::io::folder_lock const& sole_writer = kept.sole_writer;
  print("run      " + run.string() + "\n\n");

  int ended_by = 0;
  std::vector<run_record> records;
  for (variant const& v : in_order_of_training(s)) {
    const auto record = [&] {
      try {
        return train_variant(origin, v, text, run, ctx, sole_writer, ended_by);
      } catch (std::exception const& fault) {  // a run that could not begin leaves its name free
        std::error_code ignored;
        const bool settings = dynamic_cast<tessera::option_error const*>(&fault),
                   memory = dynamic_cast<std::bad_alloc const*>(&fault);
        if ((settings || memory) && resumed.empty() && !any_checkpoint(s, run.string()))
          std::filesystem::remove_all(run, ignored);
        throw;
      }
    }();
    if (!record) {
      print("go on with\n  " + typed + " --resume " + run.string() + "\n");
      return 128 + ended_by;
    }
    records.push_back(*record);
  }
  std::sort(records.begin(), records.end(),
            [](run_record const& a, run_record const& b) { return a.variant < b.variant; });  // dense, sparse
  conclude(origin, text, floors, run, records, sole_writer);
  return 0;
}

}}  // namespace pretrain

int main(int count, char** arguments) {
  char const* const by_dev = std::getenv("TESSERA_COMMAND");
  return pretrain::guarded_main("pretrain", count, arguments, [&](pretrain::string_list const& given) {
    return pretrain::command(given, by_dev ? by_dev : arguments[0]);
  });
}
