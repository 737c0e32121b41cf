"""Steps from PyTorch objects, the handler of its profiler, and callbacks of trainers."""

import json
import logging
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from unittest import mock

import torch
import torch.nn.functional as F

import habitat_tui
from habitat_tui.progress import Progress, to_tensorboard

SHAPES = pathlib.Path(__file__).parent.parent / "fixtures/shapes/mlp.py"


class Net(torch.nn.Module):
    """Two layers that share weights, and integer input."""

    def __init__(self, width=64):
        super().__init__()
        self.embed = torch.nn.Embedding(100, width)
        self.hidden = torch.nn.Linear(width, width)
        self.out = torch.nn.Linear(width, 100, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids):
        return self.out(F.relu(self.hidden(self.embed(ids))).mean(1))


def build(batch_size=32, width=64):
    model = Net(width)
    ids = torch.randint(0, 100, (batch_size, 16))
    labels = torch.randint(0, 100, (batch_size,))
    return model, ids, torch.optim.Adam(model.parameters()), lambda output: F.cross_entropy(output, labels)


def loss(output):
    return output.sum()


class Steps(unittest.TestCase):
    def test_a_model_is_the_step_of_its_function(self):
        function = habitat_tui.trace_shapes(f"{__file__}:build", batch_size=8)
        model = Net()
        inputs = torch.randint(0, 100, (8, 16))
        optimizer = torch.optim.Adam(model.parameters())
        traced = habitat_tui.trace_shapes(model, inputs=inputs, optimizer=optimizer, loss=loss)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        for profile in (function, traced):
            self.assertEqual(profile.facts["workload"]["parameter_count"], parameters)
            self.assertEqual(profile.facts["workload"]["batch_size"], 8)
        # The loss differs; the products and the memory of the weights are the same.
        self.assertEqual(traced.facts["flops"], function.facts["flops"])
        for kind in ("parameters_bytes", "gradients_bytes", "optimizer_state_bytes"):
            self.assertEqual(traced.facts["memory"][kind], function.facts["memory"][kind], kind)
        inference = habitat_tui.trace_shapes(model, inputs=inputs)
        self.assertEqual(inference.facts["workload"]["mode"], "inference")
        found = habitat_tui.predict(model, ["h100-sxm"], inputs=inputs, optimizer=optimizer, loss=loss)
        self.assertEqual(found["predictions"][0]["gpu"], "h100-sxm5-80gb")
        self.assertEqual(found["workload"]["name"], "net")

    def test_functions(self):
        found = habitat_tui.predict(build, "l4", batch_size=4)
        self.assertEqual(found["workload"]["batch_size"], 4)
        wide = habitat_tui.trace_shapes(build, arg={"width": 128})
        self.assertGreater(wide.facts["workload"]["parameter_count"], 128 * 128)
        self.assertTrue(habitat_tui.plan(wide, steps=1000)["parts"])
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder) / "wide.habitat.json.zst"
            wide.save(kept)
            self.assertEqual(habitat_tui.predict(kept, "l4")["workload"]["name"], "build")

    def test_what_cannot_be_traced_is_an_error(self):
        with self.assertRaisesRegex(habitat_tui.HabitatError, "no such function"):
            habitat_tui.predict(f"{SHAPES}:nothing")
        with self.assertRaisesRegex(TypeError, "pass inputs="):
            habitat_tui.predict(Net())
        with self.assertRaisesRegex(habitat_tui.HabitatError, "cannot be handed to another process"):
            habitat_tui.predict(Net(), inputs=torch.zeros(1, 1, dtype=torch.long), loss=threading.Lock())


def profiled(output, steps=3, **options):
    model, ids, optimizer, of = build(batch_size=8)
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=steps)
    handler = habitat_tui.on_trace_ready(output, batch_size=8, **options)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler, record_shapes=True) as profiler:
        for _ in range(steps + 2):
            optimizer.zero_grad()
            of(model(ids)).backward()
            optimizer.step()
            profiler.step()


class Profiler(unittest.TestCase):
    def test_the_handler_writes_what_the_program_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "new/step.habitat.json.zst"
            profiled(output, shapes_only=True, name="small")
            workload = habitat_tui.predict(output, "l4")["workload"]
            self.assertEqual((workload["name"], workload["batch_size"]), ("small", 8))
            self.assertEqual([path.name for path in output.parent.iterdir()], [output.name])
            trace = output.with_name("trace.json")
            profiled(trace)
            self.assertIn("traceEvents", json.loads(trace.read_text()))

    def test_a_trace_that_cannot_be_read_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "step.habitat.json.zst"
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                # Without shapes_only a trace needs GPU kernels.
                profiled(output)
            self.assertEqual([path.name for path in output.parent.iterdir()], ["step.trace.json.gz"])
        said = [str(warning.message) for warning in caught if issubclass(warning.category, UserWarning)]
        self.assertTrue(any("step.trace.json.gz" in text for text in said), said)

    def test_a_folder_that_cannot_be_written_does_not_end_the_training(self):
        with tempfile.NamedTemporaryFile() as file:
            handler = habitat_tui.on_trace_ready(f"{file.name}/step.habitat.json.zst")
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                for _ in range(3):
                    handler(None)
        self.assertEqual(len(caught), 1)
        self.assertIn("step.habitat.json.zst was not written: ", str(caught[0].message))


class Counting(unittest.TestCase):
    def test_time_left_and_cost(self):
        now = [0.0]
        logged = []
        progress = Progress(price=3.6, every=5, clock=lambda: now[0], log=lambda *call: logged.append(call))
        progress.begin(100)
        for number in range(10):
            # The first steps are slow, and a validation comes between.
            now[0] += 50 if number < 3 else 2
            if number == 6:
                progress.pause()
                now[0] += 1000
            progress.step()
        self.assertEqual([step for _, step in logged], [5, 10])
        scalars = logged[-1][0]
        self.assertAlmostEqual(scalars["habitat/step_ms"], 2000)
        self.assertAlmostEqual(scalars["habitat/hours_left"], 90 * 2 / 3600)
        self.assertAlmostEqual(scalars["habitat/usd_spent"], 1164 / 3600 * 3.6)
        self.assertAlmostEqual(scalars["habitat/usd_total"], (1164 + 180) / 3600 * 3.6)
        self.assertEqual(str(progress), "step 10 of 100, 2000 ms a step, 0.05 h left, $1.16 of $1.34")

    def test_the_same_run_elsewhere(self):
        progress = Progress(source=habitat_tui.trace_shapes(build), gpus=["h100-sxm", "l4"])
        progress.begin(1000)
        there = progress.scalars()
        self.assertEqual({name.split("/")[1] for name in there}, {"h100-sxm5-80gb", "l4"})
        hours = habitat_tui.predict(build, "l4")["predictions"][0]["step_time_us"]["mid"] * 1000 / 3.6e9
        self.assertAlmostEqual(there["habitat/l4/hours"], hours)
        with self.assertLogs("habitat_tui", logging.WARNING) as logs:
            Progress(source="missing.json").begin(10)
        self.assertIn("no such file", logs.output[0])
        with self.assertRaises(ValueError):
            Progress(gpus="l4")

    def test_whatever_fails_does_not_end_the_training(self):
        def log(scalars, step):
            raise ConnectionError("no such host")

        progress = Progress(every=1, log=log)
        for _ in range(2):
            with self.assertLogs("habitat_tui", logging.WARNING) as logs:
                progress.begin(10)
                self.assertTrue(all(progress.step() is not None for _ in range(5)))
            self.assertEqual(logs.output, ["WARNING:habitat_tui:log= failed at step 1: ConnectionError: no such host"])
        for fails in (OSError("no temporary folder"), json.JSONDecodeError("no JSON", "", 0)):
            with mock.patch("habitat_tui.progress.predict", side_effect=fails):
                with self.assertLogs("habitat_tui", logging.WARNING) as logs:
                    Progress(source="step.json").begin(10)
            self.assertEqual(len(logs.output), 1)


def events(folder):
    """Tags in TensorBoard's files below a folder, with the steps of each."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = {}
    for root in {path.parent for path in pathlib.Path(folder).rglob("events.out*")}:
        reader = EventAccumulator(str(root))
        reader.Reload()
        for tag in reader.Tags()["scalars"]:
            found[tag] = [event.step for event in reader.Scalars(tag)]
        found.update({tag: [] for tag in reader.Tags()["tensors"]})
    return found


class Trainers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        profile = habitat_tui.trace_shapes(build)
        cls.options = {"price": 2.0, "source": profile, "gpus": ["l4"], "every": 5}
        cls.tags = {"habitat/step_ms", "habitat/hours_left", "habitat/usd_total", "habitat/l4/usd"}

    def test_lightning(self):
        import lightning
        from lightning.pytorch.loggers import TensorBoardLogger

        from habitat_tui.lightning import HabitatCallback

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = Net()

            def training_step(self, batch, _):
                return F.cross_entropy(self.net(batch[0]), batch[1])

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        data = torch.utils.data.TensorDataset(torch.randint(0, 100, (80, 16)), torch.randint(0, 100, (80,)))
        with tempfile.TemporaryDirectory() as path:
            callback = HabitatCallback(**self.options)
            quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
            trainer = lightning.Trainer(
                max_epochs=2,
                accelerator="cpu",
                accumulate_grad_batches=2,
                callbacks=[callback],
                logger=TensorBoardLogger(path),
                default_root_dir=path,
                **quiet,
            )
            trainer.fit(Module(), torch.utils.data.DataLoader(data, 4))
            found = events(path)
        self.assertLessEqual(self.tags, set(found), found)
        self.assertEqual((callback.progress.done, callback.progress.total), (20, 20))
        self.assertEqual(found["habitat/step_ms"], [5, 10, 15, 20])

    def test_transformers(self):
        import transformers
        from torch.utils.tensorboard import SummaryWriter

        from habitat_tui.transformers import HabitatCallback

        config = transformers.BertConfig(
            hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, vocab_size=50, num_labels=2
        )
        model = transformers.BertForSequenceClassification(config)
        data = [{"input_ids": torch.randint(0, 50, (8,)), "labels": torch.tensor(n % 2)} for n in range(40)]
        with tempfile.TemporaryDirectory() as path:
            writer = SummaryWriter(path)
            callback = HabitatCallback(log=to_tensorboard(writer), **self.options)
            arguments = transformers.TrainingArguments(
                output_dir=path, max_steps=20, per_device_train_batch_size=4, logging_steps=5, report_to=[], use_cpu=True,
                save_strategy="no", disable_tqdm=True,
            )
            trainer = transformers.Trainer(model, arguments, train_dataset=data, callbacks=[callback])
            trainer.train()
            writer.close()
            found = events(path)
        self.assertEqual(found["habitat/hours_left"], [5, 10, 15, 20])
        self.assertLessEqual(self.tags, set(trainer.state.log_history[0]))
        self.assertEqual(trainer.state.log_history[3]["habitat/hours_left"], 0)

    def test_keras(self):
        os.environ["KERAS_BACKEND"] = "torch"
        import keras
        import numpy

        from habitat_tui.keras import HabitatCallback

        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
        model.compile("sgd", "mse")
        callback = HabitatCallback(**self.options)
        x, y = numpy.zeros((40, 8)), numpy.zeros((40, 4))
        with tempfile.TemporaryDirectory() as path:
            after = keras.callbacks.CSVLogger(str(pathlib.Path(path) / "log.csv"))
            history = model.fit(x, y, batch_size=4, epochs=2, verbose=0, callbacks=[callback, after])
            header = (pathlib.Path(path) / "log.csv").read_text().splitlines()[0]
        self.assertLessEqual(self.tags, set(header.split(",")))
        self.assertEqual((callback.progress.done, callback.progress.total), (20, 20))
        self.assertEqual(history.history["habitat/hours_left"][-1], 0)


KERAS = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64), keras.layers.Dense(4)])
model.compile("adam", "mse")
model.fit(numpy.zeros((640, 8)), numpy.zeros((640, 4)), batch_size=16, verbose=0)
"""


class Recorded(unittest.TestCase):
    def test_keras_on_torch(self):
        with tempfile.TemporaryDirectory() as path:
            command = [os.environ["HABITAT_TUI_PROGRAM"], "run", "--output", "k.habitat.json", "--", sys.executable]
            ran = subprocess.run([*command, "-c", KERAS], cwd=path, capture_output=True, text=True, check=True)
            profile = json.loads((pathlib.Path(path) / "k.habitat.json").read_text())
        workload, updates = profile["workload"], [one for one in profile["operations"] if one["phase"] == "optimizer"]
        self.assertIn("39 steps seen, recorded 11–13", ran.stderr)
        self.assertEqual((workload["batch_size"], workload["parameter_count"]), (16, 8 * 64 + 64 + 64 * 4 + 4))
        # Adam keeps two numbers of 4 bytes for each parameter.
        self.assertIn("optimizer state 6.54 KB", ran.stderr)
        self.assertLess(5, len(updates))


if __name__ == "__main__":
    unittest.main()
