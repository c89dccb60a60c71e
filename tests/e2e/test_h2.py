# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 towards clients: nghttp2's and curl's clients, and frames of our own for what they would not do."""
import json
import shutil
import signal
import subprocess
import tempfile
import time

import h2client as h2
from h2client import END_HEADERS, END_STREAM, H2, error_of
from lib import MODEL, Engine, FakeEngine, Router, Skip, http, until

JSON = ("content-type", "application/json")


def tool(name):
    path = shutil.which(name)
    if not path:
        raise Skip(f"{name} is not here")
    return path


def completion(**more):
    return json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 4, **more}).encode()


def idle(r, e):
    until(lambda: r.workers()[0]["in_flight"] == 0 and (e.metric("vllm:num_requests_running") or 0) == 0, 10, "the engine being free")


def test_answers_over_http2():
    """models, a completion, a stream and a body of 3 MiB over HTTP/2 are what HTTP/1.1 gives, many at once on one connection"""
    e = Engine("--speed", 50)
    r = Router([e])
    c = H2(r.port)
    c.ask(1)
    status, body, _ = c.answer(1)
    assert status == 200 and json.loads(body) == json.loads(http(r.port, "GET", "/v1/models")[2])
    for stream in range(3, 43, 2):
        c.ask(stream, "/v1/completions", "POST", JSON, body=completion(stream=stream % 4 == 1))
    left, bodies = set(range(3, 43, 2)), {}
    while left:
        kind, flags, of, payload = c.read()
        if kind == h2.HEADERS and of:
            assert h2.status(payload) == 200
        if kind == h2.DATA:
            bodies[of] = bodies.get(of, b"") + payload
        if flags & END_STREAM and kind in (h2.DATA, h2.HEADERS):
            left.discard(of)
    for stream, body in bodies.items():
        assert body.rstrip().endswith(b"data: [DONE]") if stream % 4 == 1 else json.loads(body)["choices"], body
    c.close()
    r.at_rest()


def test_curl_and_nghttp2():
    """curl and nghttp speak HTTP/2 with the router; h2load sends 400 requests over 8 connections with 16 streams each, none fails"""
    e = Engine("--speed", 100)
    r = Router([e])
    url = f"http://127.0.0.1:{r.port}"
    out = subprocess.run([tool("curl"), "-sS", "--http2-prior-knowledge", "-w", "\n%{http_version}", f"{url}/v1/models"], capture_output=True, text=True,
                         timeout=30)
    assert out.stdout.endswith("\n2") and MODEL in out.stdout, out
    with tempfile.NamedTemporaryFile() as f:
        f.write(completion(prompt="long " * 400000))  # 2 MB: more than any window
        f.flush()
        out = subprocess.run([tool("nghttp"), "-d", f.name, "-H", "content-type: application/json", f"{url}/v1/completions"], capture_output=True,
                             text=True, timeout=60)
        assert "maximum context length" in out.stdout or "choices" in out.stdout, out
    with tempfile.NamedTemporaryFile() as f:
        f.write(completion())
        f.flush()
        out = subprocess.run([tool("h2load"), "-n", "400", "-c", "8", "-m", "16", "-d", f.name, "-H", "content-type: application/json",
                              f"{url}/v1/completions"], capture_output=True, text=True, timeout=60)
    assert "400 succeeded, 0 failed, 0 errored" in out.stdout, out.stdout
    r.at_rest()


def test_a_preface_in_pieces():
    """a preface that comes byte by byte is HTTP/2; what only begins like one is refused as HTTP/1.1"""
    r = Router([Engine("--speed", 50)])
    c = H2(r.port, preface=False)
    for i in range(len(h2.PREFACE)):
        c.s.sendall(h2.PREFACE[i:i + 1])
    c.send(h2.SETTINGS, 0, 0)
    c.ask(1)
    assert c.answer(1)[0] == 200
    c.close()
    c = H2(r.port, preface=False)
    c.s.sendall(b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n")
    assert c.s.recv(100).startswith(b"HTTP/1.1 "), "an answer"
    c.close()


def test_a_client_that_resets():
    """a stream that its client resets frees the engine, in the prefill and while it streams; the connection goes on"""
    e = Engine("--speed", 1)
    r = Router([e])
    c = H2(r.port)
    for stream, prompt, streaming in ((1, [7] * 60000, False), (3, [9] * 100, True)):
        c.ask(stream, "/v1/completions", "POST", JSON, body=completion(prompt=prompt, max_tokens=5000, stream=True, ignore_eos=True))
        if streaming:
            assert c.until(h2.DATA, stream)
        else:
            until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the request at its engine")
        c.send(h2.RST, 0, stream, b"\0\0\0\x08")
        idle(r, e)
    c.ask(5)
    assert c.answer(5)[0] == 200
    c.ask(7, "/v1/completions", "POST", JSON, body=completion(prompt=[9] * 100, max_tokens=5000, stream=True, ignore_eos=True))
    assert c.until(h2.DATA, 7)
    c.close()  # all of it at once
    idle(r, e)
    r.at_rest()


def test_a_client_that_takes_nothing():
    """a client whose window is 0 gets its answer when it opens it; one that never does is reset after send_s, and the engine is free"""
    r = Router([Engine("--speed", 50)], "--set", "limits.send_s=1")
    c = H2(r.port, [(h2.INITIAL_WINDOW, 0)])
    c.ask(1)
    assert h2.status(c.until(h2.HEADERS, 1)[3]) == 200
    c.window(1, 1 << 20)
    assert json.loads(c.until(h2.DATA, 1)[3])["data"]
    c.ask(3)
    f = c.until(h2.RST, 3)
    assert f and int.from_bytes(f[3], "big") == h2.CANCEL, f
    c.send(h2.PING, 0, 0, b"12345678")
    assert c.until(h2.PING)[3] == b"12345678"  # the others are well
    r.at_rest()


def test_a_client_that_dribbles():
    """a client that opens its window byte by byte is reset after send_s, and the engine is free; the connection goes on"""
    e = FakeEngine(lambda q: (q.sse_head(), q.chunk(b"data: " + b"x" * 100000 + b"\n\n"), q.gone(30)))
    r = Router([e], "--set", "limits.send_s=1")
    c = H2(r.port, [(h2.INITIAL_WINDOW, 0)])
    c.ask(1, "/v1/completions", "POST", JSON, body=completion(stream=True))
    assert h2.status(c.until(h2.HEADERS, 1)[3]) == 200
    code = None
    while code is None:
        c.window(1, 1)
        f = c.read()
        if f[0] == h2.DATA:
            time.sleep(0.1)  # its own pace
        if f[0] == h2.RST and f[2] == 1:
            code = int.from_bytes(f[3], "big")
    assert code == h2.CANCEL
    c.send(h2.PING, 0, 0, b"12345678")
    assert c.until(h2.PING)[3] == b"12345678"
    r.at_rest()


def test_an_engine_faster_than_its_client():
    """an engine that writes faster than its HTTP/2 client reads is stopped, and nothing is lost"""
    piece, n, wrote = b"data: " + b"x" * 8000 + b"\n\n", 1500, [0]

    def flood(q):
        q.sse_head()
        for _ in range(n):
            q.chunk(piece)
            wrote[0] += 1
        q.end()
    r = Router([FakeEngine(flood)])
    c = H2(r.port)
    c.ask(1, "/v1/completions", "POST", JSON, body=completion(stream=True))
    got = len(c.until(h2.DATA, 1)[3])
    while got < 65535:
        kind, flags, of, payload = c.read()
        got += len(payload) if (kind, of) == (h2.DATA, 1) else 0
    was = [-1]

    def stalled():
        before, was[0] = was[0], wrote[0]
        time.sleep(0.2)  # the engine's own pace: two looks that are the same
        return before == wrote[0]
    until(stalled, 20, "the engine being stopped")
    assert wrote[0] < n, "the router swallowed everything"
    c.window(0, 1 << 28)
    c.window(1, 1 << 28)
    while True:
        kind, flags, of, payload = c.read()
        got += len(payload) if (kind, of) == (h2.DATA, 1) else 0
        if flags & END_STREAM and (kind, of) == (h2.DATA, 1):
            break
    assert got == n * len(piece)
    r.at_rest()


def test_floods():
    """floods of resets, CONTINUATION, SETTINGS and PING frames end their connection with GOAWAY or a close; the router serves others and is at rest"""
    r = Router([Engine("--speed", 50)])
    other = H2(r.port)
    other.ask(1)
    assert other.answer(1)[0] == 200

    def resets(c):
        return b"".join(h2.frame(h2.HEADERS, END_HEADERS | END_STREAM, n, h2.request("/v1/models")) + h2.frame(h2.RST, 0, n, b"\0\0\0\x08")
                        for n in range(1, 12001, 2))

    def continuations(c):
        return h2.frame(h2.HEADERS, 0, 1, h2.request("/v1/models")) + h2.frame(h2.CONTINUATION, 0, 1, h2.fields(("a", "b" * 100))) * 20000
    floods = {"resets": resets, "continuations": continuations,
              "settings": lambda c: h2.frame(h2.SETTINGS, 0, 0, b"\0\x04\0\0\xff\xff") * 40000,
              "pings": lambda c: h2.frame(h2.PING, 0, 0, b"12345678") * 40000,
              "empty data, much": lambda c: h2.frame(h2.HEADERS, END_HEADERS, 1, h2.request("/v1/completions", "POST")) + h2.frame(h2.DATA, 0, 1, b"") * 40000,
              "priorities": lambda c: h2.frame(h2.PRIORITY, 0, 3, b"\0\0\0\1\x10") * 40000,
              "empty data": lambda c: h2.frame(h2.HEADERS, END_HEADERS, 1, h2.request("/v1/models", "POST")) + h2.frame(h2.DATA, 0, 3, b"")}
    for what, flood in floods.items():
        c = H2(r.port)
        try:
            c.s.sendall(flood(c))
        except (ConnectionError, TimeoutError):
            pass
        f = c.until(h2.GOAWAY)
        assert f is None or error_of(f) != h2.NO_ERROR, (what, f)
        c.close()
    other.ask(3)
    assert other.answer(3)[0] == 200
    r.at_rest()


def test_heads_that_are_not_right():
    """a head that breaks the rules costs its stream alone: too large 431, no path, a capital letter, connection fields, two hosts"""
    r = Router([Engine("--speed", 50)])
    c = H2(r.port)
    c.ask(1, "/v1/models", "GET", *[(f"x-{i}", "y" * 1000) for i in range(15)])
    assert c.answer(1)[0] == 200
    block = h2.request("/v1/models", "GET", *[(f"x-{i}", "y" * 1000) for i in range(80)])  # 80 kB
    c.send(h2.HEADERS, END_STREAM, 3, block[:16384])
    rest = [block[at:at + 16384] for at in range(16384, len(block), 16384)]
    for piece in rest:
        c.send(h2.CONTINUATION, END_HEADERS if piece is rest[-1] else 0, 3, piece)
    status, _, code = c.answer(3)
    assert status == 431 or code is not None, (status, code)
    c.ask(5, "/v1/models", "GET", *[(f"x-{i}", "y") for i in range(140)])
    assert c.answer(5)[0] == 431
    for stream, pairs in ((7, [(":method", "GET"), (":scheme", "http"), (":authority", "x")]),
                          (9, [(":method", "GET"), (":scheme", "http"), (":path", "/health"), (":authority", "x"), ("X-Upper", "1")]),
                          (11, [(":method", "GET"), (":scheme", "http"), (":path", "/health"), (":authority", "x"), ("connection", "close")]),
                          (13, [(":method", "GET"), (":scheme", "http"), (":path", "/health"), (":authority", "x"), ("transfer-encoding", "chunked")])):
        c.send(h2.HEADERS, END_HEADERS | END_STREAM, stream, h2.fields(*pairs))
        assert c.answer(stream)[2] == h2.PROTOCOL_ERROR, pairs
    for stream, pairs in ((15, [(":method", "GET"), (":scheme", "http"), (":path", "/a b"), (":authority", "x")]),
                          (17, [(":method", "GET"), (":scheme", "http"), (":path", "/health"), (":authority", "x"), ("host", "y")])):
        c.send(h2.HEADERS, END_HEADERS | END_STREAM, stream, h2.fields(*pairs))
        status, _, code = c.answer(stream)
        assert status == 400 or code == h2.PROTOCOL_ERROR, (pairs, status, code)
    c.ask(19)
    assert c.answer(19)[0] == 200
    c.close()
    r.at_rest()


def test_bodies_that_are_not_right():
    """a body longer than the limit is 413 at its head, longer than it said is an error of its stream, too slow is 408; nothing waits at the router"""
    r = Router([Engine("--speed", 50)], "--set", "limits.body_bytes=1Mi", "--set", "limits.body_s=1")
    c = H2(r.port)
    c.send(h2.HEADERS, END_HEADERS, 1, h2.request("/v1/completions", "POST", JSON, ("content-length", "2000000")))
    status, body, code = c.answer(1)
    assert status == 413 and b"body_too_large" in body, (status, body)
    c.send(h2.HEADERS, END_HEADERS, 3, h2.request("/v1/completions", "POST", JSON, ("content-length", "10")))
    c.send(h2.DATA, END_STREAM, 3, b"x" * 11)
    assert c.until(h2.RST, 3)
    c.send(h2.HEADERS, END_HEADERS, 5, h2.request("/v1/completions", "POST", JSON))
    c.send(h2.DATA, 0, 5, b'{"model"')
    assert c.answer(5)[0] == 408
    c.close()
    r.at_rest()


def test_a_drain_says_goaway():
    """on SIGTERM an HTTP/2 connection gets GOAWAY, its stream ends in peace, and the router exits"""
    r = Router([Engine("--speed", 2)])
    c, quiet = H2(r.port), H2(r.port)
    quiet.ask(1)
    assert quiet.answer(1)[0] == 200
    c.ask(1, "/v1/completions", "POST", JSON, body=completion(stream=True, max_tokens=60, ignore_eos=True))
    assert c.until(h2.DATA, 1)
    r.p.send_signal(signal.SIGTERM)
    f = c.until(h2.GOAWAY)
    assert f and error_of(f) == h2.NO_ERROR, f
    status, body, code = c.answer(1)
    assert code is None and body.rstrip().endswith(b"data: [DONE]"), (code, body[-100:])
    f = quiet.until(h2.GOAWAY)
    assert f and error_of(f) == h2.NO_ERROR and quiet.read() is None
    until(lambda: r.p.poll() is not None, 15, "the end")


def test_an_idle_connection():
    """an HTTP/2 connection without streams ends with GOAWAY after keepalive_s; cookies in crumbs and Expect reach the engine as HTTP/1.1 has them"""
    e = FakeEngine()
    r = Router([e], "--set", "limits.keepalive_s=1")
    c = H2(r.port)
    c.send(h2.HEADERS, END_HEADERS, 1, h2.request("/v1/completions", "POST", JSON, ("cookie", "a=1"), ("cookie", "b=2"), ("expect", "100-continue")))
    assert h2.status(c.until(h2.HEADERS, 1)[3]) == 100
    c.send(h2.DATA, END_STREAM, 1, completion())
    assert c.answer(1)[0] == 200
    head = {k.lower(): v for k, v in e.requests[-1].headers.items()}
    assert head.get("cookie", "a=1; b=2") == "a=1; b=2", head
    f = c.until(h2.GOAWAY)
    assert f and error_of(f) == h2.NO_ERROR and c.read() is None
    r.at_rest()
