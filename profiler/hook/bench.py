"""Measures what recording costs a training job, with and without it in turns.

    python profiler/hook/bench.py target/release/habitat-tui [PAIRS] [--windows | --outside | STEPS --long]

Prints

- outside windows (alone with `--outside`), for steps of 0.5, 3 and 30 ms, each in one job
  under `habitat-tui run`: pairs of blocks of steps with and without the hook, in random
  order; the median difference of the pairs with its 95 % confidence interval (bootstrap).
  A block without the hook lacks its entry in PyTorch's list of optimizer hooks and the
  timing of `backward()`. Both by the clock and by the CPU time of the training thread, which
  other programs disturb less. Reports an interval that is too wide for the aim;
- the hook's own calls in that job;
- threads of the job beside the training thread, their CPU time, and that of `habitat-tui`;
- one call of the hook alone;
- the milliseconds that one window of 3 steps costs at steps of 3 and 30 ms, including every
  pause and slowdown of the training;
- the same for transformers of 4 to 100 layers, whose steps have 4,000 to 90,000 operators and
  whose windows have fewer steps (`--windows` prints only this part and the one before);
- the start of Python and the import of torch;
- only with `STEPS --long`: a job of STEPS short steps in the background, the size of its
  history, and memory and CPU time of the process that keeps it.

Medians over PAIRS pairs of runs (9), with quartiles. Needs PyTorch in this Python, and a quiet machine.
"""

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

# Most that the hook may add to a step outside windows, in percent (a choice).
AIM = 0.5
# Steps in ms; for each the steps of a block, and pairs of blocks. Blocks are short because the machine's speed
# drifts.
LENGTHS = {"0.5": (8, 2500), "3": (2, 1500), "30": (1, 500)}
# Calls of the hook that are timed in place.
CALLS = 1000
# Steps in which a job finds the size of a model that takes the wanted time.
SIZING = 60
SEED = 20261121

MODEL = """
import json, os, random, sys, threading, time, torch
wanted, out = float(sys.argv[1]) / 1e3, sys.argv[2]
torch.set_num_threads(1)
# Short steps are bound by the host, long ones by computation.
width = 512 if wanted > 0.01 else 32
def training(layers):
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(width, width), torch.nn.ReLU())]
    model = torch.nn.Sequential(*parts); optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    def step():
        optimizer.zero_grad(); model(torch.randn(16, width)).square().mean().backward(); optimizer.step()
    return step
def usual(step):
    times = []
    for _ in range(30):
        began = time.perf_counter(); step(); times.append(time.perf_counter() - began)
    return sorted(times)[10]
few, many = usual(training(2)), usual(training(12))
step = training(max(1, round(2 + 10 * (wanted - few) / max(many - few, 1e-6))))
"""

JOB = MODEL + """
stamps = []
for number in range(int(sys.argv[3])):
    step(); stamps.append(time.perf_counter())
json.dump([b - a for a, b in zip(stamps, stamps[1:])], open(out, "w"))
"""

# Layers of the transformers whose windows are timed, and their steps.
DEPTHS, DEEP_STEPS = (4, 12, 24, 48, 100), 45

DEEP = """
import json, sys, time, torch
layers, out = int(sys.argv[1]), sys.argv[2]
torch.manual_seed(0); torch.set_num_threads(1)
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)
model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
optimizer, stamps = torch.optim.AdamW(model.parameters()), []
for number in range(int(sys.argv[3])):
    optimizer.zero_grad(); model(torch.randn(2, 32, 64)).square().mean().backward(); optimizer.step()
    stamps.append(time.perf_counter())
json.dump([b - a for a, b in zip(stamps, stamps[1:])], open(out, "w"))
"""

# Pairs of blocks with the hook and without, in one process on one core.
SWITCHED = """
import torch
passes = torch.autograd.backward
assert hasattr(passes, "__wrapped__"), "backward() is not timed"
""" + MODEL + """
block, blocks, calls, seed = map(int, sys.argv[3:7])
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
from torch.optim import optimizer as optimizers
hooks = optimizers._global_optimizer_post_hooks
ours = [(key, hook) for key, hook in hooks.items() if hook.__module__.partition(".")[0] == "_habitat_tui_hook"]
assert len(ours) == 1, "the hook is not loaded: %r" % list(hooks.items())

def timed(hooked):
    passes = torch.autograd.backward
    if not hooked:
        torch.autograd.backward = getattr(passes, "__wrapped__", passes)
    if hooked:
        hooks.update(ours)
    else:
        for key, hook in ours:
            del hooks[key]
    wall, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
    for number in range(block):
        step()
    wall, thread, process = time.perf_counter() - wall, time.thread_time() - thread, time.process_time() - process
    if not hooked:
        hooks.update(ours)
        torch.autograd.backward = passes
    return {"wall": wall / block, "thread": thread / block, "beside": (process - thread) / block}

def parent():
    with open("/proc/%d/stat" % os.getppid()) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

order = random.Random(seed)
for number in range(30):
    step()
pairs, began = [], time.perf_counter()
try:
    used = parent()
except OSError:
    used = None
for number in range(blocks):
    first = order.random() < 0.5
    pair = {first: timed(first)}
    pair[not first] = timed(not first)
    pairs.append((pair[True], pair[False]))
seconds = time.perf_counter() - began
listener = None if used is None else parent() - used

(key, hook), in_place = ours[0], []
def watched(*arguments):
    before = time.perf_counter(); hook(*arguments); in_place.append(time.perf_counter() - before)
hooks[key] = watched
for number in range(calls):
    step()
hooks[key] = hook
# Time added by timing a backward pass: the hook's own time of the pass excludes it.
sums, of_passes = dict(zip(passes.__code__.co_freevars, (cell.cell_contents for cell in passes.__closure__)))["sums"], []
def watched_pass(*arguments, **named):
    before, inside = time.perf_counter(), sums[4]
    passes(*arguments, **named)
    of_passes.append(time.perf_counter() - before - (sums[4] - inside))
for number in range(calls):
    torch.autograd.backward = watched_pass
    step()
torch.autograd.backward = passes
tasks = len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else None
json.dump({"pairs": pairs, "seconds": seconds, "threads": [thread.name for thread in threading.enumerate()],
           "tasks": tasks, "listener": listener, "in_place": in_place, "passes": of_passes}, open(out, "w"))
"""


def run(program, folder, code, arguments, after):
    """Returns the output of a job; runs it under the program with the hook if `after` is given."""
    script, out = os.path.join(folder, "job.py"), os.path.join(folder, "out.json")
    with open(script, "w") as file:
        file.write(code)
    command = [sys.executable, script, arguments[0], out] + [str(argument) for argument in arguments[1:]]
    if after is not None:
        profile = os.path.join(folder, "p.habitat.json")
        seen = ["--json", os.path.join(folder, "seen.json")]
        command = [program, "run", "-q", "--force", "-o", profile, "--after", str(after)] + seen + ["--"] + command
    ended = subprocess.run(command, stderr=subprocess.PIPE, universal_newlines=True)
    if ended.returncode:
        sys.exit("the job failed:\n" + ended.stderr)
    with open(out) as file:
        return json.load(file)


def interval(values, tries=2000):
    """The median and its 95 % confidence interval, by bootstrap over the pairs."""
    draw = random.Random(SEED)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(tries))
    return statistics.median(values), medians[tries // 40], medians[-1 - tries // 40]


def outside(program, folder, kind):
    """Prints the time that the hook adds to a step outside windows, and the work beside it."""
    block, blocks_of_it = LENGTHS[kind]
    found = run(program, folder, SWITCHED, (kind, block, blocks_of_it, CALLS, SEED), 10**9)
    pairs = found["pairs"]
    step = statistics.median(off["wall"] for _, off in pairs)
    blocks = sorted(off["wall"] for _, off in pairs)
    noise = (blocks[len(blocks) * 3 // 4] - blocks[len(blocks) // 4]) / step * 100
    print(
        "%s ms: outside windows, %d pairs of blocks of %d steps of %.2f ms; quartiles of the blocks without are %.1f %% apart"
        % (kind, len(pairs), block, step * 1e3, noise)
    )
    for what, field in (("by the clock", "wall"), ("processor time", "thread")):
        mid, low, high = interval([(on[field] / off[field] - 1) * 100 for on, off in pairs])
        if high - low > 2 * AIM:
            verdict = "too wide for an aim of %.1f %%: a quieter machine is needed" % AIM
        elif high < AIM:
            verdict = "under %.1f %%" % AIM
        elif low > AIM:
            verdict = "over %.1f %%" % AIM
        else:
            verdict = "may be under or over %.1f %%" % AIM
        print("  %-20s %+.3f %%  (95 %% interval %+.3f to %+.3f; %s)" % (what, mid, low, high, verdict))
    calls = sorted(found["in_place"])
    middle = statistics.median(calls)
    mean = statistics.mean(calls)
    figures = (mean * 1e6, mean / step * 100, middle * 1e6, calls[len(calls) * 99 // 100] * 1e6)
    print("  a call of the hook in place %.2f us (mean, %.3f %% of a step; median %.2f, 99 %% under %.1f us)" % figures)
    middle = statistics.median(found["passes"])
    share = "of a step; of one under 2 ms one second in 60" if step < 2e-3 else "of a step"
    print("  timing a backward pass in place %.2f us (median, %.3f %% %s)" % (middle * 1e6, middle / step * 100, share))
    beside = [statistics.mean(pair[at]["beside"] for pair in pairs) * 1e6 for at in (0, 1)]
    print("  processor time of other threads: %.2f us a step with the hook, %.2f without" % tuple(beside))
    tasks = "" if found["tasks"] is None else ", %d for the system" % found["tasks"]
    print("  threads of the job: %s%s" % (", ".join(found["threads"]), tasks))
    if found["listener"] is not None:
        print("  habitat-tui itself: %.2f %% of a core" % (found["listener"] / found["seconds"] * 100))


def seconds(command):
    began = time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - began


def listen(path):
    """Accepts every connection and discards its messages."""
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
    """Microseconds of one call of the hook outside a window, alone, repeated many times."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import habitat_hook
    import torch  # noqa: F401, the hook asks it at every step whether it is compiled.

    class Optimizer:
        param_groups = []

    optimizer, times = Optimizer(), []
    hook = habitat_hook.Hook(settings, folder + "/socket")
    hook.guard.is_set = True
    after_step = hook.after_step()
    for _ in range(15):
        began = time.perf_counter()
        for _ in range(20000):
            after_step(optimizer, (), {})
        times.append((time.perf_counter() - began) / 20000 * 1e6)
    return times


def show(what, values, unit):
    values = sorted(values)
    low, high = values[len(values) // 4], values[-1 - len(values) // 4]
    print("%-44s %8.2f %s  (quartiles %.2f to %.2f)" % (what, statistics.median(values), unit, low, high))


def windows(program, folder, pairs):
    """Prints the cost of a window: with short steps, and with steps of many operators."""
    for kind, steps in (("3", 300), ("30", 200)):
        window, plain = [], []
        for _ in range(pairs):
            recorded = run(program, folder, JOB, (kind, steps), SIZING + 100)
            usual = statistics.median(recorded[20:90])
            plain.append(usual * 1e3)
            # From step 100 to the end of writing the trace; slow steps elsewhere are not ours.
            window.append(sum(max(step - usual, 0) for step in recorded[97:160] if step > 1.5 * usual) * 1e3)
        show("%s ms: a step" % kind, plain, "ms")
        show("%s ms: a window of 3 steps costs" % kind, window, "ms")
    for layers in DEPTHS:
        window, still, plain = [], [], []
        for _ in range(pairs):
            times = run(program, folder, DEEP, (str(layers), DEEP_STEPS), 10)
            with open(os.path.join(folder, "seen.json")) as file:
                process = json.load(file)["processes"][0]
            usual = statistics.median(times[3:9] + times[25:])
            plain.append(usual * 1e3)
            still.append(sum(process["window_costs_us"]) / 1e3)
            window.append(sum(max(step - usual, 0) for step in times[9:25] if step > 1.5 * usual) * 1e3)
        recorded = process["windows"][-1]
        steps = recorded["last"] - recorded["first"] + 1
        # Bytes of an operator with its shapes.
        operators = recorded["trace_bytes"] / 430 / steps
        name = "%d layers, %.0f thousand operators" % (layers, operators / 1e3)
        show("%s: a step" % name, plain, "ms")
        show("  a window of %d steps costs" % steps, window, "ms")
        show("  of which the training stood still", still, "ms")


LONG = """
import sys, torch
torch.set_num_threads(1)
model = torch.nn.Linear(8, 8); optimizer = torch.optim.SGD(model.parameters(), lr=0.01); x = torch.randn(4, 8)
for number in range(int(sys.argv[1])):
    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
"""


def long(program, folder, steps):
    """Prints the history that a long job in the background writes, and its memory and CPU time."""
    with open(folder + "/job.py", "w") as file:
        file.write(LONG)
    there = dict(os.environ, HABITAT_TUI_CONFIG_DIR=folder + "/config")
    command = [program, "run", "--detach", "-q", "--", sys.executable, folder + "/job.py", str(steps)]
    name = subprocess.run(command, check=True, env=there, cwd=folder, stdout=subprocess.PIPE, text=True).stdout.strip()
    job = "%s/config/jobs/%s/" % (folder, name)
    with open(job + "job.json") as file:
        keeper = json.load(file)["keeper"]["pid"]
    began, used, peak = time.perf_counter(), 0.0, 0
    while True:
        try:
            with open("/proc/%d/stat" % keeper) as file:
                fields = file.read().rsplit(")", 1)[1].split()
            with open("/proc/%d/status" % keeper) as file:
                own = next((int(line.split()[1]) for line in file if line.startswith("RssAnon")), 0)
            peak = max(peak, own)
        except OSError:
            break
        used, lasted = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), time.perf_counter() - began
        time.sleep(0.2)
    sizes = {entry.name: entry.stat().st_size for entry in os.scandir(job) if entry.name.partition(".")[0] in ("steps", "minutes", "hours")}
    told = json.loads(subprocess.run([program, "history", "--json"], check=True, env=there, stdout=subprocess.PIPE).stdout)
    total = told["total"]
    counted = total["training_steps"] + sum(one["steps"] for one in total["beside"].values())
    print("%d steps in %.0f s, %.3f ms each; the history has %d" % (steps, lasted, lasted / steps * 1e3, counted))
    print("  history: %.2f MB (%s)" % (sum(sizes.values()) / 1e6, ", ".join("%s %d kB" % (of, sizes[of] / 1e3) for of in sorted(sizes))))
    print("  the process that keeps it: %.1f MB at most (without the program itself), %.2f %% of a core" % (peak / 1e3, used / lasted * 100))


def main():
    only_windows, only_outside = "--windows" in sys.argv, "--outside" in sys.argv
    program, *rest = [word for word in sys.argv[1:] if not word.startswith("--")]
    if "--long" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            long(os.path.abspath(program), folder, int(rest[0]))
        return
    pairs = int(rest[0]) if rest else 9
    never = 10**9
    with tempfile.TemporaryDirectory() as folder:
        if only_windows:
            windows(program, folder, pairs)
            return
        for kind in LENGTHS:
            outside(program, folder, kind)
        if only_outside:
            return
        windows(program, folder, pairs)
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
