#!/usr/bin/env bash
# Two teams share one GPU: red trains, blue's reservation comes due, red is drawn, requeued, and
# goes on from its checkpoint when blue is done. Needs an NVIDIA GPU, and PyTorch for PYTHON.
#   LEASEHOLD  how to call leasehold   (default: leasehold)
#   PYTHON     a Python with PyTorch   (default: python3)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
leasehold=${LEASEHOLD:-leasehold}
python=$(command -v "${PYTHON:-python3}")
root=$(mktemp -d /tmp/leasehold-gpu.XXXXXX) && chmod 755 "$root"
up=
trap '[ -n "$up" ] && kill "$up" 2>/dev/null && wait "$up"; rm -rf "$root"' EXIT

show() { echo "\$ leasehold ${*//$root\//}" && $leasehold "$@" | sed 's/^/  /'; }
runs() { show runs "$@"; }
field() { $leasehold runs list -A -o json | "$python" -c '
import json, sys
for row in json.load(sys.stdin)["items"]:
    if row["namespace"] == sys.argv[1]: print(row["phase"])' "$1"; }
await() { # TEAM PHASE
    for _ in $(seq 600); do [ "$(field "$1")" = "$2" ] && return; sleep 0.2; done
    echo "waited two minutes for $1 to be $2" >&2 && exit 1
}
saves() { # TEAM: until it has a checkpoint to come back to
    for _ in $(seq 600); do $leasehold runs logs "$1/train" | grep -q ": step " && return; sleep 0.2; done
    echo "waited two minutes for the first checkpoint of $1" >&2 && exit 1
}
manifest() { sed "s/FLAVOR/$flavor/; s/TEAM/$1/g; s/STEPS/$2/; s#PYTHON#$python#; s#TRAIN#$root/train.py#" \
    "$here/run.yaml" >"$root/$1.yaml"; }

printf 'activationLead: 5s\nreservation.patience: 5s\nresolver.minTenure: 0s\n' >"$root/config.yaml"
cp "$here/train.py" "$root/" && chmod 644 "$root/train.py"
$leasehold up --data "$root/data" --work "$root/work" --config "$root/config.yaml" --port 0 \
    --end-jobs --log-level warning >"$root/up.out" &
up=$!
until grep -q "leasehold is up" "$root/up.out"; do kill -0 $up && sleep 0.1; done
head -2 "$root/up.out"
export KUBECONFIG=$root/data/kubeconfig
flavor=$(sed -n 's/.*GPUs\{0,1\} (\([^)]*\)).*/\1/p' "$root/up.out")

sed "s/FLAVOR/$flavor/" "$here/two-teams.yaml" >"$root/teams.yaml"
runs submit -f "$root/teams.yaml"
manifest red 150 && manifest blue 60
echo; echo "== red trains"
runs submit -f "$root/red.yaml"
await red Running && saves red
echo; echo "== blue wants the GPU too: a reservation, announced with its odds"
runs submit -f "$root/blue.yaml"
runs reservations -A
await blue Running
echo; echo "== its time has come: red was drawn and is requeued"
runs list -A
runs explain red/train
await blue Completed
echo; echo "== blue is done; red goes on from its checkpoint"
await red Running && await red Completed
runs logs red/train
runs logs blue/train
runs leases --since 1h
runs report gpu-hours --by owner
show ledger verify --data "$root/data"
