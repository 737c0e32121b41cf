"""Counts the optimizer's steps, times them, and records a few with torch.profiler.

Loaded once `torch.optim.optimizer` has been imported, in every process of the job. All of
it runs inside the user's training process, so these rules hold throughout:

- no exception of ours reaches the program, and all of its own do: the handlers of its
  signals, which may raise, wait until our work is done;
- nothing is written to its output;
- nothing waits for the program that listens: what cannot be sent at once is kept, and
  once the listener is gone nothing more is done;
- in a step outside a window the clock is read, and four times a second the times are sent;
- no window opens or closes while a CUDA graph is captured, which that would break, nor
  inside backward(), nor closes in a thread that PyTorch's profiler cannot stop it in;
- the user's own profiler comes first: our window is dropped before it starts.

The messages are described in README.md beside this file.
"""

import _signal
import ctypes
import json
import os
import signal
import sys
import threading
import time
import weakref

PROTOCOL = 1
OLDEST = (2, 1)
# Optimizers whose parameters are counted at most.
OPTIMIZERS = 16
# Unsent bytes kept at most; beyond them the listener is taken for dead.
BACKLOG = 1 << 20
# Seconds between two reports of step times.
REPORT_EVERY = 0.25
# Steps outside a window between two windows, and before another try after a dropped one.
GAP = 10
# Windows dropped before giving up.
PATIENCE = 5
# Steps of another optimizer, with none of the first in between, after which it takes its place.
SUCCESSION = 100
# A window is open for so many seconds at most, or for so many times what its steps took
# before: a validation that begins in it would fill the memory with events.
OPEN_SECONDS = 10.0
OPEN_TIMES = 10
# Seconds that the end of the process waits for a trace being written.
EXPORT_WAIT = 60.0
# Bytes that must be free for traces before a window opens; a few large steps make 200 MB.
SPARE = 500_000_000


class Link:
    """Frames over a Unix socket, sent without ever waiting."""

    def __init__(self, address):
        import _socket

        self.flags = getattr(_socket, "MSG_NOSIGNAL", 0)
        self.unsent = b""
        self.socket = None
        link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            if hasattr(_socket, "SO_NOSIGPIPE"):
                link.setsockopt(_socket.SOL_SOCKET, _socket.SO_NOSIGPIPE, 1)
            link.settimeout(0.2)
            link.connect(address)
            link.setblocking(False)
        except Exception:
            link.close()
            return
        self.socket = link

    @property
    def alive(self):
        return self.socket is not None

    def send(self, message):
        if self.socket is None:
            return
        text = json.dumps(message, separators=(",", ":")).encode()
        self.unsent += len(text).to_bytes(4, "little") + text
        self.flush()

    def flush(self):
        try:
            while self.unsent and self.socket is not None:
                sent = self.socket.send(self.unsent, self.flags)
                self.unsent = self.unsent[sent:]
        except BlockingIOError:
            if len(self.unsent) > BACKLOG:
                self.close()
        except Exception:
            self.close()

    def finish(self, seconds):
        """The last messages may wait a little."""
        try:
            if self.socket is not None:
                self.socket.settimeout(seconds)
                self.flush()
        except Exception:
            pass
        self.close()

    def close(self):
        link, self.socket, self.unsent = self.socket, None, b""
        if link is not None:
            try:
                link.close()
            except Exception:
                pass


class Hook:
    """The state of one process."""

    def __init__(self, settings, address):
        self.address = address
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
        self.profile = None
        self.mark = None
        self.timer = None
        self.ask = None
        self.opener = None
        self.doom = None
        self.opened_at = 0
        self.next_window = self.settings["after"]
        self.windows = 0
        self.dropped = 0
        self.exporter = None
        self.probe = None
        self.optimizers = {}
        self.alive = {}
        self.model = None
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
        """Nothing is calm in a child: it has not made these steps."""
        self.calm[0] = 0
        self.stamps.clear()

    def calm_down(self, optimizer):
        """Lets the next steps of this optimizer only be noted, where nothing is under way."""
        if self.last is None or not guarded:
            return
        if self.profile is not None or self.exporter is not None or self.probe is not None:
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
        return self.knows(optimizer) or len(self.optimizers) >= OPTIMIZERS

    def step(self, optimizer):
        """A step after which there may be more to do."""
        if os.getpid() != self.pid:
            self.start()  # A fork of the process that imported torch trains by itself.
        if not guarded:
            guard()
        link = self.link or self.connect()
        owner = self.owner() if self.owner is not None else None
        if owner is None:
            self.owner = weakref.ref(optimizer)
        elif owner is not optimizer:
            self.note(optimizer)
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
        if self.last is not None and self.profile is None and self.exporter is None and self.probe is None:
            if not self.times:
                self.first_time = step
            self.timed(now)
        elif self.times:
            self.report(now)
        self.last = now
        if self.profile is not None:
            if self.opener not in (None, threading.get_ident()):
                self.doom = "the training went on in another thread while it was recorded"
            elif not self.within_reach():
                pass
            elif self.doom is not None:
                self.lose(self.doom)
            elif step >= self.opened_at + self.settings["window"]:
                self.close()
            else:
                self.next_mark(step)
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

    def note(self, optimizer):
        """Remembers what an optimizer trains; a few of them at most."""
        self.forget()
        if not self.knows(optimizer) and len(self.optimizers) < OPTIMIZERS:
            key = id(optimizer)
            self.alive[key] = weakref.ref(optimizer)
            self.optimizers[key] = [
                (id(parameter), parameter.numel())
                for group in optimizer.param_groups
                for parameter in group["params"]
                if parameter.requires_grad
            ]

    def knows(self, optimizer):
        there = self.alive.get(id(optimizer))
        return there is not None and there() is optimizer

    def forget(self):
        """Leaves out the optimizers that are gone."""
        for key in [key for key, there in self.alive.items() if there() is None]:
            del self.alive[key], self.optimizers[key]

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
            self.look()
            return
        self.note(optimizer)
        self.looked(step)
        if not capturing():
            self.open(step)

    # ----- what the model is given

    def look(self):
        """Watches the modules' inputs for one step, the last before the window."""
        if self.windows or self.dropped or compiled():
            return  # A global hook would have compiled code compiled again.
        from torch.nn.modules import module

        probe = {"calls": 0, "autocast": None, "module": None, "shape": None, "dtype": None}
        ours = os.getpid()
        first = [None]

        def seen(called, inputs):
            import torch

            if os.getpid() != ours or not called.training or not torch.is_grad_enabled():
                return
            if probe["autocast"] is None:
                probe["autocast"] = autocast()
            if first[0] is None:
                for value in inputs:
                    if isinstance(value, torch.Tensor) and value.dim() > 0:
                        first[0] = self.model = weakref.ref(called)
                        probe["module"] = type(called).__name__
                        probe["shape"] = [int(extent) for extent in value.shape]
                        probe["dtype"] = str(value.dtype).replace("torch.", "")
                        break
            if first[0] is not None and first[0]() is called:
                probe["calls"] += 1

        def before(called, inputs):
            if first[0] is not None and first[0]() is not called:
                return
            with Held():
                try:
                    seen(called, inputs)
                except Exception:
                    pass

        before._torchdynamo_disable = True
        self.probe = (probe, module.register_module_forward_pre_hook(before))

    def looked(self, step):
        probe, self.probe = self.probe, None
        if probe is not None:
            probe[1].remove()
            self.send(dict(probe[0], type="model", step=step))

    # ----- windows

    def obstacle(self, everywhere):
        """Why no window may be opened now, else None."""
        import torch

        if torch.autograd._profiler_enabled() or users:
            return "users_profiler"
        if in_backward():
            # PyTorch takes a profiler that was started there back out when it leaves.
            return "the optimizer steps inside backward(), where PyTorch's profiler cannot be started"
        if not in_main() and everywhere is None:
            reason = "the training runs in a thread beside the main one, which PyTorch %s cannot record (a newer one can)"
            return reason % torch.__version__
        free = free_bytes(self.settings["folder"])
        if free is not None and free < SPARE:
            reason = "%.0f MB are free in %s, and a trace may need %.0f MB; set TMPDIR to a folder with room"
            return reason % (free / 1e6, self.settings["folder"], SPARE / 1e6)
        return None

    def open(self, step):
        import torch

        everywhere = None if in_main() else all_threads()
        reason = self.obstacle(everywhere)
        if reason is not None:
            self.dropped += 1
            self.next_window = step + GAP
            self.send({"type": "window", "state": "dropped", "step": step, "reason": reason})
            return
        global opening
        began = time.perf_counter()
        opening = True
        try:
            profile = torch.profiler.profile(
                record_shapes=True,
                profile_memory=bool(self.settings["memory"]),
                with_stack=bool(self.settings.get("stacks")),
                experimental_config=everywhere,
            )
            self.profile, self.opened_at = profile, step
            self.opener, self.doom = None if everywhere is not None else threading.get_ident(), None
            profile.start()
        except Exception as problem:
            self.dropped = PATIENCE
            self.lose("torch.profiler did not start: %s" % str(problem)[:200])
            return
        finally:
            opening = False
        self.next_mark(step)
        self.limit()
        self.last = time.perf_counter()
        cost = round((self.last - began) * 1e6, 1)
        self.send({"type": "window", "state": "opened", "step": step, "cost_us": cost})

    def within_reach(self):
        """Whether the open window may be closed here and now: the profiler belongs to the
        thread that started it, unless it was told otherwise."""
        return self.opener in (None, threading.get_ident()) and not capturing() and not in_backward()

    def next_mark(self, step):
        """The mark of a step as torch.profiler's own schedule would set it."""
        import torch

        if self.mark is not None:
            self.mark.__exit__(None, None, None)
        self.mark = torch.autograd.profiler.record_function("ProfilerStep#%d" % (step + 1))
        self.mark.__enter__()

    def limit(self):
        """Has a window that stays open dropped by the thread that opened it, as torch.profiler
        requires. Of another thread CPython can ask that of the main thread only."""
        if self.opener is not None and not in_main():
            return
        seconds = max(OPEN_SECONDS, OPEN_TIMES * self.settings["window"] * self.longest)
        opened = weakref.ref(self.profile)

        def drop():
            try:
                if self.profile is None or self.profile is not opened() or os.getpid() != self.pid:
                    pass
                elif not self.within_reach():
                    self.limit()
                else:
                    self.lose("it was open for %.0f s and its steps did not end; did a validation begin?" % seconds)
            except Exception as problem:
                self.fail(problem)

        def overdue(_):
            with Held(within_c=True) as held:
                drop()
            held.left = True
            return 0

        try:
            call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(overdue)
            asked.append(call)
            self.ask = lambda: ctypes.pythonapi.Py_AddPendingCall(call, None)
            self.timer = threading.Timer(seconds, self.ask)
            self.timer.daemon = True
            self.timer.start()
        except Exception:
            self.timer = self.ask = None  # Some systems forbid such calls; the window then has no limit.

    def have_dropped(self, reason):
        """Has the main thread drop the window, and gives it a moment to do so."""
        self.doom, patience = reason, time.perf_counter() + 1.0
        if self.ask is not None:
            self.ask()
            while self.profile is not None and time.perf_counter() < patience:
                time.sleep(0.002)

    def unlimit(self):
        timer, self.timer, self.ask = self.timer, None, None
        if timer is not None:
            timer.cancel()

    def close(self):
        self.unlimit()
        profile, self.profile = self.profile, None
        began = time.perf_counter()
        mark, self.mark = self.mark, None
        if mark is not None:
            mark.__exit__(None, None, None)
        try:
            profile.stop()
        except Exception as problem:
            self.lose("torch.profiler did not stop: %s" % str(problem)[:200])
            return
        held = self.held()
        self.last = time.perf_counter()
        self.windows += 1
        self.next_window = self.steps + GAP
        self.forget()
        counted = {key: numel for entry in self.optimizers.values() for key, numel in entry}
        import torch

        self.send(
            {
                "type": "window",
                "state": "closed",
                "step": self.steps,
                "cost_us": round((self.last - began) * 1e6, 1),
                "parameters": sum(counted.values()),
                "optimizers": len(self.optimizers),
                "rank": rank(),
                "peak_memory_bytes": peak_memory(torch),
                "held": held,
            }
        )
        number = self.windows
        self.exporter = threading.Thread(
            target=self.export, args=(profile, number, self.opened_at, self.steps), name="habitat-tui"
        )
        self.exporter.start()

    def held(self):
        """What the parameters, their gradients and the optimizers' state take, right after a
        step: sizes only, no tensor is looked into. None where it cannot be told."""
        try:
            optimizers = [made for made in (there() for there in self.alive.values()) if made is not None]
            model = self.model() if self.model is not None else None
            parameters = {}
            for optimizer in optimizers:
                for group in optimizer.param_groups:
                    for parameter in group["params"]:
                        parameters[id(parameter)] = parameter
            trained = list(parameters.values())
            if model is not None:
                for tensor in list(model.parameters()) + list(model.buffers()):
                    parameters[id(tensor)] = tensor
            device = trained[0].device.type
            sizes = Sizes(device)
            total = {"device": device, "parameters_bytes": sizes.of(parameters.values())}
            # Reading .grad of what is no leaf would make torch warn.
            gradients = [parameter.grad for parameter in trained if parameter.is_leaf]
            total["gradients_bytes"] = sizes.of(gradients)
            total["optimizer_state_bytes"] = sizes.of([list(optimizer.state.values()) for optimizer in optimizers])
            total["whole_model"] = model is not None and sizes.complete
            return total if sizes.complete else None
        except Exception:
            return None

    def export(self, profile, number, first, last):
        """In a thread of its own: writes the trace, and says so over a link of its own."""
        name = "trace-%d-%d.json" % (os.getpid(), number)
        path = os.path.join(self.settings["folder"], name)
        message = {"type": "window", "state": "written", "number": number, "first": first + 1, "last": last}
        try:
            began = time.perf_counter()
            profile.export_chrome_trace(path + ".part")
            # A disk that is full is no error to PyTorch: it writes a line of log and returns.
            if not is_whole(path + ".part"):
                free = free_bytes(self.settings["folder"])
                if free is not None and free < SPARE:
                    raise OSError("the disk is full (%.0f MB are free in %s)" % (free / 1e6, self.settings["folder"]))
                raise OSError("it is cut off, as by a limit on the size of files (ulimit -f)")
            os.rename(path + ".part", path)
            message["file"] = name
            message["bytes"] = os.path.getsize(path)
            message["cost_us"] = round((time.perf_counter() - began) * 1e6, 1)
        except Exception as problem:
            message = {"type": "window", "state": "dropped", "step": last, "number": number}
            message["reason"] = "the trace was not written: %s" % str(problem)[:200]
            for name in (path + ".part", path + ".part.tmp", path):
                remove(name)
        try:
            link = greet(self.address)
            if not link.alive:
                remove(path)
            link.send(message)
            link.finish(2.0)
        except Exception:
            pass

    def lose(self, reason, tell=True):
        """Lets go of an open window; another is tried later. What doomed it before counts."""
        self.unlimit()
        reason, self.doom = self.doom or reason, None
        profile, self.profile = self.profile, None
        mark, self.mark = self.mark, None
        self.dropped += 1
        self.next_window = self.steps + GAP
        self.last = None
        try:
            if mark is not None:
                mark.__exit__(None, None, None)
        except Exception:
            pass
        try:
            if profile is not None:
                profile.stop()
        except Exception:
            pass
        if tell:
            self.send({"type": "window", "state": "dropped", "step": self.steps, "reason": reason})

    def rest(self):
        """Leaves nothing of ours open in the program."""
        probe, self.probe = self.probe, None
        if probe is not None:
            probe[1].remove()
        if self.profile is not None and self.within_reach():
            self.lose("nobody listens", tell=False)

    def fail(self, problem):
        """A fault of ours: nothing more is recorded in this process, and the listener told."""
        try:
            self.settings = dict(self.settings, windows=0)
            self.rest()
            where = problem.__traceback__
            while where is not None and where.tb_next is not None:
                where = where.tb_next
            line = where.tb_lineno if where is not None else 0
            self.send({"type": "fault", "reason": "%s: %s (line %d)" % (type(problem).__name__, str(problem)[:200], line)})
        except Exception:
            pass

    # ----- the end

    def end(self):
        """When the process ends by itself."""
        if self.ended or os.getpid() != self.pid:
            return
        self.ended = True
        try:
            if self.profile is not None and self.within_reach():
                crashed = getattr(sys, "last_value", None) is not None
                if self.doom is not None:
                    self.lose(self.doom)
                elif crashed or self.steps == self.opened_at:
                    self.lose("the process %s in the window" % ("crashed" if crashed else "ended"))
                else:
                    self.close()
            if self.exporter is not None:
                self.exporter.join(EXPORT_WAIT)
            self.catch_up()
            if self.link is not None:
                self.report(0.0)
                self.send({"type": "exit", "steps": self.steps})
                self.link.finish(1.0)
        except Exception:
            pass


class Sizes:
    """Bytes of tensors on a kind of device, each counted once."""

    MOST = 200000

    def __init__(self, device):
        import torch

        self.torch = torch
        self.device = device
        self.seen = set()
        self.complete = True

    def of(self, values, depth=0):
        if isinstance(values, dict):
            values = values.values()
        total = 0
        for value in values:
            if isinstance(value, self.torch.Tensor):
                total += self.one(value)
            elif depth < 3 and isinstance(value, (dict, list, tuple)):
                total += self.of(value, depth + 1)
        return total

    def one(self, tensor):
        tensor = getattr(tensor, "_local_tensor", tensor)  # A DTensor's share of this rank.
        if id(tensor) in self.seen or tensor.device.type != self.device:
            return 0
        if len(self.seen) >= self.MOST or tensor.layout is not self.torch.strided:
            self.complete = False
            return 0
        self.seen.add(id(tensor))
        return tensor.numel() * tensor.element_size()


# ----- the program's signals


class Held:
    """The handlers of the program's signals wait until our work is done.

    Python runs a handler between any two lines of the main thread, those of ours and of
    PyTorch's profiler as well. What it raises there would be lost in an `except`, or leave
    the profiler half started. They are called as we leave; or sent once more, for Python to
    call them, where one of them has raised, and where we are in a callback of C (`within_c`),
    which would only print what they raise (its last line sets `left`).
    """

    # Those that are entered, the innermost last: a call that was asked for may come in between.
    entered = []

    def __init__(self, within_c=False):
        self.within_c, self.left, self.kept, self.came = within_c, False, {}, []

    def __enter__(self):
        if not in_main():
            return self
        Held.entered.append(self)
        try:
            for number in range(1, signal.NSIG):
                handler = _signal.getsignal(number)
                if not callable(handler):
                    continue
                was = action(number)
                self.kept[number] = handler, was
                _signal.signal(number, self.wait)
                if action(number).raw[:POINTER] != was.raw[:POINTER]:
                    # One in C stands before Python's: it is left where it is.
                    self.set_again(number)
        except BaseException as problem:
            self.leave([problem])
        return self

    def wait(self, number, frame):
        if number not in self.came:
            self.came.append(number)

    def set_again(self, number):
        """Sets the handler that was, unless the program has set another meanwhile."""
        handler, was = self.kept[number]
        if _signal.getsignal(number) == self.wait:
            _signal.signal(number, handler)
        if _signal.getsignal(number) is handler:
            # As it was, with the flags that Python sets otherwise (siginterrupt).
            action(number, was)

    def let_go(self):
        """Sets all handlers again; what they raised meanwhile."""
        raised = []
        for _ in range(100):
            try:
                for number in self.kept:
                    self.set_again(number)
                break
            except BaseException as problem:
                raised.append(problem)
        if self in Held.entered:
            Held.entered.remove(self)
        return raised

    def leave(self, raised):
        """Calls the handlers that waited, in the frame of the program."""
        raised += self.let_go()
        frame = sys._getframe()
        while frame.f_back is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        for number in self.came:
            if raised or self.within_c:
                threading.Thread(target=self.send_again, args=(number,), daemon=True).start()
                continue
            try:
                self.kept[number][0](number, frame)
            except BaseException as problem:
                raised.append(problem)
        try:
            self.left = not self.within_c
            if raised:
                raise raised[0]
        finally:
            del raised, frame  # They hold each other.

    def send_again(self, number):
        while not self.left:
            time.sleep(0.001)
        handler = _signal.getsignal(number)
        # Of asyncio's, the byte counts that Python wrote for it when the signal came.
        if callable(handler) and getattr(handler, "__module__", None) != "asyncio.unix_events":
            signal.pthread_kill(threading.main_thread().ident, number)

    def __exit__(self, *_):
        self.leave([])

    @classmethod
    def forked(cls):
        """In a child that another thread has made meanwhile, nobody would set them again."""
        for one in reversed(cls.entered):
            one.let_go()


libc = ctypes.PyDLL(None)
libc.sigaction.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
POINTER = ctypes.sizeof(ctypes.c_void_p)


def action(number, new=None):
    """The system's record of what a signal does, and sets it to another if one is given."""
    was = ctypes.create_string_buffer(512)  # A sigaction of any system; the handler comes first.
    libc.sigaction(number, new, was)
    return was


def in_main():
    """Whether this is the main thread, which alone calls handlers of signals. For `threading`
    it is the one that imported it first."""
    if threading.current_thread() is not threading.main_thread():
        return False
    return sys.platform != "linux" or threading.get_native_id() == os.getpid()


# ----- what the hook asks of the process


# What the main thread may be asked to call: CPython holds its address only.
asked = []


def remove(path):
    try:
        os.remove(path)
    except OSError:
        pass


def free_bytes(folder):
    """Bytes that this user may still write there; None where that cannot be told."""
    try:
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize
    except OSError:
        return None


def is_whole(path):
    """Whether the file of a JSON object has its end."""
    try:
        with open(path, "rb") as file:
            file.seek(max(os.path.getsize(path) - 64, 0))
            return file.read().rstrip().endswith(b"}")
    except OSError:
        return False


def at_exit(call):
    """Children of multiprocessing run their own list of last calls, not atexit's."""
    import atexit

    atexit.register(call)
    from multiprocessing import process, util

    if process.parent_process() is not None:
        util.Finalize(None, call, exitpriority=0)


def greet(address):
    link = Link(address)
    link.send(
        {
            "type": "hello",
            "version": PROTOCOL,
            "pid": os.getpid(),
            "stage": "torch",
            "python": "%d.%d.%d" % sys.version_info[:3],
            "torch": torch_version(),
            "rank": rank(),
        }
    )
    return link


def torch_version():
    for name in ("torch", "torch.version"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            return str(version)
    return None


def is_too_old(version):
    digits = (version or "").split("+")[0].split(".")
    try:
        return (int(digits[0]), int(digits[1])) < OLDEST
    except (IndexError, ValueError):
        return False


def rank():
    """The rank on this machine, else in the job; None where there is but one process."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID", "RANK"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return None


def compiled():
    """Whether torch.compile has compiled anything in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    frames = getattr(utils, "counters", {}).get("frames", {}) if utils is not None else {}
    return bool(frames.get("total"))


def capturing():
    """Whether a CUDA graph is being captured: torch.profiler waits for the device when it
    starts and stops, and CUDA then gives the capture up with an error in the program."""
    import torch

    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def in_backward():
    """Whether autograd is at work in this thread. What a hook of its starts there, it takes
    out of the thread when it goes on: a profiler would be neither running nor stopped."""
    import torch

    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def all_threads():
    """What has torch.profiler record all threads, and lets each of them stop it; None where
    PyTorch has no such thing."""
    import torch

    try:
        return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except (AttributeError, TypeError):
        return None


def peak_memory(torch):
    """Largest memory of tensors on this process's GPU since it started."""
    try:
        if torch.cuda.is_initialized():
            return int(torch.cuda.max_memory_allocated())
    except Exception:
        pass
    return None


def autocast():
    import torch

    for device in ("cuda", "cpu"):
        try:
            if torch.is_autocast_enabled(device):
                return str(torch.get_autocast_dtype(device)).replace("torch.", "")
        except TypeError:  # Before torch 2.4.
            suffix = "" if device == "cuda" else "_cpu"
            if getattr(torch, "is_autocast%s_enabled" % suffix)():
                dtype = "gpu" if device == "cuda" else "cpu"
                return str(getattr(torch, "get_autocast_%s_dtype" % dtype)()).replace("torch.", "")
    return None


# ----- the user's own profiler

# Our profilers' inner objects, and the user's that are prepared or running.
users = weakref.WeakSet()
opening = False
guarded = False


def guard():
    """Drops our window before a profiler of the user's starts, which it would starve."""
    global guarded
    guarded = True
    from torch.autograd import profiler

    prepare, leave = profiler.profile._prepare_trace, profiler.profile.__exit__

    def _prepare_trace(self, *args, **kwargs):
        if not opening:
            yield_to_user()
            users.add(self)
        return prepare(self, *args, **kwargs)

    def __exit__(self, *args, **kwargs):
        users.discard(self)
        return leave(self, *args, **kwargs)

    profiler.profile._prepare_trace = _prepare_trace
    profiler.profile.__exit__ = __exit__
    for name in ("emit_nvtx", "emit_itt"):
        other = getattr(profiler, name, None)
        if other is not None:
            guard_ranges(other)


def guard_ranges(kind):
    enter = kind.__enter__

    def __enter__(self):
        yield_to_user()
        return enter(self)

    kind.__enter__ = __enter__


def yield_to_user():
    if hook is None or hook.profile is None or hook.pid != os.getpid():
        return
    if not hook.within_reach():
        hook.have_dropped("users_profiler")
        return
    with Held():
        try:
            hook.lose("users_profiler")
        except Exception:
            pass


hook = None


def install(module):
    """Called once, right after `torch.optim.optimizer` was executed."""
    global hook
    address = os.environ["HABITAT_TUI_SOCKET"]
    settings = json.loads(os.environ["HABITAT_TUI_HOOK"])
    if settings.get("version") != PROTOCOL:
        return
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None or is_too_old(torch_version()):
        link = greet(address)
        link.send({"type": "refused", "reason": "torch_too_old"})
        link.finish(0.2)
        return
    hook = Hook(settings, address)
    hook.connect()
    try:
        if "torch.autograd.profiler" in sys.modules:
            guard()
    except Exception as problem:
        hook.fail(problem)  # Without the guard no window is safe; steps are still timed.

    os.register_at_fork(after_in_child=hook.forked)
    os.register_at_fork(after_in_child=Held.forked)
    register(hook.after_step())
