# SPDX-License-Identifier: BSD-3-Clause
"""Records how Lion, LAMB and LARS move the matrix and the bias of optimizers.safetensors, for
tests/train/optimizers/.

    python3 record_lion_lamb_lars.py        (NumPy; PyTorch 2.13, CPU; pytorch-lamb 1.0.0; seconds)

lion_lamb_lars.safetensors, float32, beside this script: NAME.weight, NAME.bias, NAME.MOMENT.weight, … after 50
steps, whose gradients and rates are those of record_optimizers.py.

    lion                   by the text of the paper, in double, as all but the next
    lamb                   by pytorch-lamb, without bias correction; the norm of the weights is at most 10
    lamb_corrected         with bias correction
    lars                   LARS, whose trust coefficient is 0.5
    lamb_stacked, lars_stacked      of a matrix (24, 20) that is three of 8 rows, with a ratio each

Only the matrix decays, and has a trust ratio.
"""
import pathlib
import sys
import types

import numpy
import torch
from safetensors.numpy import load_file, save_file

STEPS = 50
here = pathlib.Path(__file__)


def lion(w, g, state, rate, step, decay):
    m = state.setdefault("momentum", numpy.zeros_like(w))
    w -= rate * (numpy.sign(0.9 * m + 0.1 * g) + decay * w)
    m[:] = 0.99 * m + 0.01 * g


def norm(x):
    return numpy.sqrt((x * x).sum())


def lamb(w, g, state, rate, step, decay):
    m, v = (state.setdefault(name, numpy.zeros_like(w)) for name in ("first_moment", "second_moment"))
    m[:] = 0.9 * m + 0.1 * g
    v[:] = 0.999 * v + 0.001 * g * g
    u = m / (1 - 0.9 ** step) / (numpy.sqrt(v / (1 - 0.999 ** step)) + 1e-6) + decay * w
    for part in parts(w, state):
        of_w, of_u = min(norm(w[part]), 10), norm(u[part])
        w[part] -= rate * u[part] * (of_w / of_u if of_w > 0 and of_u > 0 else 1)


def lars(w, g, state, rate, step, decay):
    v = state.setdefault("momentum", numpy.zeros_like(w))
    for part in parts(w, state):
        of_w, of_g = norm(w[part]), norm(g[part])
        ratio = 0.5 * of_w / (of_g + decay * of_w) if of_w > 0 and of_g > 0 else 1
        v[part] = 0.9 * v[part] + rate * ratio * (g[part] + decay * w[part])
    w -= v


def parts(w, state):
    """The rows that have a ratio each; every number of a bias has the ratio 1."""
    if w.ndim == 1:
        return []
    return [slice(i, i + state["rows"]) for i in range(0, len(w), state["rows"])]


def without_ratio(optimizer):
    """Of a bias."""
    def step(w, g, state, rate, number, decay):
        if optimizer is lars:
            v = state.setdefault("momentum", numpy.zeros_like(w))
            v[:] = 0.9 * v + rate * g
            w -= v
        elif optimizer is lamb:
            m, v = (state.setdefault(name, numpy.zeros_like(w)) for name in ("first_moment", "second_moment"))
            m[:] = 0.9 * m + 0.1 * g
            v[:] = 0.999 * v + 0.001 * g * g
            w -= rate * m / (1 - 0.9 ** number) / (numpy.sqrt(v / (1 - 0.999 ** number)) + 1e-6)
        else:
            optimizer(w, g, state, rate, number, 0)
    return step


def in_double(inputs, optimizer, decay, rows=24):
    recorded = {}
    for name, of, its_decay in (("weight", optimizer, decay), ("bias", without_ratio(optimizer), 0)):
        w, state = inputs[f"initial.{name}"].astype(float), {"rows": rows}
        for step in range(STEPS):
            of(w, inputs[f"gradient.{step % 10}.{name}"].astype(float), state, 1e-3 * (1 + step % 7), step + 1, its_decay)
        recorded[name] = w
        recorded |= {f"{moment}.{name}": value for moment, value in state.items() if moment != "rows"}
    return recorded


def by_pytorch_lamb(inputs, decay):
    sys.modules["tensorboardX"] = types.SimpleNamespace(SummaryWriter=None)
    from pytorch_lamb import Lamb
    recorded = {}
    for name, its_decay, adam in (("weight", decay, False), ("bias", 0, True)):
        w = torch.tensor(inputs[f"initial.{name}"])
        optimizer = Lamb([w], lr=1.0, weight_decay=its_decay, adam=adam)
        for step in range(STEPS):
            optimizer.param_groups[0]["lr"] = 1e-3 * (1 + step % 7)
            w.grad = torch.tensor(inputs[f"gradient.{step % 10}.{name}"])
            optimizer.step()
        recorded[name] = w.numpy()
        for ours, theirs in (("first_moment", "exp_avg"), ("second_moment", "exp_avg_sq")):
            recorded[f"{ours}.{name}"] = optimizer.state[w][theirs].numpy()
    return recorded


def main():
    inputs = load_file(here.with_name("optimizers.safetensors"))
    all_recorded = {
        "lion": in_double(inputs, lion, 0.1),
        "lamb": by_pytorch_lamb(inputs, 0.1),
        "lamb_corrected": in_double(inputs, lamb, 0.1),
        "lars": in_double(inputs, lars, 0.01),
        "lamb_stacked": in_double(inputs, lamb, 0.1, rows=8),
        "lars_stacked": in_double(inputs, lars, 0.01, rows=8),
    }
    save_file({f"{name}.{tensor}": value.astype(numpy.float32)
               for name, recorded in all_recorded.items() for tensor, value in recorded.items()},
              here.with_name("lion_lamb_lars.safetensors"))


if __name__ == "__main__":
    main()
