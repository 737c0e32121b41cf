#!/usr/bin/env python3
"""Runs foreign training programs alone and under `habitat-tui run`, and compares; see README.md."""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
# Patterns of times, places and numbers of processes.
VARIES = [
    (re.compile(r"\b\d{4}-\d\d-\d\d\b|\b\d\d:\d\d:\d\d([.,]\d+)?"), "TIME"),
    (re.compile(r"([WEI])\d{4} TIME +\d+"), r"\1 TIME"),
    (re.compile(r"0x[0-9a-f]+"), "ADDRESS"),
    (re.compile(r"(runtime|per_second)(['\"]?: ['\"]?)[\d.e+-]+"), r"\1\2N"),
    (re.compile(r"\b[\d.]+ ?(s|ms|us|it/s|s/it|ms/step|us/step|s/step)\b"), "TIME"),
    (re.compile(r"(pid:?|process|PID)([ =])\d+"), r"\1\2PID"),
    (re.compile(r"\[W\d+ TIME"), "[W"),
]
# Operators that identify a step: the most expensive ones in most networks.
KNOWN = {"mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "native_layer_norm",
         "native_layer_norm_backward", "native_batch_norm", "native_batch_norm_backward", "index_select",
         "embedding_dense_backward", "_softmax", "_softmax_backward_data", "_log_softmax", "native_dropout",
         "gelu", "gelu_backward", "_fused_adamw_", "max_pool2d_with_indices", "nll_loss_forward", "nll_loss_backward"}
# Seconds without any work after which a job counts as hung.
IDLE = 45.0


class Case:
    """One way to start a program."""

    def __init__(self, file, name, command, needs, stdin, is_first):
        self.file, self.name, self.command, self.needs, self.stdin = file, name, command, needs, stdin
        self.is_first = is_first

    def words(self, python):
        return [word.replace("{python}", python).replace("{file}", str(self.file)) for word in shlex.split(self.command)]


def cases():
    """The start commands in the first lines of the programs."""
    found = []
    for file in sorted(PROGRAMS.glob("*.py")):
        if file.stem == "truth":
            continue
        needs, stdin, mine = [], "", []
        for line in file.read_text().splitlines():
            if not line.startswith("# "):
                break
            key, _, value = line[2:].partition(": ")
            if key == "needs":
                needs = value.split()
            elif key == "stdin":
                stdin = value.encode().decode("unicode_escape")
            else:
                assert key == "case", (file, line)
                name, _, command = value.partition(" ")
                mine.append((name, command))
        for number, (name, command) in enumerate(mine or [(file.stem.replace("_", "-"), "{python} {file}")]):
            found.append(Case(file, name, command, needs, stdin, number == 0))
    return found


class Ran:
    """Result of a run."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def line(self, mark):
        """The fields of the last line with this prefix."""
        lines = [line for line in self.out.splitlines() if line.startswith(mark + " ")]
        return dict(field.split("=", 1) for field in lines[-1].split()[1:]) if lines else {}


def left_over(token):
    """Live processes of the run, found by a variable that they inherited."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                environment = pathlib.Path("/proc", entry, "environ").read_bytes()
                if b"FOREIGN=" + token.encode() in environment.split(b"\0"):
                    state = pathlib.Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[0]
                    if state != "Z":
                        command = pathlib.Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ").decode()
                        found.append((int(entry), command.strip()))
            except OSError:
                pass
    return found


def at_work(token):
    """Whether a process of the run works or wants to, and the CPU time of all."""
    running, used = False, 0
    for pid, _ in left_over(token):
        for task in pathlib.Path("/proc", str(pid), "task").glob("*/stat"):
            try:
                fields = task.read_text().rpartition(")")[2].split()
                running |= fields[0] in "RD"
                used += int(fields[11]) + int(fields[12])
            except OSError:
                pass
    return running, used


def clean(text, root):
    text = text.replace(str(root), "FOLDER")
    for pattern, becomes in VARIES:
        text = pattern.sub(becomes, text)
    return text


def execute(case, python, variables, wrapper=()):
    """Starts it in its own folder and waits for it."""
    root = pathlib.Path(tempfile.mkdtemp(prefix="fgn."))
    token = root.name
    for name in ("w", "t", "c"):
        (root / name).mkdir()
    environment = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "USER", "LD_LIBRARY_PATH")}
    environment.update(
        TMPDIR=str(root / "t"), PYTHONPATH=str(PROGRAMS), PYTHONDONTWRITEBYTECODE="1", PYTHONHASHSEED="0",
        OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", XDG_CACHE_HOME=str(root / "c"), KERAS_HOME=str(root / "c"),
        HABITAT_TUI_CONFIG_DIR=str(root / "c/config"), FOREIGN=token, **variables)
    command = [word.replace("{root}", str(root)) for word in wrapper] + case.words(python)
    with open(root / "out", "wb") as out, open(root / "err", "wb") as err, open(root / "in", "w+b") as given:
        given.write(case.stdin.encode())
        given.seek(0)
        began = time.perf_counter()
        job = subprocess.Popen(command, cwd=root / "w", env=environment, stdin=given, stdout=out, stderr=err,
                               start_new_session=True)
        hung, looked, used, since = False, began, None, began
        while True:
            pid, status, usage = os.wait4(job.pid, os.WNOHANG)
            if pid:
                break
            now = time.perf_counter()
            if now - looked > 3 and not hung:
                # On a busy machine a job may wait long for a CPU; a hung one does not want one.
                looked = now
                running, before = at_work(token), used
                used = running[1]
                if running[0] or used != before:
                    since = now
                elif now - since > IDLE:
                    hung = True
                    for other, _ in left_over(token):
                        os.kill(other, signal.SIGKILL)
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        job.returncode = os.waitstatus_to_exitcode(status)
    time.sleep(0.3)
    lives = left_over(token)
    for pid, _ in lives:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    code = job.returncode if job.returncode >= 0 else 128 - job.returncode
    text = {name: (root / name).read_bytes().decode(errors="replace") for name in ("out", "err")}
    said = [line for line in text["err"].splitlines() if line.startswith(("habitat-tui: ", "error: "))]
    if wrapper:
        text["err"] = "".join(line for line in text["err"].splitlines(True) if not line.startswith(("habitat-tui: ", "error: ")))
    read = lambda name: json.loads((root / name).read_text()) if (root / name).exists() else None
    remains = [str(path.relative_to(root)) for place in ("t", "c", "w") for path in sorted((root / place).rglob("*"))
               if path.is_file() or path.is_socket()]
    ran = Ran(code="hung" if hung else code, out=clean(text["out"], root), err=clean(text["err"], root), said=said,
              seconds=seconds, processor=usage.ru_utime + usage.ru_stime, memory=usage.ru_maxrss / 1024,
              lives=[command for _, command in lives], remains=remains, seen=read("seen.json"),
              profile=read("p.habitat.json"), root=root)
    return ran


def kept(folder, key, make):
    """Result of `make`, cached in `folder`."""
    if folder is None:
        return make()
    path = pathlib.Path(folder, key + ".json")
    if not path.exists():
        fields = dict(make().__dict__)
        fields["root"] = str(fields["root"])
        path.write_text(json.dumps(fields))
    return Ran(**json.loads(path.read_text()))


def differences(plain, again, ran):
    """Differences that the job would notice, in a few words each; and notes on unclear ones."""
    wrong, notes = [], []
    if ran.code != plain.code:
        (wrong if plain.code == again.code else notes).append("exit %s, not %s" % (ran.code, plain.code))
    for name, what in (("out", "stdout"), ("err", "stderr")):
        mine, theirs, other = (getattr(one, name) for one in (ran, plain, again))
        drop = lambda text: re.sub(r"^COUNT .*\n", "", text, flags=re.M)
        mine, theirs, other = drop(mine), drop(theirs), drop(other)
        if mine != theirs and mine != other:
            if theirs == other:
                wrong.append(what + " differs")
            else:
                notes.append(what + " varies without the hook")
    if ran.memory > plain.memory + 200 and ran.memory > again.memory + 200:
        wrong.append("%+.0f MB" % (ran.memory - max(plain.memory, again.memory)))
    slow = max(plain.processor, again.processor)
    if ran.processor > slow * 1.3 + 3:
        wrong.append("%+.1f s of processor time" % (ran.processor - slow))
    if ran.lives and not plain.lives:
        wrong.append("left running: " + "; ".join(ran.lives))
    files = lambda one: collections.Counter(re.sub(r"\d+|_[a-z0-9_]{8}\b", "N", name) for name in one.remains
                                            if "torchinductor" not in name and "/habitat-tui/hook-" not in name)
    more = files(ran) - files(plain) - files(again)
    if more:
        wrong.append("left behind: " + " ".join(sorted(more)[:4]))
    less = (files(plain) & files(again)) - files(ran)
    if less:
        wrong.append("missing: " + " ".join(sorted(less)[:4]))
    return wrong, notes


def canonical(name):
    """One name for an operator and its implementations."""
    name = re.sub(r"^(cudnn_|miopen_|mkldnn_|_)?convolution(_transpose)?$", "convolution", name.split("::")[-1])
    return {"embedding": "index_select", "_safe_softmax": "_softmax"}.get(name, name)


def recorded(ran, counted):
    """The recording beside the truth: steps, batch, parameters, operators, and errors."""
    truth, wrong, cells = ran.line("TRUTH"), [], {}
    processes = (ran.seen or {}).get("processes", [])
    steps = [process["steps"] for process in processes if process["steps"]]
    cells["steps"] = "%s/%s" % ("+".join(map(str, steps)) or 0, truth.get("steps", "?"))
    if "steps" in truth and int(truth["steps"]) not in (sum(steps), *steps):
        wrong.append("steps")
    profile = ran.profile
    if profile is None:
        why = " ".join(ran.said) or (ran.seen or {}).get("seen") or "nothing said"
        cells["profile"] = why.replace("habitat-tui: ", "")
        return cells, wrong
    workload = profile["workload"]
    cells["profile"] = "yes"
    for name, key in (("batch", "batch_size"), ("parameters", "parameter_count")):
        found = workload.get(key)
        cells[name] = "%s/%s" % ("-" if found is None else found, truth.get(name, "-"))
        if name in truth and found != int(truth[name]):
            wrong.append(name)
        if name not in truth and found is not None and name == "batch":
            wrong.append("batch")
    mine, theirs = collections.Counter(), collections.Counter()
    for operation in profile["operations"]:
        mine[canonical(operation["name"])] += operation.get("count", 1)
    for name, count in counted.items():
        theirs[canonical(name)] += count
    cells["operators"] = "%d/%s" % (mine.total(), theirs.total() if counted else "-")
    off = ["%s %d/%d" % (name, mine[name], theirs[name]) for name in sorted(KNOWN) if counted and mine[name] != theirs[name]]
    cells["known"] = " ".join(off)
    if off:
        wrong.append("operators")
    return cells, wrong


COLUMNS = "%-24s %5s %-9s %-13s %-13s %-11s %-6s %-9s %-13s %-11s %s"
TITLES = ("program", "exit", "out/state", "MB", "processor s", "steps", "prof.", "batch", "parameters", "operators",
          "differences")


def compared(case, python, wrapper, folder, there):
    """The line of one case, and its details."""
    missing = [name for name in case.needs if there[name] == "0"]
    if missing:
        return "%-24s skipped: %s is not installed" % (case.name, ", ".join(missing)), None
    parts = [path for path in sorted(PROGRAMS.rglob("*.py"))
             if path in (case.file, PROGRAMS / "truth.py") or path.parent != PROGRAMS]
    key = case.name + "-" + hashlib.sha256(b"".join(path.read_bytes() for path in parts) + case.command.encode()).hexdigest()[:10]
    plain = again = kept(folder, key + "-1", lambda: execute(case, python, {}))
    ran = execute(case, python, {}, wrapper)
    wrong, notes = differences(plain, again, ran)
    if wrong:
        # Check whether it differs from itself as well.
        again = kept(folder, key + "-2", lambda: execute(case, python, {}))
        wrong, notes = differences(plain, again, ran)
    counted = {}
    # Cases of one program make the same steps: count only those of the first.
    if ran.profile is not None and case.is_first:
        counting = kept(folder, key + "-count", lambda: execute(case, python, {"COUNT": "1"}))
        counted = {name: int(count) for name, count in counting.line("COUNT").items()}
        shutil.rmtree(str(counting.root), ignore_errors=True)
    cells, off = recorded(ran, counted)
    states = [one.line("STATE") for one in (ran, plain, again)]
    state = "same" if states[0] == states[1] else "other" if states[1] == states[2] else "varies"
    says = wrong + ["(%s)" % note for note in notes]
    says += ["RECORDED: " + " ".join(off)] * bool(off) + [cells.get("known", "")] * bool(cells.get("known"))
    says += [cells["profile"]] * (ran.profile is None)
    line = COLUMNS % (case.name, ran.code, state, "%.0f/%.0f" % (ran.memory, plain.memory),
                      "%.1f/%.1f" % (ran.processor, plain.processor), cells["steps"], "yes" if ran.profile else "no",
                      cells.get("batch", ""), cells.get("parameters", ""), cells.get("operators", ""), "; ".join(says))
    fields = dict(ran.__dict__, root="", name=case.name, wrong=wrong, notes=notes, cells=cells, off=off, counted=counted,
                  plain=dict(plain.__dict__, root=""), again=dict(again.__dict__, root=""))
    for one in (ran, plain, again):
        shutil.rmtree(str(one.root), ignore_errors=True)
    return line, fields


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with PyTorch")
    parser.add_argument("--habitat-tui", required=True, help="the program")
    parser.add_argument("--keep", help="a folder in which plain runs are kept for another time")
    parser.add_argument("--json", help="write everything to this file")
    parser.add_argument("--option", action="append", default=[], help="more options of `habitat-tui run`")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs at a time")
    parser.add_argument("--list", action="store_true", help="only list the programs")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    options = parser.parse_args()
    python, program = os.path.abspath(options.python), os.path.abspath(options.habitat_tui)
    chosen = [case for case in cases() if not options.names or case.name in options.names or case.file.stem in options.names]
    if options.names:
        place = {name: number for number, name in enumerate(options.names)}
        chosen.sort(key=lambda case: place.get(case.name, place.get(case.file.stem)))
    if options.list:
        print("\n".join("%-24s %s" % (case.name, case.command) for case in chosen))
        return 0
    if options.keep:
        os.makedirs(options.keep, exist_ok=True)
    packages = sorted({name for case in chosen for name in case.needs})
    there = subprocess.run([python, "-c", "import importlib.util, sys\nfor name in sys.argv[1:]: "
                            "print(int(importlib.util.find_spec(name) is not None))", *packages],
                           capture_output=True, text=True, check=True).stdout.split()
    there = dict(zip(packages, there))
    wrapper = [program, "run", "-q", "-o", "{root}/p.habitat.json", "--json", "{root}/seen.json", *options.option, "--"]
    print(COLUMNS % TITLES, flush=True)
    everything, failed = [], 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in concurrent.futures.as_completed(
            pool.submit(compared, case, python, wrapper, options.keep, there) for case in chosen
        ):
            line, fields = done.result()
            print(line, flush=True)
            if fields is not None:
                everything.append(fields)
                failed += bool(fields["wrong"])
                if options.json:
                    pathlib.Path(options.json).write_text(json.dumps(everything, indent=1))
    print("%d programs, %d with differences" % (len(everything), failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
