#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real vLLM engines, on the CPU, behind the router: `make real-vllm`.  See docs/engines-vllm.md.

Engines with models of random weights and caches small enough to evict.  What is held against them is the index's claim: for
a prompt it must be the engine's own cached_tokens.  A line for each check, and the last line is the totals; where it cannot
run it says why, loudly.
"""
import argparse
import os
import re
import signal
import sys
import time
import traceback

import engine
import kinds
import lib
from lib import Skip
import pair
import rig
import slow

# Engines of this size share two cores with whatever else runs: the limits that the end-to-end tests use are far too tight.
os.environ.setdefault("WP_SLOW", "4")


class Done:
    """Which checks have passed with this engine and this binary: --resume goes on where the last run was broken off.

    A run of all begins anew; a run of some (--only) adds to what is known.
    """

    def __init__(self, resume, only):
        binary = os.stat(lib.BINARY)
        self.path = engine.HOME / f"passed-{rig.VERSION}"
        self.stamp = f"{binary.st_mtime_ns} {binary.st_size}"
        self.names, self.resume = set(), resume
        lines = self.path.read_text().splitlines() if (resume or only) and self.path.exists() else []
        if lines[:1] == [self.stamp]:
            self.names = set(lines[1:])

    def __contains__(self, name):
        return self.resume and name in self.names

    def add(self, name):
        self.names.add(name)
        self.path.write_text("\n".join([self.stamp, *sorted(self.names)]) + "\n")


def run(fn):
    """One check: its word."""
    word = "ok"
    try:
        fn()
    except Skip as e:
        word = f"SKIPPED: {e}"
    except Exception:
        word = "FAILED"
        traceback.print_exc()
    try:
        lib.end_all()
    except AssertionError as e:
        word = "FAILED"
        print(e, file=sys.stderr)
    return word


def checks(only):
    for module in (pair, slow, kinds):
        for name, fn in list(vars(module).items()):
            if name.startswith("test_") and re.search(only, name):
                yield name, fn


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default="build/warmpath")
    p.add_argument("--version", default=rig.VERSION, choices=sorted(engine.OVERRIDES))
    p.add_argument("--only", default="", help="run tests whose name matches this")
    p.add_argument("--resume", action="store_true", help="leave out what has passed since the binary was built")
    args = p.parse_args()
    lib.BINARY = os.path.abspath(args.binary)
    rig.VERSION = args.version
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    n = {"ok": 0, "FAILED": 0, "SKIPPED": 0}
    begun = time.monotonic()
    try:
        engine.HOME.mkdir(parents=True, exist_ok=True)
        engine.memory()
        engine.model_of(engine.python_of(rig.VERSION), "tiny")
        done = Done(args.resume, args.only)
        for name, fn in checks(args.only):
            started = time.monotonic()
            word = "ok (in an earlier run)" if name in done else run(fn)
            n[word.split(":")[0].split()[0]] += 1
            if word == "ok":
                done.add(name)
            print(f"vllm {rig.VERSION}: {name[5:]}: {fn.__doc__.splitlines()[0]} ... {word} ({time.monotonic() - started:.1f} s)",
                  flush=True)
    except Skip as e:
        print(f"SKIPPED real-vllm: {e}", flush=True)
        n["SKIPPED"] += 1
    finally:
        rig.end_engines()
        lib.end_all()  # a run that is ended in the midst of a check leaves no router either
    print(f"vllm {rig.VERSION}: {(time.monotonic() - begun) / 60:.0f} minutes")
    print(f"{n['ok']} passed, {n['FAILED']} failed, {n['SKIPPED']} skipped")
    return 1 if n["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
