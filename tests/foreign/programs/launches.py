# case: launches {python} {file}
# case: launches-bare {python} {file} bare
"""Starts its training as another program, with a PYTHONPATH or a whole environment of its own."""
import os
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
if sys.argv[1:] == ["bare"]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": here}
    for name in ("COUNT", "FOREIGN"):
        if name in os.environ:
            environment[name] = os.environ[name]
else:
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
done = subprocess.run([sys.executable, "-m", "package"], env=environment, capture_output=True, text=True)
sys.stdout.write(done.stdout)
sys.stderr.write(done.stderr)
sys.exit(done.returncode + 9)
