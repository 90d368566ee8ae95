# SPDX-License-Identifier: BSD-3-Clause
"""Records how a small network trains whose two linear layers multiply numbers of 8 bits with delayed scaling, for
tests/train/quantised_trajectory.test.cpp.

    python3 record_quantised.py     (PyTorch 2.13, CPU; seconds)

PyTorch rounds (torch.float8_e4m3fn, torch.float8_e5m2, and torch.round for int8, in which gradients of activations
stay float); the recipe is written out here: a scale is the greatest of the last 16 largest absolute values ÷ the
largest number of the format, 1 before the first step; that of a weight is of the present weight. Values are float,
sums of products double.

y = W₂ relu(W₁ x + b₁) + b₂, half the squared distance from the first half of x less the second half, SGD at a rate of
0.2 of the mean gradient, whose norm is clipped to 1. W₁ (24, 16) is stored in 8 of 24 blocks of 4 x 4, W₂ (8, 24) is
dense. A step has two micro-batches of 16 tokens. In step 8 x is 2000 times as large as before, which saturates; the
scales remember it until step 24.

float8.safetensors, int8.safetensors: x (steps, micro-batches, features, tokens), initial.PARAMETER and final.PARAMETER,
pattern.row_start and pattern.cols of W₁ (BSR), losses (steps), history.LAYER.x | dy (16).
"""
import pathlib

import torch
from safetensors.torch import save_file

STEPS, MICRO_BATCHES, TOKENS, IN, HIDDEN, OUT, BLOCK, HISTORY = 30, 2, 16, 16, 24, 8, 4, 16
# Of weights and activations, and of the gradients of activations.
KINDS = {"float8": (torch.float8_e4m3fn, torch.float8_e5m2), "int8": (torch.int8, None)}


def largest(kind):
    return 127 if kind == torch.int8 else torch.finfo(kind).max


def scale_of(amax, kind):
    return amax / largest(kind) if kind and amax > 0 else torch.tensor(1.0)


def rounded(value, scale, kind):
    if kind is None:
        return value
    if kind == torch.int8:
        return (value * (1 / scale)).round().clamp(-128, 127)
    most = largest(kind)
    return (value * (1 / scale)).clamp(-most, most).to(kind).float()


def product(a, b):
    return (a.double() @ b.double()).float()


class Linear:
    def __init__(self, rows, cols, mask, kinds):
        self.kind, self.gradient_kind = kinds
        self.mask = mask
        self.weight = (torch.rand(rows, cols) - 0.5) * mask
        self.bias = torch.rand(rows) - 0.5
        self.history = {"x": torch.zeros(HISTORY), "dy": torch.zeros(HISTORY)}
        self.begin()

    def begin(self):
        """A step: scales, and gradients and measurements of zero."""
        self.sw = scale_of(self.weight.abs().max(), self.kind)
        self.w8 = rounded(self.weight, self.sw, self.kind)
        self.sx = scale_of(self.history["x"].max(), self.kind)
        self.sdy = scale_of(self.history["dy"].max(), self.gradient_kind)
        self.dweight, self.dbias = torch.zeros_like(self.weight), torch.zeros_like(self.bias)
        self.amax = {"x": torch.tensor(0.0), "dy": torch.tensor(0.0)}

    def forward(self, x):
        return self.sx * self.sw * product(self.w8, rounded(x, self.sx, self.kind)) + self.bias[:, None]

    def backward(self, x, dy):
        self.amax["x"] = torch.maximum(self.amax["x"], x.abs().max())
        self.amax["dy"] = torch.maximum(self.amax["dy"], dy.abs().max())
        dy8 = rounded(dy, self.sdy, self.gradient_kind)
        self.dweight += product(self.sx * self.sdy * dy8, rounded(x, self.sx, self.kind).T) * self.mask
        self.dbias += dy.sum(1)
        return self.sdy * self.sw * product(self.w8.T, dy8)

    def end(self):
        for name, history in self.history.items():
            self.history[name] = torch.cat([self.amax[name][None], history[:-1]])


def record(precision):
    kinds = KINDS[precision]
    torch.manual_seed(5)
    blocks = torch.rand(HIDDEN // BLOCK, IN // BLOCK) < 0.5
    mask = blocks.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1).float()
    up, down = Linear(HIDDEN, IN, mask, kinds), Linear(OUT, HIDDEN, torch.ones(OUT, HIDDEN), kinds)
    size = torch.tensor([2000.0 if step == 8 else 1 + 0.3 * (step % 5) for step in range(STEPS)])
    x = torch.randn(STEPS, MICRO_BATCHES, IN, TOKENS) * size[:, None, None, None]
    target = x[:, :, :OUT] - x[:, :, OUT:]
    recorded = {"x": x}

    def keep(when):
        for name, layer in {"up": up, "down": down}.items():
            recorded[f"{when}.{name}.weight"] = layer.weight.clone()
            recorded[f"{when}.{name}.bias"] = layer.bias.clone()

    keep("initial")
    recorded["pattern.row_start"] = torch.cat([torch.zeros(1), blocks.sum(1).cumsum(0)]).to(torch.int32)
    recorded["pattern.cols"] = blocks.nonzero()[:, 1].to(torch.int32)
    losses = []
    for step in range(STEPS):
        loss, tokens = 0.0, MICRO_BATCHES * TOKENS
        for layer in (up, down):
            layer.begin()
        for batch in range(MICRO_BATCHES):
            here = x[step, batch]
            z = up.forward(here)
            h = z.relu()
            e = down.forward(h) - target[step, batch]
            loss += float(e.double().square().sum()) / 2
            up.backward(here, down.backward(h, e) * (z > 0))
        gradients = [g for layer in (up, down) for g in (layer.dweight, layer.dbias)]
        norm = torch.cat([g.flatten() for g in gradients]).double().norm() / tokens
        factor = min(1.0, 1 / (float(norm) + 1e-6)) / tokens
        for layer in (up, down):
            layer.weight -= 0.2 * factor * layer.dweight
            layer.bias -= 0.2 * factor * layer.dbias
            layer.end()
        losses.append(loss / tokens)
    keep("final")
    recorded["losses"] = torch.tensor(losses, dtype=torch.float64)
    for name, layer in {"up": up, "down": down}.items():
        for of, history in layer.history.items():
            recorded[f"history.{name}.{of}"] = history
    save_file(recorded, pathlib.Path(__file__).with_name(f"{precision}.safetensors"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    for precision in KINDS:
        record(precision)
