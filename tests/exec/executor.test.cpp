// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <tessera/core/error.hpp>
#include <tessera/exec/executor.hpp>
#include <tessera/exec/thread_pool.hpp>

namespace executor_test {

namespace exec = tessera::exec;

template <int Threads> struct pool_of : exec::thread_pool {
  pool_of() : thread_pool(Threads) {}
};

TEST_CASE_TEMPLATE("executor: every index is run once", Executor, exec::serial, pool_of<1>, pool_of<2>,
                   pool_of<3>, pool_of<8>) {
  Executor executor;
  for (int count : {0, 1, 2, 3, 7, 8, 9, 64, 1000})
    for (int round = 0; round < 20; ++round) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
      executor.run(count, [&](int index) { ++calls[static_cast<std::size_t>(index)]; });
      for (auto const& call : calls) CHECK(call == 1);
    }
  executor.run(-1, [](int) { FAIL_CHECK("there is no index below a negative count"); });
}

TEST_CASE_TEMPLATE("executor: no more bodies overlap than its concurrency", Executor, exec::serial,
                   pool_of<1>, pool_of<2>, pool_of<3>, pool_of<8>) {
  Executor executor;
  std::atomic<int> running{0}, most{0};
  executor.run(200, [&](int) {
    const int now = ++running;
    int seen = most;
    while (seen < now && !most.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::yield();
    --running;
  });
  CHECK(most >= 1);
  CHECK(most <= executor.concurrency());
}

TEST_CASE_TEMPLATE("executor: an exception reaches the caller and the next run is whole", Executor,
                   exec::serial, pool_of<1>, pool_of<2>, pool_of<3>, pool_of<8>) {
  Executor executor;
  for (int failing = 0; failing < 20; ++failing) {
    std::atomic<int> calls{0};
    CHECK_THROWS_WITH_AS(executor.run(20,
                                      [&](int index) {
                                        ++calls;
                                        if (index == failing) throw tessera::shape_error("this one");
                                      }),
                         "this one", tessera::shape_error);
    CHECK(calls >= 1);
    CHECK(calls <= 20);
    CHECK_THROWS_AS(executor.run(20, [](int index) { throw index; }), int);

    calls = 0;
    executor.run(20, [&](int) { ++calls; });
    CHECK(calls == 20);
  }
}

TEST_CASE_TEMPLATE("executor: a body may begin a run of its own", Executor, exec::serial, pool_of<1>,
                   pool_of<2>, pool_of<3>, pool_of<8>) {
  Executor executor;
  std::atomic<int> calls{0};
  executor.run(10, [&](int) { executor.run(10, [&](int) { executor.run(2, [&](int) { ++calls; }); }); });
  CHECK(calls == 200);
  CHECK_THROWS_AS(executor.run(10, [&](int) { executor.run(10, [](int index) { throw index; }); }), int);
}

TEST_CASE_TEMPLATE("executor: denormals are zero inside bodies and as before after the run", Executor,
                   exec::serial, pool_of<1>, pool_of<2>, pool_of<8>) {
  Executor executor;
  volatile float denormal = 1e-40f;
  std::atomic<int> flushed{0};
  for (int count : {1, 100}) {
    flushed = 0;
    executor.run(count, [&](int) { flushed += denormal * 1.0f == 0.0f; });
    CHECK(flushed == count);
    CHECK(denormal * 1.0f > 0.0f);
  }
  CHECK_THROWS_AS(executor.run(100, [](int index) { throw index; }), int);
  CHECK(denormal * 1.0f > 0.0f);
}

}  // namespace executor_test
