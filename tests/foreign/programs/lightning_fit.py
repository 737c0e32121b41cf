# needs: lightning
"""Lightning: validation twice an epoch, gradient clipping, a scheduler, checkpoints."""
import logging
import tempfile
import warnings

import truth
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))

    def training_step(self, batch, index):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("validation", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)]


lightning.seed_everything(0, verbose=False)
data = TensorDataset(torch.randn(240, 16), torch.randint(4, (240,)))
model = Model()
with tempfile.TemporaryDirectory() as folder:
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", default_root_dir=folder, logger=False,
                                val_check_interval=0.5, gradient_clip_val=0.5, enable_progress_bar=False,
                                enable_model_summary=False)
    trainer.fit(model, DataLoader(data, batch_size=12, shuffle=True), DataLoader(data, batch_size=60))
    print("validation %.6f" % trainer.callback_metrics["validation"])
truth.finish(trainer.callback_metrics["loss"], model, steps=60, batch=12)
