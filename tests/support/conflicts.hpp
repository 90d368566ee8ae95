// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/statements/run.hpp>

namespace support {

/// Names two tasks of one phase of a run that touch the same bytes, at least one of them writing; empty if no
/// tasks conflict. The memory of a worker belongs to one task.
template <class... Statement>
std::string conflict(tessera::machine const& on, Statement const&... statement) {
  using namespace tessera;
  struct interval {
    std::uintptr_t first, last;
    int task, step;
    bool writes;
  };
  eval::plan plan(on);
  (eval::lower_statement(plan, statement), ...);
  plan.schedule();
  std::map<std::pair<int, exec::memory>, std::vector<interval>> touched;  // by phase and owner
  plan.for_each_tile([&](int phase, int task, int step, eval::tile const& t) {
    const exec::task_description d = plan.describe(step, t);
    const auto add = [&](std::vector<exec::touched_bytes> const& list, bool writes) {
      for (exec::touched_bytes const& bytes : list)
        for (std::int64_t i = 0; i < bytes.count && bytes.bytes > 0 && bytes.owner != exec::memory::worker;
             ++i) {
          const std::uintptr_t first = bytes.at + std::uintptr_t(i * bytes.stride);
          touched[{phase, bytes.owner}].push_back(
              {first, first + std::uintptr_t(bytes.bytes), task, step, writes});
        }
    };
    add(d.reads, false);
    add(d.writes, true);
  });
  for (auto& [where, all] : touched) {
    std::sort(all.begin(), all.end(), [](auto const& a, auto const& b) { return a.first < b.first; });
    // Of the intervals that have begun, the two of different tasks that reach furthest; among all and among
    // written ones.
    struct furthest {
      interval const *most = nullptr, *other = nullptr;
      void add(interval const& i) {
        if (!most || i.last > most->last) {
          if (most && most->task != i.task) other = most;
          most = &i;
        } else if (most->task != i.task && (!other || i.last > other->last)) {
          other = &i;
        }
      }
      interval const* meets(interval const& i) const {
        for (interval const* const before : {most, other})
          if (before && before->task != i.task && before->last > i.first) return before;
        return nullptr;
      }
    } any, written;
    for (interval const& now : all) {
      if (interval const* const before = now.writes ? any.meets(now) : written.meets(now))
        return "tasks " + std::to_string(before->task) + " (" + plan.at(before->step).kind + ") and " +
               std::to_string(now.task) + " (" + plan.at(now.step).kind + ") of phase " +
               std::to_string(where.first) + " touch the same bytes";
      any.add(now);
      if (now.writes) written.add(now);
    }
  }
  return "";
}

}  // namespace support
