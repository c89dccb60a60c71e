# SPDX-License-Identifier: Apache-2.0
"""The price policy in the laboratory's simulator, against its goals.

    python3 tests/bench/policy_lab/main.py LAB COMMAND [--seeds 1,2,3,4,5] [--only 7,A2] [--keep DIR] [--out FILE] [--jobs N]

LAB is a copy of the laboratory with kvsim built and its traces unpacked; COMMAND is the warmpath binary.
"""
import argparse
import pathlib
import sys

import goals
import runs


def figure(value, must, stretch, less):
    def within(bound):
        return bound is not None and (value <= bound if less else value >= bound)

    mark = "**" if within(stretch) else "" if within(must) else "!"
    return f"{mark}{value:.3g}{mark}"


def verdict(row):
    return "**no**" if row.met(2) is False else "stretch" if row.met(3) else "must"


HEAD = ["| # | goal | must | stretch | reference | here | seeds | met | binary |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]


def line(r, lab):
    here = ", ".join(f"{f[0]} {figure(*f[1:])}" for f in r.figures)
    return f"| {r.number} | {r.text} | {r.must} | {r.stretch} | {r.reference} | {here} | {r.seeds} | {verdict(r)} | {lab.stamp[:6]} |"


def number_of(line):
    return line.split("|")[1].strip()


def order(line):
    n = number_of(line)
    return n.startswith("A"), int(n.lstrip("A")), line.split("|")[2]


ABOUT = """# The price policy, measured

Written by `make bench-policy LAB=... OUT=docs/bench-policy.md`: do not edit, run it again. With `ONLY=` the other rows stay as they are; each has the hash of the binary that it was run with.

The laboratory is a discrete-event simulator of inference fleets that shares no code with this project ([engine-model.md](engine-model.md) has its engine).
It plays public traces, and the binary decides through `warmpath decide --stdio`, told of blocks and states 50 ms late. The default
configuration throughout: no setting of a trace, a load or a fleet. 16 workers, four copies of the trace, arrivals spread over 3 s; load 1.0 is the highest rate at
which the best published policy keeps 90 % of the requests within the objective (the larger of 5 s and twice the own cold prefill; 150 ms a token). Ratios are means of paired
seeds. The best published policy on the two chat traces is the conductor, at each load. *Reference* is what the laboratory's own policy reaches, with exact state.

Bold meets the stretch, plain the must; what meets neither stands between exclamation marks. Times are simulated: trust ratios more than seconds.

"""


def page(lines):
    met = [x.split("|")[8].strip() for x in lines]
    return ABOUT + "\n".join(HEAD + sorted(lines, key=order)) + (
        f"\n\n{sum(m in ('must', 'stretch') for m in met)} of {len(met)} rows meet their must in all of their figures, {met.count('stretch')} their stretch.\n")


def lines_of(path):
    """Of a page that is there: what is not run again stands as it was."""
    text = pathlib.Path(path).read_text(encoding="utf-8") if path and pathlib.Path(path).exists() else ""
    return [x for x in text.splitlines() if x.startswith("| ") and x.count("|") == 10 and not x.startswith(("| #", "| ---"))]


def wanted(only, *numbers):
    return not only or any(n in only for n in numbers)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("lab")
    p.add_argument("command")
    p.add_argument("--seeds", default="1,2,3,4,5")
    p.add_argument("--few", type=int, default=5, help="seeds for staleness, links, broken chains and capacity")
    p.add_argument("--fleets", default="4,64", help="fleet sizes of goal 18")
    p.add_argument("--fleet-seeds", type=int, default=1, help="seeds for each of them")
    p.add_argument("--only", default="")
    p.add_argument("--keep", default="build/bench-policy")
    p.add_argument("--out")
    p.add_argument("--jobs", type=int, default=runs.default_jobs())
    a = p.parse_args()
    lab = runs.Lab(a.lab, a.command, a.keep, a.jobs)
    seeds, only = [int(s) for s in a.seeds.split(",")], [x for x in a.only.split(",") if x]
    lines = lines_of(a.out)

    def take(more, n=None):
        for row in more if isinstance(more, list) else [more]:
            row.seeds = n or len(seeds)
            if wanted(only, row.number):
                new = line(row, lab)
                print(new, flush=True)
                lines[:] = [x for x in lines if order(x) != order(new)] + [new]
                if a.out:  # what there is, should it be interrupted
                    pathlib.Path(a.out).write_text(page(lines), encoding="utf-8")

    few = seeds[: a.few]
    for g in goals.CHAT_GOALS:
        if wanted(only, g.__name__[1:]):
            take(g(lab, seeds))
    if wanted(only, "A2", "A3", "A4"):
        take(goals.agent(lab, seeds))
    for g in goals.ADVERSE_GOALS:
        if wanted(only, g.__name__[1:]):
            take(g(lab, few), len(few))
    if wanted(only, "1", "2", "A1"):
        take(goals.capacity(lab, few), len(few))
    if wanted(only, "A5"):
        take(goals.a5(lab, few), len(few))
    if wanted(only, "18"):
        for n in a.fleets.split(","):
            take(goals.g18(lab, seeds[: a.fleet_seeds], [int(n)]), a.fleet_seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
