"""What a step keeps in memory, by kind.

Every storage that a call returns or takes is known from then until it is freed, with its
size as CUDA's caching allocator counts it. Kinds:

- parameters: of the modules that were called and of the optimizers; with buffers
- gradients: what parameters hold in `.grad` when an optimizer begins
- optimizer state: what optimizers hold after a step, but for their counters (on the host)
- activations: made in the forward pass and alive when backward begins; and the inputs
- temporary: everything else

What libraries take for themselves inside a call (workspaces) is not seen.
"""

import weakref

# CUDA's caching allocator gives out multiples of this many bytes.
BLOCK = 512
PARAMETERS, GRADIENTS, STATE, ACTIVATIONS, TEMPORARY = "parameters", "gradients", "optimizer_state", "activations", "temporary"
KINDS = (PARAMETERS, GRADIENTS, STATE, ACTIVATIONS, TEMPORARY)


class Entry:
    __slots__ = ("bytes", "kind", "forward", "reference")

    def __init__(self, size, forward):
        self.bytes, self.kind, self.forward, self.reference = size, TEMPORARY, forward, None


class Memory:
    def __init__(self):
        self.live = {}
        self.host = set()
        self.begin()
        self.watching = False

    def begin(self):
        """From here on the peak is sought."""
        self.watching = True
        self.before = [(entry, entry.bytes) for entry in self.live.values()]
        self.log = []
        self.now = self.peak = sum(size for _, size in self.before)
        self.peak_at, self.peak_phase = 0, None

    def end(self):
        self.watching = False

    def see(self, tensor, phase=None):
        """Knows the tensor's storage from now on; `phase` is that of the call that made it."""
        try:
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
        except Exception:
            # Sparse and other tensors without one storage.
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
                # It was there before the step.
                entry.kind = ACTIVATIONS
            self.count(entry, size, phase)
        elif size > entry.bytes:
            # Resized in place.
            more, entry.bytes = size - entry.bytes, size
            self.count(entry, more, phase)
        return entry

    def count(self, entry, size, phase):
        self.now += size
        if self.watching:
            self.log.append((entry, size))
            if self.now > self.peak:
                self.peak, self.peak_at, self.peak_phase = self.now, len(self.log), phase

    def gone(self, key):
        entry = self.live.pop(key, None)
        if entry is not None:
            self.now -= entry.bytes
            if self.watching:
                self.log.append((entry, -entry.bytes))

    def on_host(self, tensor):
        """A tensor that lives on the host where the rest is on a GPU."""
        try:
            storage = tensor.untyped_storage()
        except Exception:
            return
        key = storage._cdata
        entry = self.live.pop(key, None)
        if entry is not None:
            self.now -= entry.bytes
        self.host.add(key)
        weakref.finalize(storage, self.host.discard, key)

    def tag(self, tensor, kind):
        entry = self.see(tensor)
        if entry is not None:
            entry.kind = kind

    def backward_begins(self):
        """What the forward pass made and still holds, it holds for backward."""
        for entry in self.live.values():
            if entry.forward and entry.kind == TEMPORARY:
                entry.kind = ACTIVATIONS

    def at_peak(self):
        """Bytes by kind at the moment at which most was allocated."""
        found = dict.fromkeys(KINDS, 0)
        for entry, size in self.before + self.log[: self.peak_at]:
            found[entry.kind] += size
        return found
