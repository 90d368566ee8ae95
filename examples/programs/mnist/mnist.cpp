// SPDX-License-Identifier: BSD-3-Clause

// Sparse networks learn handwritten digits: LeNet-300-100 and its like, with every sparsity policy. Prints
// the accuracy on the test images, and adds the result to a file.

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tessera/io/file.hpp>
#include <tessera/io/json.hpp>
#include <tessera/nn/edge_popup.hpp>
#include <tessera/nn/initialisation.hpp>
#include <tessera/nn/top_kast.hpp>
#include <tessera/tensor/densities.hpp>
#include <tessera/tessera.hpp>
#include <tessera/train/classification.hpp>
#include <tessera/train/loop.hpp>
#include <tessera/train/sparsity/penalties.hpp>
#include <tessera/train/sparsity/scores/lottery_ticket.hpp>
#include <tessera/train/sparsity/scores/prune.hpp>
#include <tessera/train/sparsity/scores/saliency.hpp>
#include <tessera/train/sparsity/watching/model_patterns.hpp>

#include "../../tutorials/support/digits.hpp"
#include "../common/chosen_optimizer.hpp"
#include "../common/chosen_policy.hpp"
#include "../common/element_and_block.hpp"
#include "../common/format.hpp"
#include "../common/guarded_main.hpp"
#include "../common/options_help.hpp"
#include "../common/progress.hpp"
#include "network.hpp"
#include "settings.hpp"

namespace mnist { namespace {

constexpr int side = 28, classes = 10, for_validation = 6000;

/// Images as rows of numbers of mean 0 and deviation 1, and their labels.
struct examples {
  std::vector<float> inputs;
  std::vector<std::int32_t> labels;

  train::labelled_set part(std::int64_t first, std::int64_t count) const {
    return {
        std::span(inputs).subspan(std::size_t(first * digits::pixels), std::size_t(count * digits::pixels)),
        std::span(labels).subspan(std::size_t(first), std::size_t(count))};
  }
};

/// The pixel at each place of a row. Random is one permutation, whatever the seed. In tiles, `block`
/// consecutive places are a tile of the image: 2 x 2, 2 x 4 or 4 x 4 pixels.
std::vector<int> order_of_pixels(std::string const& pixels, int block) {
  const int rows = pixels != "tiles" || block == 1 ? 1
                   : block == 16                   ? 4
                                                   : 2,
            cols = pixels == "tiles" ? block / rows : 1;
  std::vector<int> order;
  for (int i = 0; i < side; i += rows)
    for (int j = 0; j < side; j += cols)
      for (int r = i; r < i + rows; ++r)
        for (int c = j; c < j + cols; ++c) order.push_back(r * side + c);
  if (pixels == "random") {
    const random_stream random(0, random_purpose::test);
    for (std::uint64_t n = order.size(); n > 1; --n) std::swap(order[n - 1], order[random.below(n, n)]);
  }
  return order;
}

examples examples_of(digits::images const& images, std::vector<int> const& order) {
  examples all;
  all.labels = images.label;
  for (std::int64_t i = 0; i < images.count(); ++i)
    for (const int pixel : order)
      all.inputs.push_back((float(images.pixel[std::size_t(i * digits::pixels + pixel)]) / 255 - 0.1307f) /
                           0.3081f);
  return all;
}

programs::chosen_optimizer optimizer_of(settings const& s) {
  const double decay = s.policy == "top-kast" ? 0 : s.weight_decay;  // which has its own
  if (s.optimizer == "sgd")
    return {train::sgd{.weight_decay = decay, .lookahead = train::lookahead::nesterov}};
  if (s.optimizer == "lars") return {train::lars{.weight_decay = decay}};
  if (s.optimizer == "lamb") return {train::lamb{.weight_decay = decay}};
  if (s.optimizer == "lion") return {train::lion{.weight_decay = decay}};
  return {train::adamw{.weight_decay = decay}};
}

programs::chosen_policy policy_of(settings const& s, std::int64_t steps_of_epoch, std::int64_t steps) {
  if (s.tickets > 0) return {};
  const std::int64_t interval = std::max<std::int64_t>(1, steps_of_epoch / s.updates);
  const auto falls = s.decay == "cosine"   ? train::fraction_decay::cosine
                     : s.decay == "linear" ? train::fraction_decay::linear
                                           : train::fraction_decay::constant;
  if (s.policy == "magnitude")
    return {train::evolving_pattern{
        .interval = interval, .steps = steps, .fraction = s.fraction, .seed = s.seed, .falls = falls}};
  if (s.policy == "set")
    return {train::sparse_evolutionary_training{
        .interval = interval, .steps = steps, .fraction = s.fraction, .seed = s.seed, .falls = falls}};
  if (s.policy == "snfs")
    return {
        train::sparse_momentum{.interval = interval, .steps = steps, .fraction = s.fraction, .falls = falls}};
  if (s.policy == "rigl" || s.policy == "itop")
    return {train::rigl{.interval = interval,
                        .steps = steps,
                        .fraction = s.fraction,
                        .until = s.policy == "itop" ? 1 : train::rigl().until,
                        .falls = falls}};
  if (s.policy == "granet")
    return {train::granet{.interval = interval,
                          .end = std::max<std::int64_t>(1, steps / 2),
                          .steps = steps,
                          .initial = s.initial_density,
                          .density = s.density,
                          .fraction = s.fraction,
                          .falls = falls}};
  if (s.policy == "deep-r")
    return {
        train::deep_rewiring{.interval = interval, .steps = steps, .fraction = s.fraction, .seed = s.seed}};
  if (s.policy == "gradual")
    return {train::gradual_pruning{
        .interval = interval, .end = std::max<std::int64_t>(1, steps * 3 / 4), .density = s.density}};
  return {};
}

bool falls_to_density(settings const& s) { return s.policy == "gradual" || s.policy == "granet"; }

bool begins_dense(settings const& s) {
  return s.policy == "dense" || s.policy == "gradual" || s.initial != "random" || s.tickets > 0;
}

template <class Block> network<Block> initial_network(settings const& s) {
  network<Block> net;
  std::int64_t features = digits::pixels;
  const auto layer = [&](nn::parameter_name const& name, std::int64_t out, double density) {
    const double blocks = std::ceil(double(out) / Block::rows) * std::ceil(double(features) / Block::cols);
    const double kept = falls_to_density(s) || shows_part(s) ? s.density : density;
    if (kept * blocks < 0.5)
      programs::refuse("--density", message(kept, " keeps none of the ", blocks, " blocks of ", out, " x ",
                                            features, " weights; ", 1 / blocks, " keeps one"));
    auto made =
        nn::linear<float, Block>::random(out, features, density, nn::bias_term::present, s.seed, name);
    // The deviation of PyTorch's default, uniform within ±1/√features; of weights that stay random that of
    // the scaled Kaiming normal distribution (Ramanujan et al. 2020, §4).
    nn::initialise(made.weight, nn::distribution::normal, s.seed, name.child("weight").key(),
                   s.policy == "edge-popup" ? std::sqrt(2 / (s.density * double(features)))
                                            : 1 / std::sqrt(3.0 * double(features)));
    features = out;
    return made;
  };
  std::vector<int> sizes;
  for (std::string const& size : s.hidden) {
    const std::string wanted = programs::read_value_of("[1, 65536]", size, sizes.emplace_back());
    if (!wanted.empty()) programs::refuse("--hidden", "'" + size + "' is not " + wanted);
  }
  std::vector<matrix_shape> shapes;
  for (const int out : sizes) shapes.push_back({out, shapes.empty() ? digits::pixels : shapes.back().rows});
  shapes.push_back({classes, shapes.back().rows});
  std::vector<double> densities(shapes.size(), stored_share(s));
  if (begins_dense(s))
    densities.assign(shapes.size(), 1);
  else if (s.densities == "erdos-renyi")
    densities = erdos_renyi_densities(shapes, s.density);
  const nn::parameter_name hidden("hidden");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const nn::parameter_name name = hidden.child(int(i));
    net.hidden.push_back(
        {layer(name, sizes[i], densities[i]), nn::dropout<float>(s.dropout, name.child("drop").key())});
  }
  net.last = layer("last", classes, s.last == "dense" ? 1 : densities.back());
  return net;
}

/// Prunes dense initial weights by the scores of --initial.
template <class Block>
void prune_initial(context& ctx, settings const& s, network<Block>& net, train::labelled_set images) {
  if (s.initial == "magnitude") return train::prune(net, s.density, train::pruning_scope::whole_model);
  train::training t(net, train::sgd{});
  train::classification task(ctx, t, images, images,
                             {.batch = std::min<std::int64_t>(1000, images.count()), .seed = s.seed});
  const auto add_gradient = [&](auto& gradients) {  // of one large batch
    nn::set_zero(t.gradients);
    task.accumulate(0, 0);
    gradients = t.gradients;
  };
  const sequences one = sequences::of_equal_length(1, 1);
  nn::workspace<float> room;
  const auto add_flow = [&](auto& gradients) {
    panel_matrix<float> x(digits::pixels, 1), y(classes, 1);
    typename network<Block>::saved saved;
    const nn::pass<float> pass{ctx, one, room, nn::purpose::evaluation};
    for (int f = 0; f < digits::pixels; ++f) x(f, 0) = 1;
    net.forward(x, y, saved, pass);
    for (int c = 0; c < classes; ++c) y(c, 0) = 1;
    net.backward(x, saved, y, nullptr, gradients, pass);
  };
  if (s.initial == "snip") train::prune(net, s.density, train::snip_scores(net, add_gradient));
  if (s.initial == "grasp") train::prune(net, s.density, train::grasp_scores(net, add_gradient));
  if (s.initial == "synflow") train::prune_by_synflow(net, s.density, add_flow);
}

/// A learning rate that begins with `first` and falls to a tenth after each `every` steps; 0: never.
struct dropping_rate {
  double first;
  std::int64_t every;
  double rate(std::int64_t step) const {
    return every > 0 ? first * std::pow(0.1, double(step / every)) : first;
  }
};

/// The number of weights with which a network computes.
template <class Network> std::int64_t weights_of(Network const& net) {
  if constexpr (requires { net.visible; }) {
    return weights_of(net.visible);
  } else {
    std::int64_t weights = 0;
    nn::for_each_parameter(net, [&](nn::parameter_name const&, auto const& parameter) {
      if constexpr (nn::is_matrix<decltype(parameter)>) weights += parameter.live();
    });
    return weights;
  }
}

/// The images of a run, and its steps.
struct lesson {
  examples known, unseen;
  std::int64_t most, count, steps_of_epoch, steps;

  explicit lesson(settings const& s) {
    const std::vector<int> order = order_of_pixels(s.pixels, s.block);
    const auto images = [&](const char* part, std::int64_t made_up, std::uint64_t seed) {
      digits::images all = s.made_up ? digits::made_up(made_up, seed) : digits::mnist(part);
      if (all.count() == 0) throw io_error("[mnist] " + all.failure + "; --made-up takes other images");
      return examples_of(all, order);
    };
    known = images("train", std::max(6000, s.examples) + for_validation, 1);
    most = std::ssize(known.labels) - for_validation;
    if (most <= 0)
      throw io_error(message("[mnist] train: of ", std::ssize(known.labels), " images none is left beside ",
                             for_validation, " for validation"));
    unseen = images("t10k", 2000, 2);
    count = s.examples > 0 ? std::min<std::int64_t>(s.examples, most) : most;
    if (s.batch > count)
      programs::refuse("--batch", message(s.batch, " examples of a step are more than the ", count,
                                          " to learn from; at most ", count, " are possible"));
    steps_of_epoch = count / s.batch;
    steps = steps_of_epoch * s.epochs;
  }
  train::labelled_set training_set() const { return known.part(0, count); }
};

/// Trains a network from step `first` to the end, and tests it.
///   net     a network, or a layer that shows a part of it
///   early   if there is one, becomes the network after step s.rewind
template <class Network>
io::json trained(context& ctx, settings const& s, lesson const& of, Network& net, std::string const& title,
                 std::int64_t first = 0, Network* early = nullptr) {
  train::training t(net, optimizer_of(s), policy_of(s, of.steps_of_epoch, of.steps));
  t.progress.step = first;
  if (early && s.rewind == 0) *early = net;
  train::classification task(ctx, t, of.training_set(), of.known.part(of.most, for_validation),
                             {.batch = s.batch, .seed = s.seed});
  programs::progress bar(title, stderr, programs::style_of(stderr));
  double spent = 0;
  std::int64_t updates = 0, replaced = 0;
  const double start = train::steady_clock()();
  task.on_step = [&](train::step_report const& report) {
    spent = train::steady_clock()() - start;
    bar.show({int(report.step + 1), int(of.steps), double(t.progress.tokens), programs::seconds(spent),
              report.loss, report.learning_rate, programs::seconds(0), "images"});
    if (early && report.step + 1 == s.rewind) *early = net;
    updates += report.changed.stored > 0;
    replaced += report.changed.replaced;
  };
  io::json::array curve;
  task.on_evaluation = [&](double, double accuracy) {
    curve.push_back(io::json::array{t.progress.step, accuracy});
  };
  const train::loop_settings how{
      .steps = of.steps, .evaluate_every = std::max<std::int64_t>(1, s.epochs / 10) * of.steps_of_epoch};
  const dropping_rate rates{s.rate, s.drop_every};
  if constexpr (nn::is_top_kast<Network>)  // it decays weights by its own rule
    train::run_training(ctx, t, how, rates, task, train::exploration_penalty(s.weight_decay / 2));
  else
    train::run_training(ctx, t, how, rates, task);
  const double validation = task.accuracy();
  const train::labelled_set unseen = of.unseen.part(0, std::ssize(of.unseen.labels));
  train::classification test(ctx, t, unseen, unseen, {.batch = std::min<std::int64_t>(1000, unseen.count())});
  test.evaluate();
  return io::json::object{{"weights", weights_of(net)},
                          {"steps", of.steps},
                          {"seconds_per_step", t.progress.seconds / double(of.steps - first)},
                          {"updates", updates},
                          {"replaced", replaced},
                          {"explored", t.explored.fraction()},
                          {"validation_accuracy", validation},
                          {"test_accuracy", test.accuracy()},
                          {"curve", std::move(curve)}};
}

/// The dense network, and after each round a ticket of it.
template <class Block> io::json tickets(context& ctx, settings const& s, lesson const& of) {
  if (s.rewind >= of.steps)
    programs::refuse("--rewind", message("step ", s.rewind, " is not before the end of the run, after ",
                                         of.steps, " steps"));
  network<Block> net = initial_network<Block>(s), early;
  io::json::array rounds;
  std::printf("lottery tickets: accuracy on the test images, %%\n%10s%10s%10s%s\n", "density %", "weights",
              "ticket", s.reinitialise ? "   new weights" : "");
  double all = 0;
  for (int round = 0; round <= s.tickets; ++round) {
    const std::string title = message("ticket ", round);
    settings other = s;
    other.seed += 1'000'000 * std::uint64_t(round);
    network<Block> control = net;
    if (round > 0) train::rewind_to(initial_network<Block>(other), control);
    io::json one = trained(ctx, s, of, net, title, round > 0 ? s.rewind : 0, round > 0 ? nullptr : &early);
    const io::json_place place(one, title);
    const double weights = place.at("weights").as_number();
    if (round == 0) all = weights;
    std::printf("%10.2f%10.0f%10.2f", 100 * weights / all, weights,
                100 * place.at("test_accuracy").as_number());
    one.get_if<io::json::object>()->push_back({"density", weights / all});
    if (s.reinitialise && round > 0) {
      io::json its = trained(ctx, s, of, control, title + ", new weights");
      std::printf("%14.2f", 100 * io::json_place(its, title).at("test_accuracy").as_number());
      one.get_if<io::json::object>()->push_back({"reinitialised", std::move(its)});
    }
    std::printf("\n");
    rounds.push_back(std::move(one));
    if (round == s.tickets) break;
    const train::model_patterns before = train::patterns_of(net, true);
    train::next_ticket(
        net, early, s.ticket_share,
        s.ticket_scope == "model" ? train::pruning_scope::whole_model : train::pruning_scope::each_matrix);
    if (train::mask_distance(before, train::patterns_of(net, true)) == 0) {
      std::printf("a share of %g leaves nothing to prune\n", s.ticket_share);
      break;
    }
  }
  return io::json::object{{"rounds", std::move(rounds)}};
}

template <class Block> io::json result_of(settings const& s) {
  const lesson of(s);
  context ctx(s.threads == 0 ? exec::available_threads() : s.threads);
  if (s.tickets > 0) return tickets<Block>(ctx, s, of);
  network<Block> net = initial_network<Block>(s);
  if (s.initial != "random") prune_initial(ctx, s, net, of.training_set());
  io::json result;
  if (s.policy == "top-kast") {
    nn::top_kast<float, network<Block>> part(std::move(net), s.density,
                                             std::max<std::int64_t>(1, of.steps_of_epoch / s.updates));
    result = trained(ctx, s, of, part, s.policy);
  } else if (s.policy == "edge-popup") {
    nn::edge_popup<float, network<Block>> part(std::move(net), s.density, s.seed);
    result = trained(ctx, s, of, part, s.policy);
  } else {
    result = trained(ctx, s, of, net, s.policy);
  }
  const io::json_place place(result, "result");
  const auto number = [&](const char* name) { return static_cast<long long>(place.at(name).as_integer()); };
  std::printf("%s: %.2f %% of the test images right, with %lld weights; %.0f %% of the blocks ",
              s.policy.c_str(), 100 * place.at("test_accuracy").as_number(), number("weights"),
              100 * place.at("explored").as_number());
  if (shows_part(s))
    std::printf("stored\n");
  else
    std::printf("tried in %lld update%s\n", number("updates"), number("updates") == 1 ? "" : "s");
  if (number("updates") == 0 && s.policy != "dense" && s.policy != "static" && !shows_part(s))
    std::fprintf(
        stderr,
        "note: no update of the pattern was due in these %lld steps: say more --updates or --epochs\n",
        number("steps"));
  return result;
}

/// Throws io_error unless a line can be added to a file; leaves behind none that was not there.
void require_writable(std::string const& path) {
  std::error_code none;
  const auto there = std::filesystem::symlink_status(path, none);
  if (std::filesystem::is_fifo(there)) return;  // its reader would see an end
  std::FILE* const file = std::fopen(path.c_str(), "a");
  if (!file) throw io_error("[" + path + "] the result cannot be written: " + std::strerror(errno));
  std::fclose(file);
  if (!std::filesystem::exists(there)) std::filesystem::remove(path, none);
}

/// Adds a line in one piece: of several programs that add to one file, each waits for the others, and no line
/// is left half.
void add_line(std::string const& path, std::string const& line) {
  const auto failed = [&] {
    throw io_error("[" + path + "] the result could not be written: " + std::strerror(errno));
  };
  io::detail::descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  struct stat about{};
  if (file.number() < 0 || ::fstat(file.number(), &about) != 0) failed();
  const bool is_file = S_ISREG(about.st_mode);
  if (is_file && (::flock(file.number(), LOCK_EX) != 0 || ::fstat(file.number(), &about) != 0)) failed();
  const std::string all = line + "\n";
  for (std::size_t done = 0; done < all.size();) {
    const ssize_t more = ::write(file.number(), all.data() + done, all.size() - done);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) {
      const int reason = errno;
      if (is_file && ::ftruncate(file.number(), about.st_size) != 0) {
      }  // it is as full as before
      errno = reason;
      failed();
    }
    done += std::size_t(more);
  }
  if (!file.close()) failed();
}

int main_of(std::vector<std::string> const& arguments) {
  settings s;
  const auto given = programs::read_arguments(table(), arguments);
  programs::assign(table(), s, given);
  if (s.help) {
    std::printf("mnist: sparse networks learn handwritten digits\n\nusage: mnist [--option value …]\n%s",
                programs::help_text(table()).c_str());
    return 0;
  }
  if (s.hidden.empty()) programs::refuse("--hidden", "there must be a hidden layer");
  require_effect(s, given);
  if (s.policy == "dense") s.block = 16;  // the fastest
  if ((s.policy == "set" || s.policy == "deep-r") && !is_said(given, "decay")) s.decay = "constant";
  if (!s.json.empty()) require_writable(s.json);
  io::json result = programs::with_block(
      s.block, [&]<class Block>(std::type_identity<Block>) { return result_of<Block>(s); });
  io::json::object& all = *result.get_if<io::json::object>();
  all.insert(all.begin(), {"settings", programs::to_json(table(), s)});
  if (!s.json.empty()) add_line(s.json, io::to_text(result));
  return 0;
}

}}  // namespace mnist

int main(int argc, char** argv) { return programs::guarded_main("mnist", argc, argv, mnist::main_of); }
