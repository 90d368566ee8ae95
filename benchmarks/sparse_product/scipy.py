#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""SciPy: W W of a sparse W, in CSR and in BSR. It has one thread."""

import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1] / "harness")
import serve


def prepare(form):
    import numpy
    import scipy

    p = serve.Problem(numpy)
    if p.threads > 1:
        raise ValueError("its product of sparse matrices has one thread")
    w = p.bsr() if form == "bsr product" else p.bsr().tocsr()
    kept = {}

    def multiply():
        kept["c"] = w @ w

    def finish():
        p.y[:] = kept["c"].toarray()

    return f"SciPy {scipy.__version__}", multiply, finish


serve.serve(prepare)
