"""Counts and times the steps of a process, and records a few of them."""

import math
import os
import sys
import threading
import time
import weakref
from types import SimpleNamespace

from .backward import Backward
from .data import Data, time_fetches
from .extent import MOST_EVENTS, events, nodes, steps
from .growth import resident_bytes
from .guard import Guard
from .inputs import Inputs
from .limits import short_of
from .link import greet, place
from .memory import held, peak_memory
from .optimizers import Optimizers, trained
from .process import at_exit, cores, rank, world
from .pytorch import all_threads, capturing, in_backward, in_region, is_before
from .pytorch import set_eval_frame, skip, torch_version
from .signals import Held, Request, in_main
from .times import END, MARK, WIDTH, Times, time_saves
from .window import OPEN_SECONDS, OPEN_TIMES, Window, export, release

# Seconds between reports of step times.
REPORT_EVERY = 1.0
# Steps shorter than SHORT seconds have their parts timed every SAMPLE_EVERY seconds, for SAMPLED seconds of
# steps.
SHORT, SAMPLE_EVERY, SAMPLED = 2e-3, 60.0, 0.5
# Steps between two windows, and before the next try after a dropped window.
GAP = 10
# After PATIENCE dropped windows the wait doubles each time, up to RARE steps, and until the last drop took at
# most SHARE of the time since.
PATIENCE, RARE, SHARE = 5, 1000, 0.01
# Consecutive steps of another optimizer after which the hook counts that one instead.
SUCCESSION = 100
# Seconds that the process waits at its end for a trace being written.
EXPORT_WAIT = 60.0
# Seconds after its last step in which a window should close outside of compiled code.
GRACE = 0.5
# PyTorch's optimizers whose step() breaks the graph of torch.compile anyway; the hook runs after theirs as
# usual. For other optimizers torch.compile traces nothing of the hook: it breaks no graph, and does not see
# their compiled steps.
BREAK_GRAPHS = frozenset("Adadelta Adagrad Adam AdamW Adamax ASGD NAdam RAdam RMSprop Rprop SGD".split())


def untraced():
    """torch.compile does not trace this: it breaks the graph here."""


untraced._torchdynamo_disable = True


class Inside:
    """Marks that the hook's code runs inside the program. Catches the hook's exceptions. Signal handlers of the
    program wait until we leave, so that their exceptions reach the program. torch.compile does not see this
    code."""

    def __init__(self, hook):
        self.hook = hook
        self.held = Held()

    def __enter__(self):
        self.callback = set_eval_frame(None)
        self.held.__enter__()
        self.hook.busy = True

    def __exit__(self, kind, problem, _):
        self.hook.busy = False
        try:
            if isinstance(problem, Exception):
                self.hook.fail(problem)
            elif problem is not None:
                self.hook.rest("the program raised an exception while the window opened or closed")
            # Never raise other exceptions of ours.
            return problem is None or isinstance(problem, Exception)
        finally:
            try:
                self.held.leave([])
            finally:
                set_eval_frame(self.callback)


class Hook:
    """The state of one process."""

    def __init__(self, settings, address):
        self.address = address
        self.guard = Guard(self.make_way)
        self.settings = settings
        # Read by `after_step` at every step; the list objects themselves stay. The stamps are rows of `Times`.
        self.times = Times()
        self.data = Data(self.times)
        self.backward = Backward(self.times)
        self.stamps = []
        self.calm = [0, 0.0, 0]
        # Held while our profiler starts or stops: PyTorch may crash if another profiler starts or stops
        # meanwhile, or if the process forks.
        self.turn = threading.RLock()
        self.start()

    def start(self):
        """Resets the state: at the beginning, and in a forked child."""
        self.pid = os.getpid()
        self.calm[0] = 0
        self.stamps.clear()
        self.times.begin()
        self.data.start()
        self.backward.start()
        self.guard.ours = None
        self.busy = False
        self.link = None
        self.ended = False
        self.steps = 0
        self.owner = self.thread = None
        self.owners = 0  # Optimizers counted so far, one after another.
        self.idling = (0, 0, 0)
        self.reported = time.perf_counter()
        # When the parts of short steps are timed next.
        self.sample_at = self.sampled = 0.0
        self.longest = 0.0
        self.window = None
        # Whether this process records windows: of several ranks only the first does.
        self.records = False
        # Whether the process trains alone. Of several ranks only those that record look at a step, because
        # their times are compared.
        self.alone = False
        self.next_window = self.settings["after"]
        self.windows = 0
        self.dropped = 0
        # Time before which no window opens.
        self.not_before = 0.0
        self.exporter = None
        self.probe = None
        self.optimizers = Optimizers()
        # Modules that the program called in the step before the window.
        self.modules = []
        # Autograd nodes before that step, and the memory of the process.
        self.made = self.resident = 0
        # Steps and nodes at the last report of the work of steps.
        self.worked = None

    def connect(self):
        """Connects to the listener, in a process that trains."""
        self.link = greet(self.address)
        self.send({"type": "cores", "cores": cores()})
        at_exit(self.end)
        return self.link

    # ----- forks

    def before_fork(self):
        """Drops an open window: a child would go on recording, and would hang if another thread opens or closes
        a window."""
        with Inside(self):
            if self.turn.acquire(timeout=EXPORT_WAIT):
                window = self.window
                if window is not None and window.within_reach():
                    self.lose(window, "the process forked in it")

    def after_fork(self):
        try:
            self.turn.release()
        except RuntimeError:
            pass  # before_fork() did not get the lock.

    def forked(self):
        """Resets the state in a forked child."""
        with Inside(self):
            self.turn = threading.RLock()
            if self.probe is not None:
                self.probe.stop()
            self.start()
            time_fetches(self.address)

    def send(self, message):
        if self.link is not None:
            self.link.send(message)

    # ----- steps

    def after_step(self):
        """Returns the function that PyTorch calls after every step of every optimizer.

        After a step the CPU caches hold the program's data, and every line of Python here costs microseconds.
        So while there is nothing else to do (until the next report, or the step before a window), a step of the
        first optimizer is only noted.
        """
        import torch  # The function runs during PyTorch's import, when parts are missing.

        if is_before(torch_version(), (2, 3)):
            # It lacks is_dynamo_compiling(), and torch.compile hides the optimizers' steps, or breaks graphs.
            torch = SimpleNamespace(compiler=SimpleNamespace(is_dynamo_compiling=bool))
        clock, stamps, calm, others, step = time.perf_counter, self.stamps, self.calm, self.others, self.step
        note, sums = stamps.extend, self.times.sums

        def compiling():
            return torch.compiler.is_dynamo_compiling()

        def bind():
            """Skips two attribute look-ups, which halves the time."""
            nonlocal compiling
            compiling = torch.compiler.is_dynamo_compiling

        # Must run before torch.compile meets a step, else it compiles the step again.
        self.backward.at_first = bind

        def after_step(optimizer, args, kwargs):
            if compiling():
                if type(optimizer).__name__ in BREAK_GRAPHS:
                    untraced()
                return
            if id(optimizer) == calm[0]:
                now = clock()
                if now < calm[1] and len(stamps) < calm[2]:
                    sums[END] = sums[MARK] = now
                    note(sums)
                    return
            elif others(optimizer):
                return
            with Inside(self):
                step(optimizer)

        # Code that runs before `Inside` has turned torch.compile off.
        known = self.optimizers.knows, self.optimizers.is_full
        begin = Held.__init__, Inside.__init__, Inside.__enter__, set_eval_frame, self.look_at_window, Request.handle
        for seen in (after_step, compiling, others, *known, *begin):
            skip(seen.__code__)
        return after_step

    def calm_down(self, optimizer):
        """Only notes the next steps of this optimizer, if nothing else is in progress."""
        if self.times.before is None or not self.guard.is_set:
            return
        if self.window is not None or self.exporter is not None or self.probe is not None:
            return
        room = sys.maxsize
        if self.has_more():
            if self.records:
                room = self.next_window - 2 - self.steps
        self.calm[1:] = self.reported + REPORT_EVERY, room * WIDTH
        self.calm[0] = id(optimizer)

    def catch_up(self):
        """Adds the steps that were only noted."""
        stamps = self.stamps
        if stamps:
            self.longest = max(self.longest, self.times.add(stamps, self.steps + 1))
            self.steps += len(stamps) // WIDTH
            stamps.clear()

    def set_data(self):
        """Times waits for data. A fault here costs only those times."""
        try:
            self.data.set()
        except Exception as problem:
            self.send({"type": "no_waits", "reason": place(problem)})

    def others(self, optimizer):
        """Whether this is a step of a known optimizer other than the one whose steps count, so that there is
        nothing to do. No line here can fail."""
        owner = self.owner() if self.owner is not None else None
        if owner is None or owner is optimizer:
            return False
        made, who, since = self.idling
        steps = self.steps * WIDTH + len(self.stamps)
        if made != steps or who != id(optimizer):
            made, who, since = steps, id(optimizer), 0
        self.idling = made, who, since + 1
        if since + 1 >= SUCCESSION:
            return False
        return self.optimizers.knows(optimizer) or self.optimizers.is_full()

    def step(self, optimizer):
        """Handles a step after which there may be more to do."""
        if not self.guard.is_set:
            self.guard.set()
        link = self.link or self.connect()
        if not self.data.is_set:
            self.set_data()
        owner = self.owner() if self.owner is not None else None
        if owner is None:
            self.own(optimizer)
            self.owners += 1
            self.first_step(optimizer)
        elif owner is not optimizer:
            self.optimizers.note(optimizer)
            if self.idling[2] >= SUCCESSION:
                self.succeed(optimizer)
            return
        self.calm[0] = 0
        if not link.alive:
            self.rest("the listener is gone")
            return
        now, times = time.perf_counter(), self.times
        self.catch_up()
        self.steps += 1
        step = self.steps
        if self.exporter is not None and not self.exporter.is_alive():
            self.exporter = None
            times.before = None
        sums = times.sums
        sums[END] = sums[MARK] = now
        if times.before is not None and self.window is None and self.exporter is None and self.probe is None:
            self.longest = max(self.longest, times.add(sums[:], step))
        else:
            self.report(now)
        times.before = sums[:]
        window = self.window
        if window is not None:
            self.within(window, step)
        else:
            self.between(step, optimizer)
        # A step is timed until the next one begins.
        now = time.perf_counter()
        if times.rows and now - self.reported > REPORT_EVERY:
            self.report(now)
            self.report_work()
        self.calm_down(optimizer)

    def own(self, optimizer):
        """Counts the steps of this optimizer from now on, in this thread."""
        self.owner, self.thread = weakref.ref(optimizer), threading.get_ident()
        self.data.thread = self.thread
        self.backward.own(self.thread)

    def first_step(self, optimizer):
        """Reports whether this process trains together with others, and starts timing the parts of its steps.
        On CPUs its backward passes wait for the other ranks; on GPUs the host does not wait there."""
        import torch

        try:
            size, group = world()
        except Exception:
            size, group = 1, ""  # The group is being created or destroyed.
        self.send({"type": "world", "rank": rank(), "size": size, "group": group})
        self.alone = size == 1
        self.records = self.settings["all_ranks"] or size == 1 or rank() in (None, 0)
        if self.alone and self.has_more():
            self.times.passes = None
        waits = size > 1 and not torch.cuda.is_initialized()
        waits = waits and all(one.device.type == "cpu" for one in trained(optimizer)[:1])
        self.backward.measure(self.thread, waits)
        try:
            time_saves(self.times, lambda thread: thread == self.thread)
        except Exception:
            pass  # This PyTorch differs: saves are not timed separately.

    def succeed(self, optimizer):
        """Goes on with another optimizer, as when the head is trained before the rest."""
        self.calm[0] = 0
        self.catch_up()
        self.report(time.perf_counter())
        self.rest("another optimizer went on")
        self.own(optimizer)
        self.times.before, self.times.passes, self.idling = None, (0.0, math.inf), (0, 0, 0)
        self.next_window = max(self.next_window, self.steps + GAP)

    def report(self, now):
        """Sends the times of consecutive steps."""
        if self.times.rows:
            self.reported = now
        self.sample(now)
        text = self.times.report(now, self.data.workers, self.backward.waits)
        if text is not None and self.link is not None:
            self.link.send_text(text)

    def sample(self, now):
        """Divides only a sample of short steps into parts: timing a pass takes a microsecond or more."""
        count, seconds = self.times.unreported()
        if not count or self.backward.waits or not self.backward.over:
            return
        if seconds >= SHORT * count:
            self.backward.put(True)
        elif self.backward.is_timed():
            # The first report has one step, and one before a window has a few.
            self.sampled += seconds
            if self.sampled >= SAMPLED:
                self.backward.put(False)
                self.sample_at, self.sampled = now + SAMPLE_EVERY, 0.0
        elif now >= self.sample_at:
            self.backward.put(True)

    def report_work(self):
        """Sends the number of autograd nodes since the last report: later steps may do more than the recorded
        ones, for example when gradients are accumulated over more and more batches."""
        if threading.get_ident() != self.thread:
            return  # Each thread counts its own.
        before, self.worked = self.worked, (self.steps, nodes())
        if before is not None and self.steps > before[0]:
            made = self.worked[1] - before[1]
            self.send({"type": "work", "steps": self.steps - before[0], "nodes": max(made, 0), "of": "later"})

    def between(self, step, optimizer):
        """Outside a window: looks at the model, or opens a window, when it is time."""
        settings = self.settings
        if not self.has_more():
            return
        if self.exporter is not None or step < self.next_window - 1:
            return
        if not self.records:
            return
        if step < self.next_window:
            if time.perf_counter() < self.not_before:
                self.next_window += GAP
                return
            self.look(optimizer)
            return
        self.optimizers.note(optimizer)
        length = self.looked(step)
        if not capturing():
            with self.turn:
                self.open(step, length)

    def has_more(self):
        """Whether another window will be recorded."""
        if self.settings.get("every", 0) > 0:
            return True
        return self.windows < self.settings["windows"]

    def look(self, optimizer):
        """Watches the last step before the window: how much it does, and the inputs of the model."""
        self.made, self.resident = nodes(), resident_bytes()
        if self.windows:
            return
        self.probe = Inputs(optimizer, self.times.sums)
        self.data.batches = []

    def looked(self, step):
        """Number of steps to record, and why it is below the requested number, if it is."""
        made, probe, self.probe = nodes(), self.probe, None
        made -= self.made if made >= self.made else 0  # Each thread counts its own.
        calls = 0
        if probe is not None:
            probe.stop()
            if self.alone:
                self.times.passes = probe.passes()
            self.modules, calls = list(probe.outer.values()), probe.unseen
            self.send(dict(probe.found, type="model", step=step, batches=self.data.noted()))
        self.send({"type": "work", "steps": 1, "nodes": made, "of": "looked"})
        self.worked = (self.steps, nodes())
        total = events(made, self.optimizers.tensors(self.thread), calls, self.settings)
        return steps(self.settings["window"], total), total

    # ----- windows

    def obstacle(self, everywhere, events):
        """Why no window with this number of events may open now, else None."""
        import torch

        if self.guard.user_profiles():
            return "users_profiler"
        if in_backward():
            # When PyTorch leaves backward(), it removes a profiler that was started there.
            return "the optimizer steps inside backward(), where PyTorch's profiler cannot be started"
        if not in_main() and everywhere is None:
            reason = "the training runs in a thread beside the main one, which PyTorch %s cannot record (a newer one can)"
            return reason % torch.__version__
        folder = self.settings["folder"]
        if not os.path.isdir(folder):
            return "the folder for its trace, %s, is gone" % folder
        return short_of(folder, events)

    def open(self, step, extent):
        everywhere = None if in_main() else all_threads()
        length, total = extent
        reason = self.obstacle(everywhere, length * total)
        if reason is None and length < 1:
            reason = "a step has about %d operators, too many to record (%d at most)" % (total, MOST_EVENTS)
        if reason is not None:
            self.miss(reason)
            return
        began = time.perf_counter()
        window = self.window = Window(step, length, everywhere)
        self.guard.ours = threading.get_ident()
        try:
            window.start(bool(self.settings["memory"]), bool(self.settings.get("stacks")))
        finally:
            self.guard.ours = None
        window.next_mark(step + 1)
        seconds, grows = max(OPEN_SECONDS, OPEN_TIMES * length * self.longest), resident_bytes() - self.resident
        window.watch(seconds, grows, self.look_at_window)
        now = self.times.mark()
        message = {"type": "window", "state": "opened", "step": step}
        message["cost_us"] = round((now - began) * 1e6, 1)
        if length < self.settings["window"]:
            message["note"] = "a step has about %d operators: %d of %d steps recorded" % (
                total,
                length,
                self.settings["window"],
            )
        self.send(message)

    def within(self, window, step):
        """Handles a step of an open window."""
        if step == window.last and not window.is_elsewhere():
            window.made, self.worked = nodes() - window.nodes, (self.steps, nodes())
        if window.is_elsewhere():
            window.doom = "the training went on in another thread while it was recorded"
        elif in_backward():
            pass
        elif window.doom is not None and not capturing():
            self.lose(window, window.doom)
        elif step < window.last:
            window.next_mark(step + 1)
        elif capturing():
            window.next_mark(None)  # The window closes when the capture ends.
        elif not window.complete and in_region():
            window.next_mark(None)
            window.complete, window.completed = True, time.perf_counter()
            window.wake.set()
        elif window.complete and time.perf_counter() < window.completed + GRACE:
            pass
        else:
            self.close(window)

    def look_at_window(self):
        """Runs a few times a second while a window is open, anywhere in the program."""
        if self.busy:
            return
        with Inside(self):
            window = self.window
            if window is None or not window.within_reach():
                return
            with self.turn:
                reason = window.doom or window.excess()
                if window.complete:
                    if not in_region():
                        self.close(window)
                elif reason is not None:
                    self.lose(window, reason)

    def make_way(self):
        """Drops the window: a profiler of the user's is about to start."""
        away = None
        with Inside(self):
            if self.turn.acquire(timeout=EXPORT_WAIT):
                try:
                    window = self.window
                    if window is not None and window.within_reach():
                        self.lose(window, "users_profiler")
                    else:
                        away = window
                finally:
                    self.turn.release()
        if away is not None:
            away.have_dropped("users_profiler")

    def close(self, window):
        """Closes a window after its last step, unless another thread has dropped it."""
        began = time.perf_counter()
        with self.turn:
            if window is not self.window:
                return
            every = self.settings.get("every", 0)
            self.window, self.next_window = None, max(self.steps + GAP, window.after + every)
            profile = window.end()
        modules = [module for module in (there() for there in self.modules) if module is not None]
        remains = held(self.optimizers.those_there(self.thread), modules)
        now = self.times.mark()
        self.windows += 1
        self.optimizers.forget()
        if window.made is not None:
            self.send({"type": "work", "steps": window.last - window.after, "nodes": window.made, "of": "recorded"})
        self.send(
            {
                "type": "window",
                "state": "closed",
                "step": min(self.steps, window.last),
                "cost_us": round((now - began) * 1e6, 1),
                "parameters": self.optimizers.parameters(self.thread),
                "optimizers": self.owners,
                "rank": rank(),
                "peak_memory_bytes": peak_memory(),
                "held": remains,
            }
        )
        self.exporter = threading.Thread(
            target=export,
            args=(
                [profile],
                self.settings["folder"],
                self.address,
                self.windows,
                window.after + 1,
                min(self.steps, window.last),
            ),
            name="habitat-tui",
        )
        self.exporter.start()

    def lose(self, window, reason):
        """Drops an open window, unless another thread has. If the window was doomed before, that reason counts.
        """
        with self.turn:
            if window is not self.window:
                return
            self.window = self.times.before = None
            self.miss(window.doom or reason)
            began = time.perf_counter()
            release(window.end())
            if self.dropped >= PATIENCE:
                now = time.perf_counter()
                self.not_before = now + (now - began) / SHARE

    def miss(self, reason):
        """Skips this window; tries again later."""
        self.dropped += 1
        # Wait one step longer each time, so that windows do not always meet an event that recurs every ten
        # steps.
        waits = min(GAP << min(max(self.dropped - PATIENCE, 0), 10), RARE) + self.dropped - 1
        every = self.settings.get("every", 0)
        if every:
            # A job of weeks misses some windows: the next one comes when it would have come anyway.
            waits = every if self.windows else min(waits, every)
        self.next_window = self.steps + max(GAP, waits)
        self.send({"type": "window", "state": "dropped", "step": self.steps, "reason": reason})

    def rest(self, reason):
        """Leaves nothing of the hook open in the program."""
        probe, self.probe = self.probe, None
        if probe is not None:
            probe.stop()
        window = self.window
        if window is not None and window.within_reach():
            self.lose(window, reason)

    def fail(self, problem):
        """After a fault of the hook: reports it, and records nothing more in this process."""
        try:
            self.settings = dict(self.settings, windows=0, every=0)
            self.rest("the hook failed")
            self.send({"type": "fault", "reason": place(problem)})
        except Exception:
            pass

    # ----- the end

    def end(self):
        """Runs when the process exits normally."""
        if self.ended or os.getpid() != self.pid:
            return
        self.ended = True
        with Inside(self):
            window = self.window
            if window is not None and window.within_reach():
                crashed = getattr(sys, "last_value", None) is not None
                if window.doom is not None:
                    self.lose(window, window.doom)
                elif crashed or self.steps == window.after:
                    self.lose(window, "the process %s in the window" % ("crashed" if crashed else "ended"))
                else:
                    self.close(window)
            if self.exporter is not None:
                self.exporter.join(EXPORT_WAIT)
            self.catch_up()
            if self.link is not None:
                self.report(0.0)
                self.report_work()
                after = self.times.after(self.steps)
                if after is not None:
                    self.send(after)
                self.send({"type": "exit", "steps": self.steps, "backward_passes": self.backward.count})
                self.link.finish(1.0)
