// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>

#include <tessera/core/hash.hpp>

namespace hash_test {

using tessera::content_hash;

TEST_CASE("hash: that of a text is the published one, and goes on") {
  CHECK(content_hash("") == 0xcbf29ce484222325u);
  CHECK(content_hash("foobar") == 0x85944171f73967e8u);
  CHECK(content_hash("bar", content_hash("foo")) == content_hash("foobar"));
}

}  // namespace hash_test
