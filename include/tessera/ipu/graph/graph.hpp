// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/target.hpp>

// What a program of one's own consists of: variables, whose elements each live on a tile, and compute sets of
// vertices, which are codelets with inputs and outputs. Building a graph computes nothing; ipu::program says
// in which order things happen, ipu::engine makes it run.

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// Elements [first, last) of a variable.
struct slice {
  int variable = -1;
  std::int64_t first = 0, last = 0;

  std::int64_t size() const { return last - first; }
  /// Elements [from, to) of this slice. Throws shape_error outside of it.
  slice part(std::int64_t from, std::int64_t to) const {
    if (from < 0 || to < from || to > size())
      throw shape_error(message("[ipu::slice::part] elements ", from, " to ", to, " of ", size()));
    return {variable, first + from, first + to};
  }
  friend bool operator==(slice const&, slice const&) = default;
};

/// An input or output of a vertex: slices one behind the other, which the codelet sees as one array.
struct field {
  std::vector<slice> parts;
  bool is_output = false;  // or is changed

  std::int64_t size() const {
    std::int64_t sum = 0;
    for (slice const& s : parts) sum += s.size();
    return sum;
  }
};
inline field in(slice s) { return {{s}, false}; }
inline field in(std::vector<slice> parts) { return {std::move(parts), false}; }
inline field out(slice s) { return {{s}, true}; }
inline field out(std::vector<slice> parts) { return {std::move(parts), true}; }

/// The fields of a vertex in the memory of its tile.
class ports {
 public:
  explicit ports(std::span<std::span<std::byte> const> fields) : fields_(fields) {}
  /// Field i as elements T.
  template <class T> std::span<T const> in(std::size_t i) const {
    return {reinterpret_cast<T const*>(fields_[i].data()), fields_[i].size() / sizeof(T)};
  }
  template <class T> std::span<T> out(std::size_t i) const {
    return {reinterpret_cast<T*>(fields_[i].data()), fields_[i].size() / sizeof(T)};
  }

 private:
  std::span<std::span<std::byte> const> fields_;
};

/// The work of a vertex, and its cycles: instructions of one worker, or the cycles of a tile whose workers it
/// uses all. It touches its fields alone.
using codelet = std::function<std::int64_t(target const&, ports const&)>;

enum class runs_on : std::uint8_t { worker, tile };

struct vertex {
  codelet const* code = nullptr;
  int tile = 0;
  runs_on by = runs_on::tile;
  std::vector<field> fields;
  double multiplies = 0;  // multiply-adds, for accounts
};

/// The number of a compute set in its graph: vertices that run at the same time.
struct compute_set {
  int number = -1;
};

/// How long a variable lives.
enum class lifetime : std::uint8_t {
  kept,       // always; the host may write and read it
  temporary,  // from the first step that writes it to the last that touches it
};

class graph {
 public:
  struct interval {
    std::int64_t first, last;
    int tile;
  };
  struct variable {
    std::string name;
    std::int64_t size;
    std::size_t element_bytes;
    lifetime lives;
    bool is_table = false;          // of codelets, in accounts of memory
    std::vector<interval> mapping;  // ascending, without overlaps
  };
  struct set_of_vertices {
    std::string name;
    bool estimated = false;
    std::vector<vertex> vertices;
  };

  explicit graph(ipu::target on) : on_(std::move(on)) { on_.check(); }

  /// A variable of `size` elements T, not yet mapped to tiles.
  template <class T>
  slice add_variable(std::string name, std::int64_t size, lifetime lives = lifetime::kept) {
    static_assert(std::is_trivially_copyable_v<T>, "elements are exchanged as bytes");
    if (size < 0) throw shape_error(message("[ipu::graph] ", name, ": ", size, " elements"));
    variables_.push_back({std::move(name), size, sizeof(T), lives, false, {}});
    return {int(variables_.size()) - 1, 0, size};
  }
  /// Marks a variable as tables of codelets, in accounts of memory.
  void is_table(slice s) { own(s).is_table = true; }

  /// Puts elements on a tile. Throws option_error for a tile that there is not, and for elements that are
  /// mapped already.
  void map(slice s, int tile);
  /// Spreads elements over all tiles, in order, in multiples of `grain`.
  void map_linearly(slice s, std::int64_t grain = 1);

  /// Calls visit(interval, first, last) for the parts of a slice that are on one tile each, until an element
  /// is on none; returns where it ended.
  template <class Visit> std::int64_t for_each_interval(slice s, Visit&& visit) const {
    auto const& all = at(s).mapping;
    auto i = std::upper_bound(all.begin(), all.end(), s.first,
                              [](std::int64_t first, interval const& m) { return first < m.first; });
    if (i != all.begin()) --i;
    std::int64_t here = s.first;
    for (; here < s.last && i != all.end() && i->first <= here && here < i->last; ++i) {
      const std::int64_t last = std::min(s.last, i->last);
      visit(std::size_t(i - all.begin()), here, last);
      here = last;
    }
    return here;
  }

  /// Elements of a variable before the first run: tables and constants.
  template <class T> void initialise(slice s, std::span<T const> values) {
    if (std::int64_t(values.size()) != s.size() || sizeof(T) != at(s).element_bytes)
      throw shape_error(message("[ipu::graph::initialise] ", at(s).name, ": ", s.size(), " elements of ",
                                at(s).element_bytes, " bytes, but ", values.size(), " of ", sizeof(T),
                                " are given"));
    auto const bytes = std::as_bytes(values);
    initial_.push_back({s, {bytes.begin(), bytes.end()}});
  }
  struct initial_bytes {
    slice of;
    std::vector<std::byte> bytes;
  };
  std::vector<initial_bytes> const& initial() const { return initial_; }

  /// A codelet that vertices may share. It stays where it is.
  codelet const& add_codelet(codelet code);

  compute_set add_compute_set(std::string name, bool estimated = false);
  /// Adds a vertex. Its code is one of this graph's codelets.
  void add_vertex(compute_set to, int tile, codelet const& code, std::vector<field> fields,
                  runs_on by = runs_on::tile, double multiplies = 0);

  ipu::target const& target() const { return on_; }
  std::vector<variable> const& variables() const { return variables_; }
  variable const& at(slice s) const { return variables_[std::size_t(s.variable)]; }
  std::vector<set_of_vertices> const& sets() const { return sets_; }

 private:
  variable& own(slice s) { return variables_[std::size_t(s.variable)]; }

  ipu::target on_;
  std::vector<variable> variables_;
  std::vector<set_of_vertices> sets_;
  std::vector<initial_bytes> initial_;
  std::vector<std::unique_ptr<codelet>> codelets_;
};

#ifdef TESSERA_BODY

TESSERA_BODY void graph::map(slice s, int tile) {
  if (tile < 0 || tile >= on_.tiles)
    throw option_error(message("[ipu::graph::map] ", at(s).name, ": tile ", tile, " of ", on_.tiles));
  if (s.size() == 0) return;
  auto& all = own(s).mapping;
  const auto behind = std::upper_bound(all.begin(), all.end(), s.first,
                                       [](std::int64_t first, interval const& i) { return first < i.first; });
  if ((behind != all.end() && behind->first < s.last) ||
      (behind != all.begin() && std::prev(behind)->last > s.first))
    throw option_error(message("[ipu::graph::map] ", at(s).name, ": elements ", s.first, " to ", s.last,
                               " are mapped already, some of them"));
  if (behind != all.begin() && std::prev(behind)->last == s.first && std::prev(behind)->tile == tile)
    std::prev(behind)->last = s.last;
  else
    all.insert(behind, {s.first, s.last, tile});
}

TESSERA_BODY void graph::map_linearly(slice s, std::int64_t grain) {
  const std::int64_t grains = ceil_div(s.size(), grain), each = ceil_div(grains, std::int64_t(on_.tiles));
  for (std::int64_t first = 0, tile = 0; first < s.size(); first += each * grain, ++tile)
    map(s.part(first, std::min(s.size(), first + each * grain)), int(tile));
}

TESSERA_BODY codelet const& graph::add_codelet(codelet code) {
  return codelets_.emplace_back(std::make_unique<codelet>(std::move(code))), *codelets_.back();
}

TESSERA_BODY compute_set graph::add_compute_set(std::string name, bool estimated) {
  sets_.push_back({std::move(name), estimated, {}});
  return {int(sets_.size()) - 1};
}

TESSERA_BODY void graph::add_vertex(compute_set to, int tile, codelet const& code, std::vector<field> fields,
                                    runs_on by, double multiplies) {
  if (tile < 0 || tile >= on_.tiles)
    throw option_error(message("[ipu::graph::add_vertex] ", sets_[std::size_t(to.number)].name, ": tile ",
                               tile, " of ", on_.tiles));
  sets_[std::size_t(to.number)].vertices.push_back({&code, tile, by, std::move(fields), multiplies});
}

#endif

}}}  // namespace tessera::TESSERA_ISA::ipu
