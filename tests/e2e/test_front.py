# SPDX-License-Identifier: Apache-2.0
"""Faults of the front door that were found by playing adversary to it: each failed once."""
import gzip
import json
import socket
import threading
import time

import h2client as h2
from cases import *
from h2client import H2
from lib import CHAT, MODEL, chat, http, raw, read_all, read_until, reset, until

BODY = chat_body()


def test_a_head_that_drips():
    """an engine whose head, or whose interim answers, drip for ever is given up at the first-byte deadline, a silent one too"""
    mode = {}

    def conn(s, got, n):
        while True:
            s.sendall(mode["piece"])
            time.sleep(0.1)  # the engine's own pace

    e = RawEngine(conn)
    r = Router([e.url], "--set", "limits.first_byte_s=0.3", "--set", "health.fail=1000")
    for piece in (b"H", b"HTTP/1.1 102 Processing\r\n\r\n", b""):
        mode["piece"] = piece
        for stream in (True, False):
            until(lambda: r.workers()[0]["breaker"] == "closed")
            status, _, body = chat(r.port, stream=stream)
            assert status in (502, 504) and code(body) in ("upstream_timeout", "upstream_failed"), (piece, status, body)
    r.at_rest()
    e.close()


def test_a_whole_answer_may_take_its_tokens():
    """whoever asks for many tokens and wants them at once waits for as long as they take; without a number it is six times first_byte_s"""
    gone = threading.Event()

    def answer(q):
        if b"patient" in q.body:
            gone.wait(20)
        else:
            q.gone(20)
            gone.set()
            return
        q.answer(200, CHAT)

    with stage(answer, args=("--set", "limits.first_byte_s=0.1", "--set", "health.fail=1000", "--set", "slo.itl_ms=100")) as (r, e):
        mode = {}
        patient = threading.Thread(target=lambda: mode.update(got=chat(r.port, max_tokens=300, user="patient")))
        patient.start()
        status, _, body = chat(r.port)
        assert (status, code(body)) == (504, "upstream_timeout"), body
        patient.join(30)
        assert mode["got"][0] == 200, mode


def test_a_coded_stream_that_breaks():
    """an event stream with a content coding is cut when it breaks: nothing of ours is written into it; whole, it passes byte for byte"""
    packed = gzip.compress(EVENT * 50)
    mode = {"cut": len(packed)}

    def answer(q):
        q.sse_head("Content-Encoding: gzip\r\n")
        q.chunk(packed[:mode["cut"]])
        if mode["cut"] < len(packed):
            q.reset()
        else:
            q.end()

    with stage(answer, args=("--set", "health.fail=1000")) as (r, e):
        status, h, body = chat(r.port, stream=True)
        assert status == 200 and body == packed and h["content-encoding"] == "gzip" and h["cache-control"] == "no-cache"
        mode["cut"] = 30
        got = raw(r.port, closing(post(chat_body(True))))
        head, data = got.split(b"\r\n\r\n", 1)
        assert status_of(got) == 200 and data == b"1e\r\n" + packed[:30] + b"\r\n", data
        assert r.metric("warmpath_broken_answers_total") == 1


def test_expectations():
    """an Expect of anything but 100-continue is 417, over HTTP/1.1 and HTTP/2; HTTP/1.0 has none"""
    with stage() as (r, e):
        for expect in (b"200-ok", b"100-continue, x", b"100-continue\r\nExpect: y"):
            got = raw(r.port, post(BODY, extra=b"Expect: %s\r\n" % expect))
            assert check_error(got, 417)["code"] == "expectation_failed"
        c = H2(r.port)
        c.ask(1, "/v1/chat/completions", "POST", ("expect", "x"), body=BODY)
        status, body, _ = c.answer(1)
        assert status == 417 and code(body) == "expectation_failed"
        c.close()
        assert not e.requests
        got = raw(r.port, b"POST /v1/chat/completions HTTP/1.0\r\nExpect: x\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY))
        assert status_of(got) == 200


def test_ids_of_attempts():
    """each attempt has ids of its own, in the field and in the body, also on the same worker after a reuse race (B249)"""
    def answer(q):
        if q.number == 1:
            q.reset()
        else:
            q.answer(200, CHAT)

    with stage(answer, args=("--threads", 1)) as (r, e):  # so that the second request comes on the first one's connection
        body = json.loads(json_file("B249"))
        body["stream"] = False
        for _ in range(2):
            assert http(r.port, "POST", "/v1/chat/completions", body)[0] == 200
        assert len(e.requests) == 3
        for ids in ([q.headers["x-request-id"] for q in e.requests], [q.json()["request_id"] for q in e.requests], [q.json()["rid"] for q in e.requests]):
            assert len(set(ids)) == 3, ids


def test_bodies_that_engines_read():
    """a body behind a byte order mark and one with a thousand levels reach the engine byte for byte, with and without an edit"""
    deep = b'{"x":' + b"[" * 1000 + b"]" * 1000 + b',"model":"%s","messages":[{"role":"user","content":"hi"}]}'
    e = engine()
    r = Router(config={"models": [{"name": MODEL, "aliases": ["other"]}], "workers": [{"url": e.url}]}, ready=1)
    for body in (b"\xef\xbb\xbf" + deep, b'\xef\xbb\xbf {"model":"%s","messages":[{"role":"user","content":"hi"}]} ', deep):
        for name in (MODEL.encode(), b"other"):
            assert status_of(raw(r.port, closing(post(body % name)))) == 200, body[:80]
            assert e.requests[-1].body == body % MODEL.encode()
    rules(r, [e])


def test_targets_over_http2():
    """a path or an authority that HTTP/1.1 would refuse is refused over HTTP/2 too, and never reaches an engine"""
    with stage() as (r, e):
        c = H2(r.port)
        for stream, (path, authority) in enumerate((("/v1/chat/completions?x=\xe9", "x"), ("/v1/chat/completions#x", "x"), ("/v1/chat/completions", "a@b"),
                                                    ("/v1/chat/completions", "a b"), ("/v1/chat/completions", "a,b"), ("/v1/chat/completions", "a/b"),
                                                    ("http://x/v1/chat/completions", "x"), ("*", "x"), ("/v1/chat/completions", "x:99999"))):
            block = h2.fields((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", authority))
            c.send(h2.HEADERS, h2.END_HEADERS, 2 * stream + 1, block)
            c.send(h2.DATA, h2.END_STREAM, 2 * stream + 1, BODY)
            status, _, reset_by = c.answer(2 * stream + 1)
            assert status == 400 or reset_by == h2.PROTOCOL_ERROR, (path, authority, status, reset_by)
        c.ask(101)
        assert c.answer(101)[0] == 200 and not e.requests
        c.close()


def test_idle_connections_make_room():
    """clients that hold all connections and ask nothing do not keep out one who does, at the limit and without descriptors; who is busy stays"""
    hold = threading.Event()

    def answer(q):
        q.sse_head()
        q.chunk(EVENT)
        hold.wait(60)
        q.end()

    e = engine(answer)
    r = Router([e], "--set", "limits.connections=8", "--set", "limits.keepalive_s=600", "--threads", 1)
    busy = open_stream(r.port)
    read_until(busy, b"tick")
    h2_idle = H2(r.port)
    h2_idle.ask(1)
    assert h2_idle.answer(1)[0] == 200
    idle = [socket.create_connection(("127.0.0.1", r.port)) for _ in range(40)]
    got = raw(r.port, closing(raw_file("plain")), 30)
    assert status_of(got) == 200, got
    f = h2_idle.until(h2.GOAWAY)
    assert f and h2.error_of(f) == h2.NO_ERROR
    hold.set()
    assert read_until(busy, b"0\r\n\r\n").endswith(b"0\r\n\r\n")
    for s in [busy, *idle]:
        s.close()
    h2_idle.close()
    rules(r, [e])
