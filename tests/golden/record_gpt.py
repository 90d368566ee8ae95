# SPDX-License-Identifier: BSD-3-Clause
"""Records how PyTorch trains three small transformers for 20 steps, for tests/train/trajectory.test.cpp.

    python3 record_gpt.py        (PyTorch 2.13, CPU; one thread, deterministic; seconds)

Each model becomes two files beside this script. NAME.safetensors holds

    initial.PARAMETER                          float32; (outputs, inputs), embeddings (symbols, hidden)
    pattern.BLOCK.PARAMETER.row_start | cols   int32, in blocks (BSR)
    inputs, targets                            int32 (steps, sequences, context); -1: not in the loss
    lengths                                    int32 (steps, sequences), of the encoder; the rest is padding

and NAME.json the settings and, for the dense model and each block size, 20 losses, 20 norms of the gradient
before clipping, and the norms of the final parameters. All is computed in float32. Sparse is dense with
masks: weights and gradients are zero outside the pattern, so clipping sees live entries only.

The GPTs are nanoGPT's (pre-norm, causal), the encoder is BERT's (post-norm, bidirectional, key padding, loss
on masked positions) without segments. All: erf GELU, norms with epsilon 1e-5, output tied to the token
embedding, scores / sqrt(head size), decay of matrices only; q, k and v in this order in qkv, head after head
in each.
"""
import json
import math
import pathlib

import numpy
import torch
from safetensors.numpy import save
from torch.nn.functional import cross_entropy, gelu, layer_norm, linear

STEPS = 20
DENSITY = 0.3
OPTIMIZER = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1,
             "clip": 1.0}
MODELS = {
    "gpt_bias": {"kind": "gpt", "bias": True, "vocabulary": 27, "hidden": 32, "heads": 2, "layers": 2,
                 "context": 16, "sequences": 4, "blocks": [16, 8, 4, 1]},
    "gpt_no_bias": {"kind": "gpt", "bias": False, "vocabulary": 27, "hidden": 48, "heads": 3, "layers": 2,
                    "context": 24, "sequences": 3, "blocks": [16, 8, 4, 1]},
    "encoder": {"kind": "encoder", "bias": True, "vocabulary": 29, "hidden": 40, "heads": 2, "layers": 2,
                "context": 24, "sequences": 5, "blocks": [16, 4]},
}
SPARSE = ("attention.qkv.weight", "attention.out.weight", "mlp.up.weight", "mlp.down.weight")


def initial_parameters(settings, random):
    """Larger than one would train from, biases too, so that every part of the model has a say in the loss."""
    hidden, vocabulary = settings["hidden"], settings["vocabulary"]
    parameters = {}

    def add(name, *shape, mean=0.0, deviation=0.1):
        parameters[name] = (mean + deviation * random.standard_normal(shape)).astype(numpy.float32)

    def add_linear(name, outputs, inputs):
        add(name + ".weight", outputs, inputs, deviation=1 / math.sqrt(inputs))
        if settings["bias"]:
            add(name + ".bias", outputs)

    def add_norm(name):
        add(name + ".weight", hidden, mean=1.0)
        if settings["bias"]:
            add(name + ".bias", hidden)

    add("token_embedding", vocabulary, hidden)
    add("position_embedding", settings["context"], hidden)
    if settings["kind"] == "encoder":
        add_norm("embedding_norm")
    for layer in range(settings["layers"]):
        block = f"block.{layer}."
        add_norm(block + "norm1")
        add_linear(block + "attention.qkv", 3 * hidden, hidden)
        add_linear(block + "attention.out", hidden, hidden)
        add_norm(block + "norm2")
        add_linear(block + "mlp.up", 4 * hidden, hidden)
        add_linear(block + "mlp.down", hidden, 4 * hidden)
    if settings["kind"] == "encoder":
        add_linear("head.transform", hidden, hidden)
        add_norm("head.norm")
        add("head.bias", vocabulary)
    else:
        add_norm("final_norm")
    return parameters


def random_patterns(blocks, parameters, random):
    """For each block size and sparse parameter a mask in blocks; those at the edges may stick out."""
    def mask(shape, block):
        grid = [-(-extent // block) for extent in shape]
        blocks = math.prod(grid)
        chosen = random.permutation(blocks) < max(1, round(DENSITY * blocks))
        return chosen.reshape(grid)

    sparse = {name: value.shape for name, value in parameters.items() if name.endswith(SPARSE)}
    return {block: {name: mask(shape, block) for name, shape in sparse.items()} for block in blocks}


def compressed(mask):
    starts = numpy.concatenate([[0], numpy.cumsum(mask.sum(axis=1))])
    return {"row_start": starts.astype(numpy.int32), "cols": numpy.nonzero(mask)[1].astype(numpy.int32)}


def expanded(mask, block, shape):
    whole = numpy.repeat(numpy.repeat(mask, block, axis=0), block, axis=1)
    return torch.from_numpy(whole[:shape[0], :shape[1]].astype(numpy.float32))


def sequences(random, symbols, shape):
    """Each symbol follows from the one before, four times in five."""
    text = random.integers(symbols, size=shape)
    surprises = random.random(shape) < 0.2
    for t in range(1, shape[-1]):
        text[..., t] = numpy.where(surprises[..., t], text[..., t], (3 * text[..., t - 1] + 1) % symbols)
    return text.astype(numpy.int32)


def batches(settings, random):
    shape = (STEPS, settings["sequences"], settings["context"])
    if settings["kind"] == "gpt":
        text = sequences(random, settings["vocabulary"], (*shape[:2], shape[2] + 1))
        return {"inputs": text[..., :-1].copy(), "targets": text[..., 1:].copy()}
    # The last two symbols stand for a masked token and for padding.
    mask_symbol, padding = settings["vocabulary"] - 2, settings["vocabulary"] - 1
    text = sequences(random, mask_symbol, shape)
    lengths = random.integers(shape[2] // 3, shape[2] + 1, size=shape[:2]).astype(numpy.int32)
    lengths[:, 0] = shape[2]
    inside = numpy.arange(shape[2]) < lengths[..., None]
    selected = inside & (random.random(shape) < 0.25)
    selected[..., 0] |= ~selected.any(axis=2)
    inputs = numpy.where(inside, numpy.where(selected, mask_symbol, text), padding)
    targets = numpy.where(selected, text, -1)
    return {"inputs": inputs.astype(numpy.int32), "targets": targets.astype(numpy.int32), "lengths": lengths}


def loss_of(settings, p, inputs, targets, lengths):
    """Mean cross-entropy over the targets that are not -1."""
    def affine(name, x):
        return linear(x, p[name + ".weight"], p.get(name + ".bias"))

    def norm(name, x):
        return layer_norm(x, x.shape[-1:], p[name + ".weight"], p.get(name + ".bias"), 1e-5)

    context = inputs.shape[1]
    if settings["kind"] == "gpt":
        visible = torch.ones(context, context, dtype=torch.bool).tril()
    else:
        visible = (torch.arange(context) < lengths[:, None])[:, None, None, :]

    def attention(name, x):
        q, k, v = (part.unflatten(2, (settings["heads"], -1)).transpose(1, 2)
                   for part in affine(name + ".qkv", x).chunk(3, dim=2))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
        weights = scores.masked_fill(~visible, -math.inf).softmax(dim=3)
        return affine(name + ".out", (weights @ v).transpose(1, 2).flatten(2))

    def mlp(name, x):
        return affine(name + ".down", gelu(affine(name + ".up", x)))

    x = p["token_embedding"][inputs] + p["position_embedding"][:context]
    if settings["kind"] == "encoder":
        x = norm("embedding_norm", x)
    for layer in range(settings["layers"]):
        block = f"block.{layer}."
        if settings["kind"] == "gpt":
            x = x + attention(block + "attention", norm(block + "norm1", x))
            x = x + mlp(block + "mlp", norm(block + "norm2", x))
        else:
            x = norm(block + "norm1", x + attention(block + "attention", x))
            x = norm(block + "norm2", x + mlp(block + "mlp", x))
    if settings["kind"] == "gpt":
        x = norm("final_norm", x)
    else:
        x = norm("head.norm", gelu(affine("head.transform", x)))
    logits = linear(x, p["token_embedding"], p.get("head.bias"))
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)


def train(settings, parameters, masks, data, dtype=torch.float32):
    p = {name: torch.tensor(value, dtype=dtype) for name, value in parameters.items()}
    for name, mask in masks.items():
        p[name] *= mask
    for value in p.values():
        value.requires_grad_()
    matrices = {"params": [value for value in p.values() if value.dim() == 2],
                "weight_decay": OPTIMIZER["weight_decay"]}
    vectors = {"params": [value for value in p.values() if value.dim() == 1], "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([matrices, vectors], lr=OPTIMIZER["learning_rate"],
                                  betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]), eps=OPTIMIZER["epsilon"])
    losses, gradient_norms = [], []
    for step in range(STEPS):
        inputs, targets = (torch.from_numpy(data[name][step]).long() for name in ("inputs", "targets"))
        lengths = torch.from_numpy(data["lengths"][step]) if "lengths" in data else None
        loss = loss_of(settings, p, inputs, targets, lengths)
        optimizer.zero_grad()
        loss.backward()
        for name, mask in masks.items():
            p[name].grad *= mask
        gradient_norms.append(torch.nn.utils.clip_grad_norm_(p.values(), OPTIMIZER["clip"]).item())
        losses.append(loss.item())
        optimizer.step()
        with torch.no_grad():
            for name, mask in masks.items():
                p[name] *= mask
    return {"losses": losses, "gradient_norms": gradient_norms,
            "final_norms": {name: value.detach().double().norm().item() for name, value in p.items()}}


def record(name, seed, folder):
    settings = MODELS[name]
    random = numpy.random.Generator(numpy.random.PCG64(seed))
    parameters = initial_parameters(settings, random)
    patterns = random_patterns(settings["blocks"], parameters, random)
    data = batches(settings, random)

    tensors = dict(data)
    tensors.update({"initial." + parameter: value for parameter, value in parameters.items()})
    trajectories = {}
    for block in [None, *settings["blocks"]]:
        of_block = patterns.get(block, {})
        label = f"{block}x{block}" if block else "dense"
        for parameter, mask in of_block.items():
            for part, index in compressed(mask).items():
                tensors[f"pattern.{label}.{parameter}.{part}"] = index
        masks = {parameter: expanded(mask, block, parameters[parameter].shape)
                 for parameter, mask in of_block.items()}
        trajectories[label] = train(settings, parameters, masks, data)
        # What rounding alone does to a trajectory: the test's tolerance must lie well above.
        exact = train(settings, parameters, masks, data, torch.float64)
        apart = max(abs(a - b) for a, b in zip(trajectories[label]["losses"], exact["losses"]))
        norms = trajectories[label]["gradient_norms"]
        print(f"{name} {label}: loss {exact['losses'][0]:.4f} to {exact['losses'][-1]:.4f}, float64 differs"
              f" by {apart:.1e}, gradient norm {min(norms):.3f} to {max(norms):.3f}")

    (folder / f"{name}.safetensors").write_bytes(save(tensors))
    recorded = {"model": settings, "optimizer": OPTIMIZER, "steps": STEPS, "torch": torch.__version__,
                "trajectories": trajectories}
    (folder / f"{name}.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for seed, name in enumerate(MODELS):
        record(name, seed, pathlib.Path(__file__).parent)
