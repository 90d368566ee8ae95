// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cfenv>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/engine.hpp>
#include <tessera/core/error.hpp>
#include <tessera/exec/context.hpp>

namespace context_test {

using tessera::at_most;
using tessera::context;
using tessera::oversubscribe;
namespace exec = tessera::exec;

/// A scheduler as a user may have one: backwards, a thread for each body, and not a template.
struct thread_per_body {
  void run(int count, std::function<void(int)> const& body) {
    std::vector<std::thread> threads;
    for (int index = count - 1; index >= 0; --index) threads.emplace_back(body, index);
    for (std::thread& thread : threads) thread.join();
  }
  int concurrency() const { return 4; }
};
static_assert(exec::executor<thread_per_body>);
static_assert(!exec::executor<int>);
static_assert(!std::is_constructible_v<context, context&>);
static_assert(!std::is_copy_constructible_v<context> && !std::is_copy_assignable_v<context>);
static_assert(!std::is_convertible_v<int, context>);

/// Every index once, and scratch that no two bodies have at the same time.
void check_runs(context& ctx) {
  constexpr std::size_t bytes = 10000;
  ctx.reserve_scratch(bytes);
  for (int count : {0, 1, 2, 3, 8, 9, 200}) {
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
    std::atomic<int> wrong{0};
    ctx.run(count, [&](int index, std::byte* scratch) {
      ++calls[static_cast<std::size_t>(index)];
      wrong += reinterpret_cast<std::uintptr_t>(scratch) % 64 != 0;
      const auto mine = static_cast<unsigned char>(index);
      std::memset(scratch, mine, bytes);
      std::this_thread::yield();
      for (std::size_t i = 0; i < bytes; ++i) wrong += static_cast<unsigned char>(scratch[i]) != mine;
    });
    for (auto const& call : calls) CHECK(call == 1);
    CHECK(wrong == 0);
  }
}

TEST_CASE("context: every index is run once with scratch of its own for any number of threads") {
  for (int threads : {1, 2, 3, 8}) {
    context ctx(threads, oversubscribe::allowed);
    CHECK(ctx.concurrency() == threads);
    check_runs(ctx);
  }
}

TEST_CASE("context: it runs on the executor of the user") {
  thread_per_body users;
  context on_users(users);
  CHECK(on_users.concurrency() == 4);
  check_runs(on_users);

  const exec::serial serial;
  context on_serial(serial);
  CHECK(on_serial.concurrency() == 1);
  check_runs(on_serial);

  exec::thread_pool pool(3);
  context first(pool), second(pool);
  check_runs(first);
  check_runs(second);
}

TEST_CASE("context: an exception on the executor of the user reaches the caller") {
  thread_per_body users;
  context ctx(users);
  const auto fail = [&] { ctx.run(100, [](int index, std::byte*) { throw index; }); };
  CHECK_THROWS_AS(fail(), int);
  check_runs(ctx);
}

TEST_CASE("context: an exception of the executor itself leaves the context usable") {
  struct tired {
    bool awake = false;
    void run(int count, exec::body_ref body) {
      if (!awake) throw std::runtime_error("asleep");
      exec::serial{}.run(count, body);
    }
    int concurrency() const { return 2; }
  } users;
  context ctx(users);
  CHECK_THROWS_WITH(ctx.run(3, [](int, std::byte*) {}), "asleep");
  users.awake = true;
  check_runs(ctx);
}

TEST_CASE("context: without an argument it has the available threads") {
  context ctx;
  CHECK(ctx.concurrency() == exec::available_threads());
  check_runs(ctx);
}

TEST_CASE("context: at most so many threads are no more than there are cores") {
  CHECK(at_most(1) == 1);
  CHECK(at_most(100000) == exec::available_threads());
  CHECK(context(at_most(100000)).concurrency() == exec::available_threads());
  CHECK_THROWS_AS(context{at_most(0)}, tessera::option_error);
}

TEST_CASE("context: a run begun in a body has scratch of its own") {
  for (int threads : {1, 2, 8}) {
    context ctx(threads, oversubscribe::allowed);
    ctx.reserve_scratch(64);
    std::atomic<int> calls{0}, wrong{0};
    ctx.run(20, [&](int, std::byte* outer) {
      *outer = std::byte{1};
      ctx.run(5, [&](int, std::byte* inner) {
        ++calls;
        std::memset(inner, 2, 64);
      });
      wrong += *outer != std::byte{1};
    });
    CHECK(calls == 100);
    CHECK(wrong == 0);
  }
}

/// The error that another thread, begun by a body of a run, gets from `use`.
template <class Use> std::string answer_within(context& ctx, Use const& use) {
  std::string answer = "nothing";
  ctx.run(1, [&](int, std::byte*) {
    std::thread([&] {
      try {
        use();
      } catch (tessera::error const& refusal) {
        answer = refusal.what();
      }
    }).join();
  });
  return answer;
}

TEST_CASE("context: a thread that uses it while another one runs is refused") {
  const auto refusal = [](std::string const& operation) {
    return "[" + operation +
           "] the context is in use by another thread: a context is used by one thread at a time. Give each "
           "thread one of its own, as context(1)";
  };
  thread_per_body users;
  context one(1), pool(3, oversubscribe::allowed), own(users);
  for (context* ctx : {&one, &pool, &own}) {
    bool ran = false;
    CHECK(answer_within(*ctx, [&] { ctx->run(1, [&](int, std::byte*) { ran = true; }); }) == refusal("run"));
    CHECK(!ran);
    CHECK(answer_within(*ctx, [&] { ctx->reserve_scratch(1 << 20); }) == refusal("reserve_scratch"));
    CHECK(answer_within(*ctx, [&] { ctx->shared_scratch(1); }) == refusal("shared_scratch"));
    // One behind the other they may, also a thread that worked in an earlier run.
    std::thread([&] { check_runs(*ctx); }).join();
    check_runs(*ctx);
    CHECK(answer_within(*ctx, [&] { ctx->run(1, [](int, std::byte*) {}); }) == refusal("run"));
  }
}

TEST_CASE("context: between the phases of a run it is in use, too") {
  struct phases {
    context& ctx;
    std::string& answer;
    int tasks(int phase) const {
      if (phase == 1)
        std::thread([&] {
          try {
            ctx.run(1, [](int, std::byte*) {});
          } catch (tessera::error const& refusal) {
            answer = refusal.what();
          }
        }).join();
      return 1;
    }
    tessera::array_ref<exec::part_hook> hooks(int) const { return {}; }
    void for_each_kind(int, tessera::function_ref<void(char const*)>) const {}
    exec::task_description describe(int, int) const { return {}; }
    void compute(int, int, std::byte*) const {}
  };
  context ctx(1);
  std::string answer;
  ctx.run_phases(2, 0, 0, [&](std::byte*) { return phases{ctx, answer}; });
  CHECK(answer.starts_with("[run] the context is in use by another thread"));
}

TEST_CASE("context: denormals are zero inside bodies on any executor") {
  volatile float denormal = 1e-40f;
  const auto check = [&](context& ctx) {
    std::atomic<int> flushed{0};
    ctx.run(100, [&](int, std::byte*) { flushed += denormal * 1.0f == 0.0f; });
    CHECK(flushed == 100);
    CHECK(denormal * 1.0f > 0.0f);
  };
  context pool(3, oversubscribe::allowed);
  check(pool);
  thread_per_body users;
  context on_users(users);
  check(on_users);
}

thread_local int inside = 0;
std::atomic<int> enters{0}, leaves{0};
constexpr exec::part_hook hooks[] = {{[] { ++inside, ++enters; }, [] { --inside, ++leaves; }},
                                     {[] { inside *= 10; }, [] { inside /= 10; }}};

TEST_CASE("context: hooks stand around each part that a thread takes on any executor, and in nested runs") {
  thread_per_body mine;
  context own(mine), pool(3, oversubscribe::allowed), one(1);
  for (context* ctx : {&own, &pool, &one}) {
    enters = leaves = 0;
    std::atomic<int> wrong{0};
    ctx->run(50, [&](int, std::byte*) { wrong += inside != 10; }, hooks);
    CHECK(wrong == 0);
    CHECK(enters >= 1);
    CHECK(enters <= ctx->concurrency());
    CHECK(leaves == enters);
    CHECK_THROWS(ctx->run(9, [](int, std::byte*) { throw 1; }, hooks));
    CHECK(leaves == enters);
    // A run begun in a body without hooks of its own has none.
    ctx->run(3, [&](int, std::byte*) {
      wrong += inside != 0;
      ctx->run(2, [&](int, std::byte*) { wrong += inside != 10; }, hooks);
      wrong += inside != 0;
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("context: two contexts run side by side") {
  const auto work = [] {
    context ctx(2, oversubscribe::allowed);
    for (int round = 0; round < 20; ++round) {
      std::atomic<int> sum{0};
      ctx.run(100, [&](int index, std::byte*) { sum += index; });
      if (sum != 4950) return false;
    }
    return true;
  };
  bool other = false;
  std::thread thread([&] { other = work(); });
  CHECK(work());
  thread.join();
  CHECK(other);
}

TEST_CASE("context: scratch grows and never shrinks") {
  context ctx(2, oversubscribe::allowed);
  const auto scratch_address = [&] {
    std::byte* address = nullptr;
    ctx.run(1, [&](int, std::byte* scratch) { address = scratch; });
    return address;
  };
  ctx.reserve_scratch(100000);
  std::byte* const large = scratch_address();
  CHECK(reinterpret_cast<std::uintptr_t>(large) % 4096 == 0);
  ctx.reserve_scratch(10);
  CHECK(scratch_address() == large);

  std::byte* const shared = ctx.shared_scratch(5000);
  CHECK(reinterpret_cast<std::uintptr_t>(shared) % 4096 == 0);
  std::memset(shared, 1, 5000);
  CHECK(ctx.shared_scratch(4000) == shared);
  std::memset(ctx.shared_scratch(50000), 1, 50000);
}

TEST_CASE("context: scratch cannot be resized from inside a body") {
  context ctx(1);
  ctx.reserve_scratch(100);
  ctx.run(1, [&](int, std::byte*) { ctx.reserve_scratch(50); });
  CHECK_THROWS_AS(ctx.run(1, [&](int, std::byte*) { ctx.reserve_scratch(1 << 20); }), tessera::error);
  CHECK_THROWS_WITH_AS(ctx.run(1, [&](int, std::byte*) { ctx.shared_scratch(1); }),
                       "[shared_scratch] the context is in use by a body of its own: give the body a context "
                       "of its own, or make "
                       "this call before run",
                       tessera::error);
  check_runs(ctx);
}

TEST_CASE("context: scratch that cannot fit the address space is refused and the context stays usable") {
  context ctx(3, oversubscribe::allowed);
  for (std::size_t bytes : {SIZE_MAX, SIZE_MAX - 5000, SIZE_MAX / 2}) {
    CHECK_THROWS_AS(ctx.reserve_scratch(bytes), tessera::shape_error);
    CHECK_THROWS_AS(ctx.shared_scratch(bytes), tessera::shape_error);
  }
  check_runs(ctx);
}

TEST_CASE("context: more threads than cores are refused with both numbers") {
  const std::string cores = std::to_string(exec::available_threads());
  const std::string expected = "[context] 100000 threads asked for, but this process may use " + cores +
                               " cores: write context(at_most(100000)) for as many of them as there are, "
                               "or pass oversubscribe::allowed";
  CHECK_THROWS_WITH_AS(context(100000), expected.c_str(), tessera::option_error);
}

TEST_CASE("context: is made in every rounding mode") {
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    REQUIRE(std::fesetround(mode) == 0);
    bool made = false;
    try {
      made = context(1).concurrency() == 1;
    } catch (tessera::option_error const&) {
    }
    const int after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    CHECK(made);
    CHECK(after == mode);
  }
}

TEST_CASE("context: fewer threads than one are refused") {
  CHECK_THROWS_WITH_AS(context(0),
                       "[context] 0 threads asked for; at least 1 is needed, which is the calling thread: "
                       "write context ctx; for all cores",
                       tessera::option_error);
  CHECK_THROWS_AS(context(-1, oversubscribe::allowed), tessera::option_error);
  struct nobody : exec::serial {
    int concurrency() const { return 0; }
  } users;
  CHECK_THROWS_WITH_AS(context{users},
                       "[context] the executor's concurrency() is 0; it must be at least 1, the most bodies "
                       "that may run at the same time",
                       tessera::option_error);
}

TEST_CASE("context: multiply-adds cannot be forbidden") {
  context ctx(1);
  ctx.forbid(tessera::engine::pairs);
  CHECK(!ctx.runs_on().engines.allows(tessera::engine::pairs));
  CHECK_THROWS_WITH_AS(ctx.forbid(tessera::engine::fma),
                       "[forbid] fma cannot be forbidden: a product that no other engine takes has it",
                       tessera::option_error);
}

TEST_CASE("context: TESSERA_CPU names the CPU whose choice of engines runs take") {
  using tessera::engine;
  struct environment {
    explicit environment(char const* cpu) { setenv("TESSERA_CPU", cpu, 1); }
    ~environment() {
      before.empty() ? void(unsetenv("TESSERA_CPU")) : void(setenv("TESSERA_CPU", before.c_str(), 1));
    }
    std::string before = std::getenv("TESSERA_CPU") ? std::getenv("TESSERA_CPU") : "";
  };
  const auto on = [](char const* cpu) {
    const environment set(cpu);
    return context(1).runs_on();
  };
  CHECK(on("znver4").family == tessera::cpu_family::amd);
  CHECK(on("znver4").engines == tessera::engine_set{engine::pairs, engine::quads});
  CHECK(on("znver3").engines == tessera::engine_set());
  CHECK(on("cooperlake").family == tessera::cpu_family::intel);
  CHECK(on("").family == tessera::this_cpu_family());
  if (!exec::amx_permitted())
    CHECK_THROWS_WITH_AS(
        on("sapphirerapids"),
        "[context] TESSERA_CPU=sapphirerapids multiplies by AMX, which this CPU or this program lacks",
        tessera::machine_error);
  CHECK_THROWS_WITH_AS(
      on("i486"),
      "[context] TESSERA_CPU=i486: the CPUs are znver3, znver4, skylake-avx512, icelake-server, "
      "cooperlake, sapphirerapids",
      tessera::option_error);
}

}  // namespace context_test
