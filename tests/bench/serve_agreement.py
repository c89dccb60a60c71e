#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`serve` over sockets held against `replay` in virtual time: the same trace, fleet, policy and arrivals.

    tests/bench/serve_agreement.py --trace FILE [--policy price,round_robin] [--scales 1,1.309] [--page docs/replay.md]

`serve` plays at simulated engines on loopback, `--speed` times as fast as life, which is the only thing that the machine's load can spoil:
a run in which the generator was late is made again, up to --tries times, and so is one that disagrees.  `replay` plays the same file of arrivals, over several seeds of its draws, without transfers between workers, since `serve` has none.  A row agrees when mean and p90 of the time to the
first token and the hit share of `serve` are within 15 % of replay's.  Ends with 1 when one does not.
"""
import argparse
import gzip
import itertools
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
import lib  # noqa: E402

PROFILE = "llama-3-70b-8xh100"
WITHIN = 0.15
LATE_S = 0.05  # of the engine's time, at the 99th percentile: beyond, the generator changed what it measures
FIGURES = (("ttft_mean_s", "TTFT mean"), ("ttft_p90_s", "p90"), ("hit_share", "hit"))


def arrivals(args, path):
    """The trace's first requests, each at random within the jitter of its stamp; how many of them are warm-up."""
    rng = random.Random(args.seed)
    with (gzip.open if args.trace.endswith(".gz") else open)(args.trace, "rt") as f:
        rows = [json.loads(line) for _, line in zip(range(args.requests), f)]
    for r in rows:
        r["timestamp"] = int(r["timestamp"] + rng.random() * args.jitter * 1000)
    rows.sort(key=lambda r: r["timestamp"])
    first = rows[0]["timestamp"]
    for r in rows:
        r["timestamp"] -= first
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return sum(r["timestamp"] < args.warmup * rows[-1]["timestamp"] for r in rows)


def fleet_sets(args):
    return [x for k in ("gpu_blocks", "cpu_blocks") if getattr(args, k) for x in ("--set", f"fleet.{k}={getattr(args, k)}")]


def replayed(args, trace, policy):
    """The mean over seeds: these arrivals are the same, draws and hashes are not."""
    runs = [replayed_once(args, trace, policy, seed) for seed in range(1, args.seeds + 1)]
    return {k: sum(r[k] for r in runs) / len(runs) for k, _ in FIGURES}


def replayed_once(args, trace, policy, seed):
    out = subprocess.run([lib.BINARY, "replay", "--trace", trace, "--workers", str(args.workers), "--scale", f"{args.scale:g}", "--warmup", f"{args.warmup:g}",
                          "--stale-ms", f"{args.stale_ms:g}", "--seed", str(seed), "--set", "policy.price.fetch=0", *fleet_sets(args),
                          "--policy", policy, "--json", "-"], capture_output=True, text=True, check=True).stdout
    return json.loads(out)


def busy_share(before, after):
    """Of the machine's time, what others than us took is not known; what nobody had left is."""
    total, idle = (sum(after) - sum(before)), after[3] + after[4] - before[3] - before[4]
    return 1 - idle / total if total else 0


def cpu_times():
    return [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]


def settings(policy):
    name, *own = policy.split(":")
    return name, [x for s in own for x in ("--set", f"policy.{s}")]


def served(args, trace, policy, warm):
    per = 512 // args.block_size
    size = ["--block-size", args.block_size]
    size += [x for k in ("gpu_blocks", "cpu_blocks") if getattr(args, k) for x in ("--" + k.replace("_", "-"), getattr(args, k) * per)]
    feed = [] if args.no_events else ["--events", "tcp://127.0.0.1:*", "--replay", "tcp://127.0.0.1:*"]
    engines = [lib.Engine("--profile", PROFILE, "--speed", args.speed, "--seed", i + 1, *feed, *size) for i in range(args.workers)]
    workers = [{"id": f"engine-{i}", "url": e.url, **({} if args.no_events else feed_of(e))} for i, e in enumerate(engines)]
    name, own = settings(policy)
    conf = {"models": [{"name": lib.MODEL, "speed": args.speed, "profile": PROFILE}], "workers": workers, "health": {"interval_s": args.scrape_s}}
    router = lib.Router((), "--policy", name, *own, *args.serve, config=conf, ready=None, log="info")
    lib.until(lambda: sum(w["ready"] and (args.no_events or w["feed"] == "live") for w in router.workers()) == args.workers, 20, "workers being ready")
    with tempfile.TemporaryDirectory() as d:
        out = os.path.join(d, "load.json")
        before, began = cpu_times(), time.monotonic()
        p = lib.Process("load", "--target", f"http://127.0.0.1:{router.port}", "--trace", trace, "--scale", args.scale, "--speed", args.speed,
                        "--warmup", warm, "--seed", args.seed, "--profile", PROFILE, "--json", out)
        p.p.wait()
        busy, took = busy_share(before, cpu_times()), time.monotonic() - began
        p.end()
        figures = json.loads(pathlib.Path(out).read_text())
    figures["busy"], figures["took_s"] = busy, took
    router.at_rest()
    if args.keep:
        pathlib.Path(args.keep, f"decisions-{re.sub(r'[^a-z_0-9]', '-', policy)}.json").write_text(json.dumps(router.get("/decisions")))
    lib.end_all()
    return figures


def feed_of(engine):
    at = json.loads(lib.http(engine.port, "GET", "/kv_event_sources")[2])["0"]
    return {"events": at["endpoint"], "replay": at["replay_endpoint"]}


def clean(f):
    return f["late_p99_s"] <= LATE_S and f["errors"] == 0


def row(args, policy, a, b):
    apart = {k: (b[k] / a[k] - 1 if a[k] else float(b[k] != 0)) for k, _ in FIGURES}
    ok = all(abs(x) <= WITHIN for x in apart.values())
    cells = " | ".join(f"{100 * a[k]:.1f} / {100 * b[k]:.1f} % | {1 + apart[k]:.2f}" if k == "hit_share" else f"{a[k]:.3f} / {b[k]:.3f} | {1 + apart[k]:.2f}"
                       for k, _ in FIGURES)
    note = "" if ok else "**differs**"
    if not clean(b):
        note += " not clean"
    return ok, f"| {args.gpu_blocks or 2400} + {args.cpu_blocks or 6000} | {args.scale:g} | `{policy}` | {cells} | {1e3 * b['late_p99_s']:.0f} | {100 * b['busy']:.0f} | {note} |"


HEAD = ["| blocks | scale | policy | TTFT mean, s: replay / serve | ratio | p90, s | ratio | hit share | ratio | sent late p99, ms | machine busy, % | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default="build/warmpath")
    p.add_argument("--trace", required=True)
    p.add_argument("--policy", default="round_robin,dynamo,price")
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--requests", type=int, default=1000)
    p.add_argument("--warmup", type=float, default=0.1)
    p.add_argument("--scales", default="1,1.309", help="load 0.57 and 0.75 of four workers on the conversation trace")
    p.add_argument("--speed", type=float, default=5)
    p.add_argument("--jitter", type=float, default=3)
    p.add_argument("--seed", type=int, default=1, help="of the arrivals")
    p.add_argument("--seeds", type=int, default=5, help="of replay")
    p.add_argument("--stale-ms", type=float, default=0)
    p.add_argument("--scrape-s", type=float, default=1)
    p.add_argument("--block-size", type=int, default=16)
    p.add_argument("--caches", default="0+0,600+1200", help="blocks of 512 tokens on the gpu and on the cpu of a worker; 0: the profile's")
    p.add_argument("--no-events", action="store_true", help="the engines tell nothing of their blocks: what was sent where stands in")
    p.add_argument("--serve", action="append", default=[], help="a flag of serve")
    p.add_argument("--tries", type=int, default=2)
    p.add_argument("--keep")
    p.add_argument("--page")
    args = p.parse_args()
    lib.BINARY = args.binary
    lines, good = [], True
    with tempfile.TemporaryDirectory() as d:
        trace = pathlib.Path(d, "arrivals.jsonl")
        warm = arrivals(args, trace)
        for caches, scale, policy in itertools.product(args.caches.split(","), args.scales.split(","), args.policy.split(",")):
            args.gpu_blocks, args.cpu_blocks = map(int, caches.split("+"))
            args.scale = float(scale)
            a = replayed(args, str(trace), policy)
            for _ in range(args.tries):
                b = served(args, str(trace), policy, warm)
                ok, line = row(args, policy, a, b)
                print(line, flush=True)
                if clean(b) and ok:
                    break
            good &= ok
            lines.append(line)
    if args.page:
        text = pathlib.Path(args.page).read_text()
        head, rest = text.split("<!-- serve: begin -->\n")
        tail = rest.split("<!-- serve: end -->")[1]
        pathlib.Path(args.page).write_text(head + "<!-- serve: begin -->\n" + "\n".join(HEAD + lines) + "\n<!-- serve: end -->" + tail)
    return 0 if good else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        lib.end_all()
