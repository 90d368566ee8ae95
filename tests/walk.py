#!/usr/bin/env python3
"""Counts the headers that run(ctx, y = relu(w * x + b)) runs through: who follows the line from the notation to the
registers has to open each of them. usage: walk.py SOURCE_DIR COMPILER FLAGS…

A header counts if gcov saw a line of it run. The program is compiled for AVX2 on every x86, so that the engine is the same
everywhere. Exits with 77 where there is no gcov of this compiler.
"""

import re
import shutil
import subprocess
import sys
import tempfile

MOST = 41  # it may only shrink: the aim is 24

PROGRAM = """
#include <tessera/tessera.hpp>
extern "C" void __gcov_reset(void);
extern "C" void __gcov_dump(void);
using namespace tessera;
int main() {
  context ctx(2);
  block_sparse_matrix<float, block_shape<16>> w(1024, 768, random_pattern(64, 48, 0.1, 1));
  panel_matrix<float> x(768, 1000), y(1024, 1000);
  feature_vector<float> b(1024);
  __gcov_reset();
  run(ctx, y = relu(w * x + b));
  __gcov_dump();
  _Exit(0);
}
"""


def main():
    source_dir, compiler, *flags = sys.argv[1:]
    if "clang" in compiler:
        print("skipped: this counts with GCC and its gcov")
        return 77
    version = subprocess.run([compiler, "-dumpversion"], capture_output=True, text=True).stdout.split(".")[0].strip()
    gcov = shutil.which(f"gcov-{version}") or shutil.which("gcov")
    machine = subprocess.run([compiler, "-dumpmachine"], capture_output=True, text=True).stdout
    if not gcov:
        print("skipped: gcov is not installed")
        return 77
    with tempfile.TemporaryDirectory() as work:
        with open(f"{work}/walk.cpp", "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        narrow = ["-march=x86-64-v3"] if machine.startswith("x86_64") else []
        subprocess.run([compiler, *flags, *narrow, "-O0", "--coverage", "-DTESSERA_QUIET", "walk.cpp", "-pthread", "-o", "walk"],
                       cwd=work, check=True)
        subprocess.run(["./walk"], cwd=work, check=True)
        counts = subprocess.run([gcov, "-n", "walk.gcda"], cwd=work, check=True, capture_output=True, text=True).stdout
    ran = re.findall(r"File '[^']*include/tessera/([^']*)'\nLines executed:([\d.]+)%", counts)
    entered = sorted(name for name, share in ran if float(share) > 0)
    print(f"run(ctx, y = relu(w * x + b)) runs through {len(entered)} headers of at most {MOST}:\n  " + "\n  ".join(entered))
    if len(entered) < MOST:
        print(f"{source_dir}/tests/walk.py: MOST can shrink to {len(entered)}")
    return 1 if len(entered) > MOST else 0


if __name__ == "__main__":
    sys.exit(main())
