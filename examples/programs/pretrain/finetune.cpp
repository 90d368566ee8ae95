// SPDX-License-Identifier: BSD-3-Clause

// Teaches a pre-trained BERT to tell classes of texts apart.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <tessera/exec/available_threads.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/io/text.hpp>
#include <tessera/train/any_model.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/schedules.hpp>
#include <tessera/train/training.hpp>

#include "../common/format.hpp"
#include "../common/guarded_main.hpp"
#include "../common/options_help.hpp"
#include "disk_room.hpp"
#include "labelled_text.hpp"
#include "reader_settings.hpp"
#include "trained_model.hpp"

namespace pretrain { namespace {

using namespace programs;

/// Throws option_error if the model of a checkpoint cannot learn classes.
void require_teachable(run_origin const& origin, std::string const& folder) {
  if (objective_of(origin.asked) != objective::masked_token || !origin.symbols.words())
    refuse("--checkpoint", folder + " is of a model that predicts the next token; finetune takes a BERT");
  if (origin.asked.precision != "float")
    refuse("--checkpoint", folder + " is in " + origin.asked.precision + "; finetune computes in float");
}

/// The model of a checkpoint with a layer that tells `classes` classes apart.
std::unique_ptr<train::any_model> new_classifier(finetune_settings const& s, train::checkpoint const& from,
                                                 std::string const& folder, run_origin const& origin,
                                                 std::string const& name, std::size_t classes) {
  for (variant const& v : variants_of(origin.asked)) {
    if (v.name != name) continue;
    model_description what = description_of(origin.asked, v, origin.symbols.size());
    what.seed = s.seed;
    if (!s.out.empty()) require_room(s.out, double(size_of(what).weight_bytes()), "the weights need");
    return make_classifier(what, s.random_weights ? nullptr : &from, static_cast<int>(classes));
  }
  refuse("--checkpoint", folder + " is of a variant that its settings do not have");
}

/// Trains for the asked epochs, and prints the accuracy after each.
void teach(finetune_settings const& s, tessera::context& ctx, model& classifier,
           labelled_text const& training, labelled_text const& validation) {
  train::any_training t(classifier.network->layer(), train::adamw{.weight_decay = s.weight_decay});
  const std::size_t size = static_cast<std::size_t>(s.batch),
                    steps_an_epoch = tessera::ceil_div(training.size(), size);
  const auto steps = static_cast<std::int64_t>(steps_an_epoch) * s.epochs, warmup = steps / 10;
  const train::warmed_up<train::cosine> rates{warmup, {s.lr, 0, std::max<std::int64_t>(1, steps - warmup)}};
  std::int64_t step = 0;
  for (int epoch = 0; epoch < s.epochs; ++epoch) {
    const auto order = training.shuffled(s.seed, static_cast<std::uint64_t>(epoch));
    double sum = 0;
    for (std::size_t first = 0; first < order.size(); first += size) {
      batch shown;
      for (std::size_t i = first; i < std::min(order.size(), first + size); ++i)
        training.add(order[i], shown);
      const train::step_report report = train::train_step(ctx, t, {rates.rate(step++), 1}, [&](int) {
        return train::learn(ctx, *classifier.network, t, shown, s.seed);
      });
      sum += report.loss * static_cast<double>(shown.counted());
    }
    std::printf("epoch %2d  loss %.3f  accuracy %.1f %%\n", epoch + 1, sum / double(training.size()),
                100 * validation.accuracy(classifier, size));
    std::fflush(stdout);
  }
}

int command(string_list const& arguments) {
  const finetune_settings s = new_finetune_settings(arguments);
  if (s.help) {
    std::printf("finetune: teaches a pre-trained BERT to tell classes of texts apart\n%s",
                help_text(finetune_table()).c_str());
    return 0;
  }
  check_threads(s.threads, tessera::exec::available_threads());
  if (!s.out.empty()) require_new_folder(s.out);

  const std::string folder = find_checkpoint(s.checkpoint);
  const train::checkpoint from(folder);
  const auto program = program_of(from, folder);
  if (program.contains("classes"))
    refuse("--checkpoint", folder + " is a classifier already; finetune takes what pretrain made");
  run_origin origin = read_origin(program, folder);
  run_record record = read_record(program.at("record"));
  record.history = {};  // only a training of patterns goes on with it
  require_teachable(origin, folder);
  if (origin.asked.optimizer == "schedule-free" && from.state().contains("settings") && !s.random_weights)
    refuse("--checkpoint",
           folder + " is of --optimizer schedule-free, whose model is an average; freeze it first");

  auto const& words = *origin.symbols.words();
  const std::vector<labelled_line> lines = read_labelled(s.train);
  const std::vector<std::string> classes = classes_of(lines);
  if (classes.size() < 2)
    refuse("--train",
           s.train + " has the one label " + tessera::io::in_quotes(classes[0]) + "; two are the least");
  const labelled_text training(s.train, lines, classes, words, origin.asked.context),
      validation(s.validation, read_labelled(s.validation), classes, words, origin.asked.context);
  std::printf("model    %s\ntext     %zu texts of %zu classes to learn, %zu to validate\n",
              tessera::io::printable(folder).c_str(), training.size(), classes.size(), validation.size());
  if (const std::size_t cut = training.cut() + validation.cut(); cut > 0)
    std::printf("note: %zu texts are longer than %d tokens; their beginnings count\n", cut,
                origin.asked.context);

  tessera::context ctx(s.threads > 0 ? s.threads : tessera::exec::available_threads());
  model classifier{new_classifier(s, from, folder, origin, record.variant, classes.size()), ctx};
  teach(s, ctx, classifier, training, validation);
  if (!s.out.empty()) {
    tessera::io::json::array names(classes.begin(), classes.end());
    tessera::io::json kept = to_json(origin);
    kept["record"] = to_json(record);
    kept["classes"] = std::move(names);
    classifier.save_weights(s.out, tessera::io::json::object{{"program", std::move(kept)}});
    std::printf("in %s\n", tessera::io::printable(s.out).c_str());
  }
  return 0;
}

}}  // namespace pretrain

int main(int count, char** arguments) {
  return pretrain::guarded_main("finetune", count, arguments, pretrain::command);
}
