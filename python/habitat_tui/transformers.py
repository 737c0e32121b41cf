"""A callback for the `Trainer` of Hugging Face: `Trainer(callbacks=[HabitatCallback(price=2.5)])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from .progress import Progress


class HabitatCallback(TrainerCallback):  # type: ignore[misc]
    """Adds time left and cost to what the trainer logs. Keywords are those of `Progress`; `log=` hands the numbers
    to a logger as well, such as `to_tensorboard(writer)`: reporters of the trainer come before callbacks."""

    def __init__(self, **options: Any) -> None:
        self.progress = Progress(**options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The number of steps is known."""
        if state.is_world_process_zero:
            self.progress.begin(state.max_steps, state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step ended."""
        if state.is_world_process_zero:
            self.progress.step(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """The history and the line that is printed have the numbers too."""
        if state.is_world_process_zero and logs is not None and "loss" in logs:
            scalars = self.progress.scalars()
            logs.update(scalars)
            if state.log_history:
                state.log_history[-1].update(scalars)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The next step is not timed."""
        self.progress.pause()
