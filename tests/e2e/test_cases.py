# SPDX-License-Identifier: Apache-2.0
"""Cases of tests/data/cases, from public bug reports: framing, fields, bodies, streams, upstream connections.

A test's name holds the ids that it plays.  test_cases_life.py and test_cases_slow.py play the rest; what waits for a later
issue is in tests/data/cases/LEFT_OUT.md, and the last test here checks that no id is forgotten.
"""
import json
import pathlib
import re
import socket
import threading
import time

from cases import *
from lib import CHAT, MODEL, chat, http, play, raw, read_all, read_until, reset, until

HERE = pathlib.Path(__file__).resolve().parent


def refused(name, *statuses):
    """Plays raw/NAME.http whole and in two pieces: refused, closed, nothing of it upstream."""
    data = raw_file(name)
    with stage() as (r, e):
        for at in (None, 1, data.index(b"\r\n") + 1, data.index(b"\r\n\r\n") + 2, data.index(b"\r\n\r\n") + 4, len(data) - 1):
            got = raw(r.port, data) if at is None else send_split(r.port, data, at)
            check_error(got, *statuses)
            assert len(re.findall(rb"HTTP/1.1 \d", got)) == 1, got
            assert b"connection: close" in got.lower()
        assert not e.requests


def _refusals():
    table = {"B001": ("both lengths and a hidden request", ("B001", "B001b"), (400,)),
             "B003": ("chunked<TAB> beside a length", ("B003",), (400,)),
             "B005": ("two lengths", ("B005", "B005b"), (400,)),
             "B007": ("a folded Transfer-Encoding", ("B007",), (400,)),
             "B009": ("a chunk size with text behind", ("B009",), (400,)),
             "B010": ("chunk sizes 0x53 and with a blank before", ("B010", "B010b"), (400,)),
             "B013": ("control bytes in a chunk extension", ("B013",), (400,)),
             "B015": ("chunk sizes past 63 bits", ("B015", "B015b"), (400,)),
             "B016": ("a length past 64 bits", ("B016",), (400, 413)),
             "B017": ("no CRLF behind a chunk's data", ("B017",), (400,)),
             "B020": ("a line that is only a colon", ("B020",), (400,)),
             "B021": ("a line without colon", ("B021",), (400,)),
             "B022": ("a zero byte in a value", ("B022",), (400,)),
             "B025": ("two Host, no Host", ("B025", "B025b"), (400,))}
    for ident, (what, files, statuses) in table.items():
        def test(files=files, statuses=statuses):
            for f in files:
                refused(f, *statuses)
        test.__doc__ = f"{what}: refused and closed, nothing of it upstream ({ident})"
        globals()[f"test_{ident}"] = test


_refusals()


def test_B001_split_at_every_byte():
    """smuggling attempts cut at every byte get the same refusal (B001, B007, B017)"""
    with stage() as (r, e):
        for name in ("B001", "B007", "B017"):
            data = raw_file(name)
            for at in range(1, len(data)):
                got = send_split(r.port, data, at)
                assert status_of(got) == 400 and got.count(b"HTTP/1.1 ") == 1, (name, at, got)
        assert not e.requests


def test_B028():
    """the same JSON with a length and chunked, cut at every byte, is the same for the engine (B028)"""
    data = closing(raw_file("B028"))
    want = b'{"user":"fk:B028","model":"test-model","messages":[{"role":"user","content":"hi"}]}'
    with stage() as (r, e):
        assert status_of(raw(r.port, closing(post(want)))) == 200
        for at in range(1, len(data)):
            assert status_of(send_split(r.port, data, at)) == 200, at
        assert len(e.requests) == len(data)
        assert all(q.body == want and "transfer-encoding" not in q.headers for q in e.requests)


def test_B030():
    """a POST with length 0, one without any length, and a GET are answered at once (B030)"""
    with stage() as (r, e):
        for name in ("B030", "B030b"):
            check_error(raw(r.port, closing(raw_file(name))), 400)
        assert http(r.port, "GET", "/v1/models")[0] == 200
        assert not e.requests


def test_B032_B034_B037():
    """fields named by Connection, hop-by-hop ones and our internal ones do not cross; routing is unchanged (B032, B034, B037)"""
    def answer(q):
        q.answer(200, CHAT, [("Connection", "X-Private"), ("X-Private", "1"), ("X-Public", "2"), ("Keep-Alive", "timeout=7"),
                             ("Proxy-Authenticate", "Basic"), ("Trailer", "X-T"), ("Upgrade", "h2c")])

    with stage(answer, answer) as (r, a, b):
        for name in ("B032", "B034", "B037"):
            got = raw(r.port, closing(raw_file(name)))
            assert status_of(got) == 200, got
            head = got.split(b"\r\n\r\n")[0].lower()
            assert b"x-public: 2" in head
            for no in (b"x-private", b"keep-alive", b"proxy-auth", b"\r\ntrailer", b"\r\nupgrade"):
                assert no not in head, (no, head)
            q = (a.requests + b.requests)[0] if name == "B032" else next(q for q in a.requests + b.requests if name.encode() in q.body)
            for no in ("x-private", "keep-alive", "te", "trailer", "proxy-connection", "proxy-authorization",
                       "x-gateway-destination-endpoint", "x-worker-id", "x-data-parallel-rank", "x-request-priority"):
                assert no not in q.headers, (name, no)
            assert q.headers.get("connection", "keep-alive").lower() == "keep-alive"
            assert name != "B032" or q.headers["x-public"] == "1"


def test_B038():
    """the peer's true address ends X-Forwarded-For, whatever came in it and however long it was (B038)"""
    with stage() as (r, e):
        assert status_of(raw(r.port, closing(raw_file("B038")))) == 200
        assert e.requests[-1].headers["x-forwarded-for"] == "6.6.6.6, 127.0.0.1"
        long = ", ".join(["6.6.6.6"] * 1500)
        extra = f"X-Forwarded-For: {long}\r\nX-Forwarded-For: 7.7.7.7\r\nx-forwarded-for:\r\nConnection: close\r\n".encode()
        assert status_of(raw(r.port, post(chat_body(), extra=extra))) == 200
        assert e.requests[-1].headers["x-forwarded-for"] == long + ", 7.7.7.7, 127.0.0.1"


def test_B043():
    """an engine's 400 on a streaming request passes with a length that is right (B043)"""
    with stage(lambda q: q.send(response("B043.resp"))) as (r, e):
        status, h, body = chat(r.port, stream=True)
        assert status == 400 and int(h["content-length"]) == len(body) and code(body) is None


def test_B044():
    """an edit of the body moves its length along (B044)"""
    e = engine()
    r = Router(config={"models": [{"name": MODEL, "aliases": ["alias-of-test-model"]}], "workers": [{"url": e.url}]}, ready=1)
    body = json_file("B044")
    assert http(r.port, "POST", "/v1/chat/completions", body)[0] == 200
    assert e.requests[0].body == body.replace(b"alias-of-test-model", b"test-model")
    assert e.requests[0].headers["content-length"] == str(len(e.requests[0].body))
    assert http(r.port, "GET", "/v1/models/alias-of-test-model")[0] == 200
    rules(r, [e])


def test_B059():
    """HEAD gets no body and leaves the connection in step; an engine's 304 with a length has none (B059)"""
    with stage(lambda q: q.send(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n"), args=("--threads", 1)) as (r, e):
        got = raw(r.port, raw_file("B059"))
        heads = got.split(b"HTTP/1.1 200 OK\r\n")
        assert len(heads) == 3 and heads[1].endswith(b"\r\n\r\n") and heads[2].count(b'"test-model"') >= 1, got
        before = e.connections
        for _ in range(3):
            assert chat(r.port)[0] == 304
        assert e.connections <= before + 1, "the connection was not kept"


def test_B061():
    """an engine's 103 never reaches the client with Connection or a length (B061)"""
    with stage(lambda q: q.send(response("B061.resp"))) as (r, e):
        got = raw(r.port, closing(post(chat_body())))
        final = got[got.rindex(b"HTTP/1.1 "):]
        assert status_of(final) == 200 and final.endswith(b"\r\n\r\n{}"), got
        interim = got[:got.rindex(b"HTTP/1.1 ")].lower()
        assert b"connection" not in interim and b"content-length" not in interim


def test_B063():
    """a last CRLF that comes late delays nobody and leaves the connection clean (B063)"""
    with stage(lambda q: play(q, script("B063.sse")), args=("--threads", 1)) as (r, e):  # each loop has a pool
        chat(r.port, stream=True)
        before = e.connections
        for _ in range(5):
            status, _, body = chat(r.port, stream=True)
            assert status == 200 and body.endswith(b"data: [DONE]\n\n")
        assert e.connections <= before + 1


def test_B064_B104():
    """both engines down: 503 JSON with Retry-After each time; all saturated: 429; up again: served (B064, B104, B201)"""
    with stage(args=("--set", "limits.per_worker=1", "--set", "limits.queue=0")) as (r, a):
        hold = threading.Event()
        a.on_request = lambda q: (hold.wait(20), q.answer(200, CHAT))
        t = threading.Thread(target=lambda: chat(r.port))
        t.start()
        until(lambda: a.requests)
        for stream in (False, True):
            status, h, body = chat(r.port, stream=stream)
            assert status == 429 and code(body) == "overloaded" and int(h["retry-after"]) >= 1
            assert h["content-type"] == "application/json" and json.loads(body)["error"]["type"] == "rate_limit_error"
        hold.set()
        t.join()
        a.on_request = lambda q: q.answer(200, CHAT)
        port = a.port
        a.close()
        for i in range(50):
            status, h, body = chat(r.port, stream=i % 2 == 1)
            assert status in (502, 503) and h["retry-after"] == "1", (i, status, body, h.items())
            check_error(b"HTTP/1.1 %d x\r\n\r\n" % status + body, status)
        engine(port=port)
        until(lambda: chat(r.port)[0] == 200, 5, "service")


def test_B067():
    """300 streams at once all make progress at the same time (B067)"""
    begun = threading.Semaphore(0)
    go = threading.Event()

    def answer(q):
        q.sse_head()
        q.chunk(EVENT)
        begun.release()
        go.wait(30)
        q.chunk(b"data: [DONE]\n\n")
        q.end()

    with stage(answer, answer) as (r, *_):
        crowd = Crowd(r.port, 300, post(json_file("stream")))
        assert crowd.pump(lambda c: c.all_have(b"tick"), 20), "not all streams got their first event while the others ran"
        go.set()
        assert crowd.pump(lambda c: c.all_have(b"[DONE]"), 20)
        crowd.close()


def test_B071():
    """an engine that answers before it has read the body, and stays open: its connection is not used again (B071)"""
    said = b'{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}'
    first = []
    answered = threading.Event()  # until then the engine reads nothing, so that the body cannot all be written

    def conn(s, got, n):
        if n == 1:
            first.append(s)
            s.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
            answered.wait(20)
            while s.recv(1 << 16):  # what still comes must be the rest of the body, then the end
                pass
            first.append("closed")
            return False
        assert s is not first[0]
        length = int(re.search(rb"content-length: *(\d+)", got, re.I)[1])
        while len(got.split(b"\r\n\r\n", 1)[1]) < length:
            got += s.recv(1 << 16)
        body = json.dumps(CHAT).encode()
        s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        return True

    e = RawEngine(conn)
    r = Router([e.url], "--set", "health.interval_s=30")
    status, _, body = http(r.port, "POST", "/v1/chat/completions", chat_body(pad="x" * (40 << 20)))
    answered.set()
    assert (status, body) == (400, said)
    for _ in range(5):
        assert chat(r.port)[0] == 200
    until(lambda: "closed" in first, 5, "the connection being closed")
    r.at_rest()
    r.end()
    e.close()


def test_B071_short():
    """an engine whose answer stays short of its length, and stays open: cut for the client, closed, and the next 5 are served (B071)"""
    gone = []

    def answer(q):
        q.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}")
        gone.append(q.gone(10))

    with stage(answer, args=("--set", "limits.idle_s=0.3")) as (r, e):
        got = raw(r.port, closing(post(chat_body())))
        assert got.endswith(b"\r\n\r\n{}") and b"content-length: 100" in got.lower(), got
        until(lambda: gone, 5, "the connection being closed")
        e.on_request = lambda q: q.answer(200, CHAT)
        for _ in range(5):
            assert chat(r.port)[0] == 200


def test_B075():
    """an engine that dies after 0 events: 502 in OpenAI's shape; after 1 or n: one error event in that shape; counted, logged with its cause (B075)"""
    text = script("B075-die-mid.sse").replace("!wait 200", "!wait 20")
    first = text.index("data:")
    with stage(lambda q: play(q, text[:first] + "!rst\n")) as (r, e):
        status, h, got = chat(r.port, stream=True)
        assert status == 502 and json.loads(got)["error"]["code"] == "upstream_failed", (status, got)
        assert r.metric('warmpath_requests_total{code="502"}') == 1
        r.wait_log(r"warn request: .*did not answer", 2)
    for body in (text, EVENT.decode() * 20 + "!fin\n"):
        with stage(lambda q, body=body: play(q, body)) as (r, e):
            status, h, got = chat(r.port, stream=True)
            events = [x for x in got.split(b"\n\n") if x]
            assert status == 200 and b"[DONE]" not in got
            assert json.loads(events[-1][6:])["error"]["code"] == "upstream_failed"
            assert r.metric("warmpath_broken_answers_total") == 1
            r.wait_log(r"warn request: .*answer broke", 2)


def test_B076():
    """events go on as they come: each is at the client before the engine writes the next (B076)"""
    seen, wrote = threading.Semaphore(0), []

    def answer(q):
        q.sse_head()
        for i in range(10):
            q.chunk(EVENT)
            wrote.append(i)
            assert seen.acquire(timeout=10), f"event {i} did not reach the client"
        q.end()

    with stage(answer) as (r, e):
        with open_stream(r.port) as s:
            for i in range(10):
                read_until(s, b"tick")
                seen.release()
            read_until(s, b"0\r\n\r\n")
        assert len(wrote) == 10


def test_B078_B079():
    """streams cut after every byte, with CRLF, comments, no end: bytes unchanged, usage right (B078, B079, B202)"""
    for name, cached in (("B078-usage", None), ("B079-crlf", None), ("B079-comments", None), ("B079-noend", None), ("B202-cumulative", 8)):
        for each in ("", "!each 1\n"):
            sent = []

            def answer(q, body=each + script(name + ".sse"), sent=sent):
                chunk = q.chunk
                q.chunk = lambda d: (sent.append(d), chunk(d))
                play(q, body)

            with stage(answer) as (r, e):
                status, _, got = chat(r.port, stream=True)
                assert status == 200 and got == b"".join(sent), name
                if cached is not None:
                    r.at_rest()
                    assert r.metric('warmpath_prompt_tokens_confirmed_total{source="gpu"}') == cached
                    assert r.metric('warmpath_prompt_tokens_confirmed_total{source="recomputed"}') == 11 - cached


def test_B202_messages():
    """the messages form: last value wins, input excludes cached tokens (B202)"""
    with stage(lambda q: play(q, script("B202-messages.sse"))) as (r, e):
        status, _, got = http(r.port, "POST", "/v1/messages",
                              {"model": MODEL, "max_tokens": 5, "stream": True, "messages": [{"role": "user", "content": "hi"}]})
        assert status == 200 and b"message_stop" in got
        r.at_rest()
        assert r.metric('warmpath_prompt_tokens_confirmed_total{source="gpu"}') == 8
        assert r.metric('warmpath_prompt_tokens_confirmed_total{source="recomputed"}') == 3


def test_B081_B116():
    """stream_options with an unknown key and members that are null reach the engine as they are (B081, B116)"""
    with stage() as (r, e):
        for name in ("B081", "B116"):
            assert http(r.port, "POST", "/v1/chat/completions", json_file(name))[0] == 200
            assert e.requests[-1].body == json_file(name)


def test_B083_B084():
    """limits are connect, first byte and idle: silence under the idle limit and long streams are kept, longer silence is not (B083, B084)"""
    late = script("B083-late.sse").replace("!wait 40000", "!wait 2500")
    long = script("B084-long.sse").replace("!repeat 900", "!repeat 12").replace("!wait 1000", "!wait 100")
    limits = ("--set", "limits.first_byte_s=2", "--set", "limits.connect_s=2")
    with stage(lambda q: play(q, late), args=(*limits, "--set", "limits.idle_s=20")) as (r, e):
        assert chat(r.port, stream=True)[2].endswith(b"data: [DONE]\n\n")
        e.on_request = lambda q: play(q, long)
        got = chat(r.port, stream=True)[2]
        assert got.count(b"tick") == 12 and got.endswith(b"data: [DONE]\n\n")
    with stage(lambda q: play(q, late), args=(*limits, "--set", "limits.idle_s=0.2")) as (r, e):
        got = chat(r.port, stream=True)[2]
        assert b"upstream_failed" in got or b"upstream_timeout" in got, got
    r = Router([engine()])
    conf = r.get("/config")
    assert conf["limits"]["idle_s"] > 40, "an engine may be silent for 40 s by default"


def test_B085():
    """event streams say no-cache and no buffering, and an engine's own words on that stay (B085)"""
    with stage(lambda q: (q.sse_head("Cache-Control: no-store\r\n" if q.number % 2 else ""), q.end())) as (r, e):
        h = chat(r.port, stream=True)[1]
        assert h["cache-control"] == "no-cache" and h["x-accel-buffering"] == "no"
        assert chat(r.port, stream=True)[1].get_all("cache-control") == ["no-store"]


def test_B086():
    """a client that closes after the third event frees the engine at once (B086)"""
    gone = []
    with stage(lambda q: (q.sse_head(), [q.chunk(EVENT) for _ in range(3)], gone.append(q.gone(10)))) as (r, e):
        for how in (lambda s: s.close(), reset):
            s = open_stream(r.port)
            got = b""
            while got.count(b"tick") < 3:
                got += s.recv(4096)
            how(s)
            until(lambda: gone, 2, "the engine's connection being closed")
            assert gone.pop()


def test_B092():
    """50 clients gone in each phase: counted as such, breaker and failures untouched (B092)"""
    def silent(q):
        q.gone(10)

    def streaming(q):
        q.sse_head()
        q.chunk(EVENT)
        q.gone(10)

    for phase, answer in (("body", silent), ("prefill", silent), ("stream", streaming)):
        with stage(answer) as (r, e):
            clients = []
            for i in range(50):
                s = socket.create_connection(("127.0.0.1", r.port))
                s.sendall(post(json_file("stream"))[:-20 if phase == "body" else None])
                clients.append(s)
            if phase != "body":
                until(lambda: len(e.requests) == 50)
            if phase == "stream":
                for s in clients:
                    read_until(s, b"tick")
            for i, s in enumerate(clients):
                reset(s) if i % 2 else s.close()
            until(lambda: r.metric("warmpath_client_gone_total") == 50, 10, f"50 clients gone in {phase}")
            r.at_rest()
            w = r.workers()[0]
            assert w["failed"] == 0 and w["breaker"] == "closed" and w["ready"], w
            assert not r.metric("warmpath_broken_answers_total")


def test_B093():
    """of two requests with ids r1 and r10 the first is cancelled and the second served (B093)"""
    hold = threading.Event()

    def answer(q):
        if q.headers["x-request-id"].startswith("r1-"):
            q.gone(10)
        else:
            hold.wait(10)
            q.answer(200, CHAT)

    with stage(answer) as (r, e):
        s = socket.create_connection(("127.0.0.1", r.port))
        s.sendall(post(chat_body(), extra=b"X-Request-Id: r1\r\n"))
        until(lambda: len(e.requests) == 1)
        out = []
        t = threading.Thread(target=lambda: out.append(chat(r.port, headers={"X-Request-Id": "r10"})))
        t.start()
        until(lambda: len(e.requests) == 2)
        reset(s)
        until(lambda: r.metric("warmpath_client_gone_total") == 1)
        hold.set()
        t.join()
        assert out[0][0] == 200 and out[0][1]["x-request-id"] == "r10"


def test_B099():
    """a body at a trickle ends at its deadline, idle connections after theirs, others are served meanwhile (B099)"""
    with stage(args=("--set", "limits.body_s=1.5", "--set", "limits.keepalive_s=2", "--set", "limits.head_s=1.5")) as (r, e):
        idle = [socket.create_connection(("127.0.0.1", r.port)) for _ in range(200)]
        head = socket.create_connection(("127.0.0.1", r.port))
        head.sendall(b"GET /v1/models HTTP/1.1\r\nHost:")
        slow = socket.create_connection(("127.0.0.1", r.port))
        slow.sendall(raw_file("B099-head"))
        stop = threading.Event()

        def trickle():
            while not stop.wait(0.05):
                try:
                    slow.send(b" ")
                    head.send(b"x")
                except OSError:
                    return

        t = threading.Thread(target=trickle)
        t.start()
        assert chat(r.port)[0] == 200
        assert status_of(read_all(slow, 20)) == 408 and status_of(read_all(head, 20)) == 408
        stop.set()
        t.join()
        for s in idle:
            s.settimeout(20)
            assert s.recv(1) == b""
            s.close()


def test_B100():
    """silence longer than the head limit between two requests is no slow head (B100)"""
    with stage(args=("--set", "limits.head_s=1", "--set", "limits.keepalive_s=30")) as (r, e):
        with socket.create_connection(("127.0.0.1", r.port)) as s:
            for _ in range(2):
                s.sendall(raw_file("plain"))
                read_until(s, b'"total_tokens": 6}}')
                assert read_all(s, 1.5) == b"", "something came in the silence"


def test_B106():
    """a 429 is tried once on the other engine and breaks nobody (B106)"""
    with stage(lambda q: q.send(response("B106.resp")), None, args=("--policy", "round_robin")) as (r, a, b):
        for _ in range(4):
            assert chat(r.port)[0] == 200
        assert len(a.requests) == 1 and len(b.requests) == 4
        assert all(w["breaker"] == "closed" and w["failed"] == 0 for w in r.workers())


def test_B107():
    """unknown model, no model, messages null, empty, not JSON: 404 or 400 with the member's name, never 5xx (B107)"""
    a, b = engine(), engine(model="other-model")
    r = Router([a, b])
    for body, status, want, param in (("B107a", 404, "model_not_found", "model"), ("B107b", 400, "missing_model", "model"),
                                      ("B107c", 400, "invalid_value", "messages"), ("B107d", 400, "bad_json", None),
                                      (b"", 400, "bad_json", None), (b"[]", 400, "bad_json", None), (b"nul", 400, "bad_json", None),
                                      (b'{"model":7,"messages":[]}', 400, "invalid_value", "model"),
                                      (b'{"model":"","messages":[]}', 404, "model_not_found", "model"),
                                      (b'{"model":"\\ud800","messages":[]}', 400, "invalid_value", "model"),
                                      (b'{"model":"test-model","messages":[]} x', 400, "bad_json", None),
                                      (b'{"model":"test-model","messages":{}}', 400, "invalid_value", "messages"),
                                      (b"[" * 100000, 400, "bad_json", None),
                                      (b'{"model":"test-model","messages":' + b"[" * 100000, 400, "bad_json", None)):
        data = body if isinstance(body, bytes) else json_file(body)
        e = check_error(raw(r.port, closing(post(data))), status)
        assert (e["code"], e["param"]) == (want, param), (body, e)
    assert not a.requests and not b.requests
    rules(r, [a, b])


def test_B108():
    """a model name of quotes, backslash and newline gives an error body that is valid JSON (B108)"""
    with stage() as (r, e):
        got = check_error(raw(r.port, closing(post(json_file("B108")))), 404)
        assert json.loads(json_file("B108"))["model"] in got["message"]
        long = check_error(raw(r.port, closing(post(json.dumps({"model": "é" * 5000, "messages": []}, ensure_ascii=False).encode()))), 404)
        assert "�" not in long["message"], "the name was cut inside a character"


def test_B109_B111():
    """8 MiB pass by default; exactly the limit passes, one byte more is 413 before it is read, with a length and chunked (B109, B111)"""
    with stage() as (r, e):
        body = chat_body(pad="x" * (8 << 20))
        assert http(r.port, "POST", "/v1/chat/completions", body)[0] == 200 and e.requests[-1].body == body
    with stage(args=("--set", "limits.body_bytes=100000")) as (r, e):
        body = chat_body(pad="")
        body = chat_body(pad="x" * (100000 - len(body)))
        assert len(body) == 100000 and http(r.port, "POST", "/v1/chat/completions", body)[0] == 200
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[i:i + 999] for i in range(0, len(body), 999))) + b"0\r\n\r\n"
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert status_of(raw(r.port, head + chunks)) == 200
        got = raw(r.port, post_head(100001) + body[:10])  # the rest is never sent
        assert check_error(got, 413)["code"] == "body_too_large"
        more = b"1\r\n \r\n" + chunks
        assert check_error(raw(r.port, head + more), 413)["code"] == "body_too_large"
        assert len(e.requests) == 2
        assert r.metric('warmpath_requests_total{code="413"}') == 2
        assert r.metric("warmpath_http_refused_total") == 2
        r.wait_log(r"info http: refused: address=\S+ status=413 the body is too long")
        until(lambda: len([line for line in r.log if " status=413 " in line and "outcome=refused" in line]) == 2)
        assert not r.metric("warmpath_client_gone_total"), "who was turned away has not gone"


def test_B118():
    """Expect: no 100 before a 413, none when the body is on its way, one when it is waited for (B118)"""
    expect = b"Expect: 100-continue\r\nConnection: close\r\n"
    with stage() as (r, e):
        got = raw(r.port, raw_file("B118"))
        assert status_of(got) == 413 and b"100 Continue" not in got
        got = raw(r.port, post(chat_body(), extra=expect))
        assert status_of(got) == 200 and b"100 Continue" not in got, got
        with socket.create_connection(("127.0.0.1", r.port)) as s:
            s.sendall(post_head(len(chat_body()), extra=expect))
            assert read_until(s, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            s.sendall(chat_body())
            assert b" 200 OK" in read_until(s, b"total_tokens")
        assert all("expect" not in q.headers for q in e.requests)
        with socket.create_connection(("127.0.0.1", r.port)) as s:
            s.sendall(post_head(2, "/nothing-here", extra=expect))
            assert status_of(read_all(s)) == 404
        with socket.create_connection(("127.0.0.1", r.admin)) as s:
            s.sendall(post_head(len(chat_body()), "/explain", extra=expect))
            assert read_until(s, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            s.sendall(chat_body())
            assert b" 200 OK" in read_until(s, b"chosen")


def test_B119():
    """a gzip body is refused as such, never as bad JSON (B119)"""
    with stage() as (r, e):
        got = check_error(raw(r.port, raw_file("B119")), 415)
        assert got["code"] == "unsupported_encoding" and not e.requests


def test_B120():
    """lists of prompts, embeddings and empty messages are placed by load, over all engines (B120)"""
    with stage(None, None, args=("--policy", "least_loaded")) as (r, a, b):
        for path, body in (("/v1/completions", json_file("B120a")), ("/v1/completions", json_file("B120b")),
                           ("/v1/embeddings", json.dumps({"model": MODEL, "input": ["a", "b"]}).encode()),
                           ("/v1/embeddings", json.dumps({"model": MODEL, "input": [[1, 2], [3]]}).encode()),
                           ("/v1/chat/completions", json_file("B120c"))):
            for _ in range(12):
                status, h, _ = http(r.port, "POST", path, body)
                assert status == 200 and h["x-warmpath-overlap"].startswith("total=0;"), (path, body, h.items())
        assert len(a.requests) > 5 and len(b.requests) > 5
        assert {q.body for q in a.requests + b.requests} >= {json_file("B120a"), json_file("B120b"), json_file("B120c")}


def test_B200_B201():
    """an error as the first event is booked as a failure; behind good events it passes too; our own failures are no streams (B200, B201)"""
    error = script("B200-error-first.sse")
    with stage(lambda q: play(q, error), args=("--set", "health.fail=100")) as (r, e):
        for i in range(20):
            status, h, body = chat(r.port, stream=True)
            assert status == 200 and b"server is overloaded" in body and body.endswith(b"data: [DONE]\n\n")
        assert r.metric("warmpath_request_ttft_seconds_count") == 0
        assert r.workers()[0]["failed"] == 20
        e.on_request = lambda q: play(q, EVENT.decode() * 3 + error)
        assert chat(r.port, stream=True)[2].count(b"tick") == 3


def multipart(model, file, boundary="wpB246", quoted=False, last=True):
    parts = [b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n' + file]
    if model is not None:
        parts.insert(len(parts) if last else 0, b'Content-Disposition: form-data; name="model"\r\n\r\n' + model.encode())
    b = boundary.encode()
    body = b"".join(b"--%s\r\n%s\r\n" % (b, p) for p in parts) + b"--%s--\r\n" % b
    return body, f'multipart/form-data; boundary={chr(34) if quoted else ""}{boundary}{chr(34) if quoted else ""}'


def test_B246():
    """multipart audio: routed by the form's model, the body byte for byte, 400 with the member's name where it is missing (B246)"""
    data = closing(raw_file("B246"))
    a, b = engine(), engine(model="other-model")
    r = Router(config={"models": [{"name": MODEL, "aliases": ["whisper"]}], "workers": [{"url": a.url}, {"url": b.url}]}, ready=2)
    want = data.split(b"\r\n\r\n", 1)[1]
    for at in [*range(1, len(data), 13), len(data) - 1]:
        assert status_of(send_split(r.port, data, at)) == 200, at
    assert not b.requests and all(q.body == want for q in a.requests)

    def ask(body, kind, extra=b""):
        return raw(r.port, b"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s"
                   % (kind.encode(), extra, len(body), body), 20)

    for last, quoted in ((True, True), (False, False)):
        body, kind = multipart("other-model", bytes(range(256)) * 4096 * 24 if last else b"--wpB246", quoted=quoted, last=last)
        assert status_of(ask(body, kind)) == 200 and b.requests[-1].body == body
    assert len(b.requests) == 2
    r.at_rest()
    body, kind = multipart("whisper", b"--wpB246\r\nwhisper")
    assert status_of(ask(body, kind)) == 200 and a.requests[-1].body == multipart(MODEL, b"--wpB246\r\nwhisper")[0]
    assert a.requests[-1].headers["content-length"] == str(len(body) - len("whisper") + len(MODEL))
    assert check_error(ask(*multipart(None, b"x")), 400)["param"] == "model"
    assert check_error(ask(*multipart("no-such", b"x")), 404)["code"] == "model_not_found"
    assert check_error(ask(body[:-10], kind), 400)["code"] == "bad_form"
    assert check_error(ask(body, "multipart/form-data"), 400)["code"] == "bad_form"
    rules(r, [a, b])


def test_B249():
    """live requests with one id get ids of their own upstream, in field and body; the client's own comes back (B249)"""
    hold = threading.Event()
    with stage(lambda q: (hold.wait(20), q.answer(200, CHAT))) as (r, e):
        out = []
        threads = [threading.Thread(target=lambda: out.append(http(r.port, "POST", "/v1/chat/completions", json_file("B249"),
                                                                   {"X-Request-Id": "same-id"}))) for _ in range(20)]
        [t.start() for t in threads]
        until(lambda: len(e.requests) == 20)
        hold.set()
        [t.join() for t in threads]
        assert all(s == 200 and h["x-request-id"] == "same-id" for s, h, _ in out)
        assert len({q.headers["x-request-id"] for q in e.requests}) == 20
        assert len({q.json()["request_id"] for q in e.requests}) == 20 and len({q.json()["rid"] for q in e.requests}) == 20
        for odd in (b"a b", b'a"b', b"x" * 129, b"\xe9", b"a,b"):
            got = raw(r.port, post(chat_body(), extra=b"Connection: close\r\nX-Request-Id: %s\r\n" % odd))
            ident = re.search(rb"x-request-id: ([^\r]*)", got, re.I)[1]
            assert ident != odd and re.fullmatch(rb"[0-9a-f]{32}", ident), (odd, ident)
        assert status_of(raw(r.port, post(chat_body(), extra=b"X-Request-Id: %s\r\n" % (b"x" * (1 << 20))))) == 431


def test_B252():
    """confirm: inject: whatever stream_options say short of asking, the engine is asked, the client sees no more than it asked for; silence is warned of (B252)"""
    usage = b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10,"prompt_tokens_details":{"cached_tokens":4}}}\n\n'
    tells = [True]

    def answer(q):
        q.sse_head()
        q.chunk(EVENT)
        if tells[0] and q.json()["stream_options"]["include_usage"] is True:
            q.chunk(usage)
        q.chunk(b"data: [DONE]\n\n")
        q.end()

    e = FakeEngine(answer)
    r = Router(config={"models": [{"name": MODEL, "confirm": "inject"}], "workers": [{"url": e.url}]}, ready=1)
    confirmed = lambda: r.metric('warmpath_prompt_tokens_confirmed_total{source="gpu"}') or 0  # noqa: E731
    plain, odd = json.loads(json_file("stream")), json.loads(json_file("B081"))
    bodies = [plain, {**plain, "stream_options": None}, {**plain, "stream_options": {"include_usage": False}}, {**odd, "stream": True}]
    bodies[3]["stream_options"].pop("include_usage", None)
    for n, body in enumerate(bodies):
        status, _, got = http(r.port, "POST", "/v1/chat/completions", body)
        options = e.requests[-1].json()["stream_options"]
        assert status == 200 and options["include_usage"] is True, options
        assert {k: v for k, v in options.items() if k != "include_usage"} == {k: v for k, v in (body.get("stream_options") or {}).items() if k != "include_usage"}
        assert got == EVENT + b"data: [DONE]\n\n", got
        until(lambda: confirmed() == 4 * (n + 1))
    got = http(r.port, "POST", "/v1/chat/completions", {**plain, "stream_options": {"include_usage": True}})[2]
    assert got == EVENT + usage + b"data: [DONE]\n\n"
    tells[0] = False
    for _ in range(30):
        http(r.port, "POST", "/v1/chat/completions", {**plain, "messages": [{"role": "user", "content": "long " * 2000}]})
    r.wait_log(r"warn confirm: .*none of 20 streams")
    assert len([line for line in r.log if "warn confirm" in line]) == 1


def test_every_id_is_played_or_left_out_with_a_reason():
    """every id of cases*.md is in a test's name or sentence, or in LEFT_OUT.md with a reason, and not in both"""
    ids = set()
    for path in CASES.glob("cases*.md"):
        ids |= set(re.findall(r"^\| (B\d+) \|", path.read_text(), re.M))
    assert len(ids) > 140, len(ids)
    left = dict(re.findall(r"^\| (B\d+) \| (.+?) \|$", (CASES / "LEFT_OUT.md").read_text(), re.M))
    assert all(len(why) > 2 for why in left.values())
    played = set()
    for path in HERE.glob("test_cases*.py"):
        text = path.read_text()
        for name, sentence in re.findall(r'^def (test_\w+)\(\):\n    """(.*?)"""', text, re.M | re.S):
            played |= set(re.findall(r"B\d{3}", name + sentence))
        played |= set(re.findall(r'^ +(?:table = \{)?"(B\d{3})": \(', text, re.M))
    assert not played & set(left), sorted(played & set(left))
    assert played | set(left) >= ids, sorted(ids - played - set(left))
    assert played | set(left) <= ids | played, sorted(set(left) - ids)
