// SPDX-License-Identifier: BSD-3-Clause

// Teaches a pre-trained model a task: a BERT to tell classes of texts apart, a GPT or a LLaMA to follow
// instructions, and all another text.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/random.hpp>
#include <tessera/exec/available_threads.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/json.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/io/text.hpp>
#include <tessera/train/any_model.hpp>
#include <tessera/train/loss_scaling.hpp>
#include <tessera/train/optimizers/adamw.hpp>
#include <tessera/train/schedules.hpp>
#include <tessera/train/training.hpp>

#include "../common/format.hpp"
#include "../common/guarded_main.hpp"
#include "../common/options_help.hpp"
#include "../common/progress.hpp"
#include "adapters.hpp"
#include "disk_room.hpp"
#include "instructions.hpp"
#include "labelled_text.hpp"
#include "reader_settings.hpp"
#include "trained_model.hpp"

namespace pretrain { namespace {

using namespace programs;

/// The checkpoint that is to be fine-tuned.
struct base_model {
  std::string folder;
  train::checkpoint from;
  run_origin origin;
  run_record record;
  model_description what;
  train::prompt_tokens prompt;  // of --method prompt
  int context;                  // tokens of a sequence besides them
};

/// Opens a checkpoint. Throws option_error if the model cannot learn the task.
base_model read_base(finetune_settings const& s) {
  std::string folder = find_checkpoint(s.checkpoint);
  train::checkpoint from(folder);
  const auto program = program_of(from, folder);
  if (program.contains("frozen")) refuse_frozen(folder, program.at("frozen").as_string());
  if (program.contains("classes"))
    refuse("--checkpoint", folder + " is a classifier, which finetune made; it takes what pretrain made");
  if (program.contains("adapters"))
    refuse("--checkpoint", folder +
                               " has adapters; freeze --merge all puts them into the weights, and --format "
                               "peft writes them for finetune --adapters");
  run_origin origin = read_origin(program, folder);
  run_record record = read_record(program.at("record"));
  record.history = {};  // only a training of patterns goes on with it
  const bool is_bert = origin.asked.model == "bert";
  if (origin.asked.model == "rnn")
    refuse("--checkpoint", folder + " is an LSTM; finetune takes a BERT, a GPT or a LLaMA");
  if (!s.train.empty() && !is_bert)
    refuse("--checkpoint", folder + (origin.asked.model == "llama" ? " is a LLaMA" : " is a GPT") +
                               ", which predicts the next token; finetune --train takes a BERT, and "
                               "--instructions a GPT or a LLaMA");
  if (!s.instructions.empty() && is_bert)
    refuse("--checkpoint",
           folder +
               " is a BERT, which tells texts apart; finetune --instructions takes a GPT or a LLaMA, "
               "and --train a BERT");
  if (origin.asked.optimizer == "schedule-free" && from.state().contains("settings") && !s.random_weights)
    refuse("--checkpoint",
           folder + " is of --optimizer schedule-free, whose model is an average; freeze it first");
  model_description what = description_of(origin, record.variant, folder);
  what.seed = s.seed;
  what.method = s.method;
  train::prompt_tokens prompt;  // behind the [CLS] of a BERT
  if (s.method == "prompt")
    prompt = train::prompt_tokens::sampled(s.prompt_tokens, origin.symbols.size(), is_bert, s.seed);
  const int context = room_beside(prompt, origin.asked);
  return {std::move(folder), std::move(from), std::move(origin), std::move(record), std::move(what),
          std::move(prompt), context};
}

/// Gives a model the adapters that are asked for; of --method full, none.
std::optional<adapter_description> adapt(finetune_settings const& s, base_model const& base,
                                         train::any_model& learner) {
  if (s.method == "full") return {};
  if (s.method == "prompt") return adapter_description{.method = s.method, .prompt = base.prompt};
  if (!s.adapters.empty()) return read_peft_into(learner, base.what, s.adapters);
  const adapter_description asked{.method = s.method,
                                  .settings = {s.rank, s.alpha, s.rank_stabilised},
                                  .targets = targets_of(s.target, "--target", base.what.family),
                                  .width = s.width,
                                  .seed = s.seed};
  add_adapters(base.what, learner, asked);
  return asked;
}

/// Freezes all but the adapters, the norms of layers with nn::adapter, and the layers that are new.
std::vector<train::parameter_group> groups_of(finetune_settings const& s) {
  if (s.method == "full") return {};
  std::vector<train::parameter_group> groups;
  if (s.method == "lora")
    groups = {{.names = "*.down.weight"}, {.names = "*.up.weight", .rate = s.lora_plus}};
  if (s.method == "prompt") groups = {train::prompt_tokens::groups().front()};
  if (s.method == "adapter") groups = {{.names = "*.adapter.*"}, {.names = "block.*.norm*"}};
  if (!s.train.empty()) groups.push_back({.names = "pooler.*"}), groups.push_back({.names = "classifier.*"});
  groups.push_back({.names = "*", .rate = 0});
  return groups;
}

/// Prints how much of a model is trained, and the memory of gradients and of the state of the optimizer.
template <class Training> tessera::io::json::object count_trained(Training const& t) {
  std::int64_t trained = 0, all = 0;
  std::size_t bytes = t.state.size_bytes();
  const nn::parameter_list model = t.model, gradients = t.gradients;
  for (std::size_t i = 0; i < model.size(); ++i) {
    all += model[i].tensor.size();
    if (!nn::is_wanted(gradients[i].tensor)) continue;
    trained += model[i].tensor.size();
    bytes += gradients[i].tensor.size_bytes();
  }
  for (nn::any_parameter const& each : model.frozen()) all += each.tensor.size();
  std::printf("trained  %s of %s numbers (%s %%); %sB of gradients and moments\n",
              quantity(double(trained)).c_str(), quantity(double(all)).c_str(),
              fixed(100 * double(trained) / double(all), 2).c_str(), quantity(double(bytes)).c_str());
  return {{"trained", trained}, {"parameters", all}, {"training_bytes", bytes}};
}

/// The numbers 0 … count - 1 in an order of the seed and the epoch.
std::vector<std::size_t> shuffled(std::size_t count, std::uint64_t seed, std::uint64_t epoch) {
  const tessera::random_stream random(seed, tessera::random_purpose::batches, 1, epoch);
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) {
    order[i] = i;
    std::swap(order[i], order[random.below(i, i + 1)]);
  }
  return order;
}

/// Calls show(batch) with all examples of a task, `at_once` at a time, in an order, each with the prompt.
template <class Task, class Show>
void show_all(Task const& task, std::vector<std::size_t> const& order, std::size_t at_once,
              train::prompt_tokens const& prompt, Show&& show) {
  for (std::size_t first = 0; first < order.size(); first += at_once) {
    batch shown;
    for (std::size_t i = first; i < std::min(order.size(), first + at_once); ++i) task.add(order[i], shown);
    prompt.insert(shown);
    show(shown);
  }
}

/// The windows of a text, as pretrain shows them.
class plain_text {
 public:
  explicit plain_text(window_text windows) : windows_(std::move(windows)) {}
  std::size_t size() const { return windows_.windows(); }
  void add(std::size_t i, batch& to) const { windows_.add_window(i, to); }

 private:
  window_text windows_;
};

/// How well a model does a task.
struct measure {
  char const* name;
  double value;
  std::string text;  // for the line of an epoch
};
measure measured(labelled_text const& on, model& of, std::size_t at_once) {
  const double share = on.accuracy(of, at_once);
  return {"accuracy", share, "accuracy " + fixed(100 * share, 1) + " %"};
}
template <class Task> measure measured(Task const& on, model& of, std::size_t at_once) {
  train::token_loss all;
  std::vector<std::size_t> order(on.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  show_all(on, order, at_once, of.prompt,
           [&](batch const& shown) { all += train::evaluate(of.ctx, *of.network, shown); });
  return {"validation_loss", all.mean(), "validation " + fixed(all.mean(), 3)};
}

/// Throws option_error if a trained number is infinite or none.
void require_finite(nn::parameter_list const& model) {
  for (std::size_t i = 0; i < model.size(); ++i)
    for (const double value : model[i].tensor.values())
      if (!std::isfinite(value))
        throw tessera::option_error(tessera::message("[finetune] the last step made ", model.name(i),
                                                     " infinite or no number; a lower --lr helps"));
}

/// Trains for the asked epochs, and prints the loss and the measure of the task after each. Returns them, and
/// memory and time.
template <class Task>
tessera::io::json teach(finetune_settings const& s, base_model const& base, model& learner,
                        Task const& training, Task const* validation) {
  using clock = std::chrono::steady_clock;
  train::any_training t(learner.network->layer(), train::adamw{.weight_decay = s.weight_decay});
  if (base.what.precision == "float16") t.scaling = train::loss_scaling::adaptive();
  if (auto groups = groups_of(s); !groups.empty()) t.group_parameters(std::move(groups));
  tessera::io::json result = count_trained(t);
  const std::size_t size = static_cast<std::size_t>(s.batch);
  const auto steps = static_cast<std::int64_t>(tessera::ceil_div(training.size(), size)) * s.epochs,
             warmup = steps / 10;
  const train::warmed_up<train::cosine> rates{warmup, {s.lr, 0, std::max<std::int64_t>(1, steps - warmup)}};
  std::int64_t step = 0;
  double texts = 0;
  seconds spent{0};
  tessera::io::json::array epochs;
  programs::progress shown_progress("finetune", stderr, style_of(stderr));
  for (int epoch = 0; epoch < s.epochs; ++epoch) {
    train::token_loss all;
    const auto order = shuffled(training.size(), s.seed, static_cast<std::uint64_t>(epoch));
    show_all(training, order, size, learner.prompt, [&](batch const& shown) {
      const auto begin = clock::now();
      const double rate = rates.rate(step++);
      const train::step_report report = train::train_step(learner.ctx, t, {rate, 1}, [&](int) {
        const train::token_loss loss = train::learn(learner.ctx, *learner.network, t, shown, s.seed);
        if (learner.prompt.size() > 0) learner.prompt.freeze_other_positions(t.gradients);
        return loss;
      });
      spent += clock::now() - begin;
      all += {report.loss * double(shown.counted()), shown.counted()};
      texts += double(shown.lengths.size());
      shown_progress.show({int(step), int(steps), texts, spent, report.loss, rate, seconds(0), "texts"});
    });
    shown_progress.end_line();
    tessera::io::json point = tessera::io::json::object{{"loss", all.mean()}};
    std::string text;
    if (validation) {
      const measure its = measured(*validation, learner, size);
      point[its.name] = its.value;
      text = "  " + its.text;
    }
    epochs.push_back(std::move(point));
    std::printf("epoch %2d  loss %.3f%s\n", epoch + 1, all.mean(), text.c_str());
    std::fflush(stdout);
  }
  require_finite(t.model);
  result["steps"] = steps;
  result["seconds_per_step"] = spent.count() / double(steps);
  result["epochs"] = std::move(epochs);
  return result;
}

/// Writes the weights and the result of the training, where they are asked for.
///   more   members of the checkpoint besides origin and record
void write(finetune_settings const& s, base_model const& base, model const& learner,
           std::optional<adapter_description> const& adapters, tessera::io::json const& result,
           tessera::io::json::object more) {
  if (!s.out.empty()) {
    tessera::io::json kept = to_json(base.origin);
    kept["record"] = to_json(base.record);
    if (adapters) kept["adapters"] = to_json(*adapters);
    for (auto& [key, value] : more) kept[key] = std::move(value);
    learner.save_weights(s.out, tessera::io::json::object{{"program", std::move(kept)}});
    std::printf("in %s\n", tessera::io::printable(s.out).c_str());
  }
  if (!s.json.empty()) tessera::io::write_atomically(s.json, tessera::io::to_text(result, 2) + "\n");
}

void note(std::size_t count, std::string const& what) {
  if (count > 0) std::printf("note: %zu %s\n", count, what.c_str());
}

void learn_classes(finetune_settings const& s, base_model const& base, tessera::context& ctx) {
  auto const& words = *base.origin.symbols.words();
  const int context = base.context;
  const std::vector<labelled_line> lines = read_labelled(s.train);
  const std::vector<std::string> classes = classes_of(lines);
  if (classes.size() < 2)
    refuse("--train",
           s.train + " has the one label " + tessera::io::in_quotes(classes[0]) + "; two are the least");
  const labelled_text training(s.train, lines, classes, words, context),
      validation(s.validation, read_labelled(s.validation), classes, words, context);
  std::printf("text     %zu texts of %zu classes to learn, %zu to validate\n", training.size(),
              classes.size(), validation.size());
  note(training.cut() + validation.cut(),
       tessera::message("texts are longer than ", context, " tokens; their beginnings count"));
  model learner{
      make_classifier(base.what, s.random_weights ? nullptr : &base.from, static_cast<int>(classes.size())),
      ctx, base.prompt};
  const auto adapters = adapt(s, base, *learner.network);
  const tessera::io::json result = teach(s, base, learner, training, &validation);
  write(s, base, learner, adapters, result,
        {{"classes", tessera::io::json::array(classes.begin(), classes.end())}});
}

/// A model with the adapters that are asked for, trained on the examples of a task, and written.
///   more   see write
template <class Task>
void learn(finetune_settings const& s, base_model const& base, tessera::context& ctx, Task const& training,
           Task const* validation, tessera::io::json::object more) {
  model learner{make_model(base.what), ctx, base.prompt};
  if (!s.random_weights) learner.load(base.from);
  const auto adapters = adapt(s, base, *learner.network);
  const tessera::io::json result = teach(s, base, learner, training, validation);
  write(s, base, learner, adapters, result, std::move(more));
}

void learn_text(finetune_settings const& s, base_model const& base, tessera::context& ctx) {
  settings asked = base.origin.asked;
  asked.text = s.text;
  asked.context = base.context;
  const token_text text = tokenize(corpus_of(asked), base.origin.symbols, asked.context, objective_of(asked),
                                   asked.next_sentence ? 2 : 0);
  const plain_text training(windows_of(asked, text.training, text.training_ends, text.symbols)),
      validation(windows_of(asked, text.validation, text.validation_ends, text.symbols));
  std::printf("text     %zu tokens to learn, %zu to validate\n", text.training.size(),
              text.validation.size());
  learn(s, base, ctx, training, &validation, {});
}

void learn_instructions(finetune_settings const& s, base_model const& base, tessera::context& ctx) {
  const int context = base.context;
  const auto read = [&](std::string const& path) {
    return instruction_text(path, base.origin.symbols, context, s.form);
  };
  const instruction_text training = read(s.instructions);
  std::optional<instruction_text> validation;
  if (!s.validation.empty()) validation = read(s.validation);
  std::printf("text     %zu instructions to learn, %zu to validate\n", training.size(),
              validation ? validation->size() : 0);
  const auto both = [&](auto member) {
    return (training.*member)() + (validation ? ((*validation).*member)() : 0);
  };
  note(both(&instruction_text::left_out),
       tessera::message("examples are left out: their prompts fill the ", context, " tokens of the context"));
  note(both(&instruction_text::cut),
       tessera::message("responses are longer than the context has room; their beginnings count"));
  learn(s, base, ctx, training, validation ? &*validation : nullptr, {{"template", s.form}});
}

int command(string_list const& arguments) {
  const finetune_settings s = new_finetune_settings(arguments);
  if (s.help) {
    std::printf(
        "finetune: teaches a pre-trained BERT to tell classes of texts apart, a GPT or a LLaMA to follow "
        "instructions, and all another text\n%s",
        help_text(finetune_table()).c_str());
    return 0;
  }
  check_threads(s.threads, tessera::exec::available_threads());
  static_cast<void>(targets_of(s.target, "--target"));
  if (!s.out.empty()) require_new_folder(s.out);
  if (!s.json.empty() && std::filesystem::exists(s.json)) refuse("--json", s.json + " exists already");
  if (const auto of = std::filesystem::path(s.json).parent_path();
      !of.empty() && !std::filesystem::is_directory(of))
    refuse("--json", of.string() + " is no folder");
  const base_model base = read_base(s);
  if (!s.out.empty()) require_room(s.out, double(size_of(base.what).weight_bytes()), "the weights need");
  std::printf("model    %s\n", tessera::io::printable(base.folder).c_str());
  tessera::context ctx(s.threads > 0 ? s.threads : tessera::exec::available_threads());
  if (!s.train.empty())
    learn_classes(s, base, ctx);
  else if (!s.instructions.empty())
    learn_instructions(s, base, ctx);
  else
    learn_text(s, base, ctx);
  return 0;
}

}}  // namespace pretrain

int main(int count, char** arguments) {
  return pretrain::guarded_main("finetune", count, arguments, pretrain::command);
}
