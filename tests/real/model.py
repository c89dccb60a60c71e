# SPDX-License-Identifier: Apache-2.0
"""Makes a model of random weights that vLLM serves on a CPU: model.py KIND TOKENIZER_DIR OUT.  Run by the engine's own Python.

tiny: a Qwen2 of 2 layers and 128 wide, whose prefill takes milliseconds.  slow: 8 layers and 512 wide, whose prefill of 1,000
tokens takes a second or two on one core, so that what a cache saves can be seen by the eye.  window: a Gemma3 of 4 layers, two
of which see 64 tokens back.  adapter-N: a LoRA adapter for tiny, other weights for each N.
"""
import json
import pathlib
import shutil
import sys

from safetensors.torch import save_file
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Qwen2Config, Qwen2ForCausalLM

COMMON = {"vocab_size": 151936, "max_position_embeddings": 4096, "tie_word_embeddings": True, "bos_token_id": 151643,
          "eos_token_id": 151645}


def qwen(hidden, layers, heads, inner):
    return Qwen2ForCausalLM(Qwen2Config(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
                                        num_key_value_heads=heads, intermediate_size=inner, **COMMON))


def gemma():
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "full_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(hidden_size=128, num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=2,
                                              head_dim=64, intermediate_size=256, sliding_window=64, layer_types=kinds, **COMMON))


KINDS = {"tiny": lambda: qwen(128, 2, 2, 256), "slow": lambda: qwen(512, 8, 8, 2048), "window": gemma}


def adapter(out, seed):
    torch.manual_seed(seed)
    out.mkdir(exist_ok=True)
    part = "base_model.model.model.layers.{}.self_attn.{}.lora_{}.weight"
    weights = {}
    for layer in range(2):
        for name in ("q_proj", "v_proj"):
            weights[part.format(layer, name, "A")] = torch.randn(8, 128) * 0.1
            weights[part.format(layer, name, "B")] = torch.randn(128, 8) * 0.1
    save_file(weights, out / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "bias": "none",
              "task_type": "CAUSAL_LM", "base_model_name_or_path": "tiny"}
    (out / "adapter_config.json").write_text(json.dumps(config))


def main():
    kind, tokenizer, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    if kind.startswith("adapter-"):
        adapter(out, int(kind.split("-")[1]))
        return
    torch.manual_seed(1)
    KINDS[kind]().to(torch.bfloat16).save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer / name, out / name)


main()
