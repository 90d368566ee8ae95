// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/io/json.hpp>
#include <tessera/tensor/pattern.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace train {

/// The blocks of each matrix that have ever been stored. Their fraction of all blocks is the ITOP rate (Liu
/// et al. 2021): sparse training works best when it comes near 1.
class explored_blocks {
 public:
  /// A matrix that was of another grid begins anew.
  void mark(std::string const& matrix, pattern const& stored);

  /// Blocks ever stored ÷ all blocks of the matrices marked so far; 1 if there are none.
  double fraction() const;

  io::json to_json() const;

  /// Reads the output of to_json. Throws io_error, which names the place, for any other text.
  static explored_blocks from_json(io::json_place const& all);

  friend bool operator==(explored_blocks const&, explored_blocks const&) = default;

 private:
  struct grid {
    std::int64_t blocks = 0;
    std::vector<std::uint64_t> ever;  // a bit for each block, row by row
    friend bool operator==(grid const&, grid const&) = default;
  };
  static std::size_t words(std::int64_t blocks) {
    return static_cast<std::size_t>(ceil_div<std::int64_t>(blocks, 64));
  }
  std::map<std::string, grid> grids_;
};

#ifdef TESSERA_BODY

TESSERA_BODY void explored_blocks::mark(std::string const& matrix, pattern const& stored) {
  grid& here = grids_[matrix];
  const std::int64_t blocks = std::int64_t{stored.block_rows()} * stored.block_cols();
  if (here.blocks != blocks) here = {blocks, {}};
  here.ever.resize(words(here.blocks));
  stored.for_each([&](int i, int j, std::int64_t) {
    const std::int64_t at = std::int64_t{i} * stored.block_cols() + j;
    here.ever[static_cast<std::size_t>(at / 64)] |= std::uint64_t{1} << (at % 64);
  });
}

TESSERA_BODY double explored_blocks::fraction() const {
  std::int64_t ever = 0, all = 0;
  for (auto const& [name, one] : grids_) {
    all += one.blocks;
    for (const std::uint64_t word : one.ever) ever += std::popcount(word);
  }
  return all == 0 ? 1 : static_cast<double>(ever) / static_cast<double>(all);
}

TESSERA_BODY io::json explored_blocks::to_json() const {
  io::json::object all;
  for (auto const& [name, one] : grids_) {
    io::json::array ever(one.ever.begin(), one.ever.end());
    all.push_back({name, io::json::object{{"blocks", one.blocks}, {"ever", std::move(ever)}}});
  }
  return all;
}

TESSERA_BODY explored_blocks explored_blocks::from_json(io::json_place const& all) {
  explored_blocks explored;
  for (io::json_member const& member : all.members()) {
    const io::json_place place = all.at(member), ever = place.at("ever");
    grid& here = explored.grids_[member.key];
    here.blocks = place.at("blocks").as_integer();
    if (here.blocks < 0 || ever.size() != words(here.blocks))
      ever.fail(message("has ", ever.size(), " words of 64 bits for ", here.blocks, " blocks"));
    for (std::size_t i = 0; i < ever.size(); ++i) here.ever.push_back(ever.at(i).as_integer<std::uint64_t>());
    if (here.blocks % 64 != 0 && here.ever.back() >> (here.blocks % 64) != 0)
      ever.fail(message("marks blocks beyond the ", here.blocks, " of the matrix"));
  }
  return explored;
}

#endif

}}}  // namespace tessera::TESSERA_ISA::train
