#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""transformers on PyTorch, in float: decoding.hpp says what is computed, and gives the shape as JSON."""

import json
import pathlib
import sys
from types import SimpleNamespace

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1] / "harness")
import serve


def configured(transformers, o):
    if o.model == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=o.vocabulary, n_positions=o.context, n_embd=o.hidden, n_layer=o.layers, n_head=o.heads,
            n_inner=o.inner,
        )  # fmt: skip
        return transformers.GPT2LMHeadModel(config)
    config = transformers.LlamaConfig(
        vocab_size=o.vocabulary, max_position_embeddings=o.context, hidden_size=o.hidden, num_hidden_layers=o.layers,
        num_attention_heads=o.heads, num_key_value_heads=o.key_heads, intermediate_size=o.inner,
        tie_word_embeddings=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def prepare(form):
    import torch
    import transformers

    o = SimpleNamespace(**json.loads(form))
    torch.set_flush_denormal(True)
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    model = configured(transformers, o).eval()
    texts, length = (1, o.tokens) if o.prefill else (o.tokens, o.cached + o.passes)
    ids = torch.randint(o.vocabulary, (texts, length))
    kept = {}

    def begin():
        kept["cache"] = transformers.DynamicCache(config=model.config)
        if not o.prefill:
            append(o.cached)

    def append(count):
        at = kept["cache"].get_seq_length()
        of = model(ids[:, at : at + count], past_key_values=kept["cache"], use_cache=True, logits_to_keep=1)
        kept["logits"] = of.logits

    def run():
        torch.set_num_threads(o.threads)  # of several models in one process
        if o.prefill:
            begin()
        elif kept["cache"].get_seq_length() == length:
            kept["cache"].crop(-o.passes)
        append(o.tokens if o.prefill else 1)

    def finish():
        right = model(ids[:, : kept["cache"].get_seq_length()], use_cache=False, logits_to_keep=1).logits
        difference = (kept["logits"] - right).norm() / right.norm()
        return f"{difference} {sum(p.numel() for p in model.parameters())}"

    torch.set_num_threads(o.threads)
    begin()

    library = f"transformers {transformers.__version__}, PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    return library, run, finish


serve.serve(prepare)
