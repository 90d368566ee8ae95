// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <numeric>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/exec/phase.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace detail {

/// The tile on which each 256 bytes of the user's memory, and of the memory of a run, lives. Tensors begin at
/// such pages, so their charge does not depend on where the host puts them.
class homes {
 public:
  static constexpr std::int64_t page_bytes = 256;
  static constexpr std::uint16_t none = 0xffff;
  struct page {
    std::uint16_t home = none;
    bool holds_tokens = false;
    std::uint16_t readers = 0;         // of this phase, until it has a home
    std::uint32_t turn = 0;            // the number of its first reader among all pages without a home
    std::uint32_t seen = 0, sent = 0;  // marks of a tile, and of a phase
  };

  explicit homes(int tiles) : held_(std::size_t(tiles), 0), of_tokens_(std::size_t(tiles), 0) {}

  /// Calls visit(page, key, bytes) for the pages that a task touches, with the bytes it touches of each.
  /// Memory of a worker has no home.
  template <class Visit> void for_each_page(exec::touched_bytes const& t, Visit&& visit) {
    if (t.owner == exec::memory::worker || t.bytes <= 0) return;
    const std::uint64_t base = (t.owner == exec::memory::run ? run_space : 0) + std::uint64_t(t.at);
    std::uint64_t last_key = ~std::uint64_t(0);
    std::int64_t sum = 0;
    page* last = nullptr;
    const auto flush = [&] {
      if (last) visit(*last, last_key, sum);
    };
    for (std::int64_t i = 0; i < t.count; ++i) {
      std::uint64_t at = base + std::uint64_t(i * t.stride);
      for (std::int64_t left = t.bytes; left > 0;) {
        const std::uint64_t key = at / page_bytes;
        const auto here = std::min<std::int64_t>(left, page_bytes - std::int64_t(at % page_bytes));
        if (key != last_key) {
          flush();
          last = &at_key(key), last_key = key, sum = 0;
        }
        sum += here, at += std::uint64_t(here), left -= here;
      }
    }
    flush();
  }

  page& at_key(std::uint64_t key) {
    auto& c = chunks_[key / pages_a_chunk];
    if (!c) c = std::make_unique<chunk>();
    return (*c)[key % pages_a_chunk];
  }

  void give(page& p, std::uint64_t key, int tile, bool tokens) {
    p.home = std::uint16_t(tile), p.holds_tokens = tokens, p.readers = 0;
    held_[std::size_t(tile)] += page_bytes;
    if (tokens) of_tokens_[std::size_t(tile)] += page_bytes;
    given_.push_back(key);
  }
  /// Forgets the homes that were given since it was last called: all, or the homes of memory of the run.
  void take_back(bool of_runs_only) {
    for (std::uint64_t key : given_) {
      if (of_runs_only && key < run_space / page_bytes) continue;
      page& p = at_key(key);
      if (p.home == none) continue;
      held_[p.home] -= page_bytes;
      if (p.holds_tokens) of_tokens_[p.home] -= page_bytes;
      p = page{};
    }
    given_.clear();
  }

  std::int64_t held(std::size_t tile) const { return held_[tile]; }
  std::int64_t of_tokens(std::size_t tile) const { return of_tokens_[tile]; }
  /// A tile that holds no more than the others do on average.
  int emptier_tile() {
    const std::int64_t average =
        std::accumulate(held_.begin(), held_.end(), std::int64_t(0)) / std::int64_t(held_.size());
    for (std::size_t i = 0; i < held_.size(); ++i) {
      cursor_ = (cursor_ + 1) % held_.size();
      if (held_[cursor_] <= average) break;
    }
    return int(cursor_);
  }

 private:
  static constexpr std::uint64_t run_space = std::uint64_t(1) << 62, pages_a_chunk = 4096;
  using chunk = std::array<page, pages_a_chunk>;
  std::unordered_map<std::uint64_t, std::unique_ptr<chunk>> chunks_;
  std::vector<std::int64_t> held_, of_tokens_;
  std::vector<std::uint64_t> given_;
  std::size_t cursor_ = 0;
};

}}}}  // namespace tessera::TESSERA_ISA::ipu::detail
