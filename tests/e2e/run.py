#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the end-to-end tests: the real binary on loopback.  The last line is the totals.

Every tests/e2e/test_*.py holds functions called test_*; the first line of the docstring is the test's sentence.  A
module may set SET = "core" (default), "slow" or "clients", and LIMIT, the seconds that its tests may take.  A test that cannot run here raises lib.Skip with the reason.
"""
import argparse
import faulthandler
import importlib
import os
import pathlib
import signal
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent.parent))
import lib  # noqa: E402


def alarm(_sig, _frame):
    raise TimeoutError("the test took longer than its limit")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default="build/warmpath")
    p.add_argument("--only", default="", help="run tests whose name or module holds this")
    p.add_argument("--set", default="core", choices=["core", "slow", "clients", "all"])
    p.add_argument("--limit", type=float, default=180, help="seconds a test may take")
    args = p.parse_args()
    lib.BINARY = os.path.abspath(args.binary)
    signal.signal(signal.SIGALRM, alarm)
    faulthandler.enable()
    passed = failed = skipped = 0
    for path in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(path.stem)
        if args.set not in ("all", getattr(module, "SET", "core")):
            continue
        for name, fn in list(vars(module).items()):
            if not name.startswith("test_") or not callable(fn):
                continue
            if args.only and args.only not in f"{path.stem}.{name}":
                continue
            sentence = (fn.__doc__ or name).strip().splitlines()[0]
            started = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, max(args.limit, getattr(module, "LIMIT", 0)) * lib.slowness())
            try:
                fn()
                word = "ok"
                passed += 1
            except lib.Skip as e:
                word = f"SKIPPED: {e}"
                skipped += 1
            except BaseException as e:  # a failed test must not end the run
                if isinstance(e, KeyboardInterrupt):
                    raise
                word = "FAILED"
                failed += 1
                traceback.print_exc()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                try:
                    lib.end_all()
                except Exception as e:  # a process that crashed or leaked fails its test
                    if word == "ok":
                        passed -= 1
                        failed += 1
                        word = "FAILED"
                    print(e, file=sys.stderr)
            print(f"{path.stem[5:]}: {sentence} ... {word} ({time.monotonic() - started:.1f} s)", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or passed + skipped == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
