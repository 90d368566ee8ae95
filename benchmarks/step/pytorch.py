#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Training steps of dense models in PyTorch on the CPU: forward, backward, optimizer; in float, or with the
forward pass under autocast to bfloat16.

  gpt         pre-norm blocks with causal attention, a tied output, no dropout; AdamW
  bert        post-norm layers with attention in both directions, dropout, the input's gradient included; AdamW
  bert model  embeddings, such layers, and the head for 15 % of the tokens, tied to the embedding; AdamW
  mlp         an epoch of 784-m-k-10 with relu on MNIST (or random images), batches of 100; SGD with momentum

Prints a record as `bench step` does. With --serve it is a contestant of `bench`: it says "ready", and then
makes one step (or epoch) for every line it reads and answers with a number: the loss of gpt and of
bert model, the mean square of bert's result, the mean loss of mlp.
"""

import argparse
import gzip
import json
import os
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, PIXELS, CLASSES, BATCH = 256, 784, 10, 100
BERT_VOCABULARY, BERT_POSITIONS, BERT_SEGMENTS = 30522, 512, 2


def attend(qkv, heads, causal):
    batch, context, width = qkv.shape
    q, k, v = (part.view(batch, context, heads, -1).transpose(1, 2) for part in qkv.split(width // 3, dim=2))
    attended = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return attended.transpose(1, 2).reshape(batch, context, width // 3)


class Block(nn.Module):
    """Pre-norm: x + attention(norm(x)), then x + mlp(norm(x)). Post-norm: norm(x + attention(x)), then
    norm(x + mlp(x)), with dropout of what is added."""

    def __init__(self, hidden, heads, causal, dropout):
        super().__init__()
        self.heads, self.causal, self.dropout = heads, causal, dropout
        self.norm1 = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.projection = nn.Linear(hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden)
        self.mlp_in = nn.Linear(hidden, 4 * hidden)
        self.mlp_out = nn.Linear(4 * hidden, hidden)

    def attention(self, x):
        return self.drop(self.projection(attend(self.qkv(x), self.heads, self.causal)))

    def mlp(self, x):
        return self.drop(self.mlp_out(F.gelu(self.mlp_in(x))))

    def drop(self, x):
        return F.dropout(x, self.dropout) if self.dropout > 0 else x


class PreNormBlock(Block):
    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PostNormBlock(Block):
    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class GPT(nn.Module):
    """Learned positions, output tied to the token embedding."""

    def __init__(self, context, hidden, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, hidden)
        self.positions = nn.Embedding(context, hidden)
        self.blocks = nn.Sequential(*(PreNormBlock(hidden, heads, True, 0) for _ in range(layers)))
        self.norm = nn.LayerNorm(hidden)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def autocast(o):
    return torch.autocast("cpu", torch.bfloat16, enabled=o.element == "bfloat16")


def gpt_step(o):
    context, heads = min(o.n, 512), max(1, o.m // 64)
    model = GPT(context, o.m, heads, o.k)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    tokens = torch.randint(VOCABULARY, (o.n // context, context + 1))

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast(o):
            logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    # As in benchmarks/step/step.hpp: products with weights, and causal attention.
    return step, 6 * o.n * (12 * o.m**2 * o.k + VOCABULARY * o.m + o.k * context * o.m)


def bert_step(o):
    context, heads = min(o.n, 128), max(1, o.m // 64)
    model = nn.Sequential(*(PostNormBlock(o.m, heads, False, 0.1) for _ in range(o.k)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x = (2 * torch.rand(o.n // context, context, o.m) - 1).requires_grad_()
    dy = 1e-4 * (2 * torch.rand(o.n // context, context, o.m) - 1)
    mean_square = []

    def step():
        optimizer.zero_grad(set_to_none=True)
        x.grad = None
        with autocast(o):
            y = model(x)
        y.backward(dy)
        optimizer.step()
        if not mean_square:  # after the first step it is no part of the work
            mean_square.append(y.detach().square().mean().item())
        return mean_square[0]

    return step, 6 * o.n * (12 * o.m**2 * o.k + 2 * o.k * context * o.m)


class BERT(nn.Module):
    def __init__(self, hidden, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(BERT_VOCABULARY, hidden)
        self.positions = nn.Embedding(BERT_POSITIONS, hidden)
        self.segments = nn.Embedding(BERT_SEGMENTS, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.blocks = nn.Sequential(*(PostNormBlock(hidden, heads, False, 0.1) for _ in range(layers)))
        self.transform = nn.Linear(hidden, hidden)
        self.head_norm = nn.LayerNorm(hidden)
        self.bias = nn.Parameter(torch.zeros(BERT_VOCABULARY))
        for embedding in (self.tokens, self.positions, self.segments):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, tokens, predicted):
        """Logits of the tokens at these places of the batch; the others never meet the vocabulary."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]] + self.segments.weight[0]
        x = self.blocks(F.dropout(self.norm(x), 0.1)).flatten(0, 1)[predicted]
        return F.linear(self.head_norm(F.gelu(self.transform(x))), self.tokens.weight, self.bias)


def bert_model_step(o):
    context, heads, count = min(o.n, 128), max(1, o.m // 64), o.n * 15 // 100
    model = BERT(o.m, heads, o.k)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(BERT_VOCABULARY, (o.n // context, context))
    predicted = torch.arange(count) * o.n // count
    targets = torch.randint(BERT_VOCABULARY, (count,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        with autocast(o):
            logits = model(tokens, predicted)
        loss = F.cross_entropy(logits, targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    layers = o.n * (12 * o.m**2 * o.k + 2 * o.k * context * o.m)
    return step, 6 * (layers + count * (o.m**2 + BERT_VOCABULARY * o.m))


def digits(count):
    """Images (count, 784) from 0 to 1 and labels."""
    folder = os.path.join(os.environ.get("TESSERA_DATA", "data"), "mnist")
    try:
        with gzip.open(os.path.join(folder, "train-images-idx3-ubyte.gz")) as file:
            pixels = torch.frombuffer(bytearray(file.read()[16:]), dtype=torch.uint8).view(-1, PIXELS)
        with gzip.open(os.path.join(folder, "train-labels-idx1-ubyte.gz")) as file:
            labels = torch.frombuffer(bytearray(file.read()[8:]), dtype=torch.uint8)
        return pixels[:count].float() / 255, labels[:count].long()
    except FileNotFoundError:  # a prototype of each digit, and noise
        labels = torch.randint(CLASSES, (count,))
        return (torch.rand(CLASSES, PIXELS)[labels] + torch.rand(count, PIXELS)) / 2, labels


def mlp_step(o):
    model = nn.Sequential(
        nn.Linear(PIXELS, o.m), nn.ReLU(), nn.Linear(o.m, o.k), nn.ReLU(), nn.Linear(o.k, CLASSES)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    images, labels = digits(o.n)

    def epoch():
        order = torch.randperm(o.n)
        total = torch.zeros(())
        for first in range(0, o.n - BATCH + 1, BATCH):
            chosen = order[first : first + BATCH]
            optimizer.zero_grad(set_to_none=True)
            with autocast(o):
                scores = model(images[chosen])
            loss = F.cross_entropy(scores, labels[chosen])
            loss.backward()
            optimizer.step()
            total += loss.detach()
        return total.item() / (o.n // BATCH)

    return epoch, o.n // BATCH * BATCH * (4 * PIXELS * o.m + 6 * o.m * o.k + 6 * o.k * CLASSES)


def main():
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--model", choices=("gpt", "bert", "bert model", "mlp"), default="gpt")
    options.add_argument("-m", type=int, help="hidden size, of the mlp the first (512, 768, 768, 1024)")
    options.add_argument("-k", type=int, help="layers, of the mlp the second hidden size (8, 1, 12, 512)")
    options.add_argument("-n", type=int, help="tokens, of the mlp images (4096, 4096, 4096, 60000)")
    options.add_argument("--element", choices=("float", "bfloat16"), default="float")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--serve", action="store_true")
    o = options.parse_args()
    m, k, n = {
        "gpt": (512, 8, 4096),
        "bert": (768, 1, 4096),
        "bert model": (768, 12, 4096),
        "mlp": (1024, 512, 60000),
    }[o.model]
    o.m, o.k, o.n = o.m or m, o.k or k, o.n or n

    torch.set_num_threads(o.threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    step, flops = {
        "gpt": gpt_step,
        "bert": bert_step,
        "bert model": bert_model_step,
        "mlp": mlp_step,
    }[o.model](o)

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
    print(
        json.dumps(
            {
                "question": "step",
                "contestant": "PyTorch " + torch.__version__,
                "operation": o.model,
                "m": o.m,
                "k": o.k,
                "n": o.n,
                "density": 1.0,
                "block": "dense",
                "element": o.element,
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
