#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs steps one after the other, streams what they say, and adds up what they counted.

    tests/run.py NAME=COMMAND...

A step's totals are its last line of the form `N passed, N failed[, N skipped]`.  A step written `NAME:plain=COMMAND`
prints none and counts as one test.  Any other step without totals, or with a bad exit status, has failed, whatever it
printed.  All steps run, also after a failure, save that a failed `NAME:first=COMMAND` (plain, too) ends the run.
The last line is the sum; the exit status is 0 only when nothing failed.
"""
import os
import re
import signal
import subprocess
import sys
import time

TOTALS = re.compile(rb"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*$")
LIMIT_S = int(os.environ.get("STEP_LIMIT_S", "1500"))


def run_step(command):
    """Streams a shell command's output.  Returns its exit status and its last totals line, or None."""
    totals = None
    # close_fds=False: make hands its job slots down through descriptors.
    # A session of its own: when the limit is hit, all that the step started can be ended.
    p = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, close_fds=False, start_new_session=True)
    previous = signal.signal(signal.SIGALRM, lambda *_: os.killpg(p.pid, signal.SIGKILL))
    signal.alarm(LIMIT_S)
    try:
        for line in p.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            found = TOTALS.match(line)
            if found:
                totals = tuple(int(x or 0) for x in found.groups())
        status = p.wait()
    except BaseException:
        os.killpg(p.pid, signal.SIGTERM)
        raise
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    return status, totals


def judge(kind, status, totals):
    """A step's (passed, failed, skipped), and what was wrong beyond its own count."""
    if kind in ("plain", "first"):
        return (1, 0, 0) if status == 0 else (0, 1, 0), "" if status == 0 else f"exit status {status}"
    if totals is None:
        return (0, 1, 0), f"printed no totals, exit status {status}"
    if totals[0] + totals[1] + totals[2] == 0:
        return (0, 1, 0), "ran no test"
    if status != 0 and totals[1] == 0:
        return (totals[0], 1, totals[2]), f"exit status {status} though nothing failed"
    if status == 0 and totals[1] > 0:
        return totals, "exit status 0 though tests failed"
    return totals, ""


def parse(arg):
    name, eq, command = arg.partition("=")
    name, _, kind = name.partition(":")
    if not eq or not name or kind not in ("", "plain", "first"):
        sys.exit(f"{arg}: want NAME=COMMAND, NAME:plain=COMMAND or NAME:first=COMMAND")
    return name, kind, command


def main(args):
    rows = []
    for name, kind, command in [parse(a) for a in args]:
        print(f"\n=== {name}: {command}", flush=True)
        start = time.monotonic()
        status, totals = run_step(command)
        count, wrong = judge(kind, status, totals)
        rows.append((name, count, time.monotonic() - start, wrong))
        if kind == "first" and status != 0:
            break
    print()
    for name, count, took, wrong in rows:
        print("{:<16} {:>6} passed {:>4} failed {:>4} skipped {:>7.1f} s  {}".format(name, *count, took, wrong))
    passed, failed, skipped = (sum(r[1][i] for r in rows) for i in range(3))
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 0 if rows and failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
