#!/bin/sh
# Measures the GPU of this machine: `habitat-tui calibrate`, then `habitat-tui collect`, and
# packs what they wrote. Needs NVIDIA's driver, a Python with PyTorch, and no network.
#
#   profiler/gpu/measure.sh [FOLDER]
#
# HABITAT_TUI (the program), PYTHON, BUDGET (of collect, 10m), DEVICE (0) say otherwise. Run
# again with the same folder it goes on with the operators.
set -u
folder=${1:-measured-$(uname -n 2>/dev/null | cut -d. -f1 | tr -cd 'A-Za-z0-9-')}
program=${HABITAT_TUI:-habitat-tui}
python=${PYTHON:-python3}
budget=${BUDGET:-10m}
device=${DEVICE:-0}

command -v "$program" >/dev/null || { echo "measure.sh: $program: no such program; set HABITAT_TUI" >&2; exit 2; }
mkdir -p "$folder" || exit 2
failed=0

echo "== calibrate" >&2
"$program" calibrate --device "$device" --python "$python" --output "$folder/calibration.toml" --force \
    >"$folder/calibration.txt" 2>"$folder/calibration.err" || failed=1
cat "$folder/calibration.txt"
cat "$folder/calibration.err" >&2

echo "== collect" >&2
"$program" collect --device-number "$device" --python "$python" --budget "$budget" --output "$folder/operators.csv" || {
    code=$?
    # Interrupted: what is there is packed all the same.
    [ "$code" -eq 130 ] || failed=1
}

# Without what is not there, and into a name of its own.
tar -czf "$folder.tar.gz" "$folder" && echo "measure.sh: $folder.tar.gz" >&2
exit $failed
