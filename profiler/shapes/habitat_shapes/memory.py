"""Memory that a step keeps, by kind.

Tracks every storage that a call returns or takes until it is freed, with its size as CUDA's caching allocator
counts it. Kinds:

- parameters: of the modules that were called and of the optimizers; with buffers
- gradients: in `.grad` of parameters when an optimizer begins
- optimizer state: held by optimizers after a step, except their counters (on the host); and older tensors that
are
  written to after backward, as averages of parameters
- activations: made in the forward pass and alive when backward begins; and the inputs
- temporary: everything else

Does not see workspaces that libraries allocate inside a call.
"""

import weakref

# CUDA's caching allocator rounds sizes up to a multiple of this many bytes.
BLOCK = 512
PARAMETERS, GRADIENTS, STATE, ACTIVATIONS, TEMPORARY = "parameters", "gradients", "optimizer_state", "activations", "temporary"
KINDS = (PARAMETERS, GRADIENTS, STATE, ACTIVATIONS, TEMPORARY)


def parts(tensor):
    """The tensors inside a tensor, as values and scales of a 4- or 8-bit one; else itself."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from parts(getattr(tensor, name))


class Entry:
    __slots__ = ("bytes", "kind", "forward", "reference")

    def __init__(self, size, forward):
        self.bytes, self.kind, self.forward, self.reference = size, TEMPORARY, forward, None


class Memory:
    def __init__(self):
        self.live = {}
        self.host = set()
        self.log, self.watching = [], False

    def begin(self):
        """Logs what is allocated and freed from now on."""
        self.watching = True
        self.log = [(entry, entry.bytes, None) for entry in self.live.values()]

    def end(self):
        self.watching = False

    def see(self, tensor, phase=None):
        """Tracks the tensor's storage; `phase` is that of the call that made it."""
        try:
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
        except Exception:
            # Sparse and other tensors without a single storage.
            return None
        size = (int(size) + BLOCK - 1) // BLOCK * BLOCK
        entry = self.live.get(key)
        if entry is None:
            if key in self.host:
                return None
            entry = Entry(size, phase == "forward")
            entry.reference = weakref.ref(storage, lambda _, key=key: self.gone(key))
            self.live[key] = entry
            if phase is None:
                # Older than the step.
                entry.kind = ACTIVATIONS
            self.count(entry, size, phase)
        elif size > entry.bytes:
            # Resized in place.
            more, entry.bytes = size - entry.bytes, size
            self.count(entry, more, phase)
        return entry

    def count(self, entry, size, phase=None):
        if self.watching:
            self.log.append((entry, size, phase))

    def gone(self, key):
        entry = self.live.pop(key, None)
        if entry is not None:
            self.count(entry, -entry.bytes)

    def on_host(self, tensor):
        """Marks a tensor that stays on the host although the rest is on a GPU."""
        try:
            storage = tensor.untyped_storage()
        except Exception:
            return
        key = storage._cdata
        self.gone(key)
        self.host.add(key)
        weakref.finalize(storage, self.host.discard, key)

    def keep_as_state(self, tensor):
        """Marks a tensor that an update writes to."""
        entry = self.see(tensor)
        if entry is not None and entry.kind == ACTIVATIONS and not entry.forward:
            entry.kind = STATE

    def tag(self, tensor, kind):
        for part in parts(tensor):
            entry = self.see(part)
            if entry is not None:
                entry.kind = kind

    def backward_begins(self):
        """Marks what the forward pass made and still holds: it holds these for backward."""
        for entry in self.live.values():
            if entry.forward and entry.kind == TEMPORARY:
                entry.kind = ACTIVATIONS

    def at_peak(self, unmade, held):
        """Bytes by kind at the peak of all memory; at the peak of the tensors that forward and backward make,
        which grows with the batch; and the phase of the first peak. Tensors `unmade` never existed; tensors
        `held` are freed no earlier than at this position of the log."""
        log, kept = [], set()
        for place, (entry, size, phase) in enumerate(self.log):
            later = held.get(entry, 0) if size < 0 else 0
            if later > place and entry.forward and entry.kind == TEMPORARY:
                kept.add(entry)
            if entry not in unmade:
                log.append((max(place, later), entry, size, phase))
        log.sort(key=lambda event: event[0])
        now = dict.fromkeys(KINDS, 0)
        peak, most, found, working, at, phase_now = 0, 0, dict(now), dict(now), None, None
        for _, entry, size, phase in log:
            now[ACTIVATIONS if entry in kept else entry.kind] += size
            phase_now = phase or phase_now
            if sum(now.values()) > peak:
                peak, found, at = sum(now.values()), dict(now), phase
            if phase_now != "optimizer" and now[ACTIVATIONS] + now[TEMPORARY] > most:
                most, working = now[ACTIVATIONS] + now[TEMPORARY], dict(now)
        return found, working, at
