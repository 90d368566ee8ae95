// SPDX-License-Identifier: BSD-3-Clause
#include <csignal>
#include <string>

#include <doctest/doctest.h>

#include "pretrain_programs.hpp"

namespace pretrain_8_bits_test {

// --precision float8 and int8: 16x16 blocks, which every build has.

#if defined(PRETRAIN) && defined(GENERATE) && defined(FILL_MASK) && defined(FREEZE) && defined(FINETUNE)

using namespace pretrain_programs;

void check_resumed(std::string const& precision) {
  const workplace here;
  const std::string options = "--only sparse --precision " + precision;
  const outcome whole = shell(here.pretrain("whole", options));
  CHECK(whole.code == 0);
  CHECK(contains(whole, "validation loss at the end"));
  const outcome first = terminate(here.pretrain("parts", options + " --checkpoint-every 1"),
                                  here.in("runs/parts/sparse/step-*"));
  CHECK(first.code == 128 + SIGTERM);
  CHECK(shell(here.resume("parts", "--threads 1")).code == 0);
  const std::string last = "/sparse/step-00000060";
  CHECK(same_tensors(here.in("runs/whole") + last, here.in("runs/parts") + last));

  CHECK(shell(here.pretrain("wide", "--only sparse")).code == 0);
  CHECK(!same_tensors(here.in("runs/wide") + last, here.in("runs/whole") + last));

  const outcome text = shell(here.generate("whole", "2>/dev/null"));
  CHECK(text.code == 0);
  CHECK(shell(FREEZE " --checkpoint " + here.in("runs/whole") + " --out " + here.in("runs/frozen")).code ==
        0);
  CHECK(shell(here.generate("frozen", "2>/dev/null")).output == text.output);
}

TEST_CASE("pretrain: in 8-bit floats a run that was ended and resumed has the same bits, and is read") {
  check_resumed("float8");
}
TEST_CASE("pretrain: in 8-bit integers a run that was ended and resumed has the same bits, and is read") {
  check_resumed("int8");
}

TEST_CASE("pretrain: BERT learns in 8-bit floats, and what needs floats says so") {
  const workplace here;
  const std::string options = "--model bert --vocabulary 300 --steps 4 --updates 2 --precision float8";
  CHECK(shell(here.pretrain("bert", options)).code == 0);
  const outcome guess = shell(FILL_MASK " --checkpoint " + here.in("runs/bert") + " --text 'of 1[MASK]'");
  CHECK(guess.code == 0);
  CHECK(
      shell(here.pretrain("timed", "--only dense --steps 0 --updates 0 --time 2s --precision float8")).code ==
      0);

  const outcome rnn = shell(here.pretrain("rnn", "--model rnn --precision float8"));
  CHECK(rnn.code == 2);
  CHECK(contains(rnn, "[--precision] float8: --model rnn computes in float"));
  put(here.in("classes.tsv"), "one\tof 1\ntwo\tof 2\none\tof 1 the\ntwo\tof 2 the\n");
  const outcome tuned =
      shell(FINETUNE " --checkpoint " + here.in("runs/bert/dense/step-00000004") + " --train " +
            here.in("classes.tsv") + " --validation " + here.in("classes.tsv"));
  CHECK(tuned.code == 0);
  CHECK(contains(tuned, "epoch  4  loss 0."));
}

#endif

}  // namespace pretrain_8_bits_test
