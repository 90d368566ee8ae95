#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""llama.cpp, by llama-cpp-python, in Q8_0: weights of 8 bits with a scale for each 32. decoding.hpp says what is
computed, and gives the shape as JSON. The model is a GGUF file of random weights in a temporary folder."""

import json
import pathlib
import sys
import tempfile
from types import SimpleNamespace

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1] / "harness")
import serve


def write_model(numpy, gguf, o, path):
    """Q8_0 matrices with the standard deviation that such models begin with, 0.02."""
    random = numpy.random.default_rng(1)
    to = gguf.GGUFWriter(path, o.model)
    to.add_context_length(o.context)
    to.add_embedding_length(o.hidden)
    to.add_block_count(o.layers)
    to.add_feed_forward_length(o.inner)
    to.add_head_count(o.heads)
    to.add_head_count_kv(o.key_heads)
    to.add_vocab_size(o.vocabulary)
    to.add_tokenizer_model("none")

    def matrix(name, rows, cols):
        blocks = numpy.empty((rows, cols // 32, 34), numpy.uint8)
        blocks[:, :, :2] = numpy.array([0.02 / 73], numpy.float16).view(numpy.uint8)  # uniform in ±127
        blocks[:, :, 2:] = random.integers(-127, 128, (rows, cols // 32, 32), numpy.int8).view(numpy.uint8)
        to.add_tensor(name + ".weight", blocks.reshape(rows, -1), raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    def vector(name, value, size):
        to.add_tensor(name, numpy.full(size, value, numpy.float32))

    hidden, keys, biased = o.hidden, o.hidden // o.heads * o.key_heads, o.model == "gpt2"

    def linear(name, rows, cols):
        matrix(name, rows, cols)
        if biased:
            vector(name + ".bias", 0, rows)

    def norm(name):
        vector(name + ".weight", 1, hidden)
        if biased:
            vector(name + ".bias", 0, hidden)

    matrix("token_embd", o.vocabulary, hidden)
    if biased:
        to.add_layer_norm_eps(1e-5)
        table = 0.02 * random.standard_normal((o.context, hidden), numpy.float32)
        to.add_tensor("position_embd.weight", table)
    else:
        to.add_layer_norm_rms_eps(1e-6)
        to.add_rope_dimension_count(hidden // o.heads)
        matrix("output", o.vocabulary, hidden)
    norm("output_norm")
    for layer in range(o.layers):
        at = f"blk.{layer}."
        norm(at + "attn_norm")
        if biased:
            linear(at + "attn_qkv", 3 * hidden, hidden)
        else:
            linear(at + "attn_q", hidden, hidden)
            linear(at + "attn_k", keys, hidden)
            linear(at + "attn_v", keys, hidden)
            linear(at + "ffn_gate", o.inner, hidden)
        linear(at + "attn_output", hidden, hidden)
        norm(at + "ffn_norm")
        linear(at + "ffn_up", o.inner, hidden)
        linear(at + "ffn_down", hidden, o.inner)
    to.write_header_to_file()
    to.write_kv_data_to_file()
    to.write_tensors_to_file()
    to.close()


def prepare(form):
    import gguf
    import llama_cpp as lib
    import numpy

    o = SimpleNamespace(**json.loads(form))
    lib.llama_backend_init()
    silent = lib.llama_log_callback(lambda level, text, data: None)
    lib.llama_log_set(silent, None)
    of = lib.llama_model_default_params()
    of.n_gpu_layers = 0
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/model.gguf"
        write_model(numpy, gguf, o, path)
        model = lib.llama_load_model_from_file(path.encode(), of)
    if not model:
        raise RuntimeError("the model was not loaded")
    of = lib.llama_context_default_params()
    length = o.cached + o.passes
    of.n_seq_max, of.n_ctx = o.tokens, o.tokens * o.context
    of.n_batch = of.n_ubatch = 512
    of.n_threads = of.n_threads_batch = o.threads
    context = lib.llama_init_from_model(model, of)
    memory = lib.llama_get_memory(context)
    ids = numpy.random.default_rng(2).integers(0, o.vocabulary, (o.tokens, length), numpy.int32)
    batch = lib.llama_batch_init(512, 0, 1)
    kept = {"length": 0}

    def append(count):
        """As many tokens to each text."""
        end = kept["length"] + count
        places = [(text, at) for text in range(o.tokens) for at in range(kept["length"], end)]
        for first in range(0, len(places), 512):
            part = places[first : first + 512]
            for i, (text, at) in enumerate(part):
                batch.token[i], batch.pos[i], batch.logits[i] = int(ids[text, at]), at, at + 1 == end
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, text
            batch.n_tokens = len(part)
            if lib.llama_decode(context, batch) != 0:
                raise RuntimeError("llama_decode failed")
        kept["length"] = end
        kept["logits"] = lib.llama_get_logits_ith(context, -1)  # of the last text

    append(o.cached)

    def run():
        if kept["length"] == length:
            for text in range(o.tokens):
                lib.llama_memory_seq_rm(memory, text, o.cached, -1)
            kept["length"] = o.cached
        append(1)

    def logits():
        return numpy.ctypeslib.as_array(kept["logits"], (o.vocabulary,)).copy()

    def finish():
        got, at = logits(), kept["length"]
        lib.llama_memory_clear(memory, True)
        kept["length"] = 0
        append(at)
        right = logits()
        difference = numpy.linalg.norm(got - right) / numpy.linalg.norm(right)
        return f"{difference} {lib.llama_model_n_params(model)}"

    features = lib.llama_print_system_info().decode()
    cpu = [name for name in ("AVX2", "AVX512", "NEON") if f"{name} = 1" in features]
    return f"llama.cpp of llama-cpp-python {lib.__version__}, Q8_0, {' '.join(cpu)}", run, finish


serve.serve(prepare)
