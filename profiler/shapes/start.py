"""Traces the step that a request describes: `python start.py REQUEST`.

Nothing here needs PyTorch; what does is imported when the request has been read, so that
its absence is told in words. README.md beside this file describes request and results.
"""

import faulthandler
import json
import os
import sys
import threading
import time

PROTOCOL = 1


def end(folder, answer):
    """Leaves the answer where it is looked for, whole or not at all."""
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
    # Where native code of the user's crashes on a tensor without values.
    crash = open(os.path.join(folder, "crash.txt"), "w")
    faulthandler.enable(crash, all_threads=False)
    if sys.version_info < (3, 8):
        found = "%d.%d" % sys.version_info[:2]
        return end(folder, {"failure": {"kind": "old_python", "message": found}})
    # Our own folder was put first for us; the job's Python never has it.
    from habitat_shapes import drive
    from habitat_shapes.failure import Failure

    sys.path.pop(0)
    try:
        end(folder, {"traces": drive.run(request), "torch": drive.torch_version()})
    except Failure as failure:
        end(folder, {"failure": failure.told()})
    # Threads, atexit handlers and worker processes of the user's code must not hold us up.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
