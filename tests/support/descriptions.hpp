// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/statements/run.hpp>

namespace support {

/// An executor that computes each task twice: once as it is, and once with not-a-numbers in all bytes that
/// other tasks of the run touch and that this one, as it says, does not read.
class describing_executor {
 public:
  std::byte* run_memory = nullptr;
  std::string wrong;  // the first task that touches other bytes than it says

  int concurrency() const { return 2; }
  void run(int count, tessera::exec::body_ref body) {
    for (int i = 0; i < count; ++i) body(i);
  }
  void run(tessera::array_ref<tessera::exec::phase> phases) {
    find_pieces(phases);
    int number = 0;
    for (tessera::exec::phase const& tasks : phases) {
      for (int task = 0; task < tasks.tasks(); ++task)
        if (char const* const what = compute(tasks, task); what && wrong.empty()) {
          wrong = "task " + std::to_string(task) + " of phase " + std::to_string(number) + " (";
          tasks.for_each_kind([&](char const* kind) { wrong += std::string(" ") + kind; });
          wrong += " ) " + std::string(what);
        }
      ++number;
    }
  }

 private:
  struct piece {
    std::byte *first, *last;
    std::size_t before;  // bytes of the pieces before this one
  };
  enum : unsigned char { reads = 1, writes = 2 };

  /// Calls visit(first, last) for the bytes of a list that do not belong to a worker.
  template <class Visit>
  void for_each(std::vector<tessera::exec::touched_bytes> const& list, Visit const& visit) const {
    using tessera::exec::memory;
    for (tessera::exec::touched_bytes const& bytes : list)
      for (std::int64_t i = 0; i < bytes.count && bytes.bytes > 0 && bytes.owner != memory::worker; ++i) {
        std::byte* const first =
            (bytes.owner == memory::run ? run_memory + bytes.at : reinterpret_cast<std::byte*>(bytes.at)) +
            i * bytes.stride;
        visit(first, first + bytes.bytes);
      }
  }
  void find_pieces(tessera::array_ref<tessera::exec::phase> phases) {
    std::vector<piece> all;
    const auto add = [&](std::byte* first, std::byte* last) { all.push_back({first, last, 0}); };
    for (tessera::exec::phase const& tasks : phases)
      for (int task = 0; task < tasks.tasks(); ++task) {
        const auto d = tasks.describe(task);
        for_each(d.reads, add);
        for_each(d.writes, add);
      }
    std::sort(all.begin(), all.end(), [](piece const& a, piece const& b) { return a.first < b.first; });
    pieces_.clear();
    for (piece const& next : all)
      if (!pieces_.empty() && next.first <= pieces_.back().last)
        pieces_.back().last = std::max(pieces_.back().last, next.last);
      else
        pieces_.push_back(next);
    bytes_ = 0;
    for (piece& p : pieces_) p.before = std::exchange(bytes_, bytes_ + std::size_t(p.last - p.first));
  }

  std::vector<std::byte> now() const {
    std::vector<std::byte> copy(bytes_);
    for (piece const& p : pieces_) std::copy(p.first, p.last, copy.data() + p.before);
    return copy;
  }
  void restore(std::vector<std::byte> const& copy) const {
    for (piece const& p : pieces_) std::copy_n(copy.data() + p.before, p.last - p.first, p.first);
  }
  std::vector<unsigned char> said(tessera::exec::task_description const& d) const {
    std::vector<unsigned char> by_byte(bytes_);
    const auto mark = [&](unsigned char as) {
      return [this, &by_byte, as](std::byte* first, std::byte* last) {
        piece const& p = *(std::upper_bound(pieces_.begin(), pieces_.end(), first,
                                            [](std::byte* at, piece const& of) { return at < of.first; }) -
                           1);
        unsigned char* const byte = by_byte.data() + p.before;
        for (std::ptrdiff_t i = first - p.first; i < last - p.first; ++i) byte[i] |= as;
      };
    };
    for_each(d.reads, mark(reads));
    for_each(d.writes, mark(writes));
    return by_byte;
  }

  /// Computes a task, and returns the fault of its description, or null.
  char const* compute(tessera::exec::phase const& tasks, int task) const {
    const auto says = said(tasks.describe(task));
    const auto before = now();
    tasks.compute(task, 0);
    const auto after = now();
    auto poisoned = before;
    for (std::size_t i = 0; i < bytes_; ++i)
      if (!(says[i] & reads)) poisoned[i] = std::byte(0xff);
    restore(poisoned);
    tasks.compute(task, 1);
    const auto again = now();
    restore(after);
    for (std::size_t i = 0; i < bytes_; ++i) {
      const bool untouched = after[i] == before[i] && again[i] == poisoned[i];  // padding within a lane
      if (untouched || (says[i] & writes && again[i] == after[i])) continue;
      return says[i] & writes ? "reads what it does not say" : "writes what it does not say";
    }
    return nullptr;
  }

  std::vector<piece> pieces_;  // all bytes that a task of the run touches
  std::size_t bytes_ = 0;
};

/// Runs statements cut for a machine, and names the first task that touches other bytes than it describes;
/// empty if there is none. Of memory that no task describes nothing is known.
template <class... Statement>
std::string false_description(tessera::machine const& on, Statement const&... statement) {
  struct stand_in : describing_executor {
    tessera::machine as;
    tessera::machine stands_for() const { return as; }
  } executor;
  executor.as = on;
  tessera::context ctx(executor);
  constexpr std::size_t enough = 1 << 23;
  executor.run_memory = ctx.shared_scratch(enough);
  tessera::run(ctx, statement...);
  if (ctx.shared_scratch(enough) != executor.run_memory) return "the run has more memory than is looked at";
  return executor.wrong;
}

}  // namespace support
