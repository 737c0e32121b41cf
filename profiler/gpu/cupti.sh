#!/bin/sh
# Tests the recorder for CUDA programs on a machine with an NVIDIA GPU.
#
#   profiler/gpu/cupti.sh [PYTHON]
#
# PYTHON has PyTorch with CUDA. Prints measured beside expected values; exit code 1 if something differs. Needs `cargo
# build` (or HABITAT_TUI, the program's path), and nvcc for the part with a program in CUDA C++. Takes a minute and a
# half. JOB (10) is the seconds that each job trains, PARTS (all) selects parts.
set -u
python=${1:-python3}
here=$(cd "$(dirname "$0")/../.." && pwd)
habitat=${HABITAT_TUI:-$here/target/debug/habitat-tui}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader || { echo "no GPU here"; exit 2; }

cat > train.py <<'PY'
import sys, time, torch
torch.manual_seed(0)
net = torch.nn.Sequential(*[m for _ in range(8) for m in (torch.nn.Linear(2048, 2048), torch.nn.ReLU())]).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3, foreach=False)
x = torch.randn(256, 2048, device="cuda")
ranges, end = len(sys.argv) > 2, time.time() + float(sys.argv[1])
step = 0
while time.time() < end:
    if ranges: torch.cuda.nvtx.range_push(f"epoch part {step}")
    optimizer.zero_grad(); net(x).square().mean().backward(); optimizer.step()
    torch.cuda.synchronize(); step += 1
    if ranges: torch.cuda.nvtx.range_pop()
print("steps", step)
PY

failed=0
compare() {  # what, measured, expected, tolerance
    "$python" - "$@" <<'PY' || failed=1
import sys
what, measured, expected, tolerance = sys.argv[1], *map(float, sys.argv[2:])
ok = abs(measured - expected) <= tolerance * abs(expected)
print(f"{'ok  ' if ok else 'FAIL'} {what}: measured {measured:g}, expected {expected:g} within {tolerance:.0%}")
sys.exit(not ok)
PY
}
# Kernels of a step and their time in microseconds.
totals() {
    "$python" - "$1" <<'PY'
import json, sys
operations = json.load(open(sys.argv[1]))["operations"]
kernels = [(o.get("count", 1) * k.get("count", 1), k["duration_us"]) for o in operations
           for k in o.get("kernels", []) if not k["name"].startswith("Mem")]
print(sum(n for n, _ in kernels), sum(n * t for n, t in kernels))
PY
}

JOB=${JOB:-10}
window="--after-seconds 3 --for-seconds 3"
wanted() { case " ${PARTS:-steps program cost both} " in *" $1 "*) ;; *) return 1 ;; esac; }

if wanted steps; then
    echo "== a step by the hook"
    "$habitat" run --quiet -o hook.habitat.json -- "$python" train.py "$JOB" || failed=1
    echo "== the same by CUPTI, steps from what repeats"
    # shellcheck disable=SC2086 # Words.
    "$habitat" run --cupti --no-tui -o cupti.habitat.json $window -- "$python" train.py "$JOB" || failed=1
    set -- $(totals hook.habitat.json) $(totals cupti.habitat.json)
    [ $# -eq 4 ] && compare "kernels of a step" "$3" "$1" 0 && compare "kernel time of a step (us)" "$4" "$2" 0.05

    echo "== steps from NVTX ranges"
    # shellcheck disable=SC2086
    "$habitat" run --cupti --quiet -o ranges.habitat.json $window --step-range "epoch part" \
        -- "$python" train.py "$JOB" ranges || failed=1
    set -- "$1" "$2" $(totals ranges.habitat.json)
    [ $# -eq 4 ] && compare "kernels of a step" "$3" "$1" 0

    echo "== predict answers"
    "$habitat" predict cupti.habitat.json || failed=1
fi

if wanted program; then
    echo "== a program in CUDA C++, steps from its NVTX ranges"
    if nvcc -O2 -o program "$here/profiler/gpu/program.cu"; then
        # shellcheck disable=SC2086
        "$habitat" run --cupti --no-tui -o program.habitat.json $window -- ./program "$JOB" || failed=1
        set -- $(totals program.habitat.json)
        [ $# -eq 2 ] && compare "kernels of a step" "$1" 8 0
        "$habitat" predict program.habitat.json || failed=1
    else
        failed=1
    fi
fi

if wanted cost; then
    echo "== what recording costs: the steps made without it, by the hook, and with a window of CUPTI"
    bare=$("$python" train.py "$JOB" | sed -n 's/steps //p')
    hooked=$("$habitat" run --quiet -o cost-hook.habitat.json -- "$python" train.py "$JOB" | sed -n 's/steps //p')
    compare "steps made" "${hooked:-0}" "${bare:-1}" 0.1
    # shellcheck disable=SC2086
    recorded=$("$habitat" run --cupti --quiet -o cost.habitat.json $window -- "$python" train.py "$JOB" | sed -n 's/steps //p')
    compare "steps made" "${recorded:-0}" "${bare:-1}" 0.1
fi

if wanted both; then
    echo "== the program's own profiler within our window: it must go on, its exit code be 0"
    cat > both.py <<'PY'
import time, torch
x = torch.randn(512, 512, device="cuda")
end = time.time() + 6
while time.time() < end: x = (x @ x).tanh()
with torch.profiler.profile() as profiler: x @ x; torch.cuda.synchronize()
print("events", len(profiler.events()))
PY
    "$habitat" run --cupti --quiet -o both.habitat.json --after-seconds 2 --for-seconds 60 -- "$python" both.py
    code=$?
    compare "exit code of a program with two profilers" "$code" 0 0
fi
exit $failed
