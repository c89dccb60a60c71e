# SPDX-License-Identifier: Apache-2.0
"""The life of a request through router and simulated engines."""
import json
import os
import signal
import socket
import threading

from lib import (MODEL, Engine, FakeEngine, Router, chat, http, http_client, raw, read_all, read_until, reset, until)


def tokens(n, seed=1):
    return [1000 + (i * 7919 + seed * 104729) % 100000 for i in range(n)]


def completion(port, prompt, stream=False, headers=None, **more):
    return http(port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 4, "stream": stream, **more}, headers)


def test_a_prompt_comes_back_to_the_worker_that_holds_it():
    """the second request with a prompt goes to the worker that holds it, and both know how much is cached"""
    engines = [Engine("--speed", 50) for _ in range(3)]
    r = Router(engines)
    prompt = tokens(2000)
    _, first, _ = completion(r.port, prompt)
    for other in range(4):  # other prompts go elsewhere meanwhile
        completion(r.port, tokens(500, other + 2))
    status, second, body = completion(r.port, prompt)
    usage = json.loads(body)["usage"]
    assert status == 200
    assert second["x-warmpath-worker"] == first["x-warmpath-worker"]
    assert second["x-warmpath-overlap"].startswith("total=1984;"), second["x-warmpath-overlap"]  # (2000 - 1) // 16 * 16
    assert "kind=tokens" in second["x-warmpath-overlap"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 1984, usage
    assert first["x-warmpath-overlap"].startswith("total=0;")
    r.at_rest()
    assert r.metric('warmpath_prompt_tokens_confirmed_total{source="gpu"}') >= 1984


def test_text_is_matched_as_bytes():
    """chat without token ids is matched in chunks of bytes, and says so"""
    engines = [Engine("--speed", 50) for _ in range(2)]
    r = Router(engines)
    system = {"role": "system", "content": "You are terse. " * 100}
    _, a, _ = chat(r.port, messages=[system, {"role": "user", "content": "one"}])
    _, b, _ = chat(r.port, messages=[system, {"role": "user", "content": "two"}])
    assert a["x-warmpath-worker"] == b["x-warmpath-worker"]
    assert "kind=bytes" in b["x-warmpath-overlap"]
    assert int(b["x-warmpath-overlap"].split(";")[0][6:]) > 200
    r.at_rest()


def test_an_engine_killed_in_mid_stream():
    """an engine killed in mid-stream ends the stream in an error event, and the next request is served elsewhere"""
    engines = [Engine("--speed", 1), Engine("--speed", 1)]
    r = Router(engines)
    with socket.create_connection(("127.0.0.1", r.port)) as s:
        body = json.dumps({"model": MODEL, "prompt": tokens(100), "max_tokens": 2000, "ignore_eos": True, "stream": True})
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        head = read_until(s, b"data: ")
        worker = next(l.split(": ")[1] for l in head.decode().split("\r\n") if l.lower().startswith("x-warmpath-worker"))
        victim = next(e for e in engines if str(e.port) in worker)
        victim.kill()
        rest = read_until(s, b"0\r\n\r\n")
    assert b'"upstream_failed"' in rest and b"[DONE]" not in rest, rest[-300:]
    for _ in range(3):
        status, h, _ = completion(r.port, tokens(100))
        assert status == 200 and h["x-warmpath-worker"] != worker
    assert r.metric("warmpath_broken_answers_total") == 1
    r.at_rest()


def test_an_engine_that_never_answers():
    """an engine that never answers costs its deadline once; the request is served by another"""
    silent = FakeEngine(lambda q: q.gone(30))
    good = FakeEngine()
    r = Router([silent, good], "--set", "limits.first_byte_s=2", "--policy", "round_robin")
    status, h, body = chat(r.port, stream=True)
    assert status == 200, body
    assert h["x-warmpath-attempts"] == "2" and len(silent.requests) == len(good.requests) == 1
    assert r.metric('warmpath_retries_total{reason="timeout"}') == 1
    r.at_rest()


def test_when_the_only_engine_never_answers():
    """when the only engine never answers, the client gets 504 and no hint to retry"""
    silent = FakeEngine(lambda q: q.gone(30))
    r = Router([silent], "--set", "limits.first_byte_s=0.3")
    status, h, body = chat(r.port, stream=True)
    assert status == 504 and json.loads(body)["error"]["code"] == "upstream_timeout"
    assert h["x-should-retry"] == "false"
    r.at_rest()


def test_200_concurrent_streams():
    """200 concurrent streams all make progress and arrive whole"""
    engines = [Engine("--speed", 20) for _ in range(2)]
    r = Router(engines)
    results, lock = [], threading.Lock()

    def one(i):
        status, _, body = completion(r.port, tokens(64, i), stream=True, max_tokens=20, ignore_eos=True)
        with lock:
            results.append((status, body.count(b'"text"'), b"data: [DONE]" in body))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(200)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert len(results) == 200
    assert all(s == 200 and n >= 20 and done for s, n, done in results), [x for x in results if not (x[0] == 200 and x[2])][:5]
    r.at_rest()


def test_a_client_gone_in_a_silent_prefill():
    """a client that goes away in a silent prefill frees the engine: its running gauge returns to 0"""
    e = Engine("--speed", 0.01)
    r = Router([e])
    for how in ("close", "reset"):
        s = socket.create_connection(("127.0.0.1", r.port))
        body = json.dumps({"model": MODEL, "prompt": tokens(8000), "max_tokens": 4, "stream": True})
        s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        until(lambda: e.metric("vllm:num_requests_running") + e.metric("vllm:num_requests_waiting") == 1, 10, "the engine working")
        s.close() if how == "close" else reset(s)
        until(lambda: e.metric("vllm:num_requests_running") + e.metric("vllm:num_requests_waiting") == 0, 5, f"the engine freed after {how}")
    assert r.metric("warmpath_client_gone_total") == 2
    r.at_rest()
    assert not r.grep(r"breaker")


def test_a_half_closed_client_is_served():
    """a client that closes its sending side after the request still gets its answer"""
    e = Engine("--speed", 1)
    r = Router([e])
    for stream in (True, False):
        with socket.create_connection(("127.0.0.1", r.port)) as s:
            body = json.dumps({"model": MODEL, "prompt": tokens(4000, int(stream)), "max_tokens": 4, "stream": stream})
            s.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            s.shutdown(socket.SHUT_WR)
            answer = read_until(s, b"data: [DONE]" if stream else b'"usage"')
        assert b"HTTP/1.1 200" in answer
    r.at_rest()


def test_workers_come_and_go_under_load():
    """a worker is added and another drained and removed under load without one failed request"""
    engines = [Engine("--speed", 30) for _ in range(3)]
    r = Router(engines[:2])
    stop, bad, served = threading.Event(), [], []

    def load(i):
        n = 0
        while not stop.is_set():
            n += 1
            status, h, body = completion(r.port, tokens(200, i * 1000 + n), stream=n % 2 == 0, max_tokens=8)
            served.append(h.get("x-warmpath-worker"))
            if status != 200 or (n % 2 == 0 and b"[DONE]" not in body):
                bad.append((status, body[-200:]))

    threads = [threading.Thread(target=load, args=(i,)) for i in range(8)]
    [t.start() for t in threads]
    try:
        until(lambda: len(served) > 30, 20)
        status, _, body = http(r.admin, "POST", "/workers", {"url": engines[2].url})
        assert status == 201, body
        third = f"127.0.0.1:{engines[2].port}"
        until(lambda: third in served, 20, "the new worker serving")
        first = f"127.0.0.1:{engines[0].port}"
        assert http(r.admin, "POST", f"/workers/{first}/drain", b"")[0] == 200
        until(lambda: next(w for w in r.workers() if w["id"] == first)["in_flight"] == 0, 20, "drained")
        n = len(served)
        until(lambda: len(served) > n + 40, 20)
        assert first not in served[n + 8:], "a drained worker got a request"
        assert http(r.admin, "DELETE", f"/workers/{first}")[0] == 200
        assert first not in [w["id"] for w in r.workers()]
        assert r.metric(f'warmpath_worker_up{{worker="{first}"}}') is None
    finally:
        stop.set()
        [t.join() for t in threads]
    assert not bad, bad[:3]
    r.at_rest()


def test_a_newcomer_gets_its_share():
    """a worker that joins others, all of them 60 times as fast as their profile, gets its share: it goes by what they have shown"""
    engines = [Engine("--speed", 60) for _ in range(3)]
    r = Router(engines[:2])

    def crowd(first, n):
        served = []

        def one(i):
            for k in range(n):
                served.append(completion(r.port, tokens(400, i * 1000 + k), stream=True, max_tokens=2)[1]["x-warmpath-worker"])
        threads = [threading.Thread(target=one, args=(first + i,)) for i in range(3)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        return served
    crowd(0, 60)
    assert http(r.admin, "POST", "/workers", {"url": engines[2].url})[0] == 201
    until(lambda: all(w["ready"] for w in r.workers()) and len(r.workers()) == 3, 20, "the third being ready")
    served = []
    for again in range(20):  # its first answers may be slow ones; then it is some seconds until it is tried again
        served += crowd(50 + 3 * again, 60)
        if served.count(f"127.0.0.1:{engines[2].port}") > 20:
            break
    assert served.count(f"127.0.0.1:{engines[2].port}") > 20, [served.count(f"127.0.0.1:{e.port}") for e in engines]
    r.at_rest()


def test_sigterm_drains():
    """on SIGTERM readiness says no, the running stream ends whole, idle connections close, and the process exits 0"""
    e = Engine("--speed", 5)
    r = Router([e])
    idle = http_client(r.port)
    idle.request("GET", "/v1/models")
    idle.getresponse().read()
    got = {}

    def stream():
        got["r"] = completion(r.port, tokens(100), stream=True, max_tokens=600, ignore_eos=True)

    t = threading.Thread(target=stream)
    t.start()
    until(lambda: r.workers()[0]["in_flight"] == 1)
    r.p.send_signal(signal.SIGTERM)
    until(lambda: http(r.admin, "GET", "/readyz")[0] == 503, 5, "readiness saying no")
    assert idle.sock.recv(10) == b""
    t.join()
    assert got["r"][0] == 200 and got["r"][2].endswith(b"data: [DONE]\n\n")
    r.p.wait(10)
    assert r.p.returncode == 0


def test_threads_share_one_port_and_a_second_router_is_refused():
    """several loops serve one port; a second router on the same ports is refused"""
    e = Engine("--speed", 50)
    r = Router([e], "--threads", 3)
    for i in range(12):
        assert completion(r.port, tokens(64, i))[0] == 200
    import subprocess
    import lib
    p = subprocess.run([lib.BINARY, "serve", "--listen", f"127.0.0.1:{r.port}", "--admin", f"127.0.0.1:{r.admin}", "--threads", "3",
                        "--worker", e.url], capture_output=True, text=True, timeout=20)
    assert p.returncode == 1 and "admin port" in p.stderr and "in use" in p.stderr, p.stderr
    for threads in ("1", "3"):
        p = subprocess.run([lib.BINARY, "serve", "--listen", f"127.0.0.1:{r.port}", "--admin", "127.0.0.1:0", "--threads", threads,
                            "--worker", e.url], capture_output=True, text=True, timeout=20)
        assert p.returncode == 1 and "API port" in p.stderr and "in use" in p.stderr, p.stderr
    r.at_rest()


def test_sigterm_drains_every_loop():
    """with several loops the admin port, signals and every stream last until the last loop has ended"""
    go = threading.Event()

    def answer(q):
        q.sse_head()
        q.chunk(b"data: {}\n\n")
        go.wait(20)
        q.chunk(b"data: [DONE]\n\n")
        q.end()

    e = FakeEngine(answer)
    r = Router([e], "--threads", 4)
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x"}], "stream": True}).encode()
    streams = []
    for _ in range(16):
        s = socket.create_connection(("127.0.0.1", r.port))
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        read_until(s, b"data: ")
        streams.append(s)
    r.p.send_signal(signal.SIGTERM)
    until(lambda: http(r.admin, "GET", "/readyz")[0] == 503, 5, "readiness saying no")
    r.p.send_signal(signal.SIGHUP)
    until(lambda: r.grep("reload"), 5, "signals being heard")
    assert http(r.admin, "GET", "/readyz")[0] == 503
    go.set()
    for s in streams:
        assert b"[DONE]" in read_until(s, b"0\r\n\r\n")
    r.p.wait(10)
    assert r.p.returncode == 0


def test_reload():
    """SIGHUP and POST /reload change policy and workers at once, or nothing at all when the file is wrong"""
    a, b = FakeEngine(), FakeEngine()
    conf = "policy: {name: round_robin}\nworkers:\n  - {url: %s}\n"
    r = Router(config=conf % a.url, ready=1)
    with open(r.file, "a") as f:
        f.write("  - {url: %s}\n" % b.url)
    r.p.send_signal(signal.SIGHUP)
    until(lambda: sum(w["ready"] for w in r.workers()) == 2, 10, "both workers")
    before = r.get("/config")
    for broken in ("policy: {name: rond_robin}\n", "workers: []\n", "workers: [\n", ""):
        with open(r.file, "w") as f:
            f.write(broken)
        status, _, body = http(r.admin, "POST", "/reload", b"")
        assert status == 400, (broken, body)
        assert r.get("/config") == before
    assert r.metric('warmpath_reloads_total{result="refused"}') == 4
    for _ in range(4):
        assert chat(r.port)[0] == 200
    assert len(a.requests) == len(b.requests) == 2
    os.unlink(r.file)


def test_reload_is_in_force():
    """limits of a reload hold on listeners that run; what needs a restart is told, and GET /config goes on with what is in force"""
    e = FakeEngine()
    conf = {"workers": [{"url": e.url}], "models": [{"name": MODEL}]}
    r = Router(config=conf, ready=1)
    before = r.get("/config")
    idle = http_client(r.port)
    idle.request("GET", "/v1/models")
    idle.getresponse().read()
    with open(r.file, "w") as f:
        json.dump({**conf, "limits": {"body_bytes": 1024, "head_s": 1, "keepalive_s": 2, "connections": 30}, "index": {"cap_bytes": "1Gi"}}, f)
    status, _, body = http(r.admin, "POST", "/reload", b"")
    said = json.loads(body)["changed"].splitlines()
    assert status == 200 and "index.cap_bytes: 2147483648 -> 1073741824 (needs a restart)" in said and "limits.head_s: 5 -> 1" in said, said
    assert len(said) == 5, said
    for line in said:
        until(lambda: any(l.endswith(" info config: changed: " + line) for l in r.log), 5, line)
    now = r.get("/config")
    assert now["index"] == before["index"] and now["limits"]["head_s"] == 1 and now["limits"]["body_bytes"] == 1024
    assert chat(r.port, messages=[{"role": "user", "content": "x" * 2000}])[0] == 413
    assert b" 408 " in raw(r.port, b"GET / HT")
    assert b" 408 " in raw(r.admin, b"GET / HT")
    assert chat(r.port)[0] == 200
    idle.close()
    os.unlink(r.file)


def test_the_end_of_a_drain_says_so():
    """when drain_s is over, or at a second signal, streams end in an error event, who waits gets 503, and the log counts them"""
    def answer(q):
        if b'"silent"' in q.body:
            q.gone(20)
            return
        q.sse_head()
        q.chunk(b'data: {"choices":[{"text":"a"}]}\n\n')
        q.gone(20)

    for more, signals in ((("--set", "limits.drain_s=0.3"), 1), ((), 2)):
        e = FakeEngine(answer)
        r = Router([e], *more)
        clients = []
        for text in ("x", "silent"):
            s = socket.create_connection(("127.0.0.1", r.port))
            body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": True}).encode()
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            clients.append(s)
        read_until(clients[0], b"data: ")
        until(lambda: len(e.requests) == 2)
        for n in range(signals):
            r.p.send_signal(signal.SIGTERM)
            until(lambda: len([l for l in r.log if "signal 15" in l]) == n + 1)
        stream, waiting = read_all(clients[0], 5), read_all(clients[1], 5)
        assert b'"param":"drain"' in stream and b'"no_worker"' in stream and stream.endswith(b"0\r\n\r\n") and b"[DONE]" not in stream, stream
        assert b" 503 " in waiting.split(b"\r\n")[0] and b'"param":"drain"' in waiting, waiting
        [s.close() for s in clients]
        r.p.wait(10)
        assert r.p.returncode == 0
        cut = [int(l.split("requests=")[1].split()[0]) for l in r.log if "warn serve: drain over: requests=" in l]
        assert sum(cut) == 2, r.log[-10:]
        assert not r.grep("breaker") and not r.grep("answer broke")
        e.close()
