# SPDX-License-Identifier: Apache-2.0
"""Scale from zero: requests for a model without a worker are held, and what starts one is run or called once, however many wait."""
import json
import os
import signal
import socket

import lib
from lib import MODEL, Engine, FakeEngine, Router, http, until
from test_hold import Asked


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def router(port, wake, *more, **conf):
    return Router((), *more, config={"models": [{"name": MODEL, "wake": wake}], "workers": [{"url": f"http://127.0.0.1:{port}", **conf}],
                                     "health": {"interval_s": 0.2}})


def asked(r, n):
    until(lambda: r.metric("warmpath_queue_depth") == n, 15, f"{n} held")


def test_a_command_starts_an_engine():
    """five requests for a model without a worker: its command is run once, the engine that it starts serves them all; while it is up nothing is run again"""
    port = free_port()
    r = router(port, {"command": [os.path.abspath(lib.BINARY), "engine", "--listen", f"127.0.0.1:{port}", "--model", MODEL, "--speed", "50"]})
    assert http(r.port, "GET", "/health")[0] == 200, "who would send it a request otherwise?"
    all_ = [Asked(r, s, 100) for s in range(5)]
    pid = int(r.wait_log(r"wake: model=test-model wake.command runs: pid=(\d+)")[1])
    try:
        assert all(a.held_ms() > 0 for a in all_)
        assert Asked(r, 9, 100).held_ms() == 0
        assert r.metric('warmpath_wakes_total{result="started"}') == 1
        assert r.metric("warmpath_queue_depth") == 0
    finally:
        os.kill(pid, signal.SIGKILL)
    r.wait_log(r"wake.command was ended by signal 9")
    assert r.metric('warmpath_wakes_total{result="failed"}') == 1


def test_a_url_is_posted_to():
    """wake.url is POSTed to with its key; beyond wake.most requests are 503, wake, with Retry-After; a worker that is added at run time serves those who wait"""
    called = []

    def answer(q):
        called.append((q.method, q.target, q.headers.get("authorization")))
        q.answer(202, {})
    waker = FakeEngine(answer)
    key = lib.tempfile.NamedTemporaryFile("w", suffix=".key", delete=False)
    key.write("secret-of-mine\n")
    key.close()
    r = router(free_port(), {"url": waker.url + "/scale/up", "api_key_file": key.name, "most": 2}, "--policy", "round_robin")
    waiting = [Asked(r, s, 100) for s in range(2)]
    asked(r, 2)
    status, h, got = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": [1, 2, 3]})
    error = json.loads(got)["error"]
    assert (status, error["code"], error["param"]) == (503, "no_worker", "wake") and 1 <= int(h["retry-after"]) <= 60, got
    until(lambda: called, 10, "the call")
    e = Engine("--speed", 50)
    assert http(r.admin, "POST", "/workers", {"url": e.url})[0] == 201
    assert all(a.held_ms() > 0 for a in waiting)
    assert called == [("POST", "/scale/up", "Bearer secret-of-mine")]
    assert not r.grep("secret-of-mine")
    status, _, got = http(r.admin, "GET", "/config")
    assert status == 200 and b"secret-of-mine" not in got


def test_nobody_comes_up():
    """a command that fails, or is no program, is said and counted and run again while somebody waits, after wake.again_s; at wake.wait_s it is 503, wake"""
    for command, said in ((["sh", "-c", "exit 3"], r"wake.command ended with status 3"), (["/no/such/program"], r"wake: model=test-model (not found|no such file)")):
        r = router(free_port(), {"command": command, "wait_s": 1.5, "again_s": 0.4})
        a = Asked(r, 1, 100)
        r.wait_log(said)
        a.join(60)
        error = json.loads(a.got)["error"]
        assert (a.status, error["param"]) == (503, "wake") and int(a.h["retry-after"]) >= 1, a.got
        assert 2 <= r.metric('warmpath_wakes_total{result="failed"}') <= 5
        assert r.metric("warmpath_queue_depth") == 0
        r.end()


def test_a_client_that_does_not_wait():
    """half of what the client says it waits is as long as it is held; one that leaves gives up its place, and without wake it is 503 at once"""
    r = router(free_port(), {"command": ["true"], "again_s": 60})
    a = Asked(r, 1, 100, headers={"x-stainless-read-timeout": "1"})
    a.join(30)
    assert a.status == 503 and json.loads(a.got)["error"]["param"] == "wake", a.got
    s = socket.create_connection(("127.0.0.1", r.port))
    body = json.dumps({"model": MODEL, "prompt": [1, 2]}).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    asked(r, 1)
    lib.reset(s)
    asked(r, 0)
    assert r.metric('warmpath_wakes_total{result="started"}') == 1, "once within wake.again_s"
    r.end()
    r = Router((), config={"models": [{"name": MODEL}], "workers": [{"url": f"http://127.0.0.1:{free_port()}"}]})
    assert http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": [1, 2]})[0] == 503


def test_a_router_that_ends_meanwhile():
    """it ends well while a command runs and requests wait; the command goes on"""
    r = router(free_port(), {"command": ["sh", "-c", "exec sleep 600 2>/dev/null >&2"]}, "--set", "limits.drain_s=0.2", "--threads", "2")
    a = Asked(r, 1, 100)
    pid = int(r.wait_log(r"wake.command runs: pid=(\d+)")[1])
    r.end()
    a.join(30)
    assert a.status == 503 and json.loads(a.got)["error"]["param"] == "drain", a.got
    os.kill(pid, 0)
    os.kill(pid, signal.SIGKILL)
