// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <tessera/train/change_blocks.hpp>
#include <tessera/train/kept_parameters.hpp>
#include <tessera/train/sparsity/scores/prune.hpp>
#include <tessera/train/sparsity/scores/wanda.hpp>

#include "../common/format.hpp"
#include "reader_settings.hpp"
#include "run_folder.hpp"
#include "trained_model.hpp"
#include "validation.hpp"

// freeze --density: blocks of a trained model are pruned at once, by their magnitude or by Wanda (Sun et al.
// 2024, arXiv 2306.11695).

namespace pretrain {

/// Makes a trained model the sparse one of a run of this block and density, whose weights are still to be
/// pruned.
inline void make_sparse(trained_model& trained, int block, double density) {
  settings& asked = trained.origin.asked;
  asked.only = "sparse";
  asked.block = block;
  asked.density = density;
  asked.sparse_lr = suggested_sparse_lr(asked);
  asked.from.clear();
  asked.densify = false;
  asked.branch = 0;
  trained.record.variant = "sparse";
  const variant sparse = variants_of(asked).at(0);
  auto made = make_model(description_of(asked, sparse, trained.origin.symbols.size()));
  const train::trainable_layer from = trained.network.network->layer(), to = made->layer();
  train::change_blocks(from, to);
  to.refresh(0);
  trained.network.network = std::move(made);
}

/// The scores by which blocks are pruned.
inline std::vector<double> block_scores(freezing_settings const& s, trained_model& trained,
                                        token_text const& text) {
  settings const& asked = trained.origin.asked;
  const nn::parameter_list list = trained.network.network->layer();
  if (s.by == "magnitude") return train::magnitude_scores(list);
  const validation calibration(windows_of(asked, text.training, text.training_ends, text.symbols),
                               static_cast<std::size_t>(s.calibration));
  train::input_squares seen(list);
  nn::any_pass pass{trained.network.ctx, nn::purpose::evaluation};
  pass.layer_inputs = {seen, list};
  std::fprintf(stderr, "inputs of %zu tokens of the training text\n", calibration.tokens());
  calibration.show(
      asked.batch, [] { return false; },
      [&](batch const& shown) { trained.network.network->forward(shown, pass); });
  return train::wanda_scores(list, seen);
}

/// Of the weights that are pruned; of other parameters, none.
inline std::vector<tessera::pattern> patterns_of(nn::parameter_list const& model) {
  std::vector<tessera::pattern> all;
  for (nn::any_parameter const& each : model)
    all.push_back(each.is_weight() ? each.tensor.pattern() : tessera::pattern());
  return all;
}
inline std::int64_t blocks_in(std::vector<tessera::pattern> const& all) {
  std::int64_t blocks = 0;
  for (tessera::pattern const& each : all) blocks += each.blocks();
  return blocks;
}

/// Prunes a trained model, and prints the loss before and after, also of each weight pruned alone.
///   folder   the checkpoint that it comes from
inline void prune_trained(freezing_settings const& s, trained_model& trained, std::string const& folder) {
  const int block = s.block > 0                          ? s.block
                    : trained.record.variant == "sparse" ? trained.origin.asked.block
                                                         : 16;
  const token_text text = text_of_run(s.text, trained.origin, folder);
  if (!s.text.empty()) trained.origin.asked.text = s.text;
  make_sparse(trained, block, s.density);
  settings const& asked = trained.origin.asked;
  const train::trainable_layer layer = trained.network.network->layer();
  nn::mutable_parameter_list list(layer);
  const validation sample(windows_of(asked, text.validation, text.validation_ends, text.symbols),
                          validation::sample_tokens);
  const auto loss = [&] {
    layer.refresh(0);
    return sample.loss_of(trained.network, asked.batch, [] { return false; }).mean();
  };
  const train::kept_parameters before(list);
  std::vector<double> scores = block_scores(s, trained, text);
  const double loss_before = loss();
  const std::vector<tessera::pattern> stored = patterns_of(list);
  train::prune(list, s.density, std::move(scores), train::pruning_scope::each_matrix);
  const std::vector<tessera::pattern> left = patterns_of(list);
  const std::int64_t all_stored = blocks_in(stored), all_left = blocks_in(left);
  if (all_left == all_stored)
    refuse("--density", tessera::message(s.density, " leaves all blocks that the model stores, ", all_stored,
                                         "; give a lower one"));
  const double loss_after = loss();
  const train::kept_parameters after(list);

  const std::vector<std::string> names = list.names();
  std::size_t width = std::string("all of them").size();
  for (std::string const& name : names) width = std::max(width, name.size());
  const auto print = [&](std::string const& name, std::string const& blocks, double value) {
    std::printf("%s  %s  %s\n", padded(name, width).c_str(), padded(blocks, 15, padding::before).c_str(),
                padded(fixed(value, 4), 7, padding::before).c_str());
    std::fflush(stdout);
  };
  std::printf(
      "Losses in nats per %s, of %zu tokens of the validation text; of a weight, if it alone is pruned.\n\n",
      unit_of_loss(asked).c_str(), sample.tokens());
  std::printf("%s           blocks     loss\n", padded("pruned by " + s.by, width).c_str());
  print("nothing", "", loss_before);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_weight()) continue;
    before.restore(list);
    list[i].tensor.set_pattern(left[i]);
    print(names[i], tessera::message(stored[i].blocks(), " > ", left[i].blocks()), loss());
  }
  after.restore(list);
  layer.refresh(0);
  print("all of them", tessera::message(all_stored, " > ", all_left), loss_after);
}

/// Writes a pruned model as a run of no steps, with which others begin.
inline void write_run(std::string const& folder, trained_model const& trained, tessera::io::json program) {
  tessera::io::write_folder_atomically(folder, {"settings.json", "sparse"}, [&](std::string const& partial) {
    write_settings(partial, trained.origin.asked);
    trained.network.save_weights(train::checkpoint_folder(partial + "/sparse", 0),
                                 tessera::io::json::object{{"program", std::move(program)}});
  });
}

}  // namespace pretrain
