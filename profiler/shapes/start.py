"""Traces the step that a request describes: `python start.py REQUEST`.

This file does not need PyTorch; modules that do are imported after the request is read, so that a missing
PyTorch is reported properly. README.md beside this file describes request and results.
"""

import faulthandler
import json
import os
import sys
import threading
import time

PROTOCOL = 1


def end(folder, answer):
    """Writes the answer, whole or not at all."""
    answer["version"] = PROTOCOL
    unfinished = os.path.join(folder, "end.json.part")
    with open(unfinished, "w", encoding="utf-8") as file:
        json.dump(answer, file)
    os.replace(unfinished, os.path.join(folder, "end.json"))


def leave_with_parent():
    """Ends this process soon after the one that started it."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    folder = request["folder"]
    if os.name == "posix":
        leave_with_parent()
    # Native code of the user's may crash on a tensor without values.
    crash = open(os.path.join(folder, "crash.txt"), "w")
    faulthandler.enable(crash, all_threads=False)
    if sys.version_info < (3, 8):
        found = "%d.%d" % sys.version_info[:2]
        return end(folder, {"failure": {"kind": "old_python", "message": found}})
    # The search path began with this folder only for us; the job's Python never has it.
    from habitat_shapes import drive
    from habitat_shapes.failure import Failure

    sys.path.pop(0)
    try:
        end(folder, {"traces": drive.run(request), "torch": drive.torch_version()})
    except Failure as failure:
        end(folder, {"failure": failure.told()})
    # Threads, atexit handlers and worker processes of the user's code must not delay the exit.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
