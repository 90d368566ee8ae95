// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/graph/graph.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// The steps of a machine, in order. Copies share their steps: a program that stands in several places is a
/// function that is called there.
class program {
 public:
  enum class kind : std::uint8_t { sequence, execute, copy, repeat, repeat_while, if_nonzero };
  struct node {
    kind is;
    std::vector<program> parts{};     // of a sequence; body; then and otherwise; condition and body
    compute_set set{};                // of execute
    std::vector<slice> from{}, to{};  // of copy, in order
    std::int64_t times = 0;           // of repeat
    slice flag{};                     // one 32-bit integer
    std::string name{};
  };

  /// Nothing.
  program() : node_(std::make_shared<node const>(node{kind::sequence})) {}

  node const& operator*() const { return *node_; }
  node const* operator->() const { return node_.get(); }
  node const* get() const { return node_.get(); }

  friend program sequence(std::vector<program> parts) {
    return program({.is = kind::sequence, .parts = std::move(parts)});
  }
  friend program execute(compute_set set) { return program({.is = kind::execute, .set = set}); }
  /// Copies slices to as many elements of others, all at once. They must not overlap.
  friend program copy(std::vector<slice> from, std::vector<slice> to, std::string name) {
    return program({.is = kind::copy, .from = std::move(from), .to = std::move(to), .name = std::move(name)});
  }
  friend program repeat(std::int64_t times, program body) {
    return program({.is = kind::repeat, .parts = {std::move(body)}, .times = times});
  }
  /// Runs `condition`, and `body` as long as the flag is not zero behind it.
  friend program repeat_while(program condition, slice flag, program body) {
    return program(
        {.is = kind::repeat_while, .parts = {std::move(condition), std::move(body)}, .flag = flag});
  }
  friend program if_nonzero(slice flag, program then, program otherwise) {
    return program({.is = kind::if_nonzero, .parts = {std::move(then), std::move(otherwise)}, .flag = flag});
  }

 private:
  explicit program(node n) : node_(std::make_shared<node const>(std::move(n))) {}
  std::shared_ptr<node const> node_;
};

program sequence(std::vector<program> parts);
program execute(compute_set set);
program copy(std::vector<slice> from, std::vector<slice> to, std::string name = "copy");
program repeat(std::int64_t times, program body);
program repeat_while(program condition, slice flag, program body);
program if_nonzero(slice flag, program then, program otherwise);

}}}  // namespace tessera::TESSERA_ISA::ipu
