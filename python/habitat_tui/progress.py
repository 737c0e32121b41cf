"""Time left and cost of a training that runs, and the same run on other GPUs: what the callbacks log."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any, Callable, Mapping

from ._commands import GPUS, Source, predict

Log = Callable[[Mapping[str, float], int], Any]

_logger = logging.getLogger("habitat_tui")
# Steps before the first that is timed: kernels are loaded and chosen in them.
WARM_UP = 3
# Steps whose times count.
LATEST = 50


class Progress:
    """Counts the steps of a run. `scalars()` are plain numbers by name, for any logger of metrics:

    - `habitat/step_ms`: the median of the last 50 steps, without the first three
    - `habitat/hours_left`, `habitat/hours_total`, if the number of steps is known
    - `habitat/usd_spent`, `habitat/usd_total`, with `price`, US dollars per hour of this machine
    - `habitat/<GPU>/hours`, `habitat/<GPU>/usd`: the whole run on each GPU of `gpus`, as predicted from `source` (a
      profile or anything else that `predict` takes), at the price of its cheapest offer
    """

    def __init__(
        self,
        *,
        price: float | None = None,
        source: Source = None,
        gpus: GPUS = None,
        every: int = 50,
        log: Log | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if gpus is not None and source is None:
            raise ValueError("gpus= needs source=, the recorded step to predict from")
        if every < 1:
            raise ValueError(f"every={every}: log after a number of steps from 1 on")
        self.price, self.source, self.gpus, self.every, self.log = price, source, gpus, every, log
        self.total: int | None = None
        self.done = 0
        self._clock, self._began, self._last, self._seen = clock, clock(), None, 0
        self._times: deque[float] = deque(maxlen=LATEST)
        self._elsewhere: list[Mapping[str, Any]] = []
        self._warned = False

    def begin(self, total: int | None, done: int = 0) -> None:
        """The run begins, at step `done` of `total`."""
        self.total = total if total is not None and total > 0 else None
        self.done, self._began, self._last, self._seen = done, self._clock(), None, 0
        self._times.clear()
        self._warned = False
        if self.source is not None:
            try:
                self._elsewhere = predict(self.source, self.gpus)["predictions"]
            except Exception as error:
                # The training is worth more than its prediction.
                _logger.warning("no predictions for other GPUs: %s", error)

    def step(self, done: int | None = None) -> dict[str, float] | None:
        """A step ended. Returns the scalars, and logs them, after every `every` steps."""
        now = self._clock()
        self.done = self.done + 1 if done is None else done
        self._seen += 1
        if self._last is not None and self._seen > WARM_UP:
            self._times.append(now - self._last)
        self._last = now
        if self._seen % self.every:
            return None
        scalars = self.scalars()
        _logger.info("%s", self)
        if self.log is not None:
            try:
                self.log(scalars, self.done)
            except Exception as error:
                # The training goes on, and so may the log.
                if not self._warned:
                    _logger.warning("log= failed at step %s: %s: %s", self.done, type(error).__name__, error)
                self._warned = True
        return scalars

    def pause(self) -> None:
        """The time until the next step is of something else, such as validation."""
        self._last = None

    def seconds(self) -> float | None:
        """The median time of a step."""
        times = sorted(self._times)
        return times[len(times) // 2] if times else None

    def scalars(self) -> dict[str, float]:
        """Plain numbers by name; unknown ones are left out."""
        found: dict[str, float] = {}
        seconds = self.seconds()
        elapsed = (self._clock() - self._began) / 3600
        if seconds is not None:
            found["habitat/step_ms"] = seconds * 1000
            if self.total is not None:
                left = max(self.total - self.done, 0) * seconds / 3600
                found["habitat/hours_left"] = left
                found["habitat/hours_total"] = elapsed + left
        if self.price is not None:
            found["habitat/usd_spent"] = elapsed * self.price
            if "habitat/hours_total" in found:
                found["habitat/usd_total"] = found["habitat/hours_total"] * self.price
        if self.total is not None:
            for there in self._elsewhere:
                hours = self.total * there["step_time_us"]["mid"] / 3.6e9
                found[f"habitat/{there['gpu']}/hours"] = hours
                offer = there.get("cheapest_offer")
                if offer:
                    found[f"habitat/{there['gpu']}/usd"] = hours * offer["usd_per_gpu_hour"]
        return found

    def __str__(self) -> str:
        now = self.scalars()
        words = [f"step {self.done}" + (f" of {self.total}" if self.total else "")]
        for name, form in (("step_ms", "{:.4g} ms a step"), ("hours_left", "{:.3g} h left")):
            if f"habitat/{name}" in now:
                words.append(form.format(now[f"habitat/{name}"]))
        if "habitat/usd_total" in now:
            words.append(f"${now['habitat/usd_spent']:.2f} of ${now['habitat/usd_total']:.2f}")
        return ", ".join(words)


def to_tensorboard(writer: Any) -> Log:
    """A `log` for a `SummaryWriter` of TensorBoard."""

    def log(scalars: Mapping[str, float], step: int) -> None:
        for name, value in scalars.items():
            writer.add_scalar(name, value, step)

    return log


def to_wandb(run: Any) -> Log:
    """A `log` for a run of Weights & Biases (or the module `wandb`). The step is that of the run."""
    return lambda scalars, step: run.log({**scalars, "habitat/step": step})


def to_mlflow(mlflow: Any) -> Log:
    """A `log` for the module `mlflow`."""
    return lambda scalars, step: mlflow.log_metrics(dict(scalars), step=step)
