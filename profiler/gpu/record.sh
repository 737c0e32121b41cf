#!/usr/bin/env bash
# Records training steps of seven networks in fp32, tf32 and bf16 at three batch sizes, on a
# machine with a GPU:
#
#     profiler/gpu/record.sh OUT
#
# OUT gets a profile per step (NETWORK-PRECISION-bN.habitat.json.zst) and a log. Existing profiles stay, so an
# interrupted run continues. Downloads nothing and changes no setting of the GPU. Environment variables:
#
#     HABITAT_TUI   the program (default: target/release/habitat-tui)
#     PYTHON        an interpreter with torch, torchvision and transformers (default: python3)
#     NETWORKS, PRECISIONS    fewer of them
#     BUDGET        seconds after which no further job is started (default: 3000)
#     TINY=1        a check of this script on a CPU, not a measurement
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: record.sh OUT}
program=${HABITAT_TUI:-$here/../../target/release/habitat-tui}
python=${PYTHON:-python3}
budget=${BUDGET:-3000}
tiny=${TINY:+--tiny --device cpu}
mkdir -p "$out"

sizes() {
    case $1 in
        resnet50 | vit_b_16 | lstm) echo 32,64,128 ;;
        dcgan) echo 64,128,256 ;;
        gpt2_medium) echo 2,4,8 ;;
        *) echo 4,8,16 ;;
    esac
}

failed=0
for network in ${NETWORKS:-resnet50 bert_large gpt2_medium vit_b_16 dcgan lstm moe}; do
    for precision in ${PRECISIONS:-fp32 tf32 bf16}; do
        name=$network-$precision
        missing=$(for batch in $(sizes "$network" | tr , ' '); do
            [ -e "$out/$name-b$batch.habitat.json.zst" ] || printf '%s,' "$batch"
        done)
        [ -n "$missing" ] || continue
        if [ "$SECONDS" -gt "$budget" ]; then
            echo "$name: left out, the time is up"
            failed=1
            continue
        fi
        case $precision in bf16) as=amp-bf16 ;; *) as=$precision ;; esac
        # shellcheck disable=SC2086 # Words.
        "$program" run --batches "${missing%,}" --name "$network" --precision "$as" --timeout 3m \
            -o "$out/$name.habitat.json.zst" --json "$out/$name.json" --force -- \
            "$python" "$here/steps.py" --network "$network" --precision "$precision" --batch-size '{batch}' --steps 80 $tiny \
            >>"$out/record.log" 2>&1 || { echo "$name: not all recorded, see $out/record.log"; failed=1; }
    done
done
ls "$out"/*.habitat.json.zst | wc -l | sed 's/$/ profiles in all/'
exit $failed
