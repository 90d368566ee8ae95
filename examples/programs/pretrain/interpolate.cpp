// SPDX-License-Identifier: BSD-3-Clause

// The loss on the straight line between two trainings that began with one checkpoint: whether both came to
// one basin (Frankle et al. 2020, "Linear mode connectivity and the lottery ticket hypothesis", §2).

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <tessera/exec/available_threads.hpp>
#include <tessera/io/file.hpp>
#include <tessera/io/folder.hpp>
#include <tessera/io/printable.hpp>
#include <tessera/train/interpolate.hpp>
#include <tessera/train/masters.hpp>

#include "../common/format.hpp"
#include "../common/guarded_main.hpp"
#include "../common/options_help.hpp"
#include "../common/table.hpp"
#include "disk_room.hpp"
#include "plot.hpp"
#include "reader_settings.hpp"
#include "trained_model.hpp"
#include "validation.hpp"

namespace pretrain { namespace {

using namespace programs;

/// One end of the line.
struct line_end {
  std::string folder;
  trained_model trained;
  std::optional<train::owned_layer> masters = {};  // of a model of 16 bits

  nn::parameter_list parameters() const { return trained.network.network->layer(); }
  nn::parameter_list widest() const { return masters ? nn::parameter_list(*masters) : parameters(); }
};

line_end read_end(std::string const& named, tessera::context& ctx) {
  const std::string folder = find_checkpoint(named);
  line_end read{folder, read_trained(folder, ctx)};
  require_pretrained(read.trained, folder);
  const nn::parameter_list model = read.parameters();
  if (std::any_of(model.begin(), model.end(), [](auto const& p) { return p.is_narrow(); })) {
    read.masters.emplace(read.trained.network.network->layer().zeros_like());
    const train::checkpoint from(folder);
    train::load_masters(from, model, *read.masters);
    if (train::has_array(from, "to_average", model)) train::load_array(from, "average", *read.masters);
  }
  return read;
}

/// Throws an error that names the first difference, unless two models are of one kind, pattern, vocabulary
/// and text.
void require_one_kind(line_end const& a, line_end const& b) {
  run_origin const &first = a.trained.origin, &second = b.trained.origin;
  if (first.symbols != second.symbols)
    refuse("--checkpoint", b.folder + " has another vocabulary, of " + std::to_string(second.symbols.size()) +
                               " symbols, than " + a.folder + ", of " + std::to_string(first.symbols.size()));
  train::require_same_tensors("interpolate", a.parameters(), b.parameters());
  train::checkpoint(b.folder).require_architecture(a.trained.network.network->layer());
  if (first.text_hash != second.text_hash)
    refuse("--checkpoint", b.folder + " was trained on another text than " + a.folder);
  settings const &shown = first.asked, &other = second.asked;
  const char* const differs = shown.context != other.context                 ? "--context"
                              : objective_of(shown) == objective::next_token ? nullptr
                              : shown.mask_share != other.mask_share         ? "--mask-share"
                              : shown.mask != other.mask                     ? "--mask"
                                                                             : nullptr;
  if (differs)
    refuse("--checkpoint", b.folder + " was shown the text by another " + differs + " than " + a.folder);
}

/// The losses at evenly spaced points of a line.
struct line {
  std::vector<double> alpha, loss;

  double ends() const { return (loss.front() + loss.back()) / 2; }
  std::size_t highest() const {
    return static_cast<std::size_t>(std::max_element(loss.begin(), loss.end()) - loss.begin());
  }
  /// Frankle et al.: the greatest loss above the mean of the ends, "the instability to SGD noise".
  double barrier() const { return loss[highest()] - ends(); }
};

line losses_between(line_end const& a, line_end const& b, token_text const& text, int points,
                    tessera::context& ctx) {
  run_origin const& of = a.trained.origin;
  model mixture{nullptr, ctx};
  for (variant const& v : variants_of(of.asked))
    if (v.name == a.trained.record.variant)
      mixture.network = make_model(description_of(of.asked, v, of.symbols.size()));
  const validation whole(windows_of(of.asked, text.validation, text.validation_ends, text.symbols));
  line all;
  for (int i = 0; i < points; ++i) {
    const double alpha = double(i) / (points - 1);
    const train::trainable_layer layer = mixture.network->layer();
    train::interpolate(a.widest(), b.widest(), alpha, layer);
    layer.refresh(0);
    all.alpha.push_back(alpha);
    all.loss.push_back(whole.loss_of(mixture, of.asked.batch, [] { return false; }).mean());
    std::printf("%8s  %s\n", number(alpha, 4).c_str(), fixed(all.loss.back(), 4).c_str());
    std::fflush(stdout);
  }
  return all;
}

/// Writes the table, its plot and a summary into a new folder.
void write(std::string const& folder, line const& of, line_end const& a, line_end const& b) {
  table t{{"alpha", "loss"}, {}};
  for (std::size_t i = 0; i < of.alpha.size(); ++i)
    t.rows.push_back({number(of.alpha[i]), number(of.loss[i], 9)});
  const plot drawn{"From " + a.folder + " to " + b.folder,
                   "alpha, the share of the second model",
                   "validation loss, nats per token",
                   {{"on the line", of.alpha, of.loss}},
                   {{"mean of the ends", of.ends()}}};
  using tessera::io::json;
  const json summary = json::object{{"first", a.folder},
                                    {"second", b.folder},
                                    {"alpha", json::array(of.alpha.begin(), of.alpha.end())},
                                    {"loss", json::array(of.loss.begin(), of.loss.end())},
                                    {"ends", of.ends()},
                                    {"barrier", of.barrier()}};
  tessera::io::write_folder_atomically(
      folder, {"loss.csv", "loss.svg", "summary.json"}, [&](std::string const& partial) {
        tessera::io::write_atomically(partial + "/loss.csv", csv(t));
        tessera::io::write_atomically(partial + "/loss.svg", svg(drawn));
        tessera::io::write_atomically(partial + "/summary.json", tessera::io::to_text(summary, 1) + "\n");
      });
}

int command(string_list const& arguments) {
  const interpolation_settings s = new_interpolation_settings(arguments);
  if (s.help) {
    std::printf(
        "interpolate: the loss on the straight line between the weights of two trainings\n\n"
        "usage: interpolate DIR DIR [--option value …]\n%s",
        help_text(interpolation_table()).c_str());
    return 0;
  }
  check_threads(s.threads, tessera::exec::available_threads());
  if (!s.out.empty()) require_new_folder(s.out);
  tessera::context ctx(s.threads > 0 ? s.threads : tessera::exec::available_threads());
  const line_end a = read_end(s.checkpoint[0], ctx), b = read_end(s.checkpoint[1], ctx);
  require_one_kind(a, b);
  const token_text text = text_of_run(s.text, a.trained.origin, a.folder);
  std::printf("Losses in nats per %s, of the whole validation text%s.\n\n%8s  loss\n",
              unit_of_loss(a.trained.origin.asked).c_str(),
              a.masters ? "; masters are mixed, and then rounded" : "", "alpha");
  const line all = losses_between(a, b, text, s.points, ctx);
  std::printf("\nbarrier  %s, the greatest loss, at %s, above the mean of the ends, %s\n",
              fixed(all.barrier(), 4).c_str(), number(all.alpha[all.highest()], 4).c_str(),
              fixed(all.ends(), 4).c_str());
  if (s.out.empty()) return 0;
  write(s.out, all, a, b);
  std::printf("in %s: loss.csv, loss.svg, summary.json\n", tessera::io::printable(s.out).c_str());
  return 0;
}

}}  // namespace pretrain

int main(int count, char** arguments) {
  return pretrain::guarded_main("interpolate", count, arguments, pretrain::command);
}
