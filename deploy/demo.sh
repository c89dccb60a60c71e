#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The router at its main job, on loopback: four simulated engines, one trace, two policies, side by side.
#   demo.sh run     1,000 requests with round_robin, then with price, and both tables with their ratio
#   demo.sh up      the same fleet with price, left running, with lines to try; Ctrl-C ends it
#   demo.sh smoke   a small run for CI: it must work, the figures are not judged
# TRACE=file uses that trace (Mooncake's form, .gz or plain).  Without it: the conversation trace when ../shared has it, else one made by
# `warmpath trace`.  REQUESTS, SPEED, SCALE, ENGINES change the run.
set -eu

mode=${1:-run}
bin=${BIN:-build/warmpath}
engines=${ENGINES:-4}
speed=${SPEED:-6}
scale=${SCALE:-1.0}
requests=${REQUESTS:-1000}
model=demo-70b
profile=llama-3-70b-8xh100
dir=$(mktemp -d "${TMPDIR:-/tmp}/warmpath-demo.XXXXXX")
pids=""

finish() {
    trap - EXIT INT TERM
    for p in $pids; do kill "$p" 2>/dev/null || true; done
    for p in $pids; do wait "$p" 2>/dev/null || true; done
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

if [ "$mode" = smoke ]; then
    requests=60 speed=60
fi

choose_trace() {
    jitter=3
    if [ -n "${TRACE:-}" ]; then
        trace=$TRACE
    elif [ -r ../shared/traces/conversation_trace.jsonl.gz ]; then
        trace=../shared/traces/conversation_trace.jsonl.gz
    else
        trace=$dir/made.jsonl.gz
        jitter=0
        "$bin" trace --kind chat --requests "$requests" --seed 1 --out "$trace" 2>/dev/null
    fi
}

# wait_for FILE PATTERN PID: until the line is there
wait_for() {
    n=0
    until grep -q "$2" "$1" 2>/dev/null; do
        kill -0 "$3" 2>/dev/null || { cat "$1" >&2; exit 1; }
        n=$((n + 1))
        [ $n -lt 200 ] || { echo "no \"$2\" in 20 s:" >&2; cat "$1" >&2; exit 1; }
        sleep 0.1
    done
}

start_engines() {
    {
        echo "models: [{name: $model, profile: $profile, speed: $speed}]"
        echo "workers:"
    } >"$dir/warmpath.yaml"
    i=0
    while [ $i -lt "$engines" ]; do
        rm -f "$dir/engine$i"
        "$bin" engine --listen 127.0.0.1:0 --model $model --profile $profile --speed "$speed" --seed $((i + 1)) \
            >"$dir/engine$i" 2>&1 &
        pid=$!
        pids="$pids $pid"
        engine_pids="${engine_pids:-} $pid"
        wait_for "$dir/engine$i" "listening on" $pid
        port=$(sed -n 's/.*listening on 127\.0\.0\.1:\([0-9]*\).*/\1/p' "$dir/engine$i")
        echo "  - {id: engine-$i, url: \"http://127.0.0.1:$port\"}" >>"$dir/warmpath.yaml"
        i=$((i + 1))
    done
}

# start_router POLICY LISTEN ADMIN
start_router() {
    rm -f "$dir/router"
    "$bin" serve -c "$dir/warmpath.yaml" --policy "$1" --listen "$2" --admin "$3" 2>"$dir/router" &
    router=$!
    pids="$pids $router"
    wait_for "$dir/router" "api=" $router
    api=$(sed -n 's/.* api=\([^ ]*\) .*/\1/p' "$dir/router")
    admin=$(sed -n 's/.* admin=\([^ ]*\) .*/\1/p' "$dir/router")
    n=0
    until [ "$("$bin" ctl --admin "http://$admin" workers | grep -c ' ready ')" = "$engines" ]; do
        n=$((n + 1))
        [ $n -lt 100 ] || { cat "$dir/router" >&2; exit 1; }
        sleep 0.1
    done
}

stop_all() {
    for p in $pids; do kill "$p" 2>/dev/null || true; done
    for p in $pids; do wait "$p" 2>/dev/null || true; done
    pids="" engine_pids=""
}

one_run() {
    start_engines
    start_router "$1" 127.0.0.1:0 127.0.0.1:0
    echo "== $1: $requests requests, $engines engines ($profile, $speed times as fast), scale $scale"
    "$bin" load --target "http://$api" --trace "$trace" --requests "$requests" --scale "$scale" --speed "$speed" --jitter $jitter \
        --seed 1 --profile $profile --label "$1" --json "$dir/$1.json"
    if [ "$1" = price ]; then
        echo
        echo "One decision, explained (warmpath ctl decisions):"
        "$bin" ctl --admin "http://$admin" decisions | head -n $((engines + 2))
    fi
    stop_all
}

choose_trace
case $mode in
run | smoke)
    echo "trace: $trace"
    one_run round_robin
    echo
    one_run price
    echo
    "$bin" load --compare "$dir/round_robin.json" "$dir/price.json"
    ;;
up)
    start_engines
    start_router price "${LISTEN:-127.0.0.1:30000}" "${ADMIN:-127.0.0.1:29000}"
    cat <<EOT
The fleet is up: $engines simulated engines behind http://$api (admin http://$admin).  Ctrl-C ends it.

  curl -s http://$api/v1/models
  curl -s http://$api/v1/completions -H 'Content-Type: application/json' -d '{"model":"$model","prompt":"Once upon a time","max_tokens":16}' -D -
  curl -sN http://$api/v1/chat/completions -H 'Content-Type: application/json' -d '{"model":"$model","stream":true,"max_tokens":16,"messages":[{"role":"user","content":"hello"}]}'
  curl -s http://$admin/explain -d '{"model":"$model","prompt":"Once upon a time"}'
  $bin ctl --admin http://$admin workers
  $bin load --target http://$api --trace $trace --requests 200 --speed $speed --jitter $jitter
EOT
    wait "$router"
    ;;
*)
    echo "usage: demo.sh run|up|smoke" >&2
    exit 2
    ;;
esac
