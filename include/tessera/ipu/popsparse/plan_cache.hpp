// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>
#include <tessera/ipu/popsparse/dense_plan.hpp>
#include <tessera/ipu/popsparse/dynamic_plan.hpp>
#include <tessera/ipu/popsparse/static_plan.hpp>

namespace tessera { inline namespace TESSERA_ISA { namespace ipu {

/// Remembers plans: one for each combination of a product, its options and, if it is static, its pattern. A
/// reference to a plan stays good as long as the cache.
class plan_cache {
 public:
  explicit plan_cache(target on) : on_(std::move(on)) { on_.check(); }

  dense_plan const& dense(product_shape const& s, precision of, dense_options const& o = {}) {
    return find(dense_, message(text(s, 0, of), " ", int(o.partials), " ", o.available_memory_proportion),
                [&] { return plan_dense(on_, s, of, o); });
  }
  static_plan const& fixed(product_shape const& s, pattern const& stored, int block, precision of,
                           static_options const& o = {}) {
    return find(static_,
                message(text(s, block, of), " ", stored.serial(), " ", o.available_memory_proportion, " ",
                        o.bands, " ", o.n_split, " ", int(o.enable_preprocessing)),
                [&] { return plan_static(on_, s, stored, block, of, o); });
  }
  dynamic_plan const& dynamic(product_shape const& s, std::int64_t most_blocks, int block, precision of,
                              dynamic_options const& o = {}) {
    return find(
        dynamic_,
        message(text(s, block, of), " ", most_blocks, " ", o.available_memory_proportion, " ", o.oversize,
                " ", int(o.partials), " ", int(o.gradient_of_activations), int(o.gradient_of_weights),
                int(o.optimise_for_speed), int(o.force_bucket_spills), " ", o.x, " ", o.y, " ", o.z),
        [&] { return plan_dynamic(on_, s, most_blocks, block, of, o); });
  }
  std::size_t size() const { return dense_.size() + static_.size() + dynamic_.size(); }

 private:
  static std::string text(product_shape const& s, int block, precision of) {
    return message(s.m, " ", s.k, " ", s.n, " ", s.groups, " ", block, " ", int(of));
  }
  template <class Plan, class Make>
  static Plan const& find(std::map<std::string, Plan>& all, std::string const& key, Make&& make) {
    const auto known = all.find(key);
    return known != all.end() ? known->second : all.emplace(key, make()).first->second;
  }

  target on_;
  std::map<std::string, dense_plan> dense_;
  std::map<std::string, static_plan> static_;
  std::map<std::string, dynamic_plan> dynamic_;
};

}}}  // namespace tessera::TESSERA_ISA::ipu
