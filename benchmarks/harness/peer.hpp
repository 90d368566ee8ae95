// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <harness/operands.hpp>
#include <harness/problem.hpp>
#include <harness/process.hpp>
#include <sys/mman.h>

// A contestant in a process of its own: one library per process, which does not meet the threads and the
// settings of others. Its operands and results are in memory that both share.

namespace bench {

/// How to start a peer, and where to get it.
struct peer {
  std::string name;
  std::vector<std::string> command, variables;
  std::string where;
};

class shared_problem {
 public:
  explicit shared_problem(problem const& header)
      : file_(::memfd_create("bench", MFD_CLOEXEC)), bytes_(std::size_t(header.bytes)) {
    if (file_ < 0 || ::ftruncate(file_, header.bytes) != 0)
      throw error("[bench] no shared memory for a peer");
    void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    if (memory == MAP_FAILED) throw error("[bench] no shared memory for a peer");
    problem_ = static_cast<problem*>(memory);
    *problem_ = header;
  }
  ~shared_problem() {
    ::munmap(problem_, bytes_);
    ::close(file_);
  }
  shared_problem(shared_problem const&) = delete;
  shared_problem& operator=(shared_problem const&) = delete;

  int file() const { return file_; }
  problem& operator*() const { return *problem_; }
  problem* operator->() const { return problem_; }

 private:
  int file_;
  std::size_t bytes_;
  problem* problem_;
};

/// A problem whose sizes are known, with places for its arrays.
inline problem placed(problem p) {
  std::int64_t next = sizeof(problem);
  const auto place = [&](std::int64_t count) {
    const std::int64_t at = round_up<std::int64_t>(next, 64);
    next = at + 4 * count;
    return at;
  };
  p.row_start = place(p.block == 0 ? 0 : p.m / p.block + 1);
  p.cols = place(p.stored);
  p.values = place(p.weights());
  p.x = place(p.k * p.n);
  p.dy = place(p.m * p.n);
  p.y = place(p.m * p.n);
  p.dx = place(p.k * p.n);
  p.dw = place(p.weights());
  p.bytes = next;
  return p;
}

/// The weights and activations that our own contestants get for this workload.
template <class Block> std::unique_ptr<shared_problem> problem_of(workload const& what) {
  const block_sparse_matrix<float, Block> w = weights_of<Block>(what);
  const bool dense = what.density == 1;
  auto p = std::make_unique<shared_problem>(
      placed({what.m, what.k, what.n, dense ? 0 : what.block, dense ? 0 : w.pattern().blocks(), what.threads,
              0, 0, 0, 0, 0, 0, 0, 0, 0}));
  problem& to = **p;
  auto* const values = to.at<float>(to.values);
  if (dense) {
    for (std::int64_t i = 0; i < what.m; ++i)
      for (std::int64_t j = 0; j < what.k; ++j) values[i * what.k + j] = w(i, j);
  } else {
    std::ranges::copy(w.pattern().row_start(), to.at<std::int32_t>(to.row_start));
    std::ranges::copy(w.pattern().cols(), to.at<std::int32_t>(to.cols));
    std::copy_n(w.data(), to.weights(), values);
  }
  const auto fill = [n = what.n](float* row_major, panel_matrix<float> const& from) {
    for (std::int64_t f = 0; f < from.features(); ++f)
      for (std::int64_t t = 0; t < n; ++t) row_major[f * n + t] = from(f, t);
  };
  if (what.operation == "sparse product")  // x is W, too
    for (std::int64_t i = 0; i < what.k; ++i)
      for (std::int64_t j = 0; j < what.n; ++j) to.at<float>(to.x)[i * what.n + j] = w(i, j);
  else
    fill(to.at<float>(to.x), activation(what.k, what.n, 4));
  fill(to.at<float>(to.dy), activation(what.m, what.n, 5));
  return p;
}

/// A peer that has been started, with all weights as one array (m, k) to compare its results with.
class peer_run {
 public:
  peer_run(peer const& who, std::unique_ptr<shared_problem> of)
      : name_(who.name), problem_(std::move(of)), process_(who.command, who.variables, problem_->file()) {
    problem& p = **problem_;
    float const* const values = p.at<float>(p.values);
    if (p.block == 0) {
      w_.assign(values, values + p.weights());
      return;
    }
    w_.resize(std::size_t(p.m * p.k));
    for_each_stored(
        [&](std::int64_t i, std::int64_t j, std::int64_t at) { w_[std::size_t(i * p.k + j)] = values[at]; });
  }

  std::string first_answer() { return process_.answer(); }
  double weights() const { return double((**problem_).weights()); }

  double run(int times) {
    const std::string answer = process_.answer_to(message("run ", times));
    const double ns = std::strtod(answer.c_str(), nullptr);
    if (!(ns > 0)) ended(answer);
    fetched_ = false;
    return ns;
  }

  /// Of the last run: y, or y, dx and dw one after the other.
  checked_value result(std::int64_t r) {
    if (!std::exchange(fetched_, true))
      if (const std::string answer = process_.answer_to("result"); answer != "done") ended(answer);
    problem& p = **problem_;
    float const *const x = p.at<float>(p.x), *const dy = p.at<float>(p.dy);
    const auto w = [&](std::int64_t i, std::int64_t j) { return w_[std::size_t(i * p.k + j)]; };
    if (r < p.m * p.n)
      return beside_sum(
          p.at<float>(p.y)[r], p.k, [&](std::int64_t j) { return w(r / p.n, j); },
          [&](std::int64_t j) { return x[j * p.n + r % p.n]; });
    r -= p.m * p.n;
    if (r < p.k * p.n)
      return beside_sum(
          p.at<float>(p.dx)[r], p.m, [&](std::int64_t i) { return w(i, r / p.n); },
          [&](std::int64_t i) { return dy[i * p.n + r % p.n]; });
    r -= p.k * p.n;
    if (places_.empty()) {
      places_.resize(std::size_t(p.weights()));
      for_each_stored(
          [&](std::int64_t i, std::int64_t j, std::int64_t at) { places_[std::size_t(at)] = {i, j}; });
    }
    const auto [i, j] = places_[std::size_t(r)];
    return beside_sum(
        p.at<float>(p.dw)[r], p.n, [&](std::int64_t t) { return dy[i * p.n + t]; },
        [&](std::int64_t t) { return x[j * p.n + t]; });
  }

 private:
  /// visit(row, column, place among the values)
  template <class Visit> void for_each_stored(Visit&& visit) const {
    problem& p = **problem_;
    if (p.block == 0) {
      for (std::int64_t at = 0; at < p.weights(); ++at) visit(at / p.k, at % p.k, at);
      return;
    }
    for (std::int64_t line = 0, at = 0; line < p.m / p.block; ++line)
      for (std::int32_t s = p.at<std::int32_t>(p.row_start)[line];
           s < p.at<std::int32_t>(p.row_start)[line + 1]; ++s)
        for (std::int64_t e = 0; e < p.block * p.block; ++e, ++at)
          visit(line * p.block + e / p.block, p.at<std::int32_t>(p.cols)[s] * p.block + e % p.block, at);
  }
  [[noreturn]] void ended(std::string const& answer) const {
    throw error("[bench] the process of " + name_ + " ended unexpectedly: " + answer);
  }

  std::string name_;
  std::unique_ptr<shared_problem> problem_;
  process process_;
  std::vector<float> w_;
  std::vector<std::pair<std::int64_t, std::int64_t>> places_;
  bool fetched_ = false;
};

/// The work of a peer. Nothing if it is not here or cannot, which is said once.
inline std::optional<job> peer_job(peer const& who, workload const& what) {
  static std::set<std::string> left_out;
  if (what.element != "float" || what.m % what.block != 0 || what.k % what.block != 0 ||
      left_out.contains(who.name))
    return std::nullopt;
  return with_block(what.block, [&]<class Block>() -> std::optional<job> {
    const auto run = std::make_shared<peer_run>(who, problem_of<Block>(what));
    const std::string answer = run->first_answer();
    if (!answer.starts_with("ready ")) {
      left_out.insert(who.name);
      std::printf("%s is left out: %s\n", who.name.c_str(),
                  answer.starts_with("cannot ") ? answer.substr(7).c_str() : who.where.c_str());
      return std::nullopt;
    }
    const double weights = run->weights(), products = what.operation == "layer" ? 3 : 1;
    return job{
        what.operation == "sparse product" ? pair_flops(weights_of<Block>(what))
                                           : 2 * weights * double(what.n) * products,
        [run] { run->run(1); },
        what.operation == "layer" ? (what.m + what.k) * what.n + std::int64_t(weights) : what.m * what.n,
        [run](std::int64_t r) { return run->result(r); },
        [run](int times) { return run->run(times); },
        answer.substr(6)};
  });
}

}  // namespace bench
