# SPDX-License-Identifier: Apache-2.0
"""Kinds of abuse around the cases: smuggling both ways, pipelining, early answers, half-close, silence, limits, steering, keys."""
import http.client
import json
import os
import re
import signal
import socket
import tempfile
import threading
import time

import lib
from cases import *
from lib import CHAT, MODEL, FakeEngine, Router, chat, http, raw, read_all, read_until, reset, until

PLAIN = post(chat_body())
BODY = chat_body()


def answers(got):
    return [int(x) for x in re.findall(rb"HTTP/1\.1 (\d\d\d) ", got)]


def test_smuggling_towards_us():
    """odd framings of a request are refused with one answer and a close; nothing behind them runs"""
    hidden = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    n = len(BODY)
    bad = [
        head + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
        head + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + chunked,
        head + b"Transfer-Encoding: identity, chunked, identity\r\n\r\n" + chunked,
        head + b"Transfer-Encoding: xchunked\r\n\r\n" + chunked,
        head + b"Transfer-Encoding: chunked;q=1\r\n\r\n" + chunked,
        head + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + chunked,
        head + b"Transfer-Encoding : chunked\r\n\r\n" + chunked,
        head + b"Transfer-Encoding:\r\n\r\n" + chunked,
        head + b" Transfer-Encoding: chunked\r\n\r\n" + chunked,
        head + b"Transfer-Encoding: chunked\r\nContent-Length: %d\r\n\r\n" % n + chunked,
        head + b"Content-Length: +%d\r\n\r\n" % n + BODY,
        head + b"Content-Length: -1\r\n\r\n" + BODY,
        head + b"Content-Length: 0x%x\r\n\r\n" % n + BODY,
        head + b"Content-Length: %d \t5\r\n\r\n" % n + BODY,
        head + b"Content-Length: \r\n\r\n" + BODY,
        head + b"Content-Length: %d\r\nContent-Length: %d\r\n\r\n" % (n, n + 1) + BODY,
        head + b"Content-Length: 1_0\r\n\r\n" + BODY,
        head + b"Content_Length: %d\rX: y\r\n\r\n" % n + BODY,
        head.replace(b"\r\n", b"\n") + b"Content-Length: %d\n\n" % n + BODY,
        head + b"X: a\rContent-Length: %d\r\n\r\n" % n + BODY,
        head + b"X: a\nContent-Length: 5\r\n\r\n" + BODY,
        b"POST  /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % n + BODY,
        b"POST /v1/chat/completions  HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % n + BODY,
        b"POST /v1/chat/completions HTTP/1.1 x\r\nHost: x\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/2.0\r\nHost: x\r\n\r\n",
        b"POST /v1/chat/completions HTTP/0.9\r\nHost: x\r\n\r\n",
        b"POST /v1/chat/completions\r\nHost: x\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100 + b"\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a b\r\nContent-Length: %d\r\n\r\n" % n + BODY,
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a@b\r\nContent-Length: %d\r\n\r\n" % n + BODY,
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: a, b\r\nContent-Length: %d\r\n\r\n" % n + BODY,
        b"POST v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % n + BODY,
        b"POST /v1/chat\x7f HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /v1/\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT engine:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        head + b"Transfer-Encoding: chunked\r\n\r\n%x \r\n%s\r\n0\r\n\r\n" % (n, BODY),
        head + b"Transfer-Encoding: chunked\r\n\r\n+%x\r\n%s\r\n0\r\n\r\n" % (n, BODY),
        head + b"Transfer-Encoding: chunked\r\n\r\n%x\n%s\r\n0\r\n\r\n" % (n, BODY),
        head + b"Transfer-Encoding: chunked\r\n\r\n%x;a\nb\r\n%s\r\n0\r\n\r\n" % (n, BODY),
        head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s0\r\n\r\n" % (n, BODY),
        head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\n0\r\n\r\n" % (n, BODY),
        head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\nBad Trailer: 1\r\n\r\n" % (n, BODY),
        head + b"Transfer-Encoding: chunked\r\n\r\n%x;%s\r\n" % (n, b"x" * 5000),
    ]
    with stage() as (r, e):
        for i, data in enumerate(bad):
            got = raw(r.port, data + hidden)
            statuses = answers(got)
            assert len(statuses) == 1 and statuses[0] in (400, 431, 501, 505), (i, data[:90], got[:200])
            assert b"connection: close" in got.lower(), i
            json.loads(got.split(b"\r\n\r\n", 1)[1])["error"]["message"]
        assert not e.requests


def test_trailers_never_become_fields():
    """trailers are dropped, also those that would be framing, routing or keys"""
    with stage() as (r, e):
        trailers = b"Content-Length: 5\r\nX-Request-Id: t\r\nAuthorization: Bearer x\r\nHost: evil\r\nX-T: 1\r\n"
        got = raw(r.port, b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
                  b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(BODY), BODY, trailers))
        assert answers(got) == [200]
        q = e.requests[0]
        assert q.body == BODY and "x-t" not in q.headers and "authorization" not in q.headers
        assert [k.lower() for k, _ in q.fields].count("content-length") == 1


def test_smuggling_towards_engines():
    """whatever spelling a request came in, an engine sees one clean head and one body"""
    with stage() as (r, e):
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        for fields in (b"Content-Length: %d\r\n" % len(BODY), b"content-LENGTH:%d   \r\n" % len(BODY),
                       b"Content-Length: %d\r\nX-Content-Length: 5\r\n" % len(BODY),
                       b"Connection: close, content-length, host\r\nContent-Length: %d\r\n" % len(BODY),
                       b"Content-Length: %d\r\nContent_Length: 5\r\nTransfer_Encoding: chunked\r\n" % len(BODY),
                       b"Content-Length: 000%d\r\n" % len(BODY)):
            got = raw(r.port, head + fields + b"\r\n" + BODY)
            assert answers(got) == [200], (fields, got)
            q = e.requests[-1]
            assert q.body == BODY and q.headers["content-length"] == str(len(BODY)) and q.headers["host"] == f"127.0.0.1:{e.port}"
            names = [k.lower() for k, _ in q.fields]
            assert names.count("content-length") == names.count("host") == 1 and "transfer-encoding" not in names


def test_smuggling_from_engines():
    """answers of an engine that hide a second one never reach the next client; odd framings are 502"""
    evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"
    bad = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 20 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"ICY 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"\r\n\r\n\r\n",
    ]
    good = [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}" + evil, b"{}"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + evil, b"{}"),
        (b"HTTP/1.1 204 No Content\r\n\r\n" + evil, b""),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n" + evil, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", b"{}"),
        (b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\n{}", b"{}"),
    ]
    mode = {}
    with stage(lambda q: q.send(mode["bytes"]), args=("--set", "health.fail=1000", "--set", "limits.idle_s=1", "--set", "limits.first_byte_s=5")) as (r, e):
        for data in bad:
            mode["bytes"] = data
            status, _, body = chat(r.port)
            assert status == 502 and code(body) == "upstream_failed" and b"EVIL" not in body, (data, status, body)
            served_plainly(r)
        for data, want in good:
            mode["bytes"] = data
            assert chat(r.port)[2] == want, data
            for _ in range(3):
                got = raw(r.port, closing(raw_file("plain")))
                assert answers(got) == [200] and b"EVIL" not in got, data


def test_broken_chunks_from_engines():
    """an engine's chunked answer that breaks is cut for the client: no last chunk, no success"""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    mode = {}
    with stage(lambda q: (q.send(head + mode["bytes"]), q.sock.close()), args=("--set", "health.fail=1000")) as (r, e):
        for tail in (b"2\r\n{}", b"2\r\n{}\r\n", b"2\r\n{}XX", b"fffffffffffffffff\r\n{}", b"-2\r\n{}\r\n0\r\n\r\n", b"zz\r\n", b"5\r\n{}"):
            mode["bytes"] = tail
            got = raw(r.port, closing(PLAIN))
            assert not got.endswith(b"0\r\n\r\n") and (answers(got) in ([200], [502])), (tail, got)


def test_pipelining():
    """pipelined requests of all kinds are answered in order, one after another; one behind a close is not run"""
    def answer(q):
        q.answer(200, {**CHAT, "user": q.json().get("user")})

    with stage(answer) as (r, e):
        one = [post(chat_body(user=f"n{i}")) for i in range(5)]
        mixed = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n".join(one) + b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" + closing(post(chat_body(user="last")))
        got = raw(r.port, mixed + post(chat_body(user="never")))
        assert answers(got) == [200] * 11
        assert re.findall(rb'"user": "(\w+)"', got) == [b"n0", b"n1", b"n2", b"n3", b"n4", b"last"]
        assert "never" not in [q.json()["user"] for q in e.requests]
        e.on_request = answer
        got = raw(r.port, post(chat_body(user="a")) + b"GARBAGE\r\n\r\n" + post(chat_body(user="b")))
        assert answers(got) == [200, 400]


def test_pipelined_requests_wait_for_the_running_one():
    """a pipelined request behind a stream waits, a client gone meanwhile is noticed, and memory is bounded"""
    with stage(lambda q: (q.sse_head(), q.chunk(EVENT), q.gone(20))) as (r, e):
        s = socket.create_connection(("127.0.0.1", r.port))
        s.sendall(post(chat_body(True)) + PLAIN)
        read_until(s, b"tick")
        s.settimeout(0.5)
        try:
            for _ in range(200):
                s.sendall(PLAIN * 1000)
        except OSError:
            pass
        assert len(e.requests) == 1
        assert int(open(f"/proc/{r.p.pid}/status").read().split("VmRSS:")[1].split()[0]) < (64 << 10) * lib.slowness() ** 2
        reset(s)
        until(lambda: r.metric("warmpath_client_gone_total") == 1, 5, "the client's going being noticed")


def test_keep_alive():
    """connections are kept, closed when asked, HTTP/1.0 only on its wish; ours announce it"""
    with stage() as (r, e):
        with socket.create_connection(("127.0.0.1", r.port)) as s:
            for _ in range(5):
                s.sendall(PLAIN)
                assert b"connection: close" not in one_answer(s).lower()
        got = raw(r.port, b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200") and b"connection: close" in got.lower()
        with socket.create_connection(("127.0.0.1", r.port)) as s:
            for _ in range(2):
                s.sendall(b"GET /v1/models HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
                assert b"connection: keep-alive" in one_answer(s).lower()
        got = raw(r.port, b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY))
        assert answers(got) == [200]
        e.on_request = lambda q: (q.sse_head(), q.chunk(EVENT), q.end())
        got = raw(r.port, b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY))
        assert b"transfer-encoding" not in got.lower() and got.endswith(b"\n\n") and got.count(b"tick") == 1, got


def test_head_limits():
    """heads too long and with too many fields are 431, endless ones too; empty lines before a request are no request"""
    with stage() as (r, e):
        big = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: %s\r\n\r\n"
        assert answers(raw(r.port, big % (b"a" * 60000))) == [200]
        assert answers(raw(r.port, big % (b"a" * 66000))) == [431]
        assert answers(raw(r.port, b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a" * 70000))) in ([431], [414])
        fields = b"".join(b"X%d: 1\r\n" % i for i in range(126))
        assert answers(raw(r.port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n" % fields)) == [200]
        assert answers(raw(r.port, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n%s\r\n" % (fields * 2))) == [431]
        assert answers(raw(r.port, closing(post(chat_body(), extra=fields[:-9 * 12])))) == [200], "few fields less than the limit go on"
        assert answers(raw(r.port, b"\r\n\r\n" + big % b"a")) == [200]
        with socket.create_connection(("127.0.0.1", r.port)) as s:
            s.sendall(b"GET / HTTP/1.1\r\n")
            try:
                for _ in range(300):
                    s.sendall(b"X-%d: %s\r\n" % (_, b"y" * 1000))
            except OSError:
                pass
            assert answers(read_all(s)) == [431]


def test_early_answers_of_engines():
    """an engine may answer before it has the whole body, and close: the client gets that answer (413 and its like)"""
    said = b'{"error":{"message":"too big","type":"BadRequestError","param":null,"code":413}}'

    def conn(s, got, n):
        s.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
        s.shutdown(socket.SHUT_WR)
        s.settimeout(2)
        try:
            while s.recv(1 << 16):
                pass
        except OSError:
            pass
        return False

    e = RawEngine(conn)
    r = Router([e.url])
    for _ in range(3):
        status, _, body = http(r.port, "POST", "/v1/chat/completions", chat_body(pad="x" * (4 << 20)))
        assert (status, body) == (413, said)
    r.at_rest()
    r.end()
    e.close()


def test_early_answers_of_ours():
    """an error that is known before the body has come is sent at once; the body is not waited for"""
    with stage() as (r, e):
        for head, want in ((post_head(1000000, "/nowhere"), 404), (post_head(1000, extra=b"Content-Encoding: br\r\n"), 415),
                           (b"PUT /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n", 405)):
            with socket.create_connection(("127.0.0.1", r.port)) as s:
                s.sendall(head)
                assert answers(read_until(s, b"}}")) == [want]
        # all of a long body may still be sent: it is read and dropped, so that the answer is not lost in a reset
        status, _, body = http(r.port, "POST", "/nowhere", b"x" * (4 << 20))
        assert status == 404 and code(body) == "not_found"


def test_half_close():
    """a client that only stops sending is served, plain and streaming; one that closes is cancelled"""
    go = threading.Event()

    def answer(q):
        go.wait(20)
        if b'"stream": true' in q.body:
            q.sse_head()
            q.chunk(EVENT)
            q.end()
        else:
            q.answer(200, CHAT)

    with stage(answer) as (r, e):
        for stream in (False, True):
            go.clear()
            with socket.create_connection(("127.0.0.1", r.port)) as s:
                s.sendall(closing(post(chat_body(stream))))
                s.shutdown(socket.SHUT_WR)
                until(lambda: r.workers()[0]["in_flight"] == 1)
                go.set()
                got = read_all(s, 5)
            final = got[got.index(b"HTTP/1.1 200"):]
            assert (b"tick" in final) == stream and final.endswith(b"0\r\n\r\n" if stream else b"}}"), got
        go.clear()
        s = socket.create_connection(("127.0.0.1", r.port))
        s.sendall(PLAIN)
        until(lambda: r.workers()[0]["in_flight"] == 1)
        s.close()
        until(lambda: r.workers()[0]["in_flight"] == 0, 5, "a closed client being noticed in a silent prefill")
        go.set()


def test_a_body_that_ends_early():
    """a client that ends in the middle of its body gets 400 or a close, and no engine hears of it"""
    with stage() as (r, e):
        for data in (post_head(1000) + b"{", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"):
            with socket.create_connection(("127.0.0.1", r.port)) as s:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                assert answers(read_all(s)) in ([400], [])
        assert not e.requests


def test_steering_is_refused():
    """members that steer an engine are 400 with their name; tags for the cache pass; trusted clients may"""
    steering = {"kv_transfer_params": {"do_remote_prefill": True}, "bootstrap_host": "1.1.1.1", "bootstrap_port": 1, "bootstrap_room": [1, 2],
                "routed_dp_rank": 0, "data_parallel_rank": 3}
    e = engine()
    r = Router([e])
    for name, value in steering.items():
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}), ("/v1/completions", {"prompt": "x"}),
                           ("/v1/embeddings", {"input": "x"}), ("/generate", {"text": "x"})):
            status, _, got = http(r.port, "POST", path, {"model": MODEL, **body, name: value})
            err = json.loads(got)["error"]
            assert (status, err["code"], err["param"]) == (400, "routing_field_refused", name), (path, name, status, got)
    escaped = json.dumps({"model": MODEL, "messages": [], "x": 1}).replace('"x"', '"bootstrap\\u005froom"')
    assert code(http(r.port, "POST", "/v1/chat/completions", escaped)[2]) == "routing_field_refused"
    assert chat(r.port, kv_transfer_params={"lmcache.tag.user": "a"})[0] == 200
    assert chat(r.port, kv_transfer_params=None)[0] == 200
    assert len(e.requests) == 2
    rules(r, [e])
    r.end()
    r = Router([e], "--set", "listen.trust_client_routing=true")
    n = len(e.requests)
    assert chat(r.port, headers={"X-Data-Parallel-Rank": "3"}, **steering)[0] == 200
    assert e.requests[n].headers["x-data-parallel-rank"] == "3" and e.requests[n].json()["bootstrap_room"] == [1, 2]


def test_routes():
    """unknown routes are 404, wrong methods 405 with Allow, and neither reaches an engine; paths that climb are no routes"""
    with stage() as (r, e):
        for method, path in (("GET", "/"), ("GET", "/metrics"), ("POST", "/v1/chat/completions/"), ("POST", "/v1//chat/completions"),
                             ("POST", "/V1/chat/completions"), ("POST", "/v1/chat/completions%2f"), ("POST", "/v1/unknown"),
                             ("POST", "/v1/audio/"), ("POST", "/v1/audio/../chat/completions"), ("POST", "/v1/audio/%2e%2e/metrics"),
                             ("POST", "/v1/images/a/..;/b"), ("POST", "/v1/images//b"), ("POST", "/v1/audio/a\\b"), ("GET", "/workers"),
                             ("POST", "/abort_request"), ("POST", "/sleep"), ("POST", "/v1/load_lora_adapter"), ("GET", "/v1/responses/../x")):
            got = raw(r.port, f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
            assert check_error(got, 404)["code"] == "not_found", path
        for method, path, allow in (("GET", "/v1/chat/completions", {"POST"}), ("DELETE", "/v1/models", {"GET", "HEAD"}), ("HEAD", "/v1/completions", {"POST"}),
                                    ("OPTIONS", "/v1/chat/completions", {"POST"}), ("POST", "/health", {"GET", "HEAD"}), ("PATCH", "/v1/embeddings", {"POST"})):
            status, h, body = http(r.port, method, path)
            assert status == 405 and set(h["allow"].split(", ")) == allow, (path, h["allow"])
            assert method == "HEAD" or code(body) == "method_not_allowed"
        assert status_of(raw(r.port, b"BREW /v1/embeddings HTTP/1.1\r\nHost: x\r\n\r\n")) == 501
        assert not e.requests
        assert http(r.port, "POST", "/v1/chat/completions?x=1&y=%20", BODY)[0] == 200 and e.requests[0].target == "/v1/chat/completions?x=1&y=%20"
        assert http(r.port, "POST", "http://other.test/v1/chat/completions", BODY)[0] == 200
        assert e.requests[1].target == "/v1/chat/completions" and e.requests[1].headers["host"] == f"127.0.0.1:{e.port}"
        assert http(r.port, "POST", "/v1/audio/speech", BODY)[0] == 200


def keys(*lines):
    f = tempfile.NamedTemporaryFile("w", suffix=".keys", delete=False)
    f.write("\n".join(lines) + "\n")
    f.close()
    os.chmod(f.name, 0o600)
    return f.name


def test_keys():
    """with keys every call but health needs one, by bearer or x-api-key; 401 says how; keys never reach an engine"""
    file = keys("sk-one", "sk-two")
    e = engine()
    r = Router([e], "--set", f"listen.api_keys_file={file}")
    for headers in ({"Authorization": "Bearer sk-one"}, {"authorization": "bearer sk-two"}, {"x-api-key": "sk-two"}):
        assert chat(r.port, headers=headers)[0] == 200
        assert "authorization" not in e.requests[-1].headers and "x-api-key" not in e.requests[-1].headers
    for headers in ({}, {"Authorization": "Bearer sk-"}, {"Authorization": "Bearer sk-one2"}, {"Authorization": "sk-one"}, {"Authorization": "Bearer "},
                    {"Authorization": "Basic sk-one"}, {"x-api-key": ""}, {"x-api-key": "SK-ONE"}):
        status, h, body = chat(r.port, headers=headers)
        assert status == 401 and code(body) == "unauthorized" and h["www-authenticate"] == "Bearer", headers
        assert json.loads(body)["error"]["type"] == "authentication_error"
    assert http(r.port, "GET", "/v1/models")[0] == 401 and http(r.port, "GET", "/health")[0] == 200
    assert len(e.requests) == 3
    assert not [l for l in r.log if "sk-one" in l or "sk-two" in l] and b"sk-one" not in http(r.admin, "GET", "/config")[2]
    r.at_rest()
    os.unlink(file)
