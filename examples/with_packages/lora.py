"""Fine-tunes a tiny Llama of transformers with peft's LoRA. It says `import torch`, so start it with the drop-in:

    python -m mindtorch_v2 examples/with_packages/lora.py      (needs transformers and peft; downloads nothing)
"""

from __future__ import annotations

import argparse

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="npu")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    base = LlamaForCausalLM(LlamaConfig(vocab_size=64, num_key_value_heads=2, max_position_embeddings=64, **sizes))
    model = get_peft_model(base, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])).to(args.device)
    trained = [p for p in model.parameters() if p.requires_grad]
    print(f"{sum(p.numel() for p in trained):,} of {sum(p.numel() for p in model.parameters()):,} parameters are trained")
    optimizer = torch.optim.AdamW(trained, lr=1e-2)
    tokens = torch.arange(32).repeat(4, 1).add(torch.arange(4)[:, None]).remainder(64).to(args.device)  # counts up
    losses = []
    for _ in range(args.steps):
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f} on {args.device}")


if __name__ == "__main__":
    main()
