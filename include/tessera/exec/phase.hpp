// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
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
///   products        those of them that have blocks
///   operations      elementwise arithmetic, in numbers; a costly function counts for twelve
///   kinds           of the steps, each once: "product", "elementwise", …
///   panel           of tokens, or -1
///   streams         whether the reads may arrive piece by piece, in the order of the panels
struct task_description {
  std::vector<touched_bytes> reads, writes;
  std::int64_t multiplies = 0, operations = 0;
  std::vector<block_product> products;
  std::vector<char const*> kinds;
  std::int64_t panel = -1;
  bool streams = false;

  TESSERA_COLD void read(touched_bytes const& bytes) { reads.push_back(bytes); }
  TESSERA_COLD void write(touched_bytes const& bytes) { writes.push_back(bytes); }
};

/// The tasks between two barriers of a run: none of them waits for another.
class phase {
 public:
  /// Of an object with tasks(), describe(task) and compute(task, worker).
  template <class Of>
  explicit phase(Of const& of)
      : of_(&of), tasks_(of.tasks()), describe_(describe_of<Of>), compute_(compute_of<Of>) {}

  int tasks() const { return tasks_; }
  task_description describe(int task) const { return describe_(of_, task); }
  /// To be called once for each task. Workers are 0 … concurrency() - 1; each has memory for one task at a
  /// time.
  void compute(int task, int worker) const { compute_(of_, task, worker); }

 private:
  template <class Of> static task_description describe_of(void const* object, int task) {
    return static_cast<Of const*>(object)->describe(task);
  }
  template <class Of> static void compute_of(void const* object, int task, int worker) {
    static_cast<Of const*>(object)->compute(task, worker);
  }

  void const* of_;
  int tasks_;
  task_description (*describe_)(void const*, int);
  void (*compute_)(void const*, int, int);
};

/// An executor that looks at the tasks of a phase before it runs them: it gets them all, calls compute for
/// each, and returns when all are done.
template <class E>
concept phase_executor = requires(E& e, phase const& tasks) { e.run(tasks); };

/// An executor that looks at all phases of a run before the first: it may throw before anything is computed.
template <class E>
concept run_executor = requires(E& e, std::span<phase const> phases) { e.run(phases); };

/// An executor that stands for another machine than its threads: runs are cut into tiles for that one.
template <class E>
concept stand_in = requires(E const& e) {
  { e.stands_for() } -> std::convertible_to<machine>;
};

}}}  // namespace tessera::TESSERA_ISA::exec
