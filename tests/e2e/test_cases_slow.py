# SPDX-License-Identifier: Apache-2.0
"""Cases that take many connections, much memory or a stopped process."""
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import lib
from cases import *
from lib import CHAT, MODEL, FakeEngine, Router, chat, http, read_until, reset, until

SET = "slow"
LIMIT = 300


def rss_kb(r, what="VmRSS"):
    return int(open(f"/proc/{r.p.pid}/status").read().split(what + ":")[1].split()[0])


def sanitized():
    return lib.slowness() > 1


def test_B068():
    """1000 streams at once, with health polled beside them: no restart, and health answers in time (B068)"""
    begun, go = threading.Semaphore(0), threading.Event()

    def answer(q):
        q.sse_head()
        q.chunk(EVENT)
        go.wait(60)
        q.chunk(b"data: [DONE]\n\n")
        q.end()

    with stage(answer, answer) as (r, *_):
        crowd = Crowd(r.port, 1000, post(json_file("stream")))
        health = []
        stop = threading.Event()

        def poll():
            while not stop.wait(0.02):
                try:
                    health.append(http(r.port, "GET", "/health", timeout=5 * lib.slowness())[0])
                except OSError as e:
                    health.append(repr(e))

        poller = threading.Thread(target=poll)
        poller.start()
        assert crowd.pump(lambda c: c.all_have(b"tick"), 40), "not every stream got its first event"
        go.set()
        assert crowd.pump(lambda c: c.all_have(b"[DONE]"), 40)
        stop.set()
        poller.join()
        crowd.close()
        assert len(health) > 10 and set(health) == {200}, set(health)


def test_B095():
    """an engine that writes faster than its client reads is stopped, the router's memory stays small, and nothing is lost (B095)"""
    piece = b'data: {"choices":[{"delta":{"content":"%s"}}]}\n\n' % (b"x" * 8000)
    n = 4000
    wrote = [0]

    def answer(q):
        q.sse_head()
        for _ in range(n):
            q.chunk(piece)
            wrote[0] += 1
        q.end()

    with stage(answer) as (r, e):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
            s.connect(("127.0.0.1", r.port))
            s.sendall(post(chat_body(True), extra=b"Connection: close\r\n"))
            got = read_until(s, b"data: ")
            total = got.split(b"\r\n\r\n", 1)[1].count(b"x")
            was = -1

            def stalled():
                nonlocal was
                before, was = was, wrote[0]
                time.sleep(0.2)  # the engine's own pace: two looks that are the same
                return before == wrote[0]

            until(stalled, 20, "the engine being stopped")
            assert wrote[0] < n, "the router swallowed everything"
            if not sanitized():
                assert rss_kb(r) < 64 << 10, rss_kb(r)
            while got := s.recv(1 << 16):
                total += got.count(b"x")
        assert total == n * 8000


def test_B096():
    """20 bodies of 10 MiB at once: memory under twice the bytes held; a global cap answers 503 (B096)"""
    body = chat_body(pad="x" * (10 << 20))
    text = chat_body(messages=[{"role": "user", "content": "x" * (10 << 20)}])
    for data in (body, text):
        hold = threading.Event()
        with stage(lambda q: (hold.wait(200), q.answer(200, CHAT))) as (r, e):
            base = rss_kb(r)
            out = []
            threads = [threading.Thread(target=lambda: out.append(http(r.port, "POST", "/v1/chat/completions", data, timeout=200)[0])) for _ in range(20)]
            [t.start() for t in threads]
            until(lambda: len(e.requests) == 20, 150)
            held = 20 * len(data) // 1024
            peak = rss_kb(r, "VmHWM") - base
            hold.set()
            [t.join() for t in threads]
            assert out == [200] * 20
            if not sanitized():
                assert peak < 2 * held, (peak, held)
                until(lambda: rss_kb(r) < base + held // 4, 10, "the memory going back")
    hold = threading.Event()
    with stage(lambda q: (hold.wait(200), q.answer(200, CHAT)), args=("--set", "limits.body_bytes=16Mi", "--set", "limits.bodies_total_bytes=50Mi")) as (r, e):
        out = []
        threads = [threading.Thread(target=lambda: out.append(http(r.port, "POST", "/v1/chat/completions", body, timeout=200))) for _ in range(20)]
        [t.start() for t in threads]
        until(lambda: len(out) + len(e.requests) == 20, 150)
        hold.set()
        [t.join() for t in threads]
        refused = [b for s, _, b in out if s != 200]
        assert 4 >= sum(s == 200 for s, *_ in out) >= 1 and all(s in (200, 503) for s, *_ in out)
        assert all(code(b) == "overloaded" and json.loads(b)["error"]["param"] == "body_memory" for b in refused)


def test_64_mib():
    """a body of exactly 64 MiB passes unchanged by default, one byte more does not"""
    with stage() as (r, e):
        body = chat_body(pad="")
        body = chat_body(pad="x" * ((64 << 20) - len(body)))
        assert len(body) == 64 << 20
        assert http(r.port, "POST", "/v1/chat/completions", body, timeout=60)[0] == 200
        assert e.requests[-1].body == body
        e.requests[-1].body = b""
        assert status_of(lib.raw(r.port, post_head((64 << 20) + 1))) == 413


def test_B097():
    """after a burst of 500 streams memory returns near where it was (B097)"""
    def answer(q):
        q.sse_head()
        for _ in range(20):
            q.chunk(EVENT)
        q.chunk(b"data: [DONE]\n\n")
        q.end()

    with stage(answer, answer) as (r, *_):
        request = post(chat_body(True, pad="x" * 20000))

        def burst():
            crowd = Crowd(r.port, 500, request)
            assert crowd.pump(lambda c: c.all_have(b"[DONE]"), 40)
            crowd.close()
            r.at_rest()

        for _ in range(4):  # then pools and the ring of decisions have their size
            burst()
        first = rss_kb(r)
        for _ in range(4):
            burst()
        if not sanitized():
            until(lambda: rss_kb(r) < first * 1.1 + 2048, 10, "memory near where it was")
            assert first < 40 << 10, first


ENGINE = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
from lib import CHAT, FakeEngine
go = threading.Event()
def answer(q):
    if b'"stream": true' in q.body:
        q.sse_head()
        q.chunk(b'data: {"choices":[{"index":0,"delta":{"content":"tick"}}]}\\n\\n')
        q.gone(100)
    elif b'hold' in q.body:
        q.gone(100)
        sys.stdout.write("gone\\n")
        sys.stdout.flush()
    else:
        q.answer(200, CHAT)
e = FakeEngine(answer)
print(e.port, flush=True)
sys.stdin.read()
"""


def test_B199():
    """a stopped engine: new requests avoid it, waiting ones move on, streams end at the idle limit, and it wakes up to find them gone (B199)"""
    p = subprocess.Popen([sys.executable, "-c", ENGINE, os.path.dirname(lib.__file__)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = int(p.stdout.readline())
        good = engine()
        r = Router([f"http://127.0.0.1:{port}", good], "--set", "health.interval_s=0.3", "--set", "limits.first_byte_s=10",
                   "--set", "limits.idle_s=10", "--set", "slo.itl_ms=0.1")
        stopped = f"127.0.0.1:{port}"
        assert http(r.admin, "POST", f"/workers/127.0.0.1:{good.port}/drain", b"")[0] == 200
        streams = [open_stream(r.port) for _ in range(5)]
        for s in streams:
            read_until(s, b"tick")
        out = []
        waiting = [threading.Thread(target=lambda: out.append(http(r.port, "POST", "/v1/chat/completions", chat_body(user="hold"))))
                   for _ in range(5)]
        [t.start() for t in waiting]
        until(lambda: next(w for w in r.workers() if w["id"] == stopped)["in_flight"] == 10)
        p.send_signal(signal.SIGSTOP)
        assert http(r.admin, "POST", f"/workers/127.0.0.1:{good.port}/undrain", b"")[0] == 200
        until(lambda: not next(w for w in r.workers() if w["id"] == stopped)["ready"], 10, "the stopped engine being found out")
        before = len(good.requests)
        for _ in range(20):
            status, h, _ = chat(r.port)
            assert status == 200 and h["x-warmpath-worker"] != stopped
        assert len(good.requests) >= before + 20
        [t.join() for t in waiting]
        assert [s for s, *_ in out] == [200] * 5, out
        for s in streams:
            assert b"error" in read_until(s, b"0\r\n\r\n")
        r.at_rest()
        p.send_signal(signal.SIGCONT)
        for _ in range(5):
            assert p.stdout.readline() == "gone\n"
        until(lambda: all(w["ready"] for w in r.workers()), 20, "the engine being back")
        rules(r, [good])
    finally:
        p.send_signal(signal.SIGCONT)
        p.kill()
        p.wait()


def many_workers(e, n):
    """So many workers by the one engine: each URL has a path of its own."""
    return [f"{e.url}/w{i},id=w{i}" for i in range(n)]


def test_B214():
    """5,000 requests with long prompts that wait in the router while 256 workers are busy, all gone at once: places and memory free, nobody blamed, new ones served (B214)"""
    hold = threading.Event()

    def answer(q):
        if q.method == "GET":
            q.answer(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]} if q.target.endswith("/v1/models") else {})
        else:
            hold.wait(120)
            q.answer(200, CHAT)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = min(5000, hard - 1200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20000), hard))
    try:
        e = FakeEngine(answer)
        r = Router(many_workers(e, 256), "--set", "limits.per_worker=1", "--set", "limits.queue=10000", "--set", "policy.price.hold_max=10000",
                   "--set", "limits.first_byte_s=600", "--set", "policy.price.hold_most_us=600000000", log="info")
        data = post(chat_body(messages=[{"role": "user", "content": "long " * 800}]))
        crowd = []
        for _ in range(n):
            crowd.append(socket.create_connection(("127.0.0.1", r.port)))
            crowd[-1].sendall(data)
        until(lambda: r.metric("warmpath_queue_depth") == n - 256 and len([q for q in e.requests if q.method == "POST"]) == 256, 60, "all but 256 being held")
        held = rss_kb(r)
        for s in crowd:
            reset(s)
        late = []
        together = [threading.Thread(target=lambda: late.append(chat(r.port)[0])) for _ in range(50)]
        [t.start() for t in together]
        until(lambda: r.metric("warmpath_client_gone_total") == n, 30, f"{n} clients' going being noticed")
        until(lambda: r.metric("warmpath_queue_depth") == 0, 30, "an empty queue")
        hold.set()
        [t.join() for t in together]
        assert late == [200] * 50, late
        r.at_rest()
        assert sanitized() or rss_kb(r) < held * 1.25, (held, rss_kb(r))
        assert all(w["failed"] == 0 and w["breaker"] == "closed" for w in r.workers())
        r.end()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
