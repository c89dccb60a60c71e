# SPDX-License-Identifier: Apache-2.0
"""Cases of tests/data/cases about load, policy, life cycle, metrics: one router, engines that say what they are told to."""
import json
import os
import re
import signal
import socket
import tempfile
import threading

import lib
from cases import *
from lib import CHAT, MODEL, Router, chat, http, read_all, read_until, until


def tokens(n, seed=1):
    return [1000 + (i * 7919 + seed * 104729) % 100000 for i in range(n)]


def completion(port, prompt, **more):
    return http(port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 4, **more})


def together(n, fn):
    """Runs fn(0..n-1) at once; the threads, not joined."""
    threads = [threading.Thread(target=fn, args=(i,)) for i in range(n)]
    [t.start() for t in threads]
    return threads


class Gate:
    """An engine behaviour that holds requests until it is opened."""

    def __init__(self):
        self.open = threading.Event()

    def __call__(self, q):
        self.open.wait(30)
        q.answer(200, CHAT)


def worker(r, e):
    return next(w for w in r.workers() if w["id"] == f"127.0.0.1:{e.port}")


def drain(r, e, on=True):
    assert http(r.admin, "POST", f"/workers/127.0.0.1:{e.port}/{'drain' if on else 'undrain'}", b"")[0] == 200


def page(running):
    return ("# TYPE vllm:num_requests_running gauge\n" f'vllm:num_requests_running{{model_name="m"}} {running}\n'
            'vllm:num_requests_waiting{model_name="m"} 0\n'
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1\n').encode()


def health(metrics, models=(MODEL,)):
    """Answers probes: metrics() is the page or None; models may be a function."""
    def answer(q):
        if q.target == "/metrics":
            text = metrics()
            q.answer(404, b"{}") if text is None else q.answer(200, text)
        else:
            names = models() if callable(models) else models
            q.answer(200, {"object": "list", "data": [n if isinstance(n, dict) else {"id": n, "object": "model"} for n in names]})
    return answer


def test_B122():
    """long requests counted by ourselves are untouched by probes that report nothing running (B122, B195)"""
    gate = Gate()
    a, b = engine(gate, health=health(lambda: page(0))), engine(gate, health=health(lambda: page(0)))
    r = Router([a, b], "--policy", "least_loaded", "--set", "health.interval_s=0.05")
    drain(r, b)
    held = together(10, lambda i: chat(r.port))
    until(lambda: len(a.requests) == 10)
    seen = [0]
    count = a.health
    a.health = lambda q: (seen.__setitem__(0, seen[0] + 1), count(q))
    until(lambda: seen[0] > 15, 10, "several probes")
    assert worker(r, a)["in_flight"] == 10
    drain(r, b, False)
    more = together(10, lambda i: chat(r.port))
    until(lambda: len(a.requests) + len(b.requests) == 20)
    assert len(b.requests) == 10, "the burst went to the busy engine"
    gate.open.set()
    [t.join() for t in held + more]
    rules(r, [a, b])


def test_B124():
    """an engine that is busy with unique prompts loses to the idle one, whatever that holds (B124)"""
    gate = Gate()
    with stage(gate, gate, args=("--set", "limits.queue=0")) as (r, a, b):
        drain(r, a)
        gate.open.set()
        for i in range(30):
            completion(r.port, tokens(2000, 100 + i))
        drain(r, a, False)
        drain(r, b)
        gate.open.clear()
        n = len(b.requests)
        held = together(4, lambda i: completion(r.port, tokens(8000, i)))
        until(lambda: len(a.requests) == 4)
        drain(r, b, False)
        gate2 = together(1, lambda i: chat(r.port))
        until(lambda: len(a.requests) + len(b.requests) == n + 5)
        assert len(b.requests) == n + 1
        gate.open.set()
        [t.join() for t in held + gate2]


def test_B126():
    """40 requests at once on one warm prefix spill over once queueing costs more than the prefill saved (B126)"""
    gate = Gate()
    with stage(gate, gate, args=("--set", "limits.queue=0")) as (r, a, b):
        gate.open.set()
        warm = tokens(4000)
        completion(r.port, warm)
        assert len(a.requests) + len(b.requests) == 1
        first, second = (a, b) if a.requests else (b, a)
        gate.open.clear()
        threads = together(40, lambda i: completion(r.port, warm + tokens(2000, 10 + i)))
        until(lambda: len(a.requests) + len(b.requests) == 41)
        assert len(first.requests) > 10 and len(second.requests) > 10, (len(first.requests), len(second.requests))
        gate.open.set()
        [t.join() for t in threads]


def test_B128():
    """load on completions and embeddings counts the same as chat (B128)"""
    for path, body in (("/v1/completions", json_file("B120a")), ("/v1/embeddings", json.dumps({"model": MODEL, "input": "x"}).encode())):
        gate = Gate()
        with stage(gate, gate, args=("--policy", "least_loaded")) as (r, a, b):
            threads = together(10, lambda i: http(r.port, "POST", path, body))
            until(lambda: len(a.requests) + len(b.requests) == 10)
            assert len(a.requests) == len(b.requests) == 5
            assert sum(w["in_flight"] for w in r.workers()) == 10
            gate.open.set()
            [t.join() for t in threads]


def test_B129():
    """the same conversation again as chat hits from the second time on, and says that it is matched by text (B129)"""
    with stage(None, None) as (r, a, b):
        hits = []
        for _ in range(3):
            _, h, _ = http(r.port, "POST", "/v1/chat/completions", json_file("B129"))
            assert "kind=bytes" in h["x-warmpath-overlap"]
            hits.append((h["x-warmpath-worker"], int(re.search(r"total=(\d+)", h["x-warmpath-overlap"])[1])))
        assert hits[0][1] == 0 and hits[1][1] > 100 and hits[1] == hits[2] and hits[0][0] == hits[1][0], hits


def test_B218():
    """history learns prompts, not answers: hits of both forms of turn 2 are what they share with turn 1 (B218)"""
    texts = {n: json.loads(json_file(f"B218-{n}")) for n in ("turn1", "turn2-dropped", "turn2-kept")}
    for n in ("turn2-dropped", "turn2-kept"):
        with stage() as (r, e):
            http(r.port, "POST", "/v1/chat/completions", texts["turn1"])
            _, h, _ = http(r.port, "POST", "/v1/chat/completions", texts[n])
            hit = int(re.search(r"total=(\d+)", h["x-warmpath-overlap"])[1])
            one, two = (json.dumps(texts[k]["messages"], separators=(",", ":"))[:-1] for k in ("turn1", n))
            shared = len(os.path.commonprefix([one, two]))
            # four bytes a token until usage says better; the blocks are 64 bytes
            assert (shared - 256) / 4 <= hit <= (shared + 64) / 4, (n, hit, shared)


def test_B160_B166():
    """at SIGTERM readiness says no at once, idle connections close at once, an endless stream gets the drain limit, then exit (B160, B166)"""
    stop = threading.Event()

    def endless(q):
        q.sse_head()
        while not stop.wait(0.05):
            q.chunk(EVENT)

    e = engine(endless)
    r = Router([e], "--set", "limits.drain_s=4")
    idle = socket.create_connection(("127.0.0.1", r.port))
    kept = lib.http_client(r.port)
    kept.request("GET", "/v1/models")
    kept.getresponse().read()
    s = open_stream(r.port)
    read_until(s, b"tick")
    r.p.send_signal(signal.SIGTERM)
    until(lambda: http(r.admin, "GET", "/readyz")[0] == 503, 1, "readiness saying no")
    assert http(r.admin, "GET", "/livez")[0] == 200
    for _ in range(3):  # who comes now is told, until the last request has ended
        status, h, body = chat(r.port)
        assert status == 503 and json.loads(body)["error"]["param"] == "drain" and h["connection"] == "close" and h["retry-after"]
        assert http(r.port, "GET", "/health")[0] == 503
    for c in (idle, kept.sock):
        c.settimeout(20)
        assert c.recv(1) == b""
    got = read_all(s, 20)
    assert got.count(b"tick") > 5, "the stream had no time"
    assert b"[DONE]" not in got and b'"param":"drain"' in got.split(b"tick")[-1], "a stream that was cut looks whole"
    r.p.wait(10)
    stop.set()
    r.end()


def test_B181():
    """SIGTERM while a probe, a retry, a connect, a look-up, a reload and a removal are under way: exit at once and clean (B181)"""
    silent = socket.create_server(("127.0.0.1", 0), backlog=1)
    full = [socket.create_connection(silent.getsockname()) for _ in range(2)]  # its backlog is full: connecting hangs
    hang = RawEngine(lambda s, got, n: s.recv(1))
    for scene in ("probe", "connect", "name", "prefill", "reload", "remove", "all"):
        workers = []
        if scene in ("probe", "connect", "all"):
            workers.append(f"http://127.0.0.1:{silent.getsockname()[1]}")
        if scene in ("name", "all"):
            workers.append("http://no-such-host.invalid:1")
        if scene in ("prefill", "reload", "remove", "all"):
            workers.append(hang.url)
        conf = {"workers": [{"url": w, "models": [MODEL]} for w in workers], "limits": {"connect_s": 30, "drain_s": 0.2}}
        r = Router(config=conf, ready=int(hang.url in workers))
        socks = []
        for _ in range(5):
            s = socket.create_connection(("127.0.0.1", r.port))
            s.sendall(post(chat_body()))
            socks.append(s)
        if hang.url in workers:
            until(lambda: any(w["in_flight"] for w in r.workers()), 5)
        if scene in ("reload", "all"):
            r.p.send_signal(signal.SIGHUP)
        if scene in ("remove", "all"):
            assert http(r.admin, "DELETE", "/workers/" + workers[-1].split("//")[1])[0] == 200
        r.p.send_signal(signal.SIGTERM)
        r.p.wait(15 * lib.slowness())  # long before connect_s is over
        r.end()
        [s.close() for s in socks]
    [s.close() for s in full]
    silent.close()
    hang.close()


def test_B162_B163():
    """a reload that adds an engine leaves streams and pools of the others alone; broken, empty, twice: the old one stays (B162, B163)"""
    go = threading.Event()

    def answer(q):
        if b'"stream": true' not in q.body:
            return q.answer(200, CHAT)
        q.sse_head()
        q.chunk(EVENT)
        go.wait(20)
        q.chunk(b"data: [DONE]\n\n")
        q.end()

    a, b = engine(answer), engine()
    r = Router(config="health: {interval_s: 30}\nworkers:\n  - {url: %s}\n" % a.url, ready=1)
    s = open_stream(r.port)
    read_until(s, b"tick")
    assert chat(r.port)[0] == 200
    connections = a.connections
    with open(r.file, "a") as f:
        f.write("  - {url: %s}\n" % b.url)
    for _ in range(2):
        r.p.send_signal(signal.SIGHUP)
    until(lambda: sum(w["ready"] for w in r.workers()) == 2, 10, "the new engine")
    drain(r, b)
    assert chat(r.port)[0] == 200
    assert a.connections <= connections + 1, "the pool of a kept engine was thrown away"  # one more: its probe at the change
    conf = r.get("/config")
    refused = 0
    for broken in ("policy: {name: prise}\n", "workers: []\n", "workers: [\n", "\0", "workers:\n  - {url: nonsense}\n"):
        with open(r.file, "w") as f:
            f.write(broken)
        for _ in range(2):
            r.p.send_signal(signal.SIGHUP)
            refused += 1
            until(lambda: r.metric('warmpath_reloads_total{result="refused"}') == refused, 5, "the refusal being counted")
        assert r.get("/config") == conf and chat(r.port)[0] == 200
    r.wait_log(r"error config: .*prise", 2)
    os.unlink(r.file)
    assert http(r.admin, "POST", "/reload", b"")[0] == 400 and chat(r.port)[0] == 200
    go.set()
    assert b"[DONE]" in read_until(s, b"0\r\n\r\n")
    rules(r, [a, b])


class Limited:
    """The binary under another limit of descriptors."""

    def __init__(self, n):
        self.f = tempfile.NamedTemporaryFile("w", suffix=".sh", delete=False)
        self.f.write(f'#!/bin/sh\nulimit -n {n}\nexec "{lib.BINARY}" "$@"\n')
        self.f.close()
        os.chmod(self.f.name, 0o700)

    def __enter__(self):
        self.was, lib.BINARY = lib.BINARY, self.f.name

    def __exit__(self, *_):
        lib.BINARY = self.was
        os.unlink(self.f.name)


def cpu_s(r):
    fields = open(f"/proc/{r.p.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_B165():
    """with 64 descriptors and 200 connections accepting pauses without spinning, workers stay well, and service comes back (B165)"""
    e = engine()
    with Limited(64):
        r = Router([e], "--set", "health.interval_s=0.1", "--threads", 1)
    socks = [socket.create_connection(("127.0.0.1", r.port)) for _ in range(200)]
    socks[0].sendall(raw_file("plain"))
    read_until(socks[0], b'"total_tokens": 6}}')
    before, mark = cpu_s(r), r.metric("warmpath_loop_lag_seconds_count")
    until(lambda: r.metric("warmpath_loop_lag_seconds_count") > mark + 8, 10)  # ten ticks of a tenth of a second
    assert cpu_s(r) - before < 0.4 * lib.slowness(), "it spins"
    w = r.workers()[0]
    assert w["ready"] and w["failed"] == 0 and w["breaker"] == "closed", w
    assert len([l for l in r.log if "accept" in l]) <= 2, r.log[-10:]
    assert len(os.listdir(f"/proc/{r.p.pid}/fd")) <= 64
    for s in socks:
        s.close()
    rules(r, [e])


def test_B165_all_busy():
    """with few descriptors 200 clients at once are all served, some later (B165)"""
    with Limited(64):
        with stage(None, None) as (r, a, b):
            out = []
            [t.join() for t in together(200, lambda i: out.append(chat(r.port)[0]))]
            assert out == [200] * 200, {s: out.count(s) for s in set(out)}
            assert all(w["failed"] == 0 for w in r.workers())


def test_B170():
    """300 random paths, methods, Host values and model names make no new series (B170)"""
    dead = "http://127.0.0.1:1"
    e = engine()
    for workers, ready in (([e], 1), ([dead], 0)):
        r = Router(workers, ready=ready)
        def shake(i):
            raw_request = (f"{'GET' if i % 2 else 'M%d' % i} /{os.urandom(8).hex()}?{i} HTTP/1.1\r\nHost: h{i}.test\r\nUser-Agent: u{i}\r\n"
                           f"Connection: close\r\n\r\n").encode()
            lib.raw(r.port, raw_request)
            http(r.port, "POST", "/v1/chat/completions", {"model": f"m{os.urandom(6).hex()}", "messages": [{"role": "user", "content": "x"}]})
            http(r.port, "GET", f"/v1/models/m{i}")
            http(r.admin, "GET", f"/workers/{i}")
            http(r.admin, "GET", f"/nothing/{i}")

        def series():
            text = http(r.admin, "GET", "/metrics")[2].decode()
            return {l.rsplit(" ", 1)[0] for l in text.splitlines() if not l.startswith("#")}

        for i in range(3):
            shake(i)
        before = series()
        for i in range(300):
            shake(1000 + i)
        assert series() == before, sorted(series() - before)[:5]
        r.end()


def test_B193():
    """engines that each said 503 once are served again after a bounded pause, though nothing else changes (B193)"""
    left = {0: 1, 1: 1}

    def answer(i):
        def fn(q):
            if left[i]:
                left[i] = 0
                return q.answer(503, {"error": {"message": "at capacity"}})
            q.answer(200, CHAT)
        return fn

    with stage(answer(0), answer(1)) as (r, a, b):
        [t.join() for t in together(20, lambda i: chat(r.port))]
        until(lambda: chat(r.port)[0] == 200, 5, "service")
        until(lambda: all(w["ready"] and w["breaker"] == "closed" for w in r.workers()), 10, "both back")


def test_B205():
    """a worker's gauges are there from its registration on with their true value, and go with it (B205)"""
    a, b = engine(), engine()
    r = Router([a])
    name = "warmpath_worker_up"
    assert r.metric(f'{name}{{worker="127.0.0.1:{a.port}"}}') == 1
    assert http(r.admin, "POST", "/workers", {"url": "http://127.0.0.1:1", "id": "gone"})[0] == 201
    assert r.metric(name + '{worker="gone"}') == 0
    assert http(r.admin, "POST", "/workers", {"url": b.url, "id": "b"})[0] == 201
    assert r.metric(name + '{worker="b"}') is not None
    until(lambda: r.metric(name + '{worker="b"}') == 1, 5)
    for ident in ("gone", "b"):
        assert http(r.admin, "DELETE", f"/workers/{ident}")[0] == 200
    for series in (name, "warmpath_worker_in_flight", "warmpath_worker_prefill_backlog_tokens", "warmpath_worker_breaker_state"):
        assert labels_of(r, series) == {f'worker="127.0.0.1:{a.port}"'}, series
    rules(r, [a, b])


def test_B206():
    """an engine whose metrics have none of the known names counts as unknown, not as idle: one log line says so (B206)"""
    for strange in (b"", b"other:num_requests 3\n", None):
        gate = Gate()
        a, b = engine(gate, health=health(lambda: strange)), engine(gate, health=health(lambda: page(0)))
        r = Router([a, b], "--set", "health.interval_s=0.05")
        threads = together(40, lambda i: http(r.port, "POST", "/v1/chat/completions", chat_body(user=f"u{i}", pad="x" * 500)))
        until(lambda: len(a.requests) + len(b.requests) == 40)
        assert 16 <= len(a.requests) <= 24, len(a.requests)
        gate.open.set()
        [t.join() for t in threads]
        r.at_rest()
        said = [l for l in r.log if f"worker=127.0.0.1:{a.port} does not tell its load" in l]
        assert len(said) == 1 and ("vllm:num_requests_running" in said[0] or "/metrics" in said[0]), said
        assert worker(r, a)["reported_running"] is None and worker(r, b)["reported_running"] == 0
        rules(r, [a, b])
        r.end()


def test_B207():
    """a sleeping engine gets nothing and is shown as sleeping, in every order of its series; awake it is served again (B207)"""
    def sleep_page(awake, order):
        series = [f'vllm:engine_sleep_state{{sleep_state="{s}"}} {v}' for s, v in
                  (("awake", int(awake)), ("weights_offloaded", int(not awake)), ("discard_all", 0))]
        return page(0) + "\n".join(series[i] for i in order).encode() + b"\n"

    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        state = {"awake": False}
        a, b = engine(health=health(lambda: sleep_page(state["awake"], order))), engine(health=health(lambda: page(0)))
        r = Router([a, b], "--set", "health.interval_s=0.05", ready=1)
        until(lambda: worker(r, a)["why"] == "sleeping" and worker(r, b)["ready"], 5, "shown as sleeping")
        for _ in range(10):
            assert chat(r.port)[0] == 200
        assert not a.requests and worker(r, a)["breaker"] == "closed"
        state["awake"] = True
        until(lambda: worker(r, a)["ready"], 5, "awake")
        drain(r, b)
        assert chat(r.port)[0] == 200 and a.requests
        r.end()


def test_B226():
    """history is sized to all tiers: 20 conversations of 40 blocks find their worker again with 100 GPU and 1000 host blocks (B226)"""
    a, b = engine(), engine()
    r = Router(config={"workers": [{"url": e.url, "kv_tokens": 1100 * 16, "block_size": 16} for e in (a, b)]}, ready=2)
    first = [completion(r.port, tokens(640, i))[1]["x-warmpath-worker"] for i in range(20)]
    for _ in range(2):
        for i in range(20):
            h = completion(r.port, tokens(640, i) + tokens(16, 100 + i))[1]
            assert h["x-warmpath-worker"] == first[i] and h["x-warmpath-overlap"].startswith("total=640;"), (i, h["x-warmpath-overlap"])
    rules(r, [a, b])


def test_B250():
    """an adapter is asked for only where it is listed; a 404 of one that has just unloaded goes elsewhere once (B250)"""
    lists = {"a": [MODEL, {"id": "lora", "parent": MODEL}], "b": [MODEL]}
    gone = set()

    def answer(name):
        def fn(q):
            if q.json()["model"] == "lora" and (name in gone or len(lists[name]) == 1):
                return q.answer(404, {"error": {"message": "The model `lora` does not exist.", "code": 404}}, reason="Not Found")
            q.answer(200, CHAT)
        return fn

    a = engine(answer("a"), health=health(lambda: None, lambda: lists["a"]))
    b = engine(answer("b"), health=health(lambda: None, lambda: lists["b"]))
    r = Router([a, b], "--set", "health.interval_s=0.1")
    models = {m["id"]: m["parent"] for m in json.loads(http(r.port, "GET", "/v1/models")[2])["data"]}
    assert models == {MODEL: None, "lora": MODEL}
    for _ in range(20):
        assert chat(r.port, model="lora")[0] == 200
    assert len(a.requests) == 20 and not b.requests
    lists["b"].append({"id": "lora", "parent": MODEL})
    until(lambda: "lora" in worker(r, b)["models"], 5, "the adapter being listed by the other")
    gone.add("a")  # unloaded: its list says so only later
    for _ in range(20):
        assert chat(r.port, model="lora")[0] == 200
    assert r.metric('warmpath_retries_total{reason="unloaded"}') >= 1
    lists["a"].pop()
    until(lambda: "lora" not in worker(r, a)["models"], 5)
    lists["b"].pop()
    until(lambda: "lora" not in worker(r, b)["models"], 5)
    status, _, body = chat(r.port, model="lora")
    assert status == 404 and code(body) == "model_not_found"
    assert all(w["failed"] == 0 and w["breaker"] == "closed" for w in r.workers())
    rules(r, [a, b])
