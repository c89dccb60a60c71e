# SPDX-License-Identifier: Apache-2.0
"""serve --record and replay --decisions: what a router decided is decided again, to the bit."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import lib
from lib import MODEL, Engine, Router, http, until

ROOT = pathlib.Path(__file__).resolve().parents[2]


def ask(r, seed, n=600, **more):
    prompt = [1000 + (k * 7919 + seed * 104729) % 100000 for k in range(n)]
    status, h, got = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 2, "stream": True, **more})
    assert status == 200, got
    return h


def again(file):
    p = subprocess.run([lib.BINARY, "replay", "--decisions", file], capture_output=True, text=True, timeout=60)
    return p.returncode, p.stdout, p.stderr


def run(folder, *more, n=30, fleet=3):
    file = os.path.join(folder, "decisions")
    engines = [Engine("--speed", 100) for _ in range(fleet)]
    r = Router(engines, "--record", file, *more)
    for i in range(n):
        ask(r, i % 7)
    return file, r


def test_decisions_come_out_the_same():
    """each policy's decisions of a fleet that learns its costs are made again from the file, bit for bit"""
    for policy in ("price", "round_robin", "power_of_two", "session", "least_loaded"):
        with tempfile.TemporaryDirectory() as folder:
            file, r = run(folder, "--policy", policy)
            http(r.admin, "POST", "/explain", {"model": MODEL, "prompt": list(range(100))})
            r.at_rest()
            assert r.metric("warmpath_records_total") >= 60 and r.metric("warmpath_records_dropped_total") == 0
            r.end()
            assert os.stat(file).st_mode & 0o777 == 0o600
            rc, out, err = again(file)
            assert rc == 0 and "decisions 31, of 3.0 workers" in out and "the same 31, otherwise 0, not judged 0" in out, (policy, out, err)
            assert "outcomes 30" in out, out
            assert os.path.getsize(file) < 31 * 700 + 4096, os.path.getsize(file)


def test_a_reload_changes_the_policy():
    """a reload's policy and settings are in the file, and the decisions after it are made with them"""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "decisions")
        engines = [Engine("--speed", 100) for _ in range(2)]
        conf = {"workers": [{"url": e.url} for e in engines], "record": {"file": file}}
        r = Router(config=conf, ready=2)
        for i in range(5):
            ask(r, i)
        conf["policy"] = {"name": "round_robin"}
        pathlib.Path(r.file).write_text(json.dumps(conf))
        assert http(r.admin, "POST", "/reload", {})[0] == 200
        for i in range(5):
            ask(r, i)
        conf["policy"] = {"name": "price", "price": {"room_us": 1, "near_share": 0.5}}
        pathlib.Path(r.file).write_text(json.dumps(conf))
        assert http(r.admin, "POST", "/reload", {})[0] == 200
        for i in range(5):
            ask(r, i)
        r.at_rest()
        r.end()
        rc, out, err = again(file)
        assert rc == 0 and "the same 15, otherwise 0" in out, (out, err)


def test_a_router_that_is_killed():
    """what a killed router had written is good, that its end is missing is said, and the next one keeps the file beside its own"""
    with tempfile.TemporaryDirectory() as folder:
        file, r = run(folder)
        until(lambda: os.path.getsize(file) > 5000, 10, "the writer's turn")
        r.kill()
        r.p.wait()
        rc, out, err = again(file)
        assert rc == 2 and "ends too soon" in err and "otherwise 0" in out, (out, err)
        was = pathlib.Path(file).read_bytes()
        e = Engine("--speed", 100)
        r = Router([e], "--record", file)
        ask(r, 1)
        r.at_rest()
        r.end()
        assert pathlib.Path(file + ".old").read_bytes() == was
        assert again(file)[0] == 0


def test_files_that_are_none():
    """a file that is missing, empty, cut, foreign, of another version or changed in one bit is told of by name and place"""
    with tempfile.TemporaryDirectory() as folder:
        file, r = run(folder, n=10)
        r.at_rest()
        r.end()
        good = pathlib.Path(file).read_bytes()
        other = os.path.join(folder, "other")
        for name, data, said in (("empty", b"", "too short"), ("foreign", b"x" * 200, "not such a file"), ("cut", good[:-16], "ends too soon"),
                                 ("cut in a frame", good[:len(good) // 2], "longer than what is left"),
                                 ("version", good[:9] + b"\x09" + good[10:], "newer"), ("order", good[:12] + good[12:16][::-1] + good[16:], "byte order"),
                                 ("a bit", good[:300] + bytes([good[300] ^ 4]) + good[301:], "checksum"), ("more", good + b"x", "follow the end")):
            pathlib.Path(other).write_bytes(data)
            rc, out, err = again(other)
            assert rc == 2 and said in err and "other" in err, (name, rc, err)
        rc, out, err = again(os.path.join(folder, "none"))
        assert rc == 1 and "none" in err, err
        assert again(folder)[0] == 2


def test_a_file_that_cannot_be_written():
    """a folder that is not there is an error at the start; a full disk stops the record, not the router"""
    p = subprocess.run([lib.BINARY, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--worker", "http://127.0.0.1:1", "--record", "/nonexistent/x"],
                       capture_output=True, text=True, timeout=20)
    assert p.returncode in (1, 2) and "/nonexistent/x" in p.stderr, p.stderr


def test_the_script_in_the_docs():
    """the script of docs/policies.md computes a decision's prices again from its JSON"""
    text = (ROOT / "docs/policies.md").read_text()
    script = text.split("```python\n")[1].split("```")[0]
    assert script.count("\n") <= 40
    engines = [Engine("--speed", 100, "--cpu-blocks", 200) for _ in range(3)]
    r = Router(engines)
    for i in range(12):
        h = ask(r, i % 4, n=300 + 200 * (i % 5), **({} if i % 2 else {"max_tokens": 30}))
    for path in (f"/decisions/{i}" for i in range(1, 13)):
        d = r.get(path)
        p = subprocess.run([sys.executable, "-c", script], input=json.dumps(d), capture_output=True, text=True, timeout=20)
        assert p.returncode == 0 and f"{d['chosen']}" in p.stdout and "differs" not in p.stdout, (p.stdout, p.stderr, d)
    r.at_rest()
