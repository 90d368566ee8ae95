// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <pthread.h>

#include <tessera/exec/thread_pool.hpp>

namespace thread_pool_test {

using tessera::exec::thread_pool;

/// Waits until the condition holds, but not for ever: a test that fails should say so.
template <class Condition> bool comes_true(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST_CASE("thread_pool: the rest of a slow range is stolen") {
  for (int threads : {2, 3, 8}) {
    thread_pool pool(threads);
    for (int slow : {0, 63}) {
      std::atomic<int> others{0};
      std::atomic<bool> all_others_done{false};
      pool.run(64, [&](int index) {
        if (index == slow)
          all_others_done = comes_true([&] { return others == 63; });
        else
          ++others;
      });
      CHECK(all_others_done);
    }
  }
}

TEST_CASE("thread_pool: all its threads work at the same time") {
  for (int threads : {2, 3, 8}) {
    thread_pool pool(threads);
    std::atomic<int> arrived{0}, met{0};
    pool.run(threads, [&](int) {
      ++arrived;
      met += comes_true([&] { return arrived == threads; });
    });
    CHECK(met == threads);
  }
}

TEST_CASE("thread_pool: threads that went to sleep wake up for the next run") {
  thread_pool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int> arrived{0}, met{0};
    pool.run(3, [&](int) {
      ++arrived;
      met += comes_true([&] { return arrived == 3; });
    });
    CHECK(met == 3);
  }
}

TEST_CASE("thread_pool: a pool of one thread runs everything on the caller") {
  thread_pool pool(1);
  std::set<std::thread::id> seen;
  pool.run(100, [&](int) { seen.insert(std::this_thread::get_id()); });
  CHECK(seen == std::set{std::this_thread::get_id()});
}

TEST_CASE("thread_pool: many short runs in a row lose nothing") {
  thread_pool pool(3);
  std::atomic<long> sum{0};
  for (int round = 0; round < 20000; ++round)
    pool.run(1 + round % 5, [&](int index) { sum.fetch_add(index, std::memory_order_relaxed); });
  CHECK(sum == 20000 / 5 * (0 + 1 + 3 + 6 + 10));
}

TEST_CASE("thread_pool: callers on several threads all get their whole run") {
  thread_pool pool(2);
  std::atomic<long> sum{0};
  const auto call = [&] {
    for (int round = 0; round < 500; ++round) pool.run(10, [&](int index) { sum += index; });
  };
  std::thread first(call), second(call);
  call();
  first.join();
  second.join();
  CHECK(sum == 3 * 500 * 45);
}

TEST_CASE("thread_pool: one exception of many arrives") {
  thread_pool pool(8);
  for (int round = 0; round < 200; ++round) {
    int caught = -1;
    try {
      pool.run(8, [](int index) { throw index; });
    } catch (int index) {
      caught = index;
    }
    CHECK(caught >= 0);
    CHECK(caught < 8);
  }
}

TEST_CASE("thread_pool: fewer threads than one are refused") {
  CHECK_THROWS_WITH_AS(thread_pool(0),
                       "[thread_pool] 0 threads asked for; at least 1 is needed, which is the calling thread",
                       tessera::option_error);
  CHECK_THROWS_AS(thread_pool(-3), tessera::option_error);
}

#ifdef __GLIBC__
TEST_CASE("thread pool: threads that the system does not start are an error with their number and the cure") {
  pthread_attr_t before, huge;
  REQUIRE(::pthread_getattr_default_np(&before) == 0);
  REQUIRE(::pthread_getattr_default_np(&huge) == 0);
  REQUIRE(::pthread_attr_setstacksize(&huge, std::size_t(1) << 50) == 0);  // there is no room for it
  REQUIRE(::pthread_setattr_default_np(&huge) == 0);
  std::string refused;
  try {
    const thread_pool pool(3);
  } catch (tessera::machine_error const& e) {
    refused = e.what();
  }
  ::pthread_setattr_default_np(&before);
  CHECK(refused.starts_with("[thread_pool] the system does not start thread 2 of 3: "));
  CHECK(refused.find("ask for fewer") != refused.npos);
}
#endif

}  // namespace thread_pool_test
