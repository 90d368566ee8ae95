# SPDX-License-Identifier: BSD-3-Clause
"""Records a small LLaMA, Mistral and Qwen2 as Hugging Face saves them, their logits, and how PyTorch trains the
LLaMA for 20 steps, for tests/train/pretrained_llama.test.cpp.

    python3 record_llama.py        (PyTorch 2.13, transformers 5.24, CPU; seconds)

llama/ is one file of float32 with an output weight of its own, mistral/ two files of bfloat16, qwen2/ one of
float16 with tied embeddings. llama.safetensors holds ids (70) of one sequence, and NAME.logits (24, vocabulary) of
its last tokens, computed in float32, of these, of the Mistral with a window of 16 tokens, and of the LLaMA with scaled
rotary positions, "linear" and "llama3"; NAME.greedy are the 200 tokens with which the LLaMA and the Mistral with a
window go on with the first ten, if they had 300 positions;
inputs and targets (steps, sequences, context), and the losses (steps) of a training with them: AdamW, decay of
matrices only, no clipping.
"""
import pathlib

import torch
from safetensors.torch import save_file
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM)

here = pathlib.Path(__file__).parent
torch.manual_seed(1)
STEPS = 20
SHAPE = dict(vocab_size=60, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=80)
SCALED = {
    "linear": dict(rope_type="linear", factor=4.0, rope_theta=10000.0),
    "llama3": dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=128, rope_theta=10000.0),
}


def randomise(model):
    """Norms and biases too, so that one in the wrong place is noticed."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(("norm" in name) + 0.2 * torch.randn(parameter.shape))


def logits_of(model):
    with torch.no_grad():
        return model.eval()(ids).logits[0, -24:].contiguous()


ids = torch.randint(0, 60, (1, 70))
recorded = {"ids": ids[0].to(torch.int32)}
llama = LlamaForCausalLM(LlamaConfig(**SHAPE, rms_norm_eps=1e-5))
mistral = MistralForCausalLM(MistralConfig(**SHAPE, sliding_window=None,
                                           rope_parameters=dict(rope_type="default", rope_theta=1e6)))
qwen2 = Qwen2ForCausalLM(Qwen2Config(**SHAPE, tie_word_embeddings=True))
for name, model, dtype, shard in (("llama", llama, torch.float32, "5GB"), ("mistral", mistral, torch.bfloat16, "25KB"),
                                  ("qwen2", qwen2, torch.float16, "5GB")):
    randomise(model)
    model.to(dtype).save_pretrained(here / name, max_shard_size=shard)
    (here / name / "generation_config.json").unlink(missing_ok=True)
    again = type(model).from_pretrained(here / name, dtype=torch.float32)  # model.to() rounds frequencies, too
    recorded[name + ".logits"] = logits_of(again)
windowed = MistralForCausalLM.from_pretrained(here / "mistral", dtype=torch.float32, sliding_window=16,
                                              attn_implementation="eager")
recorded["window.logits"] = logits_of(windowed)
for name, kind, more in (("llama", LlamaForCausalLM, {}), ("window", MistralForCausalLM, dict(sliding_window=16))):
    longer = kind.from_pretrained(here / name.replace("window", "mistral"), dtype=torch.float32,
                                  max_position_embeddings=300, attn_implementation="eager", **more).eval()
    greedy = longer.generate(ids[:, :10], do_sample=False, max_new_tokens=200, pad_token_id=0, eos_token_id=None)
    recorded[name + ".greedy"] = greedy[0, 10:].to(torch.int32).contiguous()
for name, parameters in SCALED.items():
    scaled = LlamaForCausalLM(LlamaConfig(**SHAPE, rms_norm_eps=1e-5, rope_parameters=parameters))
    scaled.load_state_dict(llama.state_dict())
    recorded[name + ".logits"] = logits_of(scaled)

text = torch.randint(0, 60, (STEPS, 2, 21))
for t in range(1, 21):  # a symbol follows from the one before, four times in five
    text[..., t] = torch.where(torch.rand(STEPS, 2) < 0.2, text[..., t], (3 * text[..., t - 1] + 1) % 60)
recorded["inputs"] = text[..., :-1].to(torch.int32).contiguous()
recorded["targets"] = text[..., 1:].to(torch.int32).contiguous()
matrices = [p for p in llama.parameters() if p.dim() == 2]
vectors = [p for p in llama.parameters() if p.dim() == 1]
optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                              lr=3e-3, betas=(0.9, 0.95), eps=1e-8)
losses = []
llama.train()
for step in range(STEPS):
    logits = llama(text[step, :, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[step, :, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
recorded["losses"] = torch.tensor(losses)
save_file(recorded, here / "llama.safetensors")
