// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/graph/program.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace detail {

/// Elements that a vertex, or a part of a copy, reads or writes.
struct use {
  slice of;
  std::size_t by;
  bool writes;
};

/// Of uses of one variable, the two that reach the farthest and are of different users: for any third user,
/// one of them is the use of another that reaches the farthest.
class farthest_uses {
 public:
  void add(use const& u) {
    if (first_ && first_->of.variable != u.of.variable) first_ = second_ = nullptr;
    if (!first_ || first_->by == u.by) {
      if (!first_ || first_->of.last < u.of.last) first_ = &u;
    } else if (first_->of.last < u.of.last) {
      second_ = first_, first_ = &u;
    } else if (!second_ || second_->of.last < u.of.last) {
      second_ = &u;
    }
  }
  /// A use by another user that meets u, which begins no earlier than any use that was added; or null.
  use const* meeting(use const& u) const {
    use const* const other = first_ && first_->by == u.by ? second_ : first_;
    return other && other->of.variable == u.of.variable && other->of.last > u.of.first ? other : nullptr;
  }

 private:
  use const *first_ = nullptr, *second_ = nullptr;
};

struct race {
  use one, other;
};
/// Two uses of the same elements by different users, of which one writes, if there are any. Sorts the uses.
std::optional<race> find_race(std::vector<use>& all);

[[noreturn]] void refuse_race(graph const& in, race const& r, char const* users, std::string const& name);

/// Throws option_error if two vertices of a set write an element, or one writes an element that another
/// reads.
void refuse_races(graph const& of, graph::set_of_vertices const& set);

/// Throws option_error if a copy writes an element twice, or one that it reads. The message counts the slices
/// that are read, and then the slices that are written.
void refuse_races(graph const& of, program::node const& copy);

#ifdef TESSERA_BODY

TESSERA_BODY std::optional<race> find_race(std::vector<use>& all) {
  std::sort(all.begin(), all.end(), [](use const& a, use const& b) {
    return std::tie(a.of.variable, a.of.first) < std::tie(b.of.variable, b.of.first);
  });
  farthest_uses writes, reads;
  for (use const& u : all) {
    if (u.of.size() == 0) continue;
    if (use const* const before = writes.meeting(u)) return race{*before, u};
    if (use const* const before = u.writes ? reads.meeting(u) : nullptr) return race{*before, u};
    (u.writes ? writes : reads).add(u);
  }
  return {};
}

TESSERA_COLD TESSERA_BODY void refuse_race(graph const& in, race const& r, char const* users,
                                           std::string const& name) {
  throw option_error(message("[ipu::engine] ", users, " ", std::min(r.one.by, r.other.by), " and ",
                             std::max(r.one.by, r.other.by), " of \"", name, "\" race: both touch elements ",
                             r.other.of.first, " to ", std::min(r.one.of.last, r.other.of.last), " of ",
                             in.at(r.one.of).name, ", and at least one writes them"));
}

TESSERA_BODY void refuse_races(graph const& of, graph::set_of_vertices const& set) {
  std::vector<use> all;
  for (std::size_t n = 0; n < set.vertices.size(); ++n)
    for (field const& f : set.vertices[n].fields)
      for (slice const& s : f.parts) all.push_back({s, n, f.is_output});
  if (const auto found = find_race(all)) refuse_race(of, *found, "vertices", set.name);
}

TESSERA_BODY void refuse_races(graph const& of, program::node const& copy) {
  std::vector<use> all;
  for (slice const& s : copy.from) all.push_back({s, all.size(), false});
  for (slice const& s : copy.to) all.push_back({s, all.size(), true});
  if (const auto found = find_race(all)) refuse_race(of, *found, "parts", copy.name);
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::ipu::detail
