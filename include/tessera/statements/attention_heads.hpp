// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>

#include <tessera/core/config.hpp>
#include <tessera/core/error.hpp>

namespace tessera { inline namespace TESSERA_ISA {

/// The heads of an attention: as many of keys and values as of queries, or fewer, each for a group of
/// consecutive heads of queries (grouped-query attention: Ainslie et al. 2023).
struct attention_heads {
  int queries, keys;

  attention_heads(int all) : queries(all), keys(all) {}
  /// Throws option_error.
  attention_heads(int of_queries, int of_keys);

  /// Heads of queries for each of keys.
  int group() const { return queries / keys; }
  /// Heads of queries, keys and values in qkv.
  int all() const { return queries + 2 * keys; }
};

#ifdef TESSERA_BODY

TESSERA_COLD TESSERA_BODY attention_heads::attention_heads(int of_queries, int of_keys)
    : queries(of_queries), keys(of_keys) {
  if (queries >= 1 && keys >= 1 && queries % keys == 0) return;
  int below = std::clamp(keys, 1, std::max(1, queries)), above = below;
  while (queries % below != 0) --below;
  while (above < queries && queries % above != 0) ++above;
  throw option_error(message("[attention] ", queries, " heads of queries and ", keys,
                             " of keys and values: the latter must divide the former: make them ", below,
                             below == above ? message("") : message(" or ", above)));
}

#endif

}}  // namespace tessera::TESSERA_ISA
