#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""warmpath replay held against the laboratory's simulator, policy by policy: means over seeds, side by side.

    tests/bench/agreement.py --lab DIR [--seeds 5] [--only REGEX] [--traces a,b] [--loads 0.5,0.75] [--page docs/replay.md]

DIR is a folder with the laboratory's `kvsim` built and its traces under traces/.  Runs are kept in --keep, and not made again
for the same binaries; --kept shows what there is of them, over as many seeds as both have, and runs nothing.  A row where the laboratory has fewer than 90 % within SLO is left out: it is a queue that grows to the
end of the trace, and says when it ended.  With --page the table is put between two markers of the page.  Ends with 1 when
fewer than 95 % of the rows agree.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

# the laboratory's name, its arguments, ours
POLICIES = [
    ("random", "policy=random", "random"),
    ("round_robin", "policy=rr", "round_robin"),
    ("least_requests", "policy=least", "least_loaded"),
    ("p2c", "policy=p2c", "power_of_two"),
    ("chash_k4", "policy=chash", "prefix_hash:bound=1e9"),
    ("chash_bounded", "policy=chwbl", "prefix_hash"),
    ("sglang", "policy=sglang", "sglang"),
    ("dynamo_w1", "policy=dynamo ow=1 uniq=1", "dynamo"),
    ("dynamo_w16", "policy=dynamo ow=16 uniq=1", "dynamo:dynamo.prefill_weight=16"),
    ("llmd_2_1_1", "policy=llmd wp=2 wq=1 wk=1", "llmd"),
    ("llmd_3_2_2", "policy=llmd wp=3 wq=2 wk=2", "llmd:llmd.prefix=3:llmd.queue=2:llmd.kv=2"),
    ("preble_e2", "policy=preble", "preble"),
    ("conductor", "policy=conductor", "conductor"),
    ("rr_pull", "policy=rr_pull", "round_robin:pull=true"),
    ("least_alwaysfetch", "policy=alwaysfetch", "least_work:pull=true"),
    ("dynamo_w1_pull", "policy=dynamo_pull ow=1 uniq=1", "dynamo:pull=true"),
]
# scale of load 1.00, jitter
TRACES = {"conversation": (1.746, 3), "toolagent_like": (2.314, 3), "agentcode": (1.3746, 0)}
JUDGED_APART = {"preble_e2"}  # only resembles it: what it moves and learns is not described well enough


class Lab:
    def __init__(self, args):
        self.args = args
        self.kvsim = os.path.join(args.lab, "kvsim")
        self.stamp = {p: hashlib.sha256(pathlib.Path(p).read_bytes()).hexdigest()[:16] for p in (self.kvsim, args.binary)}
        os.makedirs(args.keep, exist_ok=True)

    def kept(self, binary, command):
        key = hashlib.sha256((self.stamp[binary] + " ".join(command[1:])).encode()).hexdigest()[:24]
        path = pathlib.Path(self.args.keep, key + ".json")
        if not path.exists() and self.args.kept:
            return None
        if not path.exists():
            out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            json.loads(out)
            path.write_text(out)
        return json.loads(path.read_text())

    def theirs(self, trace, policy, load, seed):
        one, jitter = TRACES[trace]
        jitter = jitter if self.args.jitter is None else self.args.jitter
        d = self.kept(self.kvsim, [self.kvsim, f"trace={self.args.lab}/traces/{trace}.jsonl", f"n={self.args.workers}", f"copies={self.args.copies}",
                                   f"scale={one * load:.6g}", f"jitter={jitter:g}", f"seed={seed}", f"stale={self.args.stale}", *policy.split()])
        return d and {"hit": d["hit"], "mean": d["ttft_mean"], "p90": d["ttft_p90"], "slo": d["slo"]}

    def arrivals(self, trace, load, seed):
        """The requests as the laboratory drew them, written down from its protocol.  It does not tell how long answers are: those of the
        trace's requests with as many tokens and blocks are given out in turn."""
        one, jitter = TRACES[trace]
        path = pathlib.Path(self.args.keep, f"arrivals-{trace}-{load:g}-{seed}-{self.args.workers}-{self.args.copies}.jsonl")
        if path.exists() or self.args.kept:
            return path
        outputs, met, ids, lines = {}, {}, {}, []
        for line in open(f"{self.args.lab}/traces/{trace}.jsonl"):
            r = json.loads(line)
            outputs.setdefault((r["input_length"], len(r["hash_ids"])), []).append(r["output_length"])
        told = path.with_suffix(".told")
        subprocess.run([self.kvsim, f"trace={self.args.lab}/traces/{trace}.jsonl", f"n={self.args.workers}", f"copies={self.args.copies}", f"scale={one * load:.6g}",
                        f"jitter={jitter:g}", f"seed={seed}", f"stale={self.args.stale}", "policy=ext", f"cmd={sys.executable} {os.path.abspath(__file__)} --write {told}"],
                       capture_output=True, check=True)
        for line in open(told):
            f = line.split()
            kind = (int(f[3]), int(f[4]))
            met[kind] = met.get(kind, -1) + 1
            of = outputs[kind]
            lines.append(json.dumps({"timestamp": round(1000 * float(f[1]), 3), "input_length": kind[0], "output_length": of[met[kind] // self.args.copies % len(of)],
                                     "hash_ids": [ids.setdefault(x, len(ids)) for x in f[5:]]}) + "\n")
        told.unlink()
        path.write_text("".join(lines))
        return path

    def ours(self, trace, policy, load, seed):
        one, jitter = TRACES[trace]
        jitter = jitter if self.args.jitter is None else self.args.jitter
        if self.args.theirs:
            d = self.kept(self.args.binary, [self.args.binary, "replay", "--trace", str(self.arrivals(trace, load, seed)), "--workers", str(self.args.workers), "--seed", str(seed),
                                             "--stale-ms", str(self.args.stale), "--policy", policy, "--json", "-"])
            return d and {"hit": d["hit_share"], "mean": d["ttft_mean_s"], "p90": d["ttft_p90_s"], "slo": d["slo_share"]}
        d = self.kept(self.args.binary, [self.args.binary, "replay", "--trace", f"{self.args.lab}/traces/{trace}.jsonl", "--workers", str(self.args.workers),
                                         "--copies", str(self.args.copies), "--scale", f"{one * load:.6g}", "--jitter", f"{jitter:g}", "--seed", str(seed),
                                         "--stale-ms", str(self.args.stale), "--policy", policy, "--json", "-"])
        return d and {"hit": d["hit_share"], "mean": d["ttft_mean_s"], "p90": d["ttft_p90_s"], "slo": d["slo_share"]}


def write_down(path):
    """A router for the laboratory: requests go into a file, and to the workers in turn."""
    workers, n = 1, 0
    with open(path, "w") as out:
        for line in sys.stdin:
            if line[0] == "I":
                workers = int(dict(x.split("=", 1) for x in line.split()[1:])["workers"])
            elif line[0] == "R":
                out.write(line)
                print("P", line.split()[2], n % workers, flush=True)
                n += 1
            elif line[0] == "T":
                print(".", flush=True)
            elif line[0] == "Q":
                break


def means(runs):
    return {k: sum(r[k] for r in runs) / len(runs) for k in runs[0]}


def agrees(a, b, load):
    within = 0.15 if load > 0.8 else 0.10
    return abs(b["mean"] / a["mean"] - 1) <= within and abs(b["p90"] / a["p90"] - 1) <= within and abs(b["hit"] - a["hit"]) <= 0.02


def lines(rows, args):
    yield f"{args.workers} workers, {args.copies} copies. Each cell: laboratory / replay. TTFT in seconds."
    yield ""
    yield "| trace | load | policy there | here | seeds | hit % | TTFT mean | ratio | p90 | ratio | |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for trace, load, name, mine, a, b, good, n in rows:
        note = "" if good else "apart" if name in JUDGED_APART else "**differs**"
        yield (f"| {trace} | {load:.2f} | {name} | `{mine}` | {n} | {100 * a['hit']:.1f} / {100 * b['hit']:.1f} | {a['mean']:.3f} / {b['mean']:.3f} | {b['mean'] / a['mean']:.2f} "
               f"| {a['p90']:.3f} / {b['p90']:.3f} | {b['p90'] / a['p90']:.2f} | {note} |")


def main():
    p = argparse.ArgumentParser()
    if sys.argv[1:2] == ["--write"]:
        return write_down(sys.argv[2])
    p.add_argument("--lab", required=True)
    p.add_argument("--binary", default="build/warmpath")
    p.add_argument("--keep", default="build/agreement")
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--workers", type=int, default=16)
    p.add_argument("--copies", type=int, default=4)
    p.add_argument("--stale", type=int, default=0)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--only", default="")
    p.add_argument("--traces", default=",".join(TRACES))
    p.add_argument("--loads", default="0.5,0.75,0.9")
    p.add_argument("--jitter", type=float, help="instead of the trace's own; 0 with --copies 1: both play the very same arrivals")
    p.add_argument("--theirs", action="store_true", help="the arrivals that the laboratory draws, written down from its protocol, for both")
    p.add_argument("--kept", action="store_true")
    p.add_argument("--page")
    p.add_argument("--mark", default="agreement", help="of the page's markers")
    args = p.parse_args()
    lab, rows, left_out = Lab(args), [], 0
    seeds = range(1, args.seeds + 1)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for trace in args.traces.split(","):
            for load in map(float, args.loads.split(",")):
                for name, theirs, mine in POLICIES:
                    if not re.search(args.only, name):
                        continue
                    first = lab.theirs(trace, theirs, load, 1)
                    if first and first["slo"] < 0.8:  # the mean of five is no better
                        left_out += 1
                        continue
                    a = list(pool.map(lambda s: lab.theirs(trace, theirs, load, s), seeds))
                    known = [x for x in a if x]
                    if known and means(known)["slo"] < 0.9:
                        left_out += 1
                        continue
                    both = [(x, y) for x, y in zip(a, pool.map(lambda s: lab.ours(trace, mine, load, s), seeds)) if x and y]
                    if not both:
                        continue
                    a, b = means([x for x, _ in both]), means([y for _, y in both])
                    rows.append((trace, load, name, mine, a, b, agrees(a, b, load), len(both)))
                    print(next(reversed(list(lines(rows[-1:], args)))), flush=True)
    judged = [r for r in rows if r[2] not in JUDGED_APART]
    good = sum(r[6] for r in judged)
    verdict = (f"{good} of {len(judged)} rows agree ({100 * good / max(1, len(judged)):.0f} %); {left_out} left out, where the laboratory has fewer than 90 % within SLO.")
    print(verdict)
    if args.page:
        text = pathlib.Path(args.page).read_text()
        begin, end = f"<!-- {args.mark}: begin -->\n", f"<!-- {args.mark}: end -->"
        head, rest = text.split(begin)
        tail = rest.split(end)[1]
        pathlib.Path(args.page).write_text(head + begin + verdict + " " + "\n".join(lines(rows, args)) + "\n" + end + tail)
    return 0 if judged and good >= 0.95 * len(judged) else 1


sys.exit(main())
