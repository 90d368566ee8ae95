#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A training step of a dense GPT in PyTorch on the CPU, in float: forward, backward, AdamW.

Prints a record as `bench step` does. With --serve it is a contestant of `bench`: it says "ready", and then
makes one step for every line it reads and answers with the loss.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    """Pre-norm: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.projection = nn.Linear(hidden, hidden)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.mlp_in = nn.Linear(hidden, 4 * hidden)
        self.mlp_out = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, context, hidden = x.shape
        q, k, v = (
            part.view(batch, context, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.attention_norm(x)).split(hidden, dim=2)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, context, hidden))
        return x + self.mlp_out(F.gelu(self.mlp_in(self.mlp_norm(x))))


class GPT(nn.Module):
    """Learned positions, output tied to the token embedding."""

    def __init__(self, vocabulary, context, hidden, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(context, hidden)
        self.blocks = nn.Sequential(*(Block(hidden, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--hidden", type=int, default=512)
    options.add_argument("--layers", type=int, default=8)
    options.add_argument("--heads", type=int, default=8)
    options.add_argument("--context", type=int, default=512)
    options.add_argument("--vocabulary", type=int, default=256)
    options.add_argument("--tokens", type=int, default=4096)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--serve", action="store_true")
    o = options.parse_args()

    torch.set_num_threads(o.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    model = GPT(o.vocabulary, o.context, o.hidden, o.heads, o.layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(o.vocabulary, (o.tokens // o.context, o.context + 1))

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, o.vocabulary), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    if o.serve:
        print("ready", flush=True)
        for _ in sys.stdin:
            print(step(), flush=True)
        return

    step()
    times = []
    for _ in range(o.rounds):
        start = time.perf_counter_ns()
        step()
        times.append(time.perf_counter_ns() - start)
    quartiles = statistics.quantiles(times, method="inclusive") if o.rounds > 1 else [times[0]] * 3
    # As in benchmarks/step/step.hpp: products with weights, and causal attention.
    weights = 12 * o.hidden**2 * o.layers + o.vocabulary * o.hidden
    flops = 6 * o.tokens * (weights + o.layers * o.context * o.hidden)
    print(
        json.dumps(
            {
                "question": "step",
                "contestant": "PyTorch " + torch.__version__,
                "operation": "step",
                "m": o.hidden,
                "k": o.layers,
                "n": o.tokens,
                "density": 1.0,
                "block": "dense",
                "element": "float",
                "threads": o.threads,
                "time_ns": quartiles[1],
                "time_ns_quartiles": [quartiles[0], quartiles[2]],
                "useful_gflops": flops / quartiles[1],
                "rounds": o.rounds,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
