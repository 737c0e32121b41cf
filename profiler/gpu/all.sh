#!/usr/bin/env bash
# Runs everything that needs a machine with a GPU: calibrate and collect (measure.sh), recordings of seven networks
# (record.sh), one of them by attach, the recorder for CUDA programs (cupti.sh), and a prediction from every step.
#
#     profiler/gpu/all.sh OUT
#
# Downloads nothing. HABITAT_TUI (default: target/release/habitat-tui) and PYTHON (one with torch, torchvision and
# transformers) are as in the scripts. SECONDS_IN_ALL (default 3400): a third for the operators, the rest for the
# networks. A part that fails does not stop the others; the exit code reports it. A second run continues where the first
# stopped.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: all.sh OUT}
mkdir -p "$out"
out=$(cd "$out" && pwd)
export HABITAT_TUI=${HABITAT_TUI:-$here/../../target/release/habitat-tui}
export PYTHON=${PYTHON:-python3}
seconds=${SECONDS_IN_ALL:-3400}
failed=()

"$HABITAT_TUI" --version && "$PYTHON" -c 'import torch; print("PyTorch", torch.__version__, torch.cuda.get_device_name())' ||
    { echo "all.sh: needs habitat-tui and a PyTorch that sees a GPU"; exit 2; }
nvidia-smi >"$out/nvidia-smi.txt"

BUDGET=$((seconds / 3))s "$here/measure.sh" "$out/measured" || failed+=(measure)
BUDGET=$((seconds * 2 / 3)) "$here/record.sh" "$out/steps" || failed+=(record)

echo "== attach"
eval "$("$HABITAT_TUI" env --fast)"
"$PYTHON" "$here/steps.py" --network dcgan --batch-size 64 --steps 100000 >"$out/attached.log" 2>&1 &
job=$!
"$HABITAT_TUI" attach --pid $job -o "$out/steps/dcgan-fp32-b64-attached.habitat.json.zst" --json --force \
    >"$out/attached.json" || failed+=(attach)
kill $job
wait $job 2>/dev/null

"$here/cupti.sh" "$PYTHON" >"$out/cupti.txt" 2>&1 || failed+=(cupti)
cat "$out/cupti.txt"

# Predictions for every GPU from this one, beside the measurements here: for a comparison with the same networks
# recorded on another GPU.
for profile in "$out"/steps/*.habitat.json.zst; do
    "$HABITAT_TUI" predict "$profile" --json >"${profile%.habitat.json.zst}.predicted.json" || failed+=("predict $profile")
done
printf 'failed: %s\n' "${failed[*]:-nothing}"
[ ${#failed[@]} -eq 0 ]
