#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds tests/run.py to its word: no step that failed, crashed or counted nothing may pass."""
import os
import subprocess
import sys

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "run.py")
CASES = (  # label, steps, exit status, last line
    ("adds up", ("a=echo '3 passed, 0 failed'", "b=echo '4 passed, 0 failed, 2 skipped'"), 0, "7 passed, 0 failed, 2 skipped"),
    ("a step's last totals count", ("a=echo '3 passed, 0 failed'; echo; echo '5 passed, 0 failed'; echo x",), 0,
     "5 passed, 0 failed, 0 skipped"),
    ("a plain step is one test", ("a:plain=true", "b:plain=false"), 1, "1 passed, 1 failed, 0 skipped"),
    ("failures are seen", ("a=echo '3 passed, 2 failed'; exit 1",), 1, "3 passed, 2 failed, 0 skipped"),
    ("failures are seen in spite of the status", ("a=echo '3 passed, 2 failed'",), 1, "3 passed, 2 failed, 0 skipped"),
    ("a bad status is a failure in spite of the totals", ("a=echo '3 passed, 0 failed'; exit 1",), 1,
     "3 passed, 1 failed, 0 skipped"),
    ("a crash is a failure", ("a=echo '3 passed, 0 failed'; kill -SEGV $$",), 1, "3 passed, 1 failed, 0 skipped"),
    ("no totals is a failure", ("a=true",), 1, "0 passed, 1 failed, 0 skipped"),
    ("totals within a line are none", ("a=echo 'x 3 passed, 0 failed'",), 1, "0 passed, 1 failed, 0 skipped"),
    ("no test is a failure", ("a=echo '0 passed, 0 failed'",), 1, "0 passed, 1 failed, 0 skipped"),
    ("only skipped is no failure", ("a=echo '0 passed, 0 failed, 1 skipped'",), 0, "0 passed, 0 failed, 1 skipped"),
    ("later steps run", ("a=false", "b=echo '1 passed, 0 failed'"), 1, "1 passed, 1 failed, 0 skipped"),
    ("but not behind a failed first", ("a:first=false", "b=echo '1 passed, 0 failed'"), 1, "0 passed, 1 failed, 0 skipped"),
    ("a step that hangs is ended", ("a=echo '1 passed, 0 failed'; sleep 60",), 1, "1 passed, 1 failed, 0 skipped"),
    ("no step is a failure", (), 1, "0 passed, 0 failed, 0 skipped"),
)

failed = 0
for label, steps, status, last in CASES:
    limit = "1" if "hangs" in label else "30"
    p = subprocess.run([sys.executable, RUN, *steps], capture_output=True, text=True, env={**os.environ, "STEP_LIMIT_S": limit})
    got = p.stdout.rstrip("\n").split("\n")[-1]
    if (p.returncode, got) != (status, last):
        failed += 1
        print(f"FAILED {label}: want {status} and {last!r}, got {p.returncode} and {got!r}")
print(f"{len(CASES) - failed} passed, {failed} failed")
sys.exit(failed != 0)
