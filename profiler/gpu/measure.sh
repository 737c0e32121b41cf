#!/bin/sh
# Measures the GPU of this machine: `habitat-tui calibrate`, then `habitat-tui collect`, and packs the results. Needs
# NVIDIA's driver, a Python with PyTorch, and no network.
#
#   profiler/gpu/measure.sh [FOLDER]
#
# Set HABITAT_TUI (the program), PYTHON, BUDGET (of collect, 10m) or DEVICE (0) to override. A second run with the same
# folder continues with the operators.
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
    # Interrupted: pack the results so far.
    [ "$code" -eq 130 ] || failed=1
}

# Packs only what exists, under its own name.
tar -czf "$folder.tar.gz" "$folder" && echo "measure.sh: $folder.tar.gz" >&2
exit $failed
