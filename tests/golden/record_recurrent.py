# SPDX-License-Identifier: BSD-3-Clause
"""Records how PyTorch trains a sparse GRU and a sparse LSTM, and language models of them, for 20 steps, for
tests/train/recurrent.test.cpp.

    python3 record_recurrent.py        (PyTorch 2.13, CPU; one thread; seconds)

recurrent.safetensors holds inputs (steps of training, time, series, in) and targets (…, hidden), and for gru and lstm
NAME.initial.PARAMETER, NAME.pattern.PARAMETER.row_start | cols in blocks of 4 x 4 (BSR), NAME.losses (20) and
NAME.final.PARAMETER. The loss is the sum of squared errors over all outputs, divided by the series. SGD at a rate of
0.05; every second step goes on from the state that the one before ended with (truncated back-propagation through
time). Sparse is dense with masks, in double.

The language models, lm_gru and lm_lstm, have two layers and a table of tokens that is the output weight, too. ids
(20, time + 1, series) are their tokens; of series i the first lengths[i] + 1 are read, and each predicts the next. The
loss is the mean cross entropy, AdamW without decay takes a rate of 0.01.
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


def make_sparse(layer, name):
    """Masks of the weights, which are recorded, with the initial values."""
    masks = {}
    for which, weight in layer.named_parameters():
        if which.startswith("weight"):
            starts, columns, masks[which] = pattern(*weight.shape)
            weight.data *= 2 * masks[which]
            recorded[f"{name}.pattern.{which}.row_start"] = starts
            recorded[f"{name}.pattern.{which}.cols"] = columns
    record_parameters(layer, f"{name}.initial")
    return masks


def record_parameters(layer, name):
    for which, value in layer.named_parameters():
        recorded[f"{name}.{which}"] = value.detach().clone()


def step(loss, optimizer, layer, masks):
    optimizer.zero_grad()
    loss.backward()
    for which, mask in masks.items():
        getattr(layer, which).grad *= mask
    optimizer.step()
    return loss.detach()


for name, kind in ("gru", torch.nn.GRU), ("lstm", torch.nn.LSTM):
    layer = kind(inputs, hidden)
    masks = make_sparse(layer, name)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    losses, state = [], None
    for number in range(training_steps):
        y, after = layer(x[number], state if number % 2 else None)
        losses.append(step(((y - targets[number]) ** 2).sum() / series, optimizer, layer, masks))
        state = tuple(s.detach() for s in after) if name == "lstm" else after.detach()
    recorded[f"{name}.losses"] = torch.stack(losses)
    record_parameters(layer, f"{name}.final")

vocabulary = 20
lengths = torch.tensor([6, 6, 6, 5, 5, 4, 4, 2, 1])
ids = torch.randint(vocabulary, (training_steps, time + 1, series))
counted = torch.arange(time)[:, None] < lengths
recorded["ids"], recorded["lengths"] = ids.to(torch.int32), lengths.to(torch.int32)
for name, kind in ("lm_gru", torch.nn.GRU), ("lm_lstm", torch.nn.LSTM):
    layer = kind(hidden, hidden, num_layers=2)
    masks = make_sparse(layer, name)
    ends = torch.nn.ParameterDict({"table": torch.randn(vocabulary, hidden) / 2, "bias": torch.randn(vocabulary) / 4})
    record_parameters(ends, f"{name}.initial")
    optimizer = torch.optim.AdamW([*layer.parameters(), *ends.parameters()], lr=0.01, weight_decay=0)
    losses = []
    for number in range(training_steps):
        y, _ = layer(ends["table"][ids[number, :-1]])
        logits = y @ ends["table"].T + ends["bias"]
        loss = torch.nn.functional.cross_entropy(logits[counted], ids[number, 1:][counted])
        losses.append(step(loss, optimizer, layer, masks))
    recorded[f"{name}.losses"] = torch.stack(losses)
    record_parameters(layer, f"{name}.final")
    record_parameters(ends, f"{name}.final")
save_file(recorded, pathlib.Path(__file__).parent / "recurrent.safetensors")
