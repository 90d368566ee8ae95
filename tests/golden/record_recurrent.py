# SPDX-License-Identifier: BSD-3-Clause
"""Records how PyTorch trains a sparse GRU and a sparse LSTM for 20 steps, for tests/train/recurrent.test.cpp.

    python3 record_recurrent.py        (PyTorch 2.13, CPU; one thread; seconds)

recurrent.safetensors holds inputs (steps of training, time, series, in) and targets (…, hidden), and for gru and lstm
NAME.initial.PARAMETER, NAME.pattern.PARAMETER.row_start | cols in blocks of 4 x 4 (BSR), NAME.losses (20) and
NAME.final.PARAMETER. The loss is the sum of squared errors over all outputs, divided by the series. SGD at a rate of
0.05; every second step goes on from the state that the one before ended with (truncated back-propagation through
time). Sparse is dense with masks, in double.
"""
import pathlib

import torch
from safetensors.torch import save_file

torch.manual_seed(1)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
training_steps, time, series, inputs, hidden, block = 20, 6, 9, 8, 12, 4
# Numbers of float, so that the file is small.
x = torch.randn(training_steps, time, series, inputs).float().double()
targets = torch.tanh(torch.cumsum(x, dim=1)[..., :1] * torch.linspace(-1, 1, hidden)).float().double()
recorded = {"inputs": x.float(), "targets": targets.float()}


def pattern(rows, cols):
    mask = torch.rand(rows // block, cols // block) < 0.5
    mask[0, 0] = True
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), mask.sum(1).cumsum(0)]).to(torch.int32)
    columns = mask.nonzero()[:, 1].to(torch.int32)
    return starts, columns, mask.repeat_interleave(block, 0).repeat_interleave(block, 1).double()


for name, kind in ("gru", torch.nn.GRU), ("lstm", torch.nn.LSTM):
    layer = kind(inputs, hidden)
    masks = {}
    for which in "weight_ih_l0", "weight_hh_l0":
        weight = getattr(layer, which)
        starts, columns, masks[which] = pattern(*weight.shape)
        weight.data *= 2 * masks[which]
        recorded[f"{name}.pattern.{which}.row_start"] = starts
        recorded[f"{name}.pattern.{which}.cols"] = columns
    for which, value in layer.named_parameters():
        recorded[f"{name}.initial.{which}"] = value.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    losses, state = [], None
    for step in range(training_steps):
        y, after = layer(x[step], state if step % 2 else None)
        loss = ((y - targets[step]) ** 2).sum() / series
        optimizer.zero_grad()
        loss.backward()
        for which, mask in masks.items():
            getattr(layer, which).grad *= mask
        optimizer.step()
        losses.append(loss.detach())
        state = tuple(s.detach() for s in after) if name == "lstm" else after.detach()
    recorded[f"{name}.losses"] = torch.stack(losses)
    for which, value in layer.named_parameters():
        recorded[f"{name}.final.{which}"] = value.detach().clone()
save_file(recorded, pathlib.Path(__file__).parent / "recurrent.safetensors")
