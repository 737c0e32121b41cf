#!/usr/bin/env python3
"""Runs the program on the small inputs of `../shared/cases` and prints expected and actual results.

    cargo build --release
    python3 tests/foreign/cases.py --habitat-tui target/release/habitat-tui
    python3 tests/foreign/cases.py --habitat-tui … --python "$(.ci/pytorch ~/.cache/habitat-tui-pytorch)" capture

Each case has a README there with the command, the fault and the expected result. Cases that need PyTorch are
skipped without `--python`. The exit code is 1 if a result differs from the expected one.
"""
import argparse
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CASES = []


def case(kind, name):
    """Registers a function that checks one case and returns (expected, actual, is_right)."""

    def register(function):
        CASES.append((kind, name, function))
        return function

    return register


class Place:
    """The program, the folder of cases and a scratch folder."""

    def __init__(self, program, cases, python, scratch):
        self.program, self.cases, self.python, self.scratch = program, cases, python, pathlib.Path(scratch)

    def run(self, *arguments, env=None, limit=None, timeout=300, cwd=None):
        environment = {**os.environ, "HABITAT_TUI_CONFIG_DIR": str(self.scratch / "config"), **(env or {})}
        words = [self.program, *map(str, arguments)]
        if limit is not None:
            words = ["bash", "-c", f'ulimit -v {limit}; exec "$@"', "bash", *words]
        return subprocess.run(words, capture_output=True, text=True, env=environment, timeout=timeout,
                              cwd=cwd or self.scratch, stdin=subprocess.DEVNULL)

    def imported(self, file):
        """The JSON output of `import`, and the profile."""
        profile = self.scratch / "imported.habitat.json"
        done = self.run("import", file, "-o", profile, "--force", "--json")
        if done.returncode != 0:
            raise AssertionError(done.stderr.strip())
        return json.loads(done.stdout), json.loads(profile.read_text())

    def refused(self, file):
        done = self.run("import", file, "-o", self.scratch / "refused.habitat.json", "--force")
        return done.stderr.strip() if done.returncode != 0 else "read without an error"

    def predicted(self, *arguments):
        done = self.run("predict", *arguments)
        return done.stdout + done.stderr

    def recording(self, path):
        return self.cases / "recordings" / path

    def traced(self, script, *arguments):
        """The profile from `trace-shapes`."""
        profile = self.scratch / "traced.habitat.json"
        done = self.run("trace-shapes", *arguments, f"{script}:build", "-o", profile, "--force",
                        env={"PATH": f"{pathlib.Path(self.python).parent}:{os.environ['PATH']}"})
        if done.returncode != 0:
            raise AssertionError((done.stderr or done.stdout).strip()[-300:])
        return profile

    def recorded(self, name, *words, env=None, before=()):
        """Exit code and output of a job under `run`."""
        script = self.cases / "capture" / name / "train.py"
        words = [str(word).replace("{python}", self.python).replace("{script}", str(script)) for word in words]
        done = self.run("run", "--no-tui", "--force", "-o", self.scratch / f"{name}.habitat.json.zst", *before, "--",
                        *words, env=env, timeout=600)
        return done.returncode, done.stdout + done.stderr


def edited(place, source, change, name):
    """A copy of a trace with `change` applied to its JSON."""
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rt") as file:
        trace = json.load(file)
    change(trace)
    target = place.scratch / name
    target.write_text(json.dumps(trace))
    return target


def kernels(found, count, time, steps=None, used=None):
    """Compares kernels per step and their time."""
    expected = f"{count} kernels, {time} us" + (f", {used} steps used" if used else "")
    got = f"{found['kernels_per_step']:g} kernels, {found['kernel_time_us']:g} us"
    got += f", {found['steps_used']} steps used" if used else ""
    right = found["kernels_per_step"] == count and abs(found["kernel_time_us"] - time) < 0.5
    return expected, got, right and (used is None or found["steps_used"] == used)


def message(text, *words):
    """Checks that an error has these words."""
    text = re.sub(r"^error: \S+: ", "", text)
    return " · ".join(words), text.splitlines()[0][:240] if text else "", all(
        re.search(word, text, re.IGNORECASE) for word in words)


@case("recordings", "lost-first-kernels")
def lost_first(place):
    found, _ = place.imported(place.recording("lost-first-kernels/lost_first3of30.json"))
    return kernels(found, 10, 530, used=2)


@case("recordings", "kernels-without-launch: triton20")
def triton(place):
    found, _ = place.imported(place.recording("kernels-without-launch/triton20.json"))
    return "1700 us", f"{found['kernel_time_us']:g} us", abs(found["kernel_time_us"] - 1700) < 0.5


@case("recordings", "kernels-without-launch: lost_launches")
def lost_launches(place):
    found, _ = place.imported(place.recording("kernels-without-launch/lost_launches.json.gz"))
    return "530 us", f"{found['kernel_time_us']:g} us", abs(found["kernel_time_us"] - 530) < 0.5


@case("recordings", "kernels-without-launch: correlation -1")
def correlation(place):
    def change(trace):
        of_step = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
        for event in of_step[4::10]:
            event["args"]["correlation"] = -1

    source = place.recording("messages/n_mig.json")
    file = edited(place, source, change, "corr_minus1.json")
    found, _ = place.imported(file)
    return kernels(found, 10, 530)


@case("recordings", "steps-are-micro-batches")
def micro_batches(place):
    found, profile = place.imported(place.recording("steps-are-micro-batches/accum4_12.json.gz"))
    phases = {operation.get("phase") for operation in profile["operations"]}
    expected, got, right = kernels(found, 37, 2060)
    return f"{expected}, optimizer", f"{got}, {sorted(phases)}", right and "optimizer" in phases


@case("recordings", "communication-not-by-nccl")
def deepep(place):
    file = place.recording("communication-not-by-nccl/deepep.json")
    _, profile = place.imported(file)
    communication = sum(operation.get("phase") == "communication" for operation in profile["operations"])
    warned = "recorded as one of several GPUs" in place.predicted(file, "--to", "h100-sxm5-80gb,a100-sxm4-80gb")
    return "communication, warning", f"{communication} operations of communication, warned: {warned}", (
        communication > 0 and warned)


@case("recordings", "graph-replay-precision")
def graph(place):
    file = place.recording("graph-replay-precision/graph_decode_tp8.json")
    found, profile = place.imported(file)
    precision = profile["workload"].get("precision")
    warned = "recorded as one of several GPUs" in place.predicted(file, "--to", "b200,a100-sxm4-80gb")
    return "bf16, warning", f"{precision}, warned: {warned}", "fp32" not in str(precision) and warned


@case("recordings", "zero-times: zero_ts")
def zero(place):
    found, _ = place.imported(place.recording("zero-times-and-negative-times/zero_ts.json.gz"))
    notes = [note for note in found["notes"] if "no times" in note or "without" in note and "time" in note]
    return "a note that kernels have no times", " · ".join(notes) or "no note", bool(notes)


@case("recordings", "zero-times: dur_missing")
def missing(place):
    found, _ = place.imported(place.recording("zero-times-and-negative-times/dur_missing.json"))
    notes = [note for note in found["notes"] if "duration" in note or "time" in note and "kernel" in note]
    return "a note on the missing duration", " · ".join(notes) or "no note", bool(notes)


@case("recordings", "negative times")
def negative(place):
    source = place.recording("kernels-without-launch/triton20.json")

    def shift(trace):
        begin = [event["ts"] for event in trace["traceEvents"] if event.get("name") == "ProfilerStep#2"][0]
        for event in trace["traceEvents"]:
            if "ts" in event:
                event["ts"] -= begin

    plain, _ = place.imported(source)
    shifted, _ = place.imported(edited(place, source, shift, "ts_negative.json"))
    keys = ["kernels_per_step", "kernel_time_us", "step_time_us", "steps_used"]
    of = lambda found: ", ".join(f"{found[key]:g}" for key in keys)
    return of(plain), of(shifted), of(plain) == of(shifted)


for file, words in [
    ("viztracer.json", ["not a trace of"]),
    ("legacy_autograd.json", ["torch.profiler"]),
    ("empty_events.json", ["empty|no events"]),
    ("lfs.json.gz", ["git lfs pull"]),
    ("utf16.json.gz", ["utf-16"]),
    ("interleaved.json", ["several (ranks|processes)"]),
    ("no_kernels_but_launches.json", ["launch", "CUPTI"]),
]:
    @case("recordings", f"messages: {file}")
    def words_of(place, file=file, words=words):
        return message(place.refused(place.recording(f"messages/{file}")), *words)


@case("recordings", "messages: n_mig.json")
def mig(place):
    found, _ = place.imported(place.recording("messages/n_mig.json"))
    notes = " · ".join(note for note in found["notes"] if "slice" in note or "MIG" in note)
    return "a note that it is a slice (MIG)", notes or "no note", bool(notes)


for file, slug in [
    ("titan-is-not-recognised/titan_rtx.json", "titan-rtx"),
    ("titan-is-not-recognised/titan_v.json", "titan-v"),
    ("unnamed-gpu-with-figures/unnamed_mi300x.json", "mi300x"),
]:
    @case("recordings", file.split("/")[-1])
    def name_of(place, file=file, slug=slug):
        found, _ = place.imported(place.recording(file))
        return slug, str(found.get("gpu")), found.get("gpu") == slug


@case("recordings", "MI250X / MI250")
def mi250(place):
    source = place.recording("titan-is-not-recognised/titan_v.json")

    def rename(trace):
        for device in trace["deviceProperties"]:
            device.update(name="AMD Instinct MI250X / MI250", numSms=104, totalGlobalMem=68702699520,
                          computeMajor=9, computeMinor=0, warpSize=64)

    found, _ = place.imported(edited(place, source, rename, "mi250.json"))
    return "mi250-gcd", str(found.get("gpu")), found.get("gpu") == "mi250-gcd"


@case("pytorch", "varlen-attention")
def varlen(place):
    script = place.recording("varlen-attention/big.py")
    times = {}
    for kind in ("varlen", "sdpa"):
        profile = place.traced(script, "--arg", f"kind={kind}")
        done = place.run("predict", profile, "--to", "h100-sxm5-80gb", "--json")
        prediction = json.loads(done.stdout)
        times[kind] = prediction["predictions"][0]["step_time_us"]["mid"]
    ratio = times["varlen"] / times["sdpa"]
    return "about the same time", f"{times} (ratio {ratio:.2f})", 0.7 < ratio < 1.4


for words in ([], ["--arg", "comp=False"], ["--arg", "mask=True"]):
    @case("pytorch", "flex-attention " + " ".join(words))
    def flex(place, words=words):
        profile = json.loads(place.traced(place.recording("flex-attention/flexc.py"), *words).read_text())
        names = [operation["name"] for operation in profile["operations"] if "flex" in operation["name"]]
        return "flex_attention and its backward", ", ".join(sorted(set(names))), len(set(names)) >= 2


@case("pytorch", "ctc_trace")
def ctc(place):
    profile = json.loads(place.traced(place.cases / "capture/ctc_trace/train.py", "--batch-sizes", "4").read_text())
    names = [operation["name"] for operation in profile["operations"] if "ctc" in operation["name"]]
    return "traced", ", ".join(sorted(set(names))), bool(names)


@case("capture", "memory_grows")
def memory_grows(place):
    code, text = place.recorded("memory_grows", "{python}", "{script}")
    return "recorded", text.strip().splitlines()[-1][:160], code == 0 and "nothing recorded" not in text


@case("capture", "loader_warnings")
def loader(place):
    place.recorded("loader_warnings", "{python}", "{script}", env={"STEPS": "100"})
    profile = place.scratch / "loader_warnings.habitat.json.zst"
    text = place.predicted(profile)
    count = text.count("waits for data")
    return "at most one warning", f"{count} times", profile.exists() and count <= 1


@case("capture", "pairs")
def pairs(place):
    _, text = place.recorded("pairs", "{python}", "{script}")
    said = [line for line in text.splitlines() if "--batch-size" in line or "DataLoader" in line]
    return "batch 8, and that the DataLoader supplies 4", " · ".join(said)[:200], any("4" in line for line in said)


@case("capture", "runs_in_sequence")
def sequence(place):
    code, text = place.recorded("runs_in_sequence", "bash", "-c", "for w in 256 512 2048; do {python} {script} $w; done")
    said = [line for line in text.splitlines() if re.search(r"\brank", line)]
    return "three jobs, no word of ranks", " · ".join(said)[:200] or "no word of ranks", code == 0 and not said


@case("capture", "slow_rank")
def slow_rank(place):
    code, text = place.recorded("slow_rank", "{python}", "-m", "torch.distributed.run", "--standalone",
                                "--nproc-per-node", "2", "{script}", before=["--all-ranks"])
    said = [line.strip() for line in text.splitlines() if re.search(r"\brank 1\b", line)]
    return "rank 1 is slow", " · ".join(said)[:240], code == 0 and any("slow" in line for line in said)


@case("capture", "sigxfsz")
def sigxfsz(place):
    code, text = place.recorded("sigxfsz", "{python}", "{script}")
    said = [line for line in text.splitlines() if "limit" in line.lower() or "SIGXFSZ" in line]
    return "exit 0, the limit is the reason", f"exit {code}: " + " · ".join(said)[:200], code == 0 and bool(said)


@case("capture", "stopped_launcher")
def launcher(place):
    code, text = place.recorded("stopped_launcher", "bash", "-c", "{python} {script} & echo started")
    said = [line for line in text.splitlines() if re.search("still run|recorded|foreground|attach", line)]
    return "its child still runs, or is recorded", " · ".join(said)[:240], "no Python of the job loaded" not in text


@case("capture", "jax_job")
def jax(place):
    stub = place.scratch / "stub" / "jax"
    (stub / "profiler").mkdir(parents=True, exist_ok=True)
    (stub / "__init__.py").write_text("")
    script = place.scratch / "uses_jax.py"
    script.write_text("import jax\nimport time\ntime.sleep(1)\n")
    done = place.run("run", "--no-tui", "--", place.python, script, env={"PYTHONPATH": str(stub.parent)})
    text = done.stdout + done.stderr
    said = [line for line in text.splitlines() if re.search("jax", line, re.IGNORECASE) and "nothing" in line]
    return "JAX is named, with --cupti or XPlane", " · ".join(said)[:240], bool(said) and (
        "--cupti" in text or "xplane" in text.lower())


@case("hostile", "unnamed datagram while attach waits")
def datagram(place):
    done = subprocess.run([sys.executable, place.cases / "hostile/attach_unnamed_sender.py"], capture_output=True,
                          text=True, env={**os.environ, "HAB": place.program}, timeout=300)
    return "all pass", done.stdout.strip().replace("\n", " · ")[:240], done.returncode == 0


@case("hostile", "2,000 batch sizes under 1.5 GB")
def batch_sizes(place):
    folder = place.scratch / "hostile"
    shutil.copytree(place.cases / "hostile", folder, dirs_exist_ok=True)
    plan = folder / "plan-2000-batch-sizes.toml"
    plan.chmod(0o644)
    root = pathlib.Path(__file__).resolve().parents[2]
    plan.write_text(plan.read_text().replace("../../profiler", f"{root}/profiler"))
    done = place.run("plan", "--from", plan, limit=1_500_000, cwd=folder)
    return "an error that names the limit", f"exit {done.returncode}: {done.stderr.strip()[-200:]}", (
        done.returncode in (1, 2) and bool(re.search(r"batch.sizes", done.stderr)))


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="kinds (recordings, pytorch, capture, hostile) or parts of names")
    parser.add_argument("--habitat-tui", default=str(root / "target/release/habitat-tui"))
    parser.add_argument("--python", help="an interpreter with PyTorch")
    parser.add_argument("--cases", type=pathlib.Path, default=root.parent / "shared" / "cases")
    options = parser.parse_args()
    wrong = 0
    for kind, name, check in CASES:
        if options.only and not any(word == kind or word in name for word in options.only):
            continue
        if kind in ("pytorch", "capture") and not options.python:
            print(f"skipped  {kind}: {name} (needs --python)")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            place = Place(str(pathlib.Path(options.habitat_tui).resolve()), options.cases.resolve(), options.python,
                          scratch)
            try:
                expected, got, is_right = check(place)
            except (AssertionError, KeyError, IndexError, OSError, subprocess.TimeoutExpired) as error:
                expected, got, is_right = "no error", f"{type(error).__name__}: {error}", False
        wrong += not is_right
        print(f"{'right' if is_right else 'WRONG':8} {kind}: {name}\n    expected  {expected}\n    got       {got}",
              flush=True)
    print(f"{wrong} wrong")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
