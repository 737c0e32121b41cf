# needs: transformers
"""A GPT-2 of a tiny configuration under the Trainer: evaluation every few steps, accumulation, saving."""
import tempfile

import truth
import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


class Text(torch.utils.data.Dataset):
    def __init__(self, count):
        self.words = torch.randint(200, (count, 24))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.words[index]}


set_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=200, n_positions=32, n_embd=48, n_layer=2, n_head=4,
                                   bos_token_id=0, eos_token_id=0))
with tempfile.TemporaryDirectory() as folder:
    options = TrainingArguments(output_dir=folder, max_steps=40, per_device_train_batch_size=4,
                                gradient_accumulation_steps=2, eval_strategy="steps", eval_steps=12, save_steps=20,
                                logging_steps=10, report_to=[], use_cpu=True, seed=0)
    trainer = Trainer(model=model, args=options, train_dataset=Text(400), eval_dataset=Text(24))
    result = trainer.train()
    lines = [(entry["step"], round(entry[key], 6)) for entry in trainer.state.log_history
             for key in ("loss", "eval_loss") if key in entry]
print(lines)
truth.finish(result.training_loss, model, steps=40, batch=8)
