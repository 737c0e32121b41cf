# needs: peft transformers
"""LoRA on a frozen model of a tiny configuration."""
import truth
import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
base = GPT2LMHeadModel(GPT2Config(vocab_size=150, n_positions=32, n_embd=48, n_layer=2, n_head=4,
                                  bos_token_id=0, eos_token_id=0))
model = get_peft_model(base, LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn"], task_type="CAUSAL_LM",
                                        fan_in_fan_out=True))
model.print_trainable_parameters()
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
model.train()
for step in range(40):
    words = torch.randint(150, (6, 20))
    loss = model(input_ids=words, labels=words).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
truth.finish(loss, model, steps=40, batch=6)
