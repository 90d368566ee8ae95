// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/core/array_ref.hpp>
#include <tessera/core/config.hpp>
#include <tessera/core/function_ref.hpp>
#include <tessera/exec/machine.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace exec {

/// The owner of memory: the user, a worker for the length of a task, or all workers to the end of a run.
enum class memory : std::uint8_t { user, worker, run };

/// Bytes that a task reads or writes: `count` pieces of `bytes` each, `stride` bytes apart.
struct touched_bytes {
  memory owner;
  std::uintptr_t at;  // an address, or the offset in memory that is not the user's
  std::int64_t bytes, count = 1, stride = 0;

  std::int64_t all() const { return bytes * count; }
  friend bool operator==(touched_bytes const&, touched_bytes const&) = default;
};

/// Multiply-adds of a task by stored blocks of one form: `blocks` of them, in `rows` lines, times `columns`
/// columns.
struct block_product {
  std::int64_t rows, blocks, columns;
  int block_rows, block_cols, element_bytes;
};

/// The reads, writes and multiplications of one task.
///   reads, writes   bytes of live tokens in the lanes of live features, and of whole blocks, each counted
///                   once, even if the kernel reads it again; indices are not counted
///   multiplies      multiply-adds of products: of whole stored blocks, for live tokens
///   products        the products of weights in blocks among them, by the size of the block
///   operations      elementwise arithmetic, in numbers; a costly function counts for twelve
///   panel           of tokens, or -1
///   streams         whether the reads may arrive piece by piece, in the order of the panels
struct task_description {
  std::vector<touched_bytes> reads, writes;
  std::int64_t multiplies = 0, operations = 0;
  std::vector<block_product> products;
  std::int64_t panel = -1;
  bool streams = false;

  void read(touched_bytes const& bytes);
  void write(touched_bytes const& bytes);
  void multiply(block_product const& by);
};

/// The tasks between two barriers of a run: none of them waits for another.
class phase {
 public:
  phase() = default;
  /// Phase `number` of an object with tasks(number), for_each_kind(number, visit), describe(number, task) and
  /// compute(number, task, worker).
  template <class Of>
  phase(Of const& of, int number)
      : of_(&of),
        number_(number),
        tasks_(of.tasks(number)),
        for_each_kind_(for_each_kind_of<Of>),
        describe_(describe_of<Of>),
        compute_(compute_of<Of>) {}

  int tasks() const { return tasks_; }
  /// Calls visit with the kind of each step: "product", "elementwise", …
  void for_each_kind(function_ref<void(char const*)> visit) const { for_each_kind_(of_, number_, visit); }
  task_description describe(int task) const { return describe_(of_, number_, task); }
  /// To be called once for each task. Workers are 0 … concurrency() - 1; each has memory for one task at a
  /// time.
  void compute(int task, int worker) const { compute_(of_, number_, task, worker); }

 private:
  template <class Of>
  static void for_each_kind_of(void const* object, int number, function_ref<void(char const*)> visit) {
    static_cast<Of const*>(object)->for_each_kind(number, visit);
  }
  template <class Of> static task_description describe_of(void const* object, int number, int task) {
    return static_cast<Of const*>(object)->describe(number, task);
  }
  template <class Of> static void compute_of(void const* object, int number, int task, int worker) {
    static_cast<Of const*>(object)->compute(number, task, worker);
  }

  void const* of_ = nullptr;
  int number_ = 0, tasks_ = 0;
  void (*for_each_kind_)(void const*, int, function_ref<void(char const*)>) = nullptr;
  task_description (*describe_)(void const*, int, int) = nullptr;
  void (*compute_)(void const*, int, int, int) = nullptr;
};

/// An executor that looks at the tasks of a run before it runs them: it gets all phases in their order, calls
/// compute for each task once, and begins a phase when the phases before are done. It may throw before the
/// first.
template <class E>
concept phase_executor = requires(E& e, array_ref<phase> phases) { e.run(phases); };

/// An executor that stands for another machine than its threads: runs are cut into tiles for that one.
template <class E>
concept stand_in = requires(E const& e) {
  { e.stands_for() } -> std::convertible_to<machine>;
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY void task_description::read(touched_bytes const& bytes) { reads.push_back(bytes); }

TESSERA_COLD TESSERA_BODY void task_description::write(touched_bytes const& bytes) {
  writes.push_back(bytes);
}

TESSERA_COLD TESSERA_BODY void task_description::multiply(block_product const& by) {
  products.push_back(by);
  multiplies += by.blocks * by.block_rows * by.block_cols * by.columns;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::exec
