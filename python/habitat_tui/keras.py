"""A callback for Keras: `model.fit(…, callbacks=[HabitatCallback(price=2.5), keras.callbacks.TensorBoard()])`."""

from __future__ import annotations

from typing import Any

import keras

from .progress import Progress


class HabitatCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Adds time left and cost to the logs of each epoch, which callbacks after it see. Keywords are those of
    `Progress`."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.progress = Progress(**options)

    def on_train_begin(self, logs: Any = None) -> None:
        """A data set of unknown length has no number of steps until its first epoch ends."""
        steps = self.params.get("steps")
        self.progress.begin(steps * self.params["epochs"] if steps else None)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """A step ended."""
        self.progress.step()

    def on_test_begin(self, logs: Any = None) -> None:
        """The next step is not timed."""
        self.progress.pause()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Callbacks after this one log the numbers."""
        if self.progress.total is None:
            self.progress.total = self.progress.done * self.params["epochs"] // (epoch + 1)
        self.progress.pause()
        if logs is not None:
            logs.update(self.progress.scalars())
