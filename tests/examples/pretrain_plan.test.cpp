// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <pretrain/new_settings.hpp>
#include <pretrain/plan.hpp>

#include <tessera/nn/gpt.hpp>

#include "../io/scratch_folder.hpp"
#include "pretrain_programs.hpp"

namespace pretrain_plan_test {

using namespace pretrain;

constexpr int symbols = 96;

nn::model_size size_of_gpt(model_description const& what) {
  return nn::gpt<float, tessera::block_shape<16>>::size(what.shape);
}

/// A machine of 1e10 FLOPs a second, and a constant time for each step.
train::step_times times_of(settings const& s) {
  const double density = s.only == "sparse" ? s.density : 1;
  const auto size = size_of_gpt(description_of(s, {s.only, 16, density, 1}, symbols));
  return {1e-3 + step_flops(s, size, symbols) / 1e10};
}

std::vector<planned_training> plans_of(string_list const& arguments, variant const& v, double memory = 1e12) {
  const settings s = new_settings(arguments);
  planner of(s, v, symbols, size_of_gpt, times_of);
  std::vector<planned_training> all;
  for (plan_rule const& rule : plan_rules) all.push_back(of.plan(rule, plan_budget_of(s.plan), memory));
  return all;
}

const variant dense{"dense", 16, 1, 1e-3}, sparse{"sparse", 16, 0.1, 1e-3};

TEST_CASE("plan: a budget is a number of FLOPs or a time") {
  CHECK(plan_budget_of("1e15").flops == 1e15);
  CHECK(plan_budget_of("1e15").time == seconds(0));
  CHECK(plan_budget_of("10min").time == seconds(600));
  CHECK(plan_budget_of("10min").flops == 0);
  CHECK(plan_budget_of("10m").time == seconds(600));
  CHECK(plan_budget_of("1h30min").time == seconds(5400));
  for (std::string const none : {"", "ten", "-1e15", "0", "0s", "nan", "1e40", "10mins", "3x"})
    CHECK(error_of<tessera::option_error>([&] { static_cast<void>(plan_budget_of(none)); }) ==
          "[--plan] '" + none + "' is neither a number of FLOPs, such as 1e15, nor a time, such as 10min");
}

TEST_CASE("plan: 6 N D is the budget within 1 %, of a dense model and of stored parameters") {
  for (const char* plan : {"--plan=1e14", "--plan=1e15", "--plan=1e17"})
    for (variant const& v : {dense, sparse}) {
      const auto all = plans_of({plan}, v);
      const double flops = plan_budget_of(std::string(plan).substr(7)).flops;
      for (std::size_t i = 0; i < all.size(); ++i) {
        CHECK(std::abs(all[i].chosen().flops() / flops - 1) < 0.01);
        CHECK(std::abs(all[i].best.flops() / flops - 1) < 1e-9);
        CHECK(all[i].size.live_parameters ==
              size_of_gpt(description_of(all[i].asked, v, symbols)).live_parameters);
        // No other shape is nearer.
        const double distance = std::abs(std::log(all[i].chosen().parameters / all[i].best.parameters));
        for (plan_shape const& shape : plan_shapes) {
          settings other = all[i].asked;
          other.layers = shape.layers, other.hidden = shape.hidden, other.heads = shape.heads;
          if (v.density < 1 && shape.hidden < 128) continue;
          const double parameters = double(size_of_gpt(description_of(other, v, symbols)).live_parameters);
          CHECK(std::abs(std::log(parameters / all[i].best.parameters)) >= distance);
        }
      }
    }
  // The rules disagree: few tokens a parameter for little, many for much.
  const auto little = plans_of({"--plan=1e15"}, dense), much = plans_of({"--plan=1e20"}, dense);
  CHECK(little[1].best.parameters > little[0].best.parameters);
  CHECK(much[1].best.parameters < much[0].best.parameters);
  // A sparse model of as many stored parameters is wider or deeper.
  CHECK(plans_of({"--plan=1e15"}, sparse)[0].size.parameters > 4 * little[0].size.parameters);
}

TEST_CASE("plan: in a time the steps are those that fit, of the shape that is best for the FLOPs they take") {
  for (variant const& v : {dense, sparse})
    for (planned_training const& one : plans_of({"--plan=10min"}, v)) {
      const double time = double(one.asked.steps) * one.times.step;
      CHECK(time <= 600);
      CHECK(time > 600 - 2 * one.times.step);
      // Within the distance of two neighbours in the list.
      CHECK(std::abs(std::log(one.chosen().parameters / one.best.parameters)) < 0.7);
    }
}

TEST_CASE("plan: one that does not fit the memory is refused in one line") {
  const std::string refused =
      error_of<tessera::option_error>([] { static_cast<void>(plans_of({"--plan=1e21"}, dense, 8e9)); });
  CHECK(refused.starts_with("[--plan] 1e+21 FLOPs ask for a dense model of 48x1600, which needs "));
  CHECK(refused.ends_with("B, but this machine has 8GB; plan less, or make --batch or --context smaller"));
  CHECK(refused.find('\n') == refused.npos);
}

TEST_CASE("plan: the table names the rules, the command keeps the other options, and epochs warn") {
  const auto all = plans_of({"--plan=1e15"}, dense);
  const table t = plan_table(dense, all, 1e6, symbols);
  CHECK(t.header ==
        table_row{"dense model", "20 tokens a parameter", "Hoffmann et al. 2022", "Besiroglu et al. 2024"});
  for (table_row const& row : t.rows) CHECK(row.size() == 4);
  const std::vector<given_option> given =
      read_arguments(settings_table(), {"--plan", "1e15", "--text", "a.txt", "it's", "--layers", "3",
                                        "--static", "--lr=3e-4", "--only", "both"});
  settings planned = new_settings({});
  planned.only = "dense", planned.layers = 4, planned.hidden = 256, planned.heads = 4, planned.steps = 99;
  CHECK(plan_command("pretrain", given, planned) ==
        "pretrain --text a.txt 'it'\\''s' --static --lr 3e-4 --only dense --layers 4 --hidden 256 --heads 4 "
        "--steps 99");
  const std::vector<given_option> of_sparse =
      read_arguments(settings_table(), {"--plan=1e15", "--policy=rigl", "--prune-fraction=0.2", "--name=a"});
  CHECK(plan_command("pretrain", of_sparse, planned) ==
        "pretrain --only dense --layers 4 --hidden 256 --heads 4 --steps 99");
  CHECK(shapes_warning(all) == "");
  CHECK(shapes_warning(plans_of({"--plan=90"}, dense)).starts_with("warning: no shape of the list is near"));
  CHECK(epochs_warning(all, 1e9) == "");
  CHECK(epochs_warning(all, 1e6).starts_with("warning: up to "));
}

TEST_CASE("plan: options that a plan chooses, or that another run has chosen, are refused") {
  const auto refusal_of = [](string_list const& arguments) {
    return error_of<tessera::option_error>([&] { check(new_settings(arguments), 2); });
  };
  CHECK(refusal_of({"--plan=1e15"}) == "");
  CHECK(refusal_of({"--plan=soon"}).starts_with("[--plan] 'soon' is neither"));
  CHECK(refusal_of({"--plan=1e15", "--policy=granet"})
            .starts_with("[--plan] has no meaning with --policy granet"));
  for (const char* option : {"--layers=3", "--hidden=64", "--heads=1", "--preset=mini", "--steps=5"})
    CHECK(refusal_of({"--plan=1e15", option}) ==
          "[" + std::string(option).substr(0, std::string(option).find('=')) +
              "] has no meaning with --plan, which chooses it; leave it out");
  CHECK(refusal_of({"--plan=1e15", "--time=3m"}) ==
        "[--time] has no meaning with --plan, which chooses it; leave it out");
  CHECK(refusal_of({"--plan=1e15", "--dry-run"}) ==
        "[--dry-run] has no meaning with --plan, which trains nothing either; leave it out");
  CHECK(refusal_of({"--plan=1e15", "--model=rnn"}) ==
        "[--plan] has no meaning with --model rnn: its shapes are of transformers");
}

#if defined(PRETRAIN) && defined(GENERATE) && defined(FILL_MASK) && defined(FREEZE) && defined(FINETUNE)

TEST_CASE("plan: the program times steps, trains nothing, and its command trains what it said") {
  const pretrain_programs::workplace here;
  const std::string options = " --text " + here.in("text") + " --out " + here.in("runs") +
                              " --only sparse --density 1/2 --context 16 --batch 4 --threads 1";
  const outcome plan = shell(PRETRAIN + options + " --plan 1e9");
  CHECK(plan.code == 0);
  for (plan_rule const& rule : plan_rules) CHECK(pretrain_programs::contains(plan, rule.name));
  CHECK(pretrain_programs::contains(plan, "time of a step, measured"));
  CHECK(!std::filesystem::exists(here.in("runs")));
  const std::size_t at = plan.output.rfind(PRETRAIN " --text");
  REQUIRE(at != std::string::npos);
  const std::string command = plan.output.substr(at, plan.output.find('\n', at) - at);
  const outcome trained = shell(command + " --quiet --name a");
  CHECK(trained.code == 0);
  const std::string steps = command.substr(command.rfind(' ') + 1);
  CHECK(std::filesystem::exists(here.in("runs/a/sparse/step-" + std::string(8 - steps.size(), '0') + steps)));
}

#endif

}  // namespace pretrain_plan_test
