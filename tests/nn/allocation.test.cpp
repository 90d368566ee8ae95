// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <span>

#include <doctest/doctest.h>
#include <support/gradient_check.hpp>

#include <tessera/nn/encoder.hpp>
#include <tessera/nn/gpt.hpp>

// Sanitizers bring operators of their own, which cannot be replaced everywhere.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif
#if !defined(SANITIZED) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

// The allocations of the whole program are counted: these replace the operators of every file linked with
// this one.
namespace {
std::atomic<long> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  const std::size_t whole = (bytes + alignment - 1) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, whole ? whole : alignment)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(std::size_t bytes) { return counted(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
// Inlined, they would look to the compiler as if `free` were given what `new` returned.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

using namespace tessera;
using support::some_ids;

namespace {

template <class Model> void check(auto&& input_of) {
  nn::transformer_config config;
  config.layers = 3;
  config.hidden = 32;
  config.context = 64;
  config.density = 0.3;
  config.dropout = 0.1;
  const Model model(config, 1);
  auto gradients = nn::zeros_like(model);
  typename Model::saved saved;
  nn::workspace<float> room;
  context ctx(2, oversubscribe::allowed);
  const sequences batch({0, 64, 100});
  const auto ids = some_ids(100, 256, 1);
  auto targets = some_ids(100, 256, 2);
  for (const bool ignores : {false, true}) {
    if (ignores) targets[3] = targets[70] = nn::ignored;
    long before = 0;
    for (std::uint64_t step = 0; step < 2; ++step) {
      before = allocations;
      const nn::pass<float> p{ctx, batch, room, nn::purpose::training, 1, step};
      static_cast<void>(model.forward(input_of(ids), targets, saved, p));
      model.backward(input_of(ids), saved, gradients, p);
      float sum = 0;
      nn::for_each_parameter(
          model,
          [&](nn::parameter_name const&, auto const& value, auto const& g) {
            sum += *value.begin() * *g.begin();
          },
          gradients);
      CHECK(sum == sum);
      if (step == 0) CHECK(allocations > before);
    }
    CHECK(allocations == before);
  }
}

}  // namespace

TEST_CASE("allocation: the second step of a gpt allocates nothing") {
  check<nn::gpt<float, block_shape<16>>>([](auto const& ids) { return std::span(ids); });
}

TEST_CASE("allocation: the second step of an encoder allocates nothing") {
  using encoder = nn::encoder<float, block_shape<16>>;
  check<encoder>([](auto const& ids) { return encoder::input{ids}; });
}

#endif
