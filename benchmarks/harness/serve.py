# SPDX-License-Identifier: BSD-3-Clause
"""The process of a peer in Python: harness/serve.hpp says what it does, harness/problem.hpp what it is given."""

import mmap
import sys
import time

NAMES = "m k n block stored threads row_start cols values x dy y dx dw bytes".split()


class Problem:
    """Views of the shared file as NumPy arrays; `csr()` has the weights value by value."""

    def __init__(self, numpy):
        memory = mmap.mmap(3, 0)
        for name, value in zip(NAMES, numpy.frombuffer(memory, numpy.int64, len(NAMES))):
            setattr(self, name, int(value))
        m, k, n, block = self.m, self.k, self.n, self.block
        shape = (self.stored, block, block) if block else (m, k)

        def at(place, shape, kind=numpy.float32):
            return numpy.frombuffer(memory, kind, int(numpy.prod(shape)), place).reshape(shape)

        self.row_start = at(self.row_start, (m // block + 1 if block else 0,), numpy.int32)
        self.cols = at(self.cols, (self.stored,), numpy.int32)
        self.values, self.dw = at(self.values, shape), at(self.dw, shape)
        self.x, self.dx = at(self.x, (k, n)), at(self.dx, (k, n))
        self.y, self.dy = at(self.y, (m, n)), at(self.dy, (m, n))

    def bsr(self):
        from scipy.sparse import bsr_matrix

        return bsr_matrix((self.values, self.cols, self.row_start), shape=(self.m, self.k))


def serve(prepare):
    """prepare(form) gives who computes, a function that runs once, and one that puts its results in place, or
    returns them as a line. A process begins with one such job, number 0, and may have more."""
    jobs = []

    def add(form):
        try:
            library, run, finish = prepare(form)
            run()
        except Exception as reason:  # whatever it is, `bench` says it and goes on without
            print("cannot", type(reason).__name__ + ":", *str(reason).split("\n")[:1], flush=True)
            return False
        jobs.append((run, finish))
        print("ready", library, flush=True)
        return True

    if not add(sys.argv[1]):
        sys.exit(1)
    for line in iter(sys.stdin.readline, ""):
        command, _, rest = line.rstrip("\n").partition(" ")
        if command == "prepare":
            add(rest)
        elif command == "drop":
            jobs[int(rest)] = None
            print("done", flush=True)
        elif command == "run":
            count, *number = map(int, rest.split())
            run, _ = jobs[number[0] if number else 0]
            start = time.perf_counter_ns()
            for _ in range(count):
                run()
            print(time.perf_counter_ns() - start, flush=True)
        else:
            _, finish = jobs[int(rest or 0)]
            print(finish() or "done", flush=True)
