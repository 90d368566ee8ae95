// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/ipu/graph/graph.hpp>
#include <tessera/ipu/graph/program.hpp>
#include <tessera/ipu/popsparse/dynamic_plan.hpp>
#include <tessera/ipu/target.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace detail {

/// Elements of one tile of a variable that has `each` for every tile.
inline slice slice_of_tile(slice all, int tile, std::int64_t each) {
  return all.part(tile * each, (tile + 1) * each);
}

/// Where travelling buckets are, in the memory of the tile that steers them.
struct travel_state {
  std::int32_t left = 0;           // steps until every bucket has been where its blocks are multiplied
  std::int32_t from_home = 0;      // steps
  std::int32_t around_corner = 0;  // whether this step goes to the next part of rows, too
  std::int32_t to_first = 0;       // whether this step ends in the first buffer
  std::int32_t goes_on = 0;        // whether there is this step
};
static_assert(std::is_standard_layout_v<travel_state> && sizeof(travel_state) == 5 * sizeof(std::int32_t),
              "programs see each field as a flag");

/// Variables that travel together, at home and in each of two buffers.
struct travel_buffers {
  std::vector<slice> home, first, second;
};

/// Brings buckets from tile to tile around the grid of a plan, as many steps as the host says.
class bucket_travel {
 public:
  bucket_travel() = default;
  bucket_travel(graph& g, dynamic_plan plan, std::string name)
      : plan_(std::move(plan)),
        name_(std::move(name)),
        tile_(int(std::min<std::int64_t>(plan_.tiles(), g.target().tiles - 1))),
        steps_(g.add_variable<std::int32_t>(name_ + ": steps of travel", 1)),
        state_(g.add_variable<std::int32_t>(name_ + ": travel",
                                            std::int64_t(sizeof(travel_state) / sizeof(std::int32_t)))) {
    g.map(steps_, tile_), g.map(state_, tile_);
  }

  /// The number of steps, which the host writes.
  slice steps() const { return steps_; }

  /// The way there: from home to the first buffer, then between the two, computing on the buckets that have
  /// arrived.
  program there(graph& g, travel_buffers const& b, program const& on_first, program const& on_second) const;

  /// The way back of the last variable, which ends at home.
  program back(graph& g, travel_buffers const& b) const;

 private:
  /// A field of the state.
  slice flag(std::size_t offset) const {
    const auto i = std::int64_t(offset / sizeof(std::int32_t));
    return state_.part(i, i + 1);
  }
  /// A vertex of a few scalar instructions on the tile that steers; their number is an estimate.
  program steer(graph& g, char const* what, std::vector<field> fields, codelet code) const;
  /// One step: by +1 away from home, by -1 back.
  program step(std::vector<slice> const& from, std::vector<slice> const& to, std::int64_t by) const {
    return if_nonzero(flag(offsetof(travel_state, around_corner)), shift(from, to, by, true),
                      shift(from, to, by, false));
  }
  /// Every tile's share of `from` to the next tile's of `to`, around the grid.
  program shift(std::vector<slice> const& from, std::vector<slice> const& to, std::int64_t by,
                bool around_corner) const;

  dynamic_plan plan_;
  std::string name_;
  int tile_ = 0;
  slice steps_, state_;
};

#ifdef TESSERA_BODY

TESSERA_BODY program bucket_travel::there(graph& g, travel_buffers const& b, program const& on_first,
                                          program const& on_second) const {
  const auto begin = steer(g, ": begin travel", {in(steps_), out(state_)}, [](target const&, ports const& f) {
    f.out<travel_state>(1)[0] = {.left = f.in<std::int32_t>(0)[0]};
    return std::int64_t(12);
  });
  const auto next =
      steer(g, ": next step of travel", {out(state_)}, [ys = plan_.y](target const&, ports const& f) {
        travel_state& s = f.out<travel_state>(0)[0];
        s.goes_on = s.left > 0;
        if (s.goes_on) {
          --s.left, ++s.from_home;
          s.around_corner = s.from_home % ys == 0;
          s.to_first = 1 - s.to_first;
        }
        return std::int64_t(20);
      });
  const slice goes_on = flag(offsetof(travel_state, goes_on));
  const program second_step = if_nonzero(goes_on, sequence({step(b.first, b.second, 1), on_second}), {});
  const program loop =
      repeat_while(next, goes_on, sequence({step(b.second, b.first, 1), on_first, next, second_step}));
  return sequence(
      {begin, next,
       if_nonzero(goes_on, sequence({step(b.home, b.first, 1), on_first, next, second_step, loop}), {})});
}

TESSERA_BODY program bucket_travel::back(graph& g, travel_buffers const& b) const {
  const auto begin =
      steer(g, ": begin the way back", {in(steps_), out(state_)}, [](target const&, ports const& f) {
        travel_state& s = f.out<travel_state>(1)[0];
        s.goes_on = f.in<std::int32_t>(0)[0] > 0;
        s.left = s.from_home;
        return std::int64_t(12);
      });
  const auto next =
      steer(g, ": next step back", {out(state_)}, [ys = plan_.y](target const&, ports const& f) {
        travel_state& s = f.out<travel_state>(0)[0];
        s.goes_on = s.from_home > 0;
        if (s.goes_on) {
          s.around_corner = s.from_home % ys == 0;
          --s.from_home;
          s.to_first = 1 - s.to_first;
        }
        return std::int64_t(20);
      });
  const slice goes_on = flag(offsetof(travel_state, goes_on)),
              to_first = flag(offsetof(travel_state, to_first));
  const program step_back = if_nonzero(to_first, step(b.second, b.first, -1), step(b.first, b.second, -1));
  const program arrive = if_nonzero(to_first, copy({b.first.back()}, {b.home.back()}, name_ + ": arrive"),
                                    copy({b.second.back()}, {b.home.back()}, name_ + ": arrive"));
  return sequence(
      {begin, if_nonzero(goes_on, sequence({repeat_while(next, goes_on, step_back), arrive}), {})});
}

TESSERA_BODY program bucket_travel::steer(graph& g, char const* what, std::vector<field> fields,
                                          codelet code) const {
  const compute_set set = g.add_compute_set(name_ + what);
  g.add_vertex(set, tile_, g.add_codelet(std::move(code)), std::move(fields), runs_on::worker);
  return execute(set);
}

TESSERA_BODY program bucket_travel::shift(std::vector<slice> const& from, std::vector<slice> const& to,
                                          std::int64_t by, bool around_corner) const {
  std::vector<slice> source;
  for (slice const& all : from) {
    const std::int64_t each = all.size() / plan_.tiles();
    plan_.for_each_tile([&](std::int64_t group, std::int64_t px, std::int64_t py, std::int64_t pz) {
      const std::int64_t x = around_corner ? (px + plan_.x - by) % plan_.x : px,
                         y = (py + plan_.y - by) % plan_.y;
      source.push_back(slice_of_tile(all, plan_.tile(group, x, y, pz), each));
    });
  }
  return copy(std::move(source), to, name_ + ": travel");
}

#endif

}}}}  // namespace tessera::TESSERA_ISA::ipu::detail
