// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/ipu/graph/memory_plan.hpp>
#include <tessera/ipu/profile.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu { namespace detail {

/// Writes the profile of a run into the memory of the profile of the run before.
class recorder {
 public:
  recorder() = default;
  recorder(target const& on, memory_layout const& plan) {
    profile_.on = on;
    profile_.memory = plan.by_kind, profile_.peaks = plan.peaks, profile_.remarks = plan.remarks;
    for (std::size_t t = 0; t < profile_.peaks.size(); ++t)
      for (storage kind : {storage::exchange_code, storage::vertex_state})
        profile_.peaks[t] += plan.by_kind[t][std::size_t(kind)];
  }

  /// The profile has the steps that `run` records, whether it ends or throws.
  template <class Run> void record_run(Run&& run) {
    recorded_ = 0, profile_.liveness.clear();
    const auto forget_run_before = [this] {
      profile_.steps.erase(profile_.steps.begin() + std::ptrdiff_t(recorded_), profile_.steps.end());
    };
    try {
      run();
    } catch (...) {
      forget_run_before();
      throw;
    }
    forget_run_before();
  }
  /// The next step; the reference is good until another one is recorded.
  step_record& step(std::string_view name, activity kind, std::int64_t cycles = 0) {
    if (recorded_ == profile_.steps.size()) profile_.steps.push_back({{}, kind});
    step_record& now = profile_.steps[recorded_++];
    now.name = name, now.kind = kind, now.cycles = cycles;
    now.by_tile.clear(), now.multiplies = 0, now.bytes = 0, now.estimated = false;
    return now;
  }
  /// The bytes that are live in all steps since the last call.
  void live(live_bytes now) {
    while (profile_.liveness.size() < recorded_) profile_.liveness.push_back(now);
  }
  /// Steps before the exchange that was just recorded, and before its sync, have the bytes of the last call.
  void live_up_to_exchange() {
    auto& known = profile_.liveness;
    while (known.size() + 2 < recorded_) known.push_back(known.empty() ? live_bytes{} : known.back());
  }

  ipu::profile const& profile() const { return profile_; }

 private:
  ipu::profile profile_;
  std::size_t recorded_ = 0;  // of the profile's steps, in this run
};

}}}}  // namespace tessera::TESSERA_ISA::ipu::detail
