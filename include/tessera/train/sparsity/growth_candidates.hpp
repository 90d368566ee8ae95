// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/parameter_list.hpp>
#include <tessera/nn/pass.hpp>
#include <tessera/tensor/panel_matrix.hpp>
#include <tessera/tensor/pattern.hpp>
#include <tessera/train/parameter_groups.hpp>
#include <tessera/train/sparsity/absent_gradients.hpp>
#include <tessera/train/sparsity/policy.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The absent blocks of each sparse weight whose gradients have the greatest growth_score; their number is
/// the policy's growth. They are found in one backward, whose pass gets the observer:
///
///   candidates.watch(policy, done, model, gradients);
///   pass.weight_gradients = candidates.observer();   // none in all other passes
///   model.backward(…, gradients, pass);
///   candidates.stop();
///   evolve(policy, done, explored, model, gradients, state, candidates);
///
/// In a step of several micro-batches only the last is watched: the norm of a sum is not the sum of norms, so
/// the summed gradient would have to be stored dense, and for blocks of one element a norm for each block
/// takes equal memory. It is stored, in doubles, of weights that a stack uses several times in a forward.
///
/// For an averaging_policy the scores are moving averages over the steps that it names, a number for each
/// block of the grid, stored or not; each of these steps costs a dense product. The averages are part of a
/// checkpoint.
template <class Policy> class growth_candidates {
 public:
  /// Drops earlier candidates and begins to watch the gradients of a model. Does not watch if the policy has
  /// no growth_score.
  void watch(Policy const& policy, std::int64_t done, nn::parameter_list const& model,
             nn::parameter_list gradients, parameter_groups const& groups = {}) {
    stop();
    found_.clear();
    if (!grows_by_gradient(policy)) return;
    kept_ = average_share(policy, done);
    chooses_ = kept_ && policy.due(done);
    if (kept_ && !average_share(policy, done - 1)) averages_.clear();
    nn::require_alike("growth_candidates", model, gradients);
    const std::vector<std::string> names = kept_ ? model.names() : std::vector<std::string>();
    for (const auto [i, number] : evolving_weights(model, false)) {
      if (!groups.evolves(number) || !nn::is_wanted(gradients[i].tensor)) continue;
      any_tensor const& weight = model[i].tensor;
      pattern const& stored = weight.pattern();
      std::vector<float>* average = nullptr;
      if (kept_) {
        average = &averages_[names[i]];
        average->resize(static_cast<std::size_t>(stored.block_rows()) *
                        static_cast<std::size_t>(stored.block_cols()));
      }
      found_.push_back({i,
                        number,
                        stored,
                        weight.block_rows(),
                        weight.block_cols(),
                        kept_ ? policy.count(stored, done) : growth(policy, stored, done),
                        average,
                        weight.is_zero(),
                        model[i].uses,
                        0,
                        {},
                        false,
                        {}});
    }
    policy_ = &policy;
    gradients_ = std::move(gradients);
  }
  /// Ends watching; the candidates stay.
  void stop() {
    if constexpr (averaging_policy<Policy>)
      if (policy_ && chooses_) choose(*policy_);
    policy_ = nullptr;
  }
  bool watching() const { return policy_ != nullptr; }
  /// For passes; none unless watching.
  nn::any_gradient_observer observer() {
    return watching() ? nn::any_gradient_observer(*this, *gradients_) : nn::any_gradient_observer();
  }

  /// See nn::gradient_observer.
  template <element T>
  void operator()(context& ctx, std::size_t parameter, panel_matrix<T> const& dy, panel_matrix<T> const& x) {
    if constexpr (gradient_policy<Policy>) {
      const auto here = std::find_if(found_.begin(), found_.end(),
                                     [&](matrix const& each) { return each.parameter == parameter; });
      if (!watching() || here == found_.end()) return;
      if (here->average) return average(ctx, *here, dy, x);
      greatest_scores best(here->count);
      for_each_summed_gradient(ctx, *here, here->stored, dy, x, [&](std::int64_t number, auto gradient) {
        best.offer(policy_->growth_score(gradient), number);
      });
      here->numbers = best.numbers();
    }
  }

  /// Throws error unless the gradients of all sparse weights were seen whose patterns may change.
  void require_seen(nn::parameter_list const& gradients, parameter_groups const& groups = {}) const {
    for (const auto [i, number] : evolving_weights(gradients, false)) {
      if (!groups.evolves(number) || !nn::is_wanted(gradients[i].tensor)) continue;
      matrix const* const found = find(number);
      if (!found || !found->seen || found->stored.serial() != gradients[i].tensor.pattern().serial())
        throw error(message("[evolve] the policy grows blocks by their gradients, but that of ",
                            gradients.name(i), " was not seen; give the pass of a step's last backward its ",
                            "observer, pass.weight_gradients = training.weight_gradients()"));
    }
  }

  /// The numbers of the candidates of a matrix, ascending.
  ///   number   of the matrix among the matrices of the model
  std::span<std::int64_t const> of_matrix(std::uint64_t number) const {
    matrix const* const found = find(number);
    return found ? std::span<std::int64_t const>(found->numbers) : std::span<std::int64_t const>();
  }

  /// Whether a matrix was all zeros in the backward, so that no blocks were shared out to it.
  bool was_zero(std::uint64_t number) const {
    matrix const* const found = find(number);
    return found && found->of_zeros;
  }

  io::json averages_to_json() const {
    io::json::object all;
    for (auto const& [name, average] : averages_)
      all.push_back({name, io::json::array(average.begin(), average.end())});
    return all;
  }
  /// Reads the output of averages_to_json. Throws io_error, which names the place, for any other text.
  void averages_from_json(io::json_place const& all) {
    std::map<std::string, std::vector<float>> read;
    for (io::json_member const& member : all.members()) {
      const io::json_place values = all.at(member);
      for (std::size_t i = 0; i < values.size(); ++i)
        read[member.key].push_back(static_cast<float>(values.at(i).as_number()));
    }
    averages_ = std::move(read);
  }

 private:
  struct matrix {
    std::size_t parameter;  // its number among the parameters of the model
    std::uint64_t number;   // and among all matrices
    pattern stored;
    int block_rows, block_cols;
    std::int64_t count;           // of blocks that grow, or that an averaging policy prunes
    std::vector<float>* average;  // of each block, row by row, for an averaging policy
    bool of_zeros;                // in the backward
    int uses, products;           // of the weight in a forward, and how many the backward has seen
    std::vector<double> sums;     // of the gradients of several uses
    bool seen;
    std::vector<std::int64_t> numbers;
  };

  /// Calls visit(number, gradient) for each block that is not `stored`, if this is the last product of a
  /// weight, with the sum over all of them.
  template <element T, class Visit>
  void for_each_summed_gradient(context& ctx, matrix& here, pattern const& stored, panel_matrix<T> const& dy,
                                panel_matrix<T> const& x, Visit&& visit) const {
    const std::size_t elements = std::size_t(here.block_rows) * std::size_t(here.block_cols),
                      absent = std::size_t(stored.block_rows()) * std::size_t(stored.block_cols()) -
                               std::size_t(stored.blocks());
    if (here.uses > 1 && here.products == 0) here.sums.assign(absent * elements, 0.0);
    here.seen = ++here.products == here.uses;
    std::vector<accumulator_t<T>> summed(here.uses > 1 ? elements : 0);
    const auto add = [&](std::int64_t number, auto gradient) {
      if (here.uses == 1) return visit(number, gradient);
      double* const sums = here.sums.data() + std::size_t(number) * elements;
      for (std::size_t i = 0; i < elements; ++i)
        summed[i] = static_cast<accumulator_t<T>>(sums[i] += static_cast<double>(gradient[i]));
      if (here.seen) visit(number, std::span<accumulator_t<T> const>(summed));
    };
    for_each_absent_gradient(ctx, stored, here.block_rows, here.block_cols, dy, x, add);
    if (here.seen) here.products = 0, here.sums = {};
  }

  template <element T>
  void average(context& ctx, matrix& here, panel_matrix<T> const& dy, panel_matrix<T> const& x) const {
    const pattern none = pattern::from_right_rows(
        here.stored.block_rows(), here.stored.block_cols(),
        std::vector<std::int32_t>(static_cast<std::size_t>(here.stored.block_rows()) + 1), {});
    const auto kept = static_cast<float>(*kept_);
    for_each_summed_gradient(ctx, here, none, dy, x, [&](std::int64_t number, auto gradient) {
      const auto score = static_cast<float>(policy_->growth_score(gradient));
      float& mean = (*here.average)[static_cast<std::size_t>(number)];
      if (std::isfinite(score)) mean = kept * mean + (1 - kept) * score;
    });
  }

  /// Shares the blocks that grow out among the matrices, and finds the candidates of each.
  void choose(Policy const& policy) {
    std::vector<growth_share> shares;
    std::vector<matrix*> sharing;
    for (matrix& each : found_) {
      if (!each.seen) return;
      if (each.of_zeros) continue;
      sharing.push_back(&each);
      const std::int64_t width = each.stored.block_cols();
      double sum = 0;
      each.stored.for_each([&](int i, int j, std::int64_t) {
        sum += std::abs((*each.average)[static_cast<std::size_t>(i * width + j)]);
      });
      const std::int64_t stored = each.stored.blocks();
      shares.push_back({stored, each.stored.block_rows() * width - stored, each.count,
                        sum / static_cast<double>(std::max<std::int64_t>(1, stored))});
    }
    const std::vector<std::int64_t> grown = policy.share_out(shares);
    for (std::size_t m = 0; m < sharing.size(); ++m) {
      matrix& each = *sharing[m];
      greatest_scores best(grown[m]);
      std::int64_t number = 0;
      std::size_t at = 0;
      for (int i = 0; i < each.stored.block_rows(); ++i) {
        const auto row = each.stored.row(i);
        auto next = row.begin();
        for (int j = 0; j < each.stored.block_cols(); ++j, ++at)
          if (next != row.end() && *next == j)
            ++next;
          else
            best.offer(std::abs((*each.average)[at]), number++);
      }
      each.numbers = best.numbers();
    }
  }

  /// Null if it is not watched.
  matrix const* find(std::uint64_t number) const {
    for (matrix const& each : found_)
      if (each.number == number) return &each;
    return nullptr;
  }

  Policy const* policy_ = nullptr;  // while watching
  std::optional<nn::parameter_list> gradients_;
  std::vector<matrix> found_;
  std::optional<double> kept_;  // the share that the averages keep in this step
  bool chooses_ = false;        // whether an update follows, by averages
  std::map<std::string, std::vector<float>> averages_;
};

}}}  // namespace tessera::TESSERA_ISA::train
