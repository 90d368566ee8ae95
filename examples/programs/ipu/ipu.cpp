// SPDX-License-Identifier: BSD-3-Clause

// The emulated machine at the command line: what a sparse product, or a training step, costs on 1472 tiles.

#include <cstdio>
#include <string>
#include <vector>

#include <tessera/io/file.hpp>

#include "../common/guarded_main.hpp"
#include "../common/options_help.hpp"
#include "commands.hpp"
#include "settings.hpp"

namespace ipu_program { namespace {

struct command_row {
  char const *name, *what;
  int (*run)(settings const&);
};
constexpr command_row commands[] = {
    {"plan", "what the planner makes of a product, beside the dense one", plan_product},
    {"emulate", "run a product tile by tile, check it, and report", emulate_product},
    {"sweep", "speed-up over dense for many sizes, as CSV", sweep_products},
    {"map", "the speed-up map of the PopSparse paper, as text or a page", map_products},
    {"train", "a training step of this library on the machine, forward and backward", train_step},
    {"host", "the same report of the product on this computer, measured", measure_host},
};

int print_help() {
  std::printf(
      "ipu: sparse products and training steps on an emulated machine of 1472 tiles\n\nusage: ipu COMMAND "
      "[--option value …]\n\n");
  for (auto const& c : commands) std::printf("  %-9s %s\n", c.name, c.what);
  std::printf("%s", programs::help_text(table()).c_str());
  return 0;
}
int print_help(command_row const& c) {
  std::printf("ipu %s: %s\n%s", c.name, c.what, programs::help_text(table(), c.name).c_str());
  return 0;
}

int main_of(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") return print_help();
  std::string const name = arguments[0];
  arguments.erase(arguments.begin());
  for (auto const& c : commands) {
    if (name != c.name) continue;
    settings s;
    const auto given = programs::read_arguments(table(), arguments);
    programs::assign(table(), s, given);
    if (s.help) return print_help(c);
    require_effect(s, given, name);
    s.one_mode = is_said(given, "mode");
    for (std::string const& file : {s.html, s.json, s.csv})
      if (!file.empty()) tessera::io::require_writable(file);  // before the work rather than after
    return c.run(s);
  }
  std::string known;
  for (auto const& c : commands) known += (known.empty() ? "" : ", ") + std::string(c.name);
  throw tessera::option_error("[" + name + "] there is no such command: " + known + " are");
}

}}  // namespace ipu_program

int main(int argc, char** argv) { return programs::guarded_main("ipu", argc, argv, ipu_program::main_of); }
