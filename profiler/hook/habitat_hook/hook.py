"""The steps of a process: counted, timed, and a few of them recorded."""

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

# Seconds between two reports of step times.
REPORT_EVERY = 1.0
# Steps below SHORT seconds have their parts timed every SAMPLE_EVERY seconds, for SAMPLED seconds of steps.
SHORT, SAMPLE_EVERY, SAMPLED = 2e-3, 60.0, 0.5
# Steps outside a window between two windows, and before another try after a dropped one.
GAP = 10
# Dropped windows after which the next ones wait: twice as long each time, up to RARE steps, and
# until the last drop is SHARE of the time since.
PATIENCE, RARE, SHARE = 5, 1000, 0.01
# Steps of another optimizer, with none of the first in between, after which it takes its place.
SUCCESSION = 100
# Seconds that the end of the process waits for a trace being written.
EXPORT_WAIT = 60.0
# Seconds after its last step in which a window is to be closed outside of compiled code.
GRACE = 0.5
# PyTorch's optimizers whose step() breaks the graph of torch.compile by itself. After theirs
# the hook is called as ever. Of others nothing of it is traced: it breaks no graph, and sees
# no step of theirs that is compiled.
BREAK_GRAPHS = frozenset("Adadelta Adagrad Adam AdamW Adamax ASGD NAdam RAdam RMSprop Rprop SGD".split())


def untraced():
    """Where torch.compile comes upon it, it goes on without."""


untraced._torchdynamo_disable = True


class Inside:
    """While code of ours runs in the program. Our exceptions stay here. The handlers of the
    program's signals wait until we leave, where what they raise reaches the program. What
    torch.compile compiles does not see us."""

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
                self.hook.rest("an exception of the program's came while it was opened or closed")
            # Of the others we raise none.
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
        # What `after_step` reads at every step; the lists themselves stay. The stamps are rows of `Times`.
        self.times = Times()
        self.data = Data(self.times)
        self.backward = Backward(self.times)
        self.stamps = []
        self.calm = [0, 0.0, 0]
        # Held while a profiler of ours starts or stops: PyTorch may crash where another one
        # does meanwhile, or where the process forks.
        self.turn = threading.RLock()
        self.start()

    def start(self):
        """A fresh state: at the beginning, and in a forked child."""
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
        self.owners = 0  # One after the other's end.
        self.idling = (0, 0, 0)
        self.reported = time.perf_counter()
        # When the parts of short steps are timed again.
        self.sample_at = self.sampled = 0.0
        self.longest = 0.0
        self.window = None
        # Whether windows open in this process: of several ranks in the first alone.
        self.records = False
        # Whether it trains alone: of several ranks only those that record look at a step, and their times are compared.
        self.alone = False
        self.next_window = self.settings["after"]
        self.windows = 0
        self.dropped = 0
        # No window is to open before.
        self.not_before = 0.0
        self.exporter = None
        self.probe = None
        self.optimizers = Optimizers()
        # The modules that the program called in the step before the window.
        self.modules = []
        # Nodes of autograd before that step, and the memory of the process.
        self.made = self.resident = 0
        # Steps and nodes when the work of steps was reported last.
        self.worked = None

    def connect(self):
        """In a process that trains."""
        self.link = greet(self.address)
        self.send({"type": "cores", "cores": cores()})
        at_exit(self.end)
        return self.link

    # ----- forks

    def before_fork(self):
        """A child would go on recording where a window is open, and hang where another thread
        opens or closes one."""
        with Inside(self):
            if self.turn.acquire(timeout=EXPORT_WAIT):
                window = self.window
                if window is not None and window.within_reach():
                    self.lose(window, "the process forked in it")

    def after_fork(self):
        try:
            self.turn.release()
        except RuntimeError:
            pass  # It was not to be had.

    def forked(self):
        """In the child."""
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
        """What PyTorch calls after every step of every optimizer.

        After a step the processor's caches hold the program's data, and every line of Python
        here costs microseconds. So a step of the first optimizer is only noted while nothing
        else is to be done: until the next report is due, or the step before a window.
        """
        import torch  # Being imported itself: it has not all its parts yet.

        if is_before(torch_version(), (2, 3)):
            # It has no such function, and torch.compile hides the optimizers' steps, or breaks graphs.
            torch = SimpleNamespace(compiler=SimpleNamespace(is_dynamo_compiling=bool))
        clock, stamps, calm, others, step = time.perf_counter, self.stamps, self.calm, self.others, self.step
        note, sums = stamps.extend, self.times.sums

        def compiling():
            return torch.compiler.is_dynamo_compiling()

        def bind():
            """Without two modules on the way it takes half the time."""
            nonlocal compiling
            compiling = torch.compiler.is_dynamo_compiling

        # Before torch.compile meets a step: later it would compile it again.
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

        # What runs before `Inside` has turned torch.compile off.
        known = self.optimizers.knows, self.optimizers.is_full
        begin = Held.__init__, Inside.__init__, Inside.__enter__, set_eval_frame, self.look_at_window, Request.handle
        for seen in (after_step, compiling, others, *known, *begin):
            skip(seen.__code__)
        return after_step

    def calm_down(self, optimizer):
        """Lets the next steps of this optimizer only be noted, where nothing is under way."""
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
        """Takes in the steps that were only noted."""
        stamps = self.stamps
        if stamps:
            self.longest = max(self.longest, self.times.add(stamps, self.steps + 1))
            self.steps += len(stamps) // WIDTH
            stamps.clear()

    def set_data(self):
        """A fault here costs the times that are waited for data, and nothing else."""
        try:
            self.data.set()
        except Exception as problem:
            self.send({"type": "no_waits", "reason": place(problem)})

    def others(self, optimizer):
        """Whether it is the step of an optimizer that is known, and is not the one whose steps
        count: then nothing is to be done. No line here can fail."""
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
        """A step after which there may be more to do."""
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
            self.rest("nobody listens")
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
        # A step is timed up to the next one's beginning.
        now = time.perf_counter()
        if times.rows and now - self.reported > REPORT_EVERY:
            self.report(now)
            self.report_work()
        self.calm_down(optimizer)

    def own(self, optimizer):
        """Its steps count from now on, in this thread."""
        self.owner, self.thread = weakref.ref(optimizer), threading.get_ident()
        self.data.thread = self.thread
        self.backward.own(self.thread)

    def first_step(self, optimizer):
        """Reports whether others train together with this process, and begins to time the parts of its steps. If
        they do so on CPUs, its backward passes wait for theirs; on GPUs the host does not wait there."""
        import torch

        try:
            size, group = world()
        except Exception:
            size, group = 1, ""  # Its group is being made or destroyed.
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
            pass  # Another PyTorch: what it saves is not told apart then.

    def succeed(self, optimizer):
        """Training goes on with another optimizer, as when the head is trained before the rest."""
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
        """Of short steps few are divided into their parts: timing a pass takes a microsecond or more."""
        count, seconds = self.times.unreported()
        if not count or self.backward.waits or not self.backward.over:
            return
        if seconds >= SHORT * count:
            self.backward.put(True)
        elif self.backward.is_timed():
            # The first report has one step, and one before a window a few.
            self.sampled += seconds
            if self.sampled >= SAMPLED:
                self.backward.put(False)
                self.sample_at, self.sampled = now + SAMPLE_EVERY, 0.0
        elif now >= self.sample_at:
            self.backward.put(True)

    def report_work(self):
        """Sends how many nodes of autograd the steps since the last time made: later ones may do more
        than the recorded ones, as where gradients are accumulated over more and more batches."""
        if threading.get_ident() != self.thread:
            return  # Each thread counts its own.
        before, self.worked = self.worked, (self.steps, nodes())
        if before is not None and self.steps > before[0]:
            made = self.worked[1] - before[1]
            self.send({"type": "work", "steps": self.steps - before[0], "nodes": max(made, 0), "of": "later"})

    def between(self, step, optimizer):
        """Outside a window: is it time to look at the model, or to open one?"""
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
        """Whether another window is to be recorded."""
        if self.settings.get("every", 0) > 0:
            return True
        return self.windows < self.settings["windows"]

    def look(self, optimizer):
        """Watches one step, the last before the window: how much it is, and what the model is given."""
        self.made, self.resident = nodes(), resident_bytes()
        if self.windows:
            return
        self.probe = Inputs(optimizer, self.times.sums)
        self.data.batches = []

    def looked(self, step):
        """How many steps are to be recorded, and, where that is not as many as asked, why."""
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
        """The reason why no window with this number of events may be opened now, else None."""
        import torch

        if self.guard.user_profiles():
            return "users_profiler"
        if in_backward():
            # PyTorch takes a profiler that was started there back out when it leaves.
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
        """After a step of an open window."""
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
            window.next_mark(None)  # It closes when the capture is over.
        elif not window.complete and in_region():
            window.next_mark(None)
            window.complete, window.completed = True, time.perf_counter()
            window.wake.set()
        elif window.complete and time.perf_counter() < window.completed + GRACE:
            pass
        else:
            self.close(window)

    def look_at_window(self):
        """Some times a second while a window is open, anywhere in the program."""
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
        """A profiler of the user's is about to start."""
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
        """After the last step of a window, unless another thread has dropped it."""
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
        """Lets go of an open window, unless another thread has. What doomed it before is the
        reason that counts."""
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
        """No window this time; another is tried later."""
        self.dropped += 1
        # A step later each time, so that what happens every ten steps is not met each time.
        waits = min(GAP << min(max(self.dropped - PATIENCE, 0), 10), RARE) + self.dropped - 1
        every = self.settings.get("every", 0)
        if every:
            # Of a job of weeks some are missed: the next comes when it would have come anyway.
            waits = every if self.windows else min(waits, every)
        self.next_window = self.steps + max(GAP, waits)
        self.send({"type": "window", "state": "dropped", "step": self.steps, "reason": reason})

    def rest(self, reason):
        """Leaves nothing of ours open in the program."""
        probe, self.probe = self.probe, None
        if probe is not None:
            probe.stop()
        window = self.window
        if window is not None and window.within_reach():
            self.lose(window, reason)

    def fail(self, problem):
        """A fault of ours: nothing more is recorded in this process, and the listener told."""
        try:
            self.settings = dict(self.settings, windows=0, every=0)
            self.rest("the hook failed")
            self.send({"type": "fault", "reason": place(problem)})
        except Exception:
            pass

    # ----- the end

    def end(self):
        """When the process ends by itself."""
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
