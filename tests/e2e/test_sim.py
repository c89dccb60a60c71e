# SPDX-License-Identifier: Apache-2.0
"""The simulated engine and the load generator as commands."""
import json
import os
import signal
import socket
import subprocess
import tempfile

import lib
from lib import MODEL, Engine, Process, http, metric, until


def trace(n, every_ms=20, tokens=600, output=8):
    """A file of n requests that share their first block."""
    f = tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False)
    with f:
        for i in range(n):
            f.write(json.dumps({"timestamp": i * every_ms, "input_length": tokens, "output_length": output, "hash_ids": [7, 100 + i]}) + "\n")
    return f.name


def load(*args, seconds=60):
    p = subprocess.run([lib.BINARY, "load", *map(str, args)], capture_output=True, text=True, timeout=seconds * lib.slowness())
    return p.returncode, p.stdout, p.stderr


def test_a_load_measures_an_engine():
    """load plays a trace, prints the table, writes the same figures as JSON, and two such files can be compared"""
    e = Engine("--speed", 50)
    file = trace(40)
    with tempfile.TemporaryDirectory() as d:
        for name in ("a", "b"):
            rc, out, err = load("--target", e.url, "--trace", file, "--speed", 50, "--json", f"{d}/{name}.json", "--label", name)
            assert rc == 0, out + err
            assert "TTFT mean" in out and "sent late p99" in out and err == "", out + err
            figures = json.load(open(f"{d}/{name}.json"))
            assert figures["requests"] == 36 and figures["errors"] == 0 and figures["warmup_requests"] == 4, figures
            assert figures["prompt_tokens"] == 36 * 600 and figures["output_tokens"] == 36 * 8, figures
        assert figures["hit_share"] > 0.9, figures  # the second time all of it is there
        rc, out, err = load("--compare", f"{d}/a.json", f"{d}/b.json")
        assert rc == 0 and "ratio" in out, out + err
    os.unlink(file)
    _, _, page = http(e.port, "GET", "/metrics")
    assert metric(page.decode(), "vllm:num_requests_running") == 0
    assert metric(page.decode(), "vllm:generation_tokens_total") == 2 * 40 * 8


def test_a_load_that_cannot_work_says_so():
    """load exits 1 when every request failed, 2 on a wrong command line, and names what is wrong"""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, not listening
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        file = trace(3, every_ms=1)
        rc, out, err = load("--target", url, "--trace", file, "--model", "m")
        assert rc == 1 and "connect failed" in out, out + err
        rc, out, err = load("--target", url, "--trace", file)
        assert rc == 1 and "refused" in err, out + err
        os.unlink(file)
    for args, words in ((("--target", "nonsense"), "--target"), (("--trce", "x"), "--trace"), (("x.json",), "x.json"),
                        (("--target", url, "--trace", "/no/such"), "/no/such"), (("--compare", "a"), "two files"),
                        (("--scale", "-1"), "--scale")):
        rc, out, err = load(*args)
        assert rc in (1, 2) and words in err and out == "", (args, rc, out, err)


def test_an_interrupted_load_reports():
    """SIGINT stops the sending, and what was measured is reported"""
    e = Engine("--speed", 50)
    file = trace(2000, every_ms=100)
    p = Process("load", "--target", e.url, "--trace", file, "--warmup", 0)
    until(lambda: e.metric('vllm:request_success_total{engine="0",model_name="%s",finished_reason="length"}' % MODEL) >= 3,
          what="three requests served")
    p.p.send_signal(signal.SIGINT)
    p.wait_log(r"stopped early: \d+ of 2000 requests sent")
    p.p.wait(10)
    assert p.grep(r"^requests +[1-9]", p.out), p.out
    os.unlink(file)


def test_an_engine_ends_on_sigterm():
    """SIGTERM lets a request end for a moment, then the engine goes with status 0, and cuts what is left"""
    e = Engine("--speed", 1)
    with socket.create_connection(("127.0.0.1", e.port)) as s:
        body = json.dumps({"prompt": "x", "max_tokens": 10000, "stream": True})
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        got = lib.read_until(s, b"data: ")
        assert b" 200 " in got
        e.p.send_signal(signal.SIGTERM)
        assert e.p.wait(20 * lib.slowness()) == 0
        rest = lib.read_all(s, 5)
        assert b"[DONE]" not in rest


def test_an_engine_that_cannot_start_says_why():
    """wrong flags end with status 2 and one line that names what is wrong"""
    for args, words in ((("--fault", "stal"), "stall"), (("--gpu-blocks", "0"), "--gpu-blocks"), (("--profile", "no"), "llama"),
                        (("--max-model-len", "99999999"), "fit"), (("--lissen", "x"), "--listen"), (("--listen", "x"), "address")):
        p = subprocess.run([lib.BINARY, "engine", *args], capture_output=True, text=True, timeout=20 * lib.slowness())
        assert p.returncode in (1, 2) and words in p.stderr and p.stderr.count("\n") == 1 and p.stdout == "", (args, p.returncode, p.stderr)
