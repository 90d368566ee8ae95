# SPDX-License-Identifier: BSD-3-Clause
"""Records how torch.optim.AdamW and SGD move a matrix and a bias, for tests/train/optimizers/.

    python3 record_optimizers.py        (PyTorch 2.13, CPU; seconds)

optimizers.safetensors, float32, beside this script:

    initial.weight (24, 20), initial.bias (24)
    gradient.I.weight, gradient.I.bias              for I = 0 … 9; step t takes gradient t % 10
    NAME.weight, NAME.bias, NAME.MOMENT.weight, …   after 1000 steps, NAME as in OPTIMIZERS
    clipped.norm (1), clipped.weight, clipped.bias  gradient 0 after clip_grad_norm_ to 0.5

The learning rate of step t is 1e-3 (1 + t % 7). Only the matrix decays.
"""
import pathlib

import numpy
import torch
from safetensors.numpy import save_file

STEPS, GRADIENTS = 1000, 10
OPTIMIZERS = {
    "adamw": (torch.optim.AdamW, {"betas": (0.9, 0.95), "eps": 1e-8}, 0.1,
              {"first_moment": "exp_avg", "second_moment": "exp_avg_sq"}),
    "sgd": (torch.optim.SGD, {"momentum": 0.9}, 0.01, {"momentum": "momentum_buffer"}),
    "nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}, 0.01, {"momentum": "momentum_buffer"}),
}


def main():
    random = numpy.random.default_rng(3)
    shapes = {"weight": (24, 20), "bias": (24,)}

    def draw(scale):
        return {name: (scale * random.standard_normal(shape)).astype(numpy.float32) for name, shape in shapes.items()}

    initial, gradients = draw(0.5), [draw(0.1) for _ in range(GRADIENTS)]
    recorded = {f"initial.{name}": value for name, value in initial.items()}
    for i, gradient in enumerate(gradients):
        recorded |= {f"gradient.{i}.{name}": value for name, value in gradient.items()}

    for optimizer_name, (kind, options, decay, moments) in OPTIMIZERS.items():
        p = {name: torch.tensor(value) for name, value in initial.items()}
        optimizer = kind([{"params": [p["weight"]], "weight_decay": decay}, {"params": [p["bias"]], "weight_decay": 0.0}],
                         lr=1.0, **options)
        for step in range(STEPS):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * (1 + step % 7)
            for name, value in gradients[step % GRADIENTS].items():
                p[name].grad = torch.tensor(value)
            optimizer.step()
        for name, value in p.items():
            recorded[f"{optimizer_name}.{name}"] = value.numpy()
            for ours, theirs in moments.items():
                recorded[f"{optimizer_name}.{ours}.{name}"] = optimizer.state[value][theirs].numpy()

    p = {name: torch.zeros(shape) for name, shape in shapes.items()}
    for name, value in gradients[0].items():
        p[name].grad = torch.tensor(value)
    recorded["clipped.norm"] = torch.nn.utils.clip_grad_norm_(p.values(), 0.5).reshape(1).numpy()
    recorded |= {f"clipped.{name}": value.grad.numpy() for name, value in p.items()}
    save_file(recorded, pathlib.Path(__file__).with_name("optimizers.safetensors"))


if __name__ == "__main__":
    main()
