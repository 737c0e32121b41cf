"""The steps of a process: counted, timed, and a few of them recorded."""

import os
import sys
import threading
import time
import weakref

from .guard import Guard
from .inputs import Inputs
from .link import greet
from .memory import held, peak_memory
from .optimizers import Optimizers
from .process import at_exit, free_bytes, rank
from .pytorch import all_threads, capturing, compiled, in_backward
from .signals import Held, in_main
from .window import OPEN_SECONDS, OPEN_TIMES, SPARE, Window, export

# Seconds between two reports of step times.
REPORT_EVERY = 0.25
# Steps outside a window between two windows, and before another try after a dropped one.
GAP = 10
# Windows dropped before giving up.
PATIENCE = 5
# Steps of another optimizer, with none of the first in between, after which it takes its place.
SUCCESSION = 100
# Seconds that the end of the process waits for a trace being written.
EXPORT_WAIT = 60.0


class Hook:
    """The state of one process."""

    def __init__(self, settings, address):
        self.address = address
        self.guard = Guard(self.make_way)
        self.settings = settings
        # What `after_step` reads at every step; the lists themselves stay.
        self.stamps = []
        self.calm = [0, 0.0, 0]
        self.start()

    def start(self):
        """A fresh state: at the beginning, and in a forked child that trains itself."""
        self.pid = os.getpid()
        self.forked()
        self.link = None
        self.ended = False
        self.steps = 0
        self.owner = None
        self.idle = (0, 0, 0)
        self.last = None
        self.times = []
        self.first_time = 0
        self.reported = time.perf_counter()
        self.longest = 0.0
        self.window = None
        self.next_window = self.settings["after"]
        self.windows = 0
        self.dropped = 0
        self.exporter = None
        self.probe = None
        self.optimizers = Optimizers()
        # The modules that the program called in the step before the window.
        self.modules = []
        at_exit(self.end)

    def connect(self):
        if self.link is None:
            self.link = greet(self.address)
        return self.link

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
        clock, stamps, calm, others, step = time.perf_counter, self.stamps, self.calm, self.others, self.step
        note = stamps.append

        def after_step(optimizer, args, kwargs):
            if id(optimizer) == calm[0]:
                now = clock()
                if now < calm[1] and len(stamps) < calm[2]:
                    note(now)
                    return
            elif others(optimizer):
                return
            with Held():
                try:
                    step(optimizer)
                except Exception as problem:
                    self.fail(problem)

        # torch.compile leaves it alone, in place of compiling it again at every step.
        after_step._torchdynamo_disable = True
        return after_step

    def forked(self):
        """Nothing is calm in a child: it has not made these steps. Nor has it the threads."""
        self.calm[0] = 0
        self.stamps.clear()
        # Held while a profiler of ours starts or stops: PyTorch may crash where another one
        # does meanwhile.
        self.turn, self.guard.ours = threading.RLock(), None

    def calm_down(self, optimizer):
        """Lets the next steps of this optimizer only be noted, where nothing is under way."""
        if self.last is None or not self.guard.is_set:
            return
        if self.window is not None or self.exporter is not None or self.probe is not None:
            return
        room = sys.maxsize
        if self.windows < self.settings["windows"] and self.dropped < PATIENCE:
            if self.settings["all_ranks"] or rank() in (None, 0):
                room = self.next_window - 2 - self.steps
        self.calm[1:] = self.reported + REPORT_EVERY, room
        self.calm[0] = id(optimizer)

    def catch_up(self):
        """Takes in the steps that were only noted."""
        if self.stamps and not self.times:
            self.first_time = self.steps + 1
        for stamp in self.stamps:
            self.timed(stamp)
        self.steps += len(self.stamps)
        self.stamps.clear()

    def timed(self, now):
        """The time of a step, from the end of the one before."""
        took = now - self.last
        if took > self.longest:
            self.longest = took
        self.times.append(round(took * 1e6, 1))
        self.last = now

    def others(self, optimizer):
        """Whether it is the step of an optimizer that is known, and is not the one whose steps
        count: then nothing is to be done. No line here can fail."""
        owner = self.owner() if self.owner is not None else None
        if owner is None or owner is optimizer:
            return False
        made, who, since = self.idle
        if made != self.steps + len(self.stamps) or who != id(optimizer):
            made, who, since = self.steps + len(self.stamps), id(optimizer), 0
        self.idle = made, who, since + 1
        if since + 1 >= SUCCESSION or os.getpid() != self.pid:
            return False
        return self.optimizers.knows(optimizer) or self.optimizers.is_full()

    def step(self, optimizer):
        """A step after which there may be more to do."""
        if os.getpid() != self.pid:
            self.start()  # A fork of the process that imported torch trains by itself.
        if not self.guard.is_set:
            self.guard.set()
        link = self.link or self.connect()
        owner = self.owner() if self.owner is not None else None
        if owner is None:
            self.owner = weakref.ref(optimizer)
        elif owner is not optimizer:
            self.optimizers.note(optimizer)
            if self.idle[2] >= SUCCESSION:
                self.succeed(optimizer)
            return
        self.calm[0] = 0
        if not link.alive:
            self.rest()
            return
        now = time.perf_counter()
        self.catch_up()
        self.steps += 1
        step = self.steps
        if self.exporter is not None and not self.exporter.is_alive():
            self.exporter = None
            self.last = None
        if self.last is not None and self.window is None and self.exporter is None and self.probe is None:
            if not self.times:
                self.first_time = step
            self.timed(now)
        elif self.times:
            self.report(now)
        self.last = now
        window = self.window
        if window is not None:
            self.within(window, step)
        else:
            self.between(step, optimizer)
        # A step is timed up to the next one's beginning.
        now = time.perf_counter()
        if self.times and now - self.reported > REPORT_EVERY:
            self.report(now)
        self.calm_down(optimizer)

    def succeed(self, optimizer):
        """Training goes on with another optimizer, as when the head is trained before the rest."""
        self.calm[0] = 0
        self.catch_up()
        self.report(time.perf_counter())
        self.rest()
        self.owner, self.last, self.idle = weakref.ref(optimizer), None, (0, 0, 0)
        self.next_window = max(self.next_window, self.steps + GAP)

    def report(self, now):
        """Sends the times of consecutive steps."""
        self.reported = now
        times, self.times = self.times, []
        if times:
            self.send({"type": "steps", "first": self.first_time, "times_us": times})

    def between(self, step, optimizer):
        """Outside a window: is it time to look at the model, or to open one?"""
        settings = self.settings
        if self.windows >= settings["windows"] or self.dropped >= PATIENCE:
            return
        if self.exporter is not None or step < self.next_window - 1:
            return
        if not settings["all_ranks"] and rank() not in (None, 0):
            return
        if step < self.next_window:
            self.look(optimizer)
            return
        self.optimizers.note(optimizer)
        self.looked(step)
        if not capturing():
            with self.turn:
                self.open(step)

    def look(self, optimizer):
        """Watches the modules' inputs for one step, the last before the window."""
        if self.windows or self.dropped or compiled():
            return  # A global hook would have compiled code compiled again.
        self.probe = Inputs(optimizer)

    def looked(self, step):
        probe, self.probe = self.probe, None
        if probe is not None:
            probe.stop()
            self.modules = list(probe.outer.values())
            self.send(dict(probe.found, type="model", step=step))

    # ----- windows

    def obstacle(self, everywhere):
        """Why no window may be opened now, else None."""
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
        free = free_bytes(folder)
        if free is not None and free < SPARE:
            reason = "%.0f MB are free in %s, and a trace may need %.0f MB; set XDG_CACHE_HOME to a folder with room"
            return reason % (free / 1e6, folder, SPARE / 1e6)
        return None

    def open(self, step):
        everywhere = None if in_main() else all_threads()
        reason = self.obstacle(everywhere)
        if reason is not None:
            self.miss(reason)
            return
        began = time.perf_counter()
        window = self.window = Window(step, everywhere)
        self.guard.ours = threading.get_ident()
        try:
            window.start(bool(self.settings["memory"]), bool(self.settings.get("stacks")))
        except Exception as problem:
            self.dropped = PATIENCE
            self.lose(window, "torch.profiler did not start: %s" % str(problem)[:200])
            return
        finally:
            self.guard.ours = None
        window.next_mark(step + 1)
        self.limit(window)
        self.last = time.perf_counter()
        cost = round((self.last - began) * 1e6, 1)
        self.send({"type": "window", "state": "opened", "step": step, "cost_us": cost})

    def within(self, window, step):
        """After a step of an open window."""
        if window.is_elsewhere():
            window.doom = "the training went on in another thread while it was recorded"
        elif not window.within_reach():
            pass
        elif window.doom is not None:
            self.lose(window, window.doom)
        elif step >= window.after + self.settings["window"]:
            self.close(window)
        else:
            window.next_mark(step + 1)

    def limit(self, window):
        """Has a window dropped that stays open."""
        window.limit(max(OPEN_SECONDS, OPEN_TIMES * self.settings["window"] * self.longest), self.overdue)

    def overdue(self, window, seconds):
        try:
            if window is not self.window or os.getpid() != self.pid:
                pass
            elif window.within_reach():
                self.lose(window, "it was open for %.0f s and its steps did not end; did a validation begin?" % seconds)
            else:
                self.limit(window)
        except Exception as problem:
            self.fail(problem)

    def make_way(self):
        """A profiler of the user's is about to start."""
        away = None
        with Held():
            try:
                if self.pid == os.getpid() and self.turn.acquire(timeout=EXPORT_WAIT):
                    try:
                        window = self.window
                        if window is not None and window.within_reach():
                            self.lose(window, "users_profiler")
                        else:
                            away = window
                    finally:
                        self.turn.release()
            except Exception:
                pass
        if away is not None:
            away.have_dropped("users_profiler")

    def close(self, window):
        """After the last step of a window, unless another thread has dropped it."""
        began = time.perf_counter()
        with self.turn:
            if window is not self.window:
                return
            self.window, self.next_window = None, self.steps + GAP
            try:
                profile = window.end()
            except Exception as problem:
                self.last = None
                self.miss("torch.profiler did not stop: %s" % str(problem)[:200])
                return
        modules = [module for module in (there() for there in self.modules) if module is not None]
        remains = held(self.optimizers.those_there(), modules)
        self.last = time.perf_counter()
        self.windows += 1
        self.optimizers.forget()
        self.send(
            {
                "type": "window",
                "state": "closed",
                "step": self.steps,
                "cost_us": round((self.last - began) * 1e6, 1),
                "parameters": self.optimizers.parameters(),
                "optimizers": len(self.optimizers),
                "rank": rank(),
                "peak_memory_bytes": peak_memory(),
                "held": remains,
            }
        )
        self.exporter = threading.Thread(
            target=export,
            args=(profile, self.settings["folder"], self.address, self.windows, window.after + 1, self.steps),
            name="habitat-tui",
        )
        self.exporter.start()

    def lose(self, window, reason, tell=True):
        """Lets go of an open window, unless another thread has. What doomed it before is the
        reason that counts."""
        with self.turn:
            if window is not self.window:
                return
            self.window = self.last = None
            self.miss(window.doom or reason, tell)
            try:
                window.end()
            except Exception:
                pass

    def miss(self, reason, tell=True):
        """No window this time; another is tried later."""
        self.dropped += 1
        self.next_window = self.steps + GAP
        if tell:
            self.send({"type": "window", "state": "dropped", "step": self.steps, "reason": reason})

    def rest(self):
        """Leaves nothing of ours open in the program."""
        probe, self.probe = self.probe, None
        if probe is not None:
            probe.stop()
        window = self.window
        if window is not None and window.within_reach():
            self.lose(window, "nobody listens", tell=False)

    def fail(self, problem):
        """A fault of ours: nothing more is recorded in this process, and the listener told."""
        try:
            self.settings = dict(self.settings, windows=0)
            self.rest()
            where = problem.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            place = "?"
            if where is not None:
                place = "%s:%d" % (os.path.basename(where.tb_frame.f_code.co_filename), where.tb_lineno)
            self.send({"type": "fault", "reason": "%s: %s (%s)" % (type(problem).__name__, str(problem)[:200], place)})
        except Exception:
            pass

    # ----- the end

    def end(self):
        """When the process ends by itself."""
        if self.ended or os.getpid() != self.pid:
            return
        self.ended = True
        try:
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
                self.send({"type": "exit", "steps": self.steps})
                self.link.finish(1.0)
        except Exception:
            pass
