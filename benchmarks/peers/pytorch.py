#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch: the product W x dense, in CSR and in BSR, and a dense linear layer forward and backward."""

import pathlib
import sys
import warnings

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1] / "harness")
import serve


def prepare(form):
    import numpy
    import torch

    warnings.filterwarnings("ignore")  # that sparse tensors are in beta
    p = serve.Problem(numpy)
    torch.set_num_threads(p.threads)
    torch.set_flush_denormal(True)
    own = lambda array: torch.from_numpy(array.copy())
    x, y = own(p.x), own(p.y)
    library = f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"

    if form == "dense layer":
        layer = torch.nn.Linear(p.k, p.m, bias=False)
        layer.weight.data.copy_(own(p.values))
        tokens, dy = x.T.contiguous().requires_grad_(), own(p.dy.T)
        kept = {}

        def train():
            tokens.grad = layer.weight.grad = None
            kept["y"] = layer(tokens)
            kept["y"].backward(dy)

        def finish():
            p.y[:] = kept["y"].detach().numpy().T
            p.dx[:] = tokens.grad.numpy().T
            p.dw[:] = layer.weight.grad.numpy()

        return library, train, finish

    if form == "dense":
        w = own(p.values)
    elif form == "bsr":
        w = torch.sparse_bsr_tensor(own(p.row_start), own(p.cols), own(p.values), (p.m, p.k))
    else:
        csr = p.bsr().tocsr()
        csr.sort_indices()
        w = torch.sparse_csr_tensor(own(csr.indptr), own(csr.indices), own(csr.data), (p.m, p.k))

    def multiply():
        torch.mm(w, x, out=y)

    def finish_product():
        p.y[:] = y.numpy()

    return library, multiply, finish_product


serve.serve(prepare)
