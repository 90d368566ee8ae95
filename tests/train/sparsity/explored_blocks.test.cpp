// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>
#include <io/scratch_folder.hpp>

#include <tessera/core/random.hpp>
#include <tessera/io/json_parser.hpp>
#include <tessera/tensor/pattern_algebra.hpp>
#include <tessera/tensor/pattern_sources.hpp>
#include <tessera/train/sparsity/explored_blocks.hpp>

namespace explored_blocks_test {

using namespace tessera;

TEST_CASE("explored blocks: the fraction counts each block once") {
  train::explored_blocks explored;
  CHECK(explored.fraction() == 1);
  const pattern a = random_pattern(9, 17, 0.3, random_stream(1, random_purpose::test)),
                b = random_pattern(9, 17, 0.3, random_stream(2, random_purpose::test));
  explored.mark("a", a);
  CHECK(explored.fraction() == doctest::Approx(a.density()));
  explored.mark("a", a);
  CHECK(explored.fraction() == doctest::Approx(a.density()));
  explored.mark("a", b);
  CHECK(explored.fraction() == doctest::Approx((a | b).density()));
  explored.mark("dense", pattern::dense(3, 5));
  CHECK(explored.fraction() == doctest::Approx(double((a | b).blocks() + 15) / (9 * 17 + 15)));
}

TEST_CASE("explored blocks: JSON brings all bits back") {
  train::explored_blocks explored;
  explored.mark("some", random_pattern(9, 17, 0.3, random_stream(1, random_purpose::test)));
  explored.mark("all", pattern::dense(8, 16));
  const std::string text = io::to_text(explored.to_json());
  const io::json read = io::parse_json(text);
  CHECK(train::explored_blocks::from_json(io::json_place(read)) == explored);

  const io::json wrong = io::parse_json(R"({"w": {"blocks": 65, "ever": [1]}})");
  CHECK(error_of<io_error>([&] {
          train::explored_blocks::from_json(io::json_place(wrong));
        }).find("w.ever") != std::string::npos);
  const io::json beyond = io::parse_json(R"({"w": {"blocks": 1, "ever": [3]}})");
  CHECK(error_of<io_error>([&] {
          train::explored_blocks::from_json(io::json_place(beyond));
        }).find("marks blocks beyond the 1 of the matrix") != std::string::npos);
  explored.mark("some", pattern::dense(1, 1));
  explored.mark("all", pattern::dense(8, 16));
  CHECK(explored.fraction() == 1);
}

}  // namespace explored_blocks_test
