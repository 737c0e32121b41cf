"""Messages to the listener; the README in the folder above describes them."""

import json
import os
import sys

from .process import rank
from .pytorch import torch_version

PROTOCOL = 1
# Most unsent bytes to keep; beyond them the hook assumes that the listener is dead.
BACKLOG = 1 << 20


class Link:
    """Frames over a Unix socket, sent without waiting."""

    def __init__(self, address):
        import _socket

        self.flags = getattr(_socket, "MSG_NOSIGNAL", 0)
        self.unsent = b""
        self.socket = None
        try:
            link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        except OSError:
            return  # No descriptor left.
        try:
            if hasattr(_socket, "SO_NOSIGPIPE"):
                link.setsockopt(_socket.SOL_SOCKET, _socket.SO_NOSIGPIPE, 1)
            link.settimeout(0.2)
            link.connect(address)
            link.setblocking(False)
            self.file = os.fstat(link.fileno())
        except Exception:
            link.close()
            return
        self.socket = link

    @property
    def alive(self):
        return self.socket is not None

    def send(self, message):
        self.send_text(json.dumps(message, separators=(",", ":")))

    def send_text(self, text):
        """Sends a message that is already JSON."""
        if self.socket is None:
            return
        text = text.encode()
        self.unsent += len(text).to_bytes(4, "little") + text
        self.flush()

    def flush(self):
        self.look()
        try:
            while self.unsent and self.socket is not None:
                sent = self.socket.send(self.unsent, self.flags)
                self.unsent = self.unsent[sent:]
        except BlockingIOError:
            if len(self.unsent) > BACKLOG:
                self.close()
        except Exception:
            self.close()

    def look(self):
        """Checks the socket: if the program has closed all files, as daemons do, its number may now belong to a
        file of the program."""
        try:
            ours = self.socket is None or os.path.samestat(os.fstat(self.socket.fileno()), self.file)
        except OSError:
            ours = False
        if not ours:
            self.socket.detach()
            self.socket, self.unsent = None, b""

    def finish(self, seconds):
        """Sends the last messages, and waits a little for them."""
        self.look()
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


def greet(address):
    """A link that has sent hello, even if no listener is there."""
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


def place(problem):
    """The error, and the line where it occurred."""
    where = problem.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    at = "?"
    if where is not None:
        at = "%s:%d" % (os.path.basename(where.tb_frame.f_code.co_filename), where.tb_lineno)
    return "%s: %s (%s)" % (type(problem).__name__, str(problem)[:200], at)


def micros(seconds):
    """Microseconds as JSON, in one call: short steps are many."""
    return "[%s]" % (("%.1f," * len(seconds))[:-1] % tuple(map(1e6.__mul__, seconds)))
