# SPDX-License-Identifier: BSD-3-Clause
"""Records a small GPT-2 and a small BERT as Hugging Face saves them, and their logits, for
tests/train/pretrained.test.cpp.

    python3 record_pretrained.py        (PyTorch 2.13, transformers 5.24, CPU; seconds)

gpt2/ and bert/ hold config.json and model.safetensors; pretrained.safetensors holds, for each, ids (tokens),
segments (tokens) of BERT, and logits (tokens, vocabulary) of one sequence; and of the same BERT with a head for
next sentences (BertForPreTraining) that head, and its logits (1, 2).
"""
import pathlib

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, GPT2Config, GPT2LMHeadModel

here = pathlib.Path(__file__).parent
torch.manual_seed(1)


def randomise(model):
    """Norms and biases too, so that one in the wrong place is noticed."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            one = 1.0 if "ln_" in name or "LayerNorm.weight" in name else 0.0
            parameter.copy_(one * name.endswith("weight") + 0.2 * torch.randn(parameter.shape))


gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=24, n_embd=32, n_layer=2, n_head=4)).eval()
bert = BertForMaskedLM(
    BertConfig(
        vocab_size=40,
        max_position_embeddings=24,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )
).eval()
ids = torch.randint(0, 40, (1, 19))
segments = (torch.arange(19) > 8).long().unsqueeze(0)
recorded = {}
for name, model in ("gpt2", gpt2), ("bert", bert):
    randomise(model)
    model.save_pretrained(here / name)
    (here / name / "generation_config.json").unlink(missing_ok=True)
    extra = {"token_type_ids": segments} if name == "bert" else {}
    with torch.no_grad():
        recorded[name + ".logits"] = model(ids, **extra).logits[0].contiguous()
recorded["ids"] = ids[0].to(torch.int32)
recorded["segments"] = segments[0].to(torch.int32)
both = BertForPreTraining(bert.config).eval()
randomise(both)
both.load_state_dict(bert.state_dict(), strict=False)
with torch.no_grad():
    out = both(ids, token_type_ids=segments)
assert torch.equal(out.prediction_logits[0], recorded["bert.logits"])
recorded["bert.next"] = out.seq_relationship_logits.contiguous()
for name, tensor in both.state_dict().items():
    if "pooler" in name or "seq_relationship" in name:
        recorded[name] = tensor.contiguous()
save_file(recorded, here / "pretrained.safetensors")
