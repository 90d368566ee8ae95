#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""SparseProp (Nikdan et al. 2023, arXiv 2302.04852): a sparse linear layer forward and backward, as its users
call it (form "layer"), and its two kernels alone, without the transposes around them (form "kernels")."""

import importlib.metadata
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1] / "harness")
import serve


def prepare(form):
    import numpy
    import sparseprop.modules
    import torch
    from sparseprop import backend

    p = serve.Problem(numpy)
    torch.set_num_threads(p.threads)
    torch.set_flush_denormal(True)
    own = lambda array: torch.from_numpy(array.copy())
    bsr = p.bsr()
    library = f"SparseProp {importlib.metadata.version('sparseprop')}, PyTorch {torch.__version__}"
    layer = sparseprop.modules.SparseLinear(own(bsr.toarray()))
    if layer.W_val.numel() != p.values.size:
        raise ValueError("a stored weight is zero")
    indptr, indices = layer.W_idx
    kept = {}

    if form == "kernels":
        x, dy = own(p.x), own(p.dy)
        w = layer.W_val.detach()

        def train():
            y, dx, dw = torch.zeros(p.m, p.n), torch.zeros(p.k, p.n), torch.zeros_like(w)
            backend.sparse_linear_vectorized_forward(x, indptr, indices, w, y)
            backend.sparse_linear_vectorized_backward(x, indptr, indices, w, dy, dx, dw)
            kept.update(y=y, dx=dx, dw=dw)

    else:
        tokens, dy = own(p.x.T).requires_grad_(), own(p.dy.T)

        def train():
            tokens.grad = layer.W_val.grad = None
            y = layer(tokens)
            y.backward(dy)
            kept.update(y=y.detach().T, dx=tokens.grad.T, dw=layer.W_val.grad)

    def finish():
        p.y[:], p.dx[:] = kept["y"].numpy(), kept["dx"].numpy()
        # From CSR's order to that of the blocks.
        order = bsr.copy()
        order.data = numpy.arange(1, bsr.data.size + 1, dtype=numpy.int64).reshape(bsr.data.shape)
        csr = order.tocsr()
        csr.sort_indices()
        p.dw.reshape(-1)[csr.data - 1] = kept["dw"].numpy()

    return library, train, finish


serve.serve(prepare)
