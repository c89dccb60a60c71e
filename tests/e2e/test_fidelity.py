# SPDX-License-Identifier: Apache-2.0
"""What goes in comes out: bodies, headers, events, byte for byte but for docs/rewrites.md."""
import gzip
import json
import socket

from lib import CHAT, DATA, MODEL, FakeEngine, Router, chat, http, play, raw, read_until, until

ODD = (b'{"model":"test-model", "n":1.0,\t"x":1e400,"big":123456789012345678901234567890,"s":"\\ud800 \\u00e9 \xc3\xa9",'
       b'"messages":[{"role":"user","content":"hi"}],"model":"test-model"}')


def post(port, body, path="/v1/chat/completions", extra=b""):
    return raw(port, b"POST %s HTTP/1.1\r\nHost: router.test\r\nContent-Type: application/json\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n%s"
               % (path.encode(), extra, len(body), body))


def test_bodies_reach_the_engine_byte_for_byte():
    """an odd body (numbers, blanks, lone surrogates, duplicate members) reaches the engine byte for byte, chunked or not (B028)"""
    e = FakeEngine()
    r = Router([e])
    post(r.port, ODD)
    chunked = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(ODD[i:i + 7]), ODD[i:i + 7]) for i in range(0, len(ODD), 7)) + b"0\r\nX-T: 1\r\n\r\n"
    raw(r.port, b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked)
    assert [q.body for q in e.requests] == [ODD, ODD]
    assert all(q.headers["content-length"] == str(len(ODD)) and "transfer-encoding" not in q.headers for q in e.requests)
    assert all("x-t" not in q.headers for q in e.requests)


def test_headers_cross_but_for_the_list():
    """end-to-end fields cross in both directions, hop-by-hop and steering ones do not (B032, B034, B037, B038)"""
    def answer(q):
        q.answer(200, CHAT, [("X-Engine", "1"), ("Keep-Alive", "timeout=5"), ("Connection", "X-Private, keep-alive"),
                             ("X-Private", "1"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("x-warmpath-worker", "liar")])

    e = FakeEngine(answer)
    r = Router([e])
    extra = (b"X-Private: 1\r\nX-Ok: a, b\r\nTE: trailers\r\nTrailer: X\r\nProxy-Authorization: Basic x\r\nProxy-Connection: close\r\nKeep-Alive: 5\r\n"
             b"Upgrade: h2c\r\nX-Worker-Id: 0\r\nX-Data-Parallel-Rank: 99\r\nX-Gateway-Destination-Endpoint: 127.0.0.1:1\r\n"
             b"x-warmpath-priority: 9\r\nX-Forwarded-For: 6.6.6.6\r\nAuthorization: Bearer sk-mine\r\ntraceparent: 00-1-2-03\r\n")
    got = raw(r.port, b"POST /v1/chat/completions HTTP/1.1\r\nHost: router.test\r\nConnection: close, X-Private\r\n" + extra +
              b"Content-Length: %d\r\n\r\n%s" % (len(ODD), ODD))
    q = e.requests[0]
    for name in ("x-private", "te", "trailer", "proxy-authorization", "proxy-connection", "keep-alive", "upgrade", "x-worker-id",
                 "x-data-parallel-rank", "x-gateway-destination-endpoint", "x-warmpath-priority"):
        assert name not in q.headers, name
    assert q.headers["x-ok"] == "a, b" and q.headers["authorization"] == "Bearer sk-mine" and q.headers["traceparent"] == "00-1-2-03"
    assert q.headers["x-forwarded-for"] == "6.6.6.6, 127.0.0.1"
    assert q.headers["host"] == f"127.0.0.1:{e.port}"
    head = got.split(b"\r\n\r\n")[0].lower()
    assert b"x-engine: 1" in head and b"set-cookie: a=1" in head and b"set-cookie: b=2" in head
    assert b"keep-alive:" not in head and b"x-private" not in head and b"liar" not in head


def test_request_ids():
    """ids are unique upstream, the client's own comes back, odd and long ones are replaced (B249)"""
    e = FakeEngine()
    r = Router([e])
    body = json.loads((DATA / "cases/json/B249.json").read_text())
    body["stream"] = False
    for _ in range(20):
        _, h, _ = http(r.port, "POST", "/v1/chat/completions", body, {"X-Request-Id": "same-id"})
        assert h["x-request-id"] == "same-id"
    ids = [q.headers["x-request-id"] for q in e.requests] + [q.json()["request_id"] for q in e.requests]
    assert len(set(ids)) == 40
    assert all(q.json()["rid"] == q.json()["request_id"] for q in e.requests)
    for odd in ("a b", "x" * 129, 'q"'):
        _, h, _ = chat(r.port, headers={"X-Request-Id": odd})
        assert h["x-request-id"] != odd and len(h["x-request-id"]) == 32
    _, h, _ = chat(r.port)
    assert len(h["x-request-id"]) == 32


def test_an_alias_is_rewritten_and_nothing_else():
    """a model alias is rewritten in the body, the length follows, every other byte stays (B044)"""
    e = FakeEngine()
    r = Router(config={"models": [{"name": MODEL, "aliases": ["alias-of-test-model"]}], "workers": [{"url": e.url}]}, ready=1)
    body = (DATA / "cases/json/B044.json").read_bytes()
    assert http(r.port, "POST", "/v1/chat/completions", body)[0] == 200
    assert e.requests[0].body == body.replace(b"alias-of-test-model", b"test-model")
    ids = [m["id"] for m in json.loads(http(r.port, "GET", "/v1/models")[2])["data"]]
    assert ids == [MODEL, "alias-of-test-model"]


def test_events_pass_unchanged():
    """event streams pass byte for byte, whatever their line ends and however they are cut (B078, B079, B043)"""
    for name in ("B078-usage.sse", "B079-crlf.sse", "B079-comments.sse", "B079-noend.sse", "B202-cumulative.sse", "B063.sse"):
        text = (DATA / "cases/sse" / name).read_text()
        for each in ("", "!each 1\n"):
            sent = []

            def answer(q, script=each + text, sent=sent):
                chunk = q.chunk
                q.chunk = lambda d: (sent.append(d), chunk(d))
                play(q, script)

            e = FakeEngine(answer)
            r = Router([e])
            status, h, body = chat(r.port, stream=True)
            assert status == 200 and body == b"".join(sent), (name, each)
            assert h["cache-control"] == "no-cache" and h["x-accel-buffering"] == "no"
            r.at_rest()
            r.end()


def test_usage_of_streams_is_read_in_passing():
    """cumulative usage is read, not added up: the last value of each field counts (B202)"""
    text = (DATA / "cases/sse/B202-cumulative.sse").read_text()
    e = FakeEngine(lambda q: play(q, text))
    r = Router([e])
    chat(r.port, stream=True)
    r.at_rest()
    import re
    want = max(int(x) for x in re.findall(r'"cached_tokens": ?(\d+)', text))
    assert r.metric('warmpath_prompt_tokens_confirmed_total{source="gpu"}') == want


def test_head_304_and_1xx():
    """HEAD has no body, a 304 with a length has none, 1xx of engines are dropped (B059, B061)"""
    answers = {0: b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
               1: (DATA / "cases/sse/B061.resp").read_bytes()}
    e = FakeEngine(lambda q: q.send(answers[q.number]))
    r = Router([e])
    assert chat(r.port)[0] == 304
    status, h, _ = chat(r.port)
    assert status == 200
    got = raw(r.port, b"HEAD /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200") and got.endswith(b"\r\n\r\n")


def test_bodies_at_the_limit():
    """the body limit is exact, with a length and chunked; nothing too long is read to its end (B111, B118, B109)"""
    e = FakeEngine()
    r = Router([e], "--set", "limits.body_bytes=100000")
    base = b'{"model":"test-model","messages":[{"role":"user","content":"%s"}]}'
    pad = 100000 - len(base) + 2
    assert b" 200 " in post(r.port, base % (b"x" * pad))[:20]
    assert b" 413 " in post(r.port, base % (b"x" * (pad + 1)))[:20]
    with socket.create_connection(("127.0.0.1", r.port)) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            for _ in range(200):
                s.sendall(b"400\r\n" + b"x" * 1024 + b"\r\n")
        except OSError:
            pass
        assert b" 413 " in read_until(s, b"body_too_large")
    got = raw(r.port, b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 100001\r\n\r\n")
    assert b" 413 " in got[:20] and b"100 Continue" not in got
    got = raw(r.port, b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nConnection: close\r\nContent-Length: 30\r\n\r\n" +
              gzip.compress(b"{}").ljust(30))
    assert b" 415 " in got[:20]


def test_slow_readers_bound_the_router():
    """a client that reads nothing stops the engine: the router's memory stays bounded (B095)"""
    wrote = [0]

    def answer(q):
        q.sse_head()
        q.sock.settimeout(1)
        try:
            while wrote[0] < 200_000_000:
                q.chunk(b"data: {\"choices\":[{\"delta\":{\"content\":\"%s\"}}]}\n\n" % (b"x" * 8000))
                wrote[0] += 8000
        except OSError:
            pass
        q.sock.close()

    e = FakeEngine(answer)
    r = Router([e])
    with socket.create_connection(("127.0.0.1", r.port)) as s:
        body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x"}], "stream": True}).encode()
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        until(lambda: not e.sockets or len(e.sockets) <= 1 and e.requests and e.requests[0].sock.fileno() < 0, 20, "the engine being stopped")
        assert wrote[0] < 30_000_000, wrote
        rss = int(open(f"/proc/{r.p.pid}/status").read().split("VmRSS:")[1].split()[0])
        assert rss < 400_000, rss


def test_stored_responses_go_to_their_maker():
    """GET, DELETE and previous_response_id go to the worker that made the response, plain or streamed"""
    def answer(name):
        def on(q):
            if q.method == "POST" and q.body and q.json().get("stream"):
                q.sse_head()
                q.chunk(b'event: response.created\ndata: {"type":"response.created","response":{"id":"resp_s%s","usage":null}}\n\n' % name)
                q.end()
            else:
                q.answer(200, {"id": "resp_" + name.decode(), "object": "response", "maker": name.decode()})
        return on

    engines = [FakeEngine(answer(b"a")), FakeEngine(answer(b"b"))]
    r = Router(engines, "--policy", "round_robin")
    made = {}
    for i in range(4):
        status, _, body = http(r.port, "POST", "/v1/responses", {"model": MODEL, "input": f"x{i}", "stream": i > 1})
        assert status == 200, body
    for rid, e in (("resp_a", 0), ("resp_b", 1), ("resp_sa", 0), ("resp_sb", 1)):
        for method, path in (("GET", rid), ("POST", rid + "/cancel"), ("DELETE", rid)):
            before = len(engines[e].requests)
            status, _, body = http(r.port, method, "/v1/responses/" + path, b"" if method == "POST" else None)
            assert status == 200 and len(engines[e].requests) == before + 1, (method, path, body)
        before = len(engines[e].requests)
        assert http(r.port, "POST", "/v1/responses", {"model": MODEL, "input": "y", "previous_response_id": rid})[0] == 200
        assert len(engines[e].requests) == before + 1
    status, _, body = http(r.port, "GET", "/v1/responses/resp_unknown")
    assert status == 404 and json.loads(body)["error"]["code"] == "not_found"
    status, h, _ = http(r.port, "PUT", "/v1/responses/resp_a", b"{}")
    assert status == 405 and h["allow"] == "GET, DELETE, POST"
    r.at_rest()
