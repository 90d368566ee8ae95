# SPDX-License-Identifier: BSD-3-Clause
"""Writes files with NumPy and SciPy for tests/io/numpy.test.cpp to read (`write FOLDER`), and reads those that
it wrote (`check FOLDER`)."""
import gzip
import sys

import numpy as np
import scipy.io
import scipy.sparse

folder = sys.argv[2] + "/"
numbers = np.arange(60).reshape(6, 10)
dtypes = ["f4", "f8", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"]
matrix = np.zeros((24, 32), dtype=np.float32)
rows, cols = [3, 3, 20, 23, 7], [0, 31, 17, 30, 9]
matrix[rows, cols] = [1.5, -2, 3.25, 1e-30, 4]


def write():
    for dtype in dtypes:
        np.save(folder + dtype + ".npy", numbers.astype(dtype))
    np.save(folder + "columns.npy", np.asfortranarray(numbers.astype("f4")))
    np.save(folder + "cube.npy", np.asfortranarray(np.arange(24, dtype="f4").reshape(2, 3, 4)))
    np.save(folder + "scalar.npy", np.float32(7))
    np.save(folder + "empty.npy", np.zeros((0, 5), dtype="f4"))
    np.save(folder + "big_endian.npy", numbers.astype(">f4"))
    np.save(folder + "text.npy", np.array(["a", "b"]))
    np.save(folder + "record.npy", np.zeros(3, dtype=[("a", "f4"), ("b", "i4")]))
    random = np.random.default_rng(1)
    many = {"numbers": numbers, "noise": random.standard_normal(100_000), "zeros": np.zeros(300_000, dtype="f4"),
            "bytes": random.integers(0, 4, 70_000).astype("u1")}
    np.savez(folder + "stored.npz", **many)
    np.savez_compressed(folder + "deflated.npz", **many)
    for make in (scipy.sparse.csr_matrix, scipy.sparse.csc_matrix, scipy.sparse.coo_matrix):
        scipy.sparse.save_npz(folder + make(matrix).format + ".npz", make(matrix))
    scipy.sparse.save_npz(folder + "bsr.npz", scipy.sparse.bsr_matrix(matrix, blocksize=(4, 4)))
    scipy.sparse.save_npz(folder + "bsr8.npz", scipy.sparse.bsr_matrix(matrix, blocksize=(8, 8)), compressed=False)
    scipy.sparse.save_npz(folder + "dia.npz", scipy.sparse.dia_matrix(np.eye(4)))
    scipy.io.mmwrite(folder + "coordinate.mtx", scipy.sparse.coo_matrix(matrix), comment="a comment")
    scipy.io.mmwrite(folder + "array.mtx", matrix)
    symmetric = np.array([[1, 2, 0], [2, 0, 5], [0, 5, -3]], dtype=float)
    scipy.io.mmwrite(folder + "symmetric.mtx", scipy.sparse.coo_matrix(symmetric), symmetry="symmetric")
    scipy.io.mmwrite(folder + "integer.mtx", scipy.sparse.coo_matrix(symmetric.astype(int)), symmetry="general")
    with gzip.open(folder + "packed.mtx.gz", "wb") as packed:
        scipy.io.mmwrite(packed, scipy.sparse.coo_matrix(symmetric))
    scipy.io.mmwrite(folder + "unsigned.mtx", scipy.sparse.coo_matrix(np.abs(symmetric).astype("u4")))
    np.savez(folder + "mixed.npz", big=numbers.astype(">f4"), record=np.zeros(3, dtype=[("a", "f4"), ("b", "i4")]),
             objects=np.array([None, {}], dtype=object), complex=np.zeros(2, dtype=complex), numbers=numbers)


def check():
    for dtype in dtypes:
        if dtype != "u8":
            again = np.load(folder + "our_" + dtype + ".npy")
            assert again.dtype == dtype and np.array_equal(again, numbers.astype(dtype)), dtype
    half = np.load(folder + "our_bfloat16.npy")
    assert half.dtype == np.float32 and np.array_equal(half, numbers), half
    both = np.load(folder + "our.npz")
    assert set(both.files) == {"x", "v"} and np.array_equal(both["x"], numbers) and both["v"].shape == (10,)
    assert np.array_equal(np.load(folder + "our_matrix.npy"), matrix)
    assert np.array_equal(np.load(folder + "our_tokens.npy"), matrix)
    for name, format in (("our_bsr", "bsr"), ("our_csr", "csr"), ("our_overhang", "csr")):
        again = scipy.sparse.load_npz(folder + name + ".npz")
        again.check_format()
        assert again.format == format and np.array_equal(again.toarray(), matrix), name
    assert np.array_equal(scipy.io.mmread(folder + "our.mtx").toarray().astype("f4"), matrix)


{"write": write, "check": check}[sys.argv[1]]()
