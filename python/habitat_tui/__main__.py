"""`python -m habitat_tui …` runs the program."""

import subprocess
import sys

from ._program import HabitatError, program

try:
    sys.exit(subprocess.call([program(), *sys.argv[1:]]))
except HabitatError as error:
    sys.exit(f"error: {error}")
