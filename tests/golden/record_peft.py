# SPDX-License-Identifier: BSD-3-Clause
"""Records adapters of the small GPT-2 and BERT of record_pretrained.py as PEFT saves them, and the logits of
the models with them, for tests/train/peft.test.cpp.

    python3 record_peft.py        (PyTorch 2.13, transformers 5.24, peft 0.21, CPU; seconds)

peft_gpt2/ and peft_bert/ hold adapter_config.json and adapter_model.safetensors; peft.safetensors holds logits
(tokens, vocabulary) of each, for the ids and segments of pretrained.safetensors.
"""
import pathlib
import shutil

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import BertForMaskedLM, GPT2LMHeadModel

here = pathlib.Path(__file__).parent
torch.manual_seed(1)
sequence = load_file(here / "pretrained.safetensors")
ids, segments = (sequence[name].long().unsqueeze(0) for name in ("ids", "segments"))
recorded = {}
for name, base, extra, config in (
    (
        "gpt2",
        GPT2LMHeadModel,
        {},
        LoraConfig(
            r=3,
            lora_alpha=5,
            use_rslora=True,
            fan_in_fan_out=True,
            task_type="CAUSAL_LM",
            target_modules=["c_attn", "c_proj"],
        ),
    ),
    (
        "bert",
        BertForMaskedLM,
        {"token_type_ids": segments},
        LoraConfig(r=3, lora_alpha=5, target_modules=["query", "value", "intermediate.dense"]),
    ),
):
    model = base.from_pretrained(here / name).eval()
    model.name_or_path = name  # not that of a folder of this machine
    model = get_peft_model(model, config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(0.3 * torch.randn(parameter.shape))
        recorded[name + ".logits"] = model(ids, **extra).logits[0].contiguous()
    folder = here / ("peft_" + name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
save_file(recorded, here / "peft.safetensors")
