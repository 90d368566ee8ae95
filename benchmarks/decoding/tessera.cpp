// SPDX-License-Identifier: BSD-3-Clause

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <decoding/decoding.hpp>
#include <harness/bandwidth.hpp>
#include <harness/contestant.hpp>

#include <tessera/nn/decoding.hpp>
#include <tessera/nn/freeze.hpp>
#include <tessera/nn/frozen_linear.hpp>
#include <tessera/nn/gpt.hpp>
#include <tessera/statements/quantised.hpp>
#include <tessera/tessera.hpp>

// Our models in use, with random weights, and a loop that reads as many bytes as a pass has to.

namespace bench { namespace {

template <class Block> using in_8_bits = nn::frozen_linear<float, int8, Block>;

/// A model in 8 bits, of a trained one.
template <class Model, class Frozen> std::shared_ptr<Frozen> rounded(decoder_shape const& of) {
  const Model trained(of.config(), 1);
  auto made = std::make_shared<Frozen>(of.config(), 1);
  nn::freeze(trained, *made);
  return made;
}

/// body(model), a shared pointer, for the models that are timed; nothing for others.
template <class Body> std::optional<job> with_model(decoder_shape const& of, Body&& body) {
  using block = block_shape<16>;
  constexpr std::uint64_t seed = 1;
  if (of.element == "float") {
    if (of.llama) return body(std::make_shared<nn::llama<float, block>>(of.config(), seed));
    return body(std::make_shared<nn::gpt2<float, block>>(of.config(), seed));
  }
  if (of.element == "int8") {
    if (of.llama)
      return body(rounded<nn::llama<float, block>, nn::llama<float, block, in_8_bits<block>>>(of));
    return body(
        rounded<nn::gpt<float, block>, nn::gpt<float, block, nn::transformer_block_of<in_8_bits<block>>>>(
            of));
  }
  return std::nullopt;
}

template <class Model> class texts {
 public:
  texts(decoder_shape const& of, std::shared_ptr<Model> model)
      : of_(of),
        model_(std::move(model)),
        ctx_(of.threads),
        decoding_(*model_, ctx_, {.sequences = of.sequences(), .cache = cached_as::bfloat16}) {
    const random_stream random(4, random_purpose::test);
    for (std::int64_t i = 0; i < of.sequences() * of.length(); ++i)
      ids_.push_back(std::int32_t(random.below(std::uint64_t(i), std::uint64_t(of.vocabulary))));
    for (std::int64_t i = 0; i < of.sequences(); ++i) slots_.push_back(decoding_.begin());
  }

  /// The time of some runs, in ns. To begin texts again is no part of it, unless it is the run.
  double run(int times) {
    double elapsed = 0;
    for (int i = 0; i < times; ++i) {
      if (length() == 0 || length() == of_.length()) begin();
      const double start = now_ns();
      append(of_.prefill ? of_.tokens : 1);
      elapsed += now_ns() - start;
    }
    return elapsed;
  }
  /// By how much a cache changes the logits of the last run, beside a pass over all tokens: ‖difference‖ ÷
  /// ‖logits‖. 16-bit keys and values make it some thousandths.
  checked_value difference() {
    std::vector<std::int32_t> all, last;
    for (std::int64_t i = 0; i < of_.sequences(); ++i) {
      const auto from = ids_.begin() + i * of_.length();
      all.insert(all.end(), from, from + length());
      last.push_back(std::int32_t(all.size()) - 1);
    }
    const auto batch = sequences::of_equal_length(of_.sequences(), length());
    nn::workspace<float> room;
    typename Model::saved saved;
    panel_matrix<float> right;
    model_->predict(all, last, right, saved, {ctx_, batch, room, nn::purpose::evaluation});
    double square = 0, of_difference = 0;
    for (std::int64_t i = 0; i < of_.sequences(); ++i)
      for (std::int64_t t = 0; t < of_.vocabulary; ++t) {
        const double want = right(t, i);
        square += want * want;
        of_difference += std::pow(double(logits_[std::size_t(i * of_.vocabulary + t)]) - want, 2);
      }
    return {std::sqrt(of_difference / square), 0, 0.02};
  }

 private:
  std::int64_t length() const { return decoding_.length(slots_[0]); }
  void begin() {
    for (const std::int32_t slot : slots_) decoding_.end(slot);
    for (std::int32_t& slot : slots_) slot = decoding_.begin();
    if (!of_.prefill) append(of_.cached);
  }
  /// As many tokens to each text.
  void append(std::int64_t count) {
    next_.clear();
    for (std::int64_t i = 0; i < of_.sequences(); ++i) {
      const auto from = ids_.begin() + i * of_.length() + length();
      next_.insert(next_.end(), from, from + count);
    }
    counts_.assign(slots_.size(), count);
    logits_ = decoding_.append(slots_, counts_, next_);
  }

  decoder_shape of_;
  std::shared_ptr<Model> model_;
  context ctx_;
  nn::decoding<Model> decoding_;
  std::vector<std::int32_t> ids_, slots_, next_;
  std::vector<std::int64_t> counts_;
  std::span<float const> logits_;
};

std::optional<job> prepare(workload const& what) {
  if (what.block != 16) return std::nullopt;
  const decoder_shape of(what);
  return with_model(of, [&]<class Model>(std::shared_ptr<Model> model) -> std::optional<job> {
    const checked_value size{double(Model::size([&] {
                                      nn::transformer_config dense = of.config();
                                      dense.density = 1;
                                      return dense;
                                    }())
                                        .parameters),
                             double(of.parameters()), 0};
    auto t = std::make_shared<texts<Model>>(of, std::move(model));
    job work{of.useful_flops(), [t] { t->run(1); }, 2,
             [t, size](std::int64_t r) { return r == 0 ? t->difference() : size; },
             [t](int times) { return t->run(times); }};
    work.least_runs = of.prefill ? 1 : decoder_shape::passes_of_a_sample;
    return work;
  });
}

/// The bytes of a pass, read in as many pieces as there are threads.
std::optional<job> prepare_reading(workload const& what) {
  const decoder_shape of(what);
  if (of.prefill) return std::nullopt;
  const auto ctx = std::make_shared<context>(what.threads);
  const auto memory = std::make_shared<memory_to_read>(std::size_t(of.least_bytes()));
  const auto read = [=, pieces = what.threads] {
    ctx->run(pieces, [&](int piece, std::byte*) { memory->read(piece, pieces); });
  };
  return job{0, read, 0, {}};
}

const registered all[] = {registered({"tessera", "gpt2 decode", prepare}),
                          registered({"tessera", "gpt2 prefill", prepare}),
                          registered({"tessera", "llama decode", prepare}),
                          registered({"tessera", "llama prefill", prepare}),
                          registered({"reading", "gpt2 decode", prepare_reading}),
                          registered({"reading", "llama decode", prepare_reading})};

}}  // namespace bench
