"""A callback for Lightning: `Trainer(callbacks=[HabitatCallback(price=2.5)])`."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from .progress import Progress


class HabitatCallback(Callback):
    """Logs time left and cost to the loggers of the trainer. Keywords are those of `Progress`."""

    def __init__(self, **options: Any) -> None:
        self.progress = Progress(**options)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Counts optimizer steps, as `global_step` does."""
        total = trainer.estimated_stepping_batches
        if trainer.is_global_zero:
            self.progress.begin(int(total) if total != float("inf") else None, trainer.global_step)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """With accumulation, several batches are a step."""
        if not trainer.is_global_zero or trainer.global_step == self.progress.done:
            return
        scalars = self.progress.step(trainer.global_step)
        for logger in trainer.loggers if scalars else ():
            logger.log_metrics(scalars, step=trainer.global_step)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """The next step is not timed."""
        self.progress.pause()
