"""What recording costs a training job: paired runs with and without, one after the other.

    python profiler/hook/bench.py target/release/habitat-tui [PAIRS]

Each job times its own steps. Printed are medians over the pairs of

- the median step outside windows, with the hook against without, and one call of the
  hook by itself, which a busy machine blurs less;
- the milliseconds that one window of 3 steps costs, everything that the training stood
  still or went slower for it included;
- the start of Python and the import of torch.

Needs PyTorch in the Python that runs it. No figure is worth more than the quiet of the
machine: the spread over the pairs is printed beside it.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

JOB = """
import json, sys, time, torch
kind, steps, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.manual_seed(0); torch.set_num_threads(1)
if kind == "launch-bound":
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4); make = lambda: torch.randn(1, 16, 64)
else:
    C = lambda a, b: (torch.nn.Conv2d(a, b, 3, padding=1), torch.nn.BatchNorm2d(b), torch.nn.ReLU())
    model = torch.nn.Sequential(*C(3, 32), *C(32, 32), torch.nn.MaxPool2d(2), *C(32, 64), torch.nn.Flatten(), torch.nn.LazyLinear(10))
    make = lambda: torch.randn(8, 3, 32, 32)
model(make()); optimizer = torch.optim.AdamW(model.parameters())
stamps = []
for step in range(steps):
    optimizer.zero_grad(); model(make()).square().mean().backward(); optimizer.step(); stamps.append(time.perf_counter())
json.dump([b - a for a, b in zip(stamps, stamps[1:])], open(out, "w"))
"""


def job(program, folder, kind, steps, after):
    """Seconds of each step; with the hook where `after` is given."""
    script, out = os.path.join(folder, "job.py"), os.path.join(folder, "times.json")
    with open(script, "w") as file:
        file.write(JOB)
    command = [sys.executable, script, kind, str(steps), out]
    if after is not None:
        profile = os.path.join(folder, "p.habitat.json")
        command = [program, "run", "-q", "--force", "-o", profile, "--after", str(after), "--"] + command
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    with open(out) as file:
        return json.load(file)


def seconds(command):
    began = time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def listen(path):
    """Takes every connection and forgets what it says."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)

    def drain():
        while True:
            link, _ = listener.accept()
            with link:
                while link.recv(1 << 16):
                    pass

    threading.Thread(target=drain, daemon=True).start()


def call(folder, settings):
    """Microseconds of one call of the hook outside a window, by itself, often repeated."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import habitat_hook

    class Optimizer:
        param_groups = []

    optimizer, times = Optimizer(), []
    habitat_hook.guarded = True  # No torch here.
    hook = habitat_hook.Hook(settings, folder + "/socket")
    for _ in range(15):
        began = time.perf_counter()
        for _ in range(20000):
            hook.step(optimizer)
        times.append((time.perf_counter() - began) / 20000 * 1e6)
    return times


def show(what, values, unit):
    values = sorted(values)
    low, high = values[len(values) // 4], values[-1 - len(values) // 4]
    print("%-44s %8.2f %s  (quartiles %.2f to %.2f)" % (what, statistics.median(values), unit, low, high))


def main():
    program, pairs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 9
    never = 10**9
    with tempfile.TemporaryDirectory() as folder:
        for kind, steps in (("launch-bound", 300), ("compute-bound", 200)):
            outside, window, plain = [], [], []
            for pair in range(pairs):
                runs = {}
                # In turns first, so that a machine warming up favours neither.
                for hooked in (False, True) if pair % 2 else (True, False):
                    runs[hooked] = job(program, folder, kind, steps, never if hooked else None)
                bare = statistics.median(runs[False][20:])
                plain.append(bare * 1e3)
                outside.append((statistics.median(runs[True][20:]) / bare - 1) * 100)
                recorded = job(program, folder, kind, steps, 100)
                usual = statistics.median(recorded[20:90])
                # Step 100 to the end of writing the trace; single slow steps elsewhere are not ours.
                window.append(sum(max(step - usual, 0) for step in recorded[97:160] if step > 1.5 * usual) * 1e3)
            show("%s: step without" % kind, plain, "ms")
            show("%s: steps outside windows" % kind, outside, "%")
            show("%s: a window of 3 steps" % kind, window, "ms")
        listen(folder + "/socket")
        settings = {"version": 1, "after": never, "window": 3, "windows": 1, "memory": False, "all_ranks": False, "folder": folder}
        show("one call of the hook outside windows", call(folder, settings), "us")
        for what, code in (("start of Python", "pass"), ("import of torch", "import torch")):
            extra = []
            bare_command = [sys.executable, "-c", code]
            here = os.path.dirname(os.path.abspath(__file__))
            for pair in range(3 * pairs if code == "pass" else pairs):
                # The hook alone, without the start of the program that runs the job.
                variables = ["PYTHONPATH=" + here, "HABITAT_TUI_SOCKET=" + folder + "/socket"]
                hooked = ["env"] + variables + ["HABITAT_TUI_HOOK=" + json.dumps(settings)] + bare_command
                both = {}
                for which in (False, True) if pair % 2 else (True, False):
                    both[which] = seconds(hooked if which else ["env"] + bare_command)
                extra.append((both[True] - both[False]) * 1e3)
            show(what + ": more", extra, "ms")


main()
