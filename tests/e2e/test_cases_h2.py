# SPDX-License-Identifier: Apache-2.0
"""Cases of tests/data/cases about HTTP/2 and TLS, as real frames and records."""
import json
import os
import signal
import socket
import ssl
import threading
import time

import h2client as h2
from cases import *
from h2client import H2, error_of
from h2play import MAX_STREAMS, Player
from lib import FakeEngine, Router, chat, http, sanitized, until
from test_tls import LOCAL, Authority, connect, with_tls
from tlsclient import TLS12, TLS13, TlsClient

PIECE = b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"' + b"x" * 940 + b'"}}]}\n\n'


def flood(pieces):
    """An engine's answer: so many events of a kilobyte to a stream, JSON to what is none."""
    def answer(q):
        if b'"stream": true' not in q.body and b'"stream":true' not in q.body:
            q.answer(200, CHAT)
            return
        q.sse_head()
        for _ in range(pieces):
            q.chunk(PIECE)
        q.chunk(b"data: [DONE]\n\n")
        q.end()
    return answer


def test_B040():
    """a field name with a tab, with a capital, and proxy-connection are stream errors, and nothing goes upstream (B040)"""
    with stage() as (r, e):
        p = Player(r.port, "B040", enough=lambda p: p.ended(1) is not None or p.broken).play()
        for frames in [f for f, _ in p.past] + [p.frames]:
            assert [f for f in frames if f[0] == h2.RST and int.from_bytes(f[3], "big") == h2.PROTOCOL_ERROR], frames
        assert len(p.past) == 2 and not e.requests
        p.close()


def test_B047_B049_B054():
    """a head that never ends, answers that are never read, 8,193 empty fields: the connection or the stream ends, and others are served (B047, B049, B054)"""
    with stage() as (r, e):
        beside = H2(r.port)
        beside.ask(1)
        assert beside.answer(1)[0] == 200
        for name, deaf in (("B047", False), ("B049", True), ("B054", False)):
            p = Player(r.port, name, deaf=deaf, enough=lambda p: p.broken or p.has(h2.GOAWAY) or p.ended(1) is not None).play()
            p.deaf = False
            p.pump(lambda: p.broken or p.has(h2.GOAWAY) or p.ended(1) is not None)
            goaway = [f for f in p.frames if f[0] == h2.GOAWAY]
            assert p.broken or goaway or p.ended(1) not in (None, "end") or p.status(1) == 431, (name, p.frames[-3:])
            assert not goaway or error_of(goaway[0]) != h2.NO_ERROR, (name, goaway)
            p.close()
        beside.ask(3)
        assert beside.answer(3)[0] == 200 and not e.requests
        beside.close()


def test_B051():
    """as many stalled streams as are allowed: one more is REFUSED_STREAM, WINDOW_UPDATEs are read, and all of them end (B051)"""
    with stage(flood(64)) as (r, e):
        extra = 2 * MAX_STREAMS + 1
        p = Player(r.port, "B051")
        p.enough = lambda p: p.ended(extra) is not None
        p.play("WINDOW_UPDATE")
        assert p.ended(extra) == h2.REFUSED, p.ended(extra)
        p.streams.pop()
        p.enough = lambda p: all(p.ended(s) is not None for s in p.streams)
        p.play()
        assert len(p.streams) == MAX_STREAMS and all(p.ended(s) == "end" for s in p.streams)
        assert all(p.body(s) == PIECE * 64 + b"data: [DONE]\n\n" for s in p.streams)
        p.close()


def test_B052():
    """an engine that closes its idle connections fails none of the requests of an HTTP/2 client (B052)"""
    def answer(q):
        q.answer(200, CHAT)
        threading.Timer(0.03, lambda: lib_close(q.sock)).start()

    def lib_close(s):
        with contextlib.suppress(OSError):
            s.shutdown(socket.SHUT_RDWR)

    with stage(answer) as (r, e):
        def gap(p, words):
            if words[0] == "REQUEST":
                p.pump(lambda: p.ended(p.streams[-1]) is not None)
                time.sleep(0.035)  # the case's own: the engine closes meanwhile
        p = Player(r.port, "B052", after=gap).play()
        assert len(p.streams) == 20 and [p.status(s) for s in p.streams] == [200] * 20
        p.close()


def test_B053():
    """a client whose window stays shut is reset after send_s, and what was held for it is gone (B053)"""
    with stage(args=("--set", "limits.send_s=1")) as (r, e):
        p = Player(r.port, "B053", enough=lambda p: p.ended(1) is not None or p.broken).play()
        assert p.status(1) == 200 and p.ended(1) == h2.CANCEL and not p.broken
        r.at_rest()
        p.close()


def test_B055():
    """a hundred cancels over ten seconds do no harm to the connection and the stream beside them (B055)"""
    stop = threading.Event()

    def answer(q):
        q.sse_head()
        while not stop.wait(0.2):
            q.chunk(EVENT)
        q.chunk(b"data: [DONE]\n\n")
        q.end()

    with stage(answer) as (r, e):
        def cancel(p, words):
            if words[0] == "REQUEST":
                p.pump(lambda: False, 0.05)
                p.send(h2.frame(h2.RST, 0, p.streams[-1], b"\0\0\0\x08"))
                p.pump(lambda: False, 0.05)
        p = Player(r.port, "B055", after=cancel).play()
        assert len(p.streams) == 101 and not p.broken and not p.has(h2.GOAWAY) and p.ended(1) is None
        until(lambda: r.metric("warmpath_client_gone_total") == 100)
        stop.set()
        p.pump(lambda: p.ended(1) is not None)
        assert p.ended(1) == "end" and p.body(1).endswith(b"data: [DONE]\n\n")
        p.close()


def test_B090():
    """a stream that is cancelled after its first event is cancelled at the engine; the one beside it goes on to its end (B090)"""
    gone, go_on = [], threading.Event()

    def answer(q):
        q.sse_head()
        q.chunk(EVENT)
        if b"fk:B090a" in q.body:
            gone.append(q.gone(20))
            go_on.set()
        else:
            go_on.wait(20)
            q.chunk(EVENT)
            q.end()

    with stage(answer) as (r, e):
        p = Player(r.port, "B090", enough=lambda p: p.ended(3) is not None).play()
        assert gone == [True] and p.ended(3) == "end" and p.body(3) == EVENT * 2 and not p.broken
        p.close()


def drained(how):
    go_on = threading.Event()

    def answer(q):
        if b'"stream": true' not in q.body and b'"stream":true' not in q.body:
            q.answer(200, CHAT)
            return
        q.sse_head()
        q.chunk(EVENT)
        go_on.wait(20)
        q.chunk(EVENT)
        q.chunk(b"data: [DONE]\n\n")
        q.end()

    e = engine(answer)
    r = Router([e], "--set", "health.interval_s=0.2")
    p = Player(r.port, "B174")
    p.play("wait 200")
    p.pump(lambda: all(p.has(h2.DATA, s) for s in p.streams))
    running = list(p.streams)
    how(r, p)
    p.lines = [line for line in p.lines if not line.startswith("wait 200")]
    if how is client_leaves:
        p.lines = [line for line in p.lines if not line.startswith("wait-for GOAWAY")]
    p.play("wait 10000")
    go_on.set()
    p.enough = lambda p: all(p.ended(s) is not None for s in running)
    p.play()
    assert [p.ended(s) for s in running] == ["end"] * 3, [p.ended(s) for s in running]
    assert all(p.body(s) == EVENT * 2 + b"data: [DONE]\n\n" for s in running)
    return r, p, running


def sigterm(r, _):
    r.p.send_signal(signal.SIGTERM)


def client_leaves(_, p):
    p.send(h2.frame(h2.GOAWAY, 0, 0, b"\0" * 8))


def test_B174():
    """streams go on to their end after GOAWAY, the router's own at a drain and the client's; one that comes too late is not run (B174)"""
    r, p, running = drained(sigterm)
    goaway = next(f for f in p.frames if f[0] == h2.GOAWAY)
    assert error_of(goaway) == h2.NO_ERROR and int.from_bytes(goaway[3][:4], "big") >= running[-1]
    assert p.status(7) is None or p.ended(7) == h2.REFUSED or p.status(7) == 503
    until(lambda: r.p.poll() is not None, 15, "the end")
    p.close()
    r, p, running = drained(client_leaves)
    p.close()
    r.at_rest()


def test_B176():
    """an initial window below what was sent already, and one that goes up by SETTINGS alone: streams go on once they may (B176)"""
    with stage(flood(256)) as (r, e):
        p = Player(r.port, "B176", give_back=False)
        p.play("wait 5000")
        p.enough = lambda p: p.ended(1) is not None
        p.play()
        assert p.ended(1) == "end" and p.body(1) == PIECE * 256 + b"data: [DONE]\n\n"
        p.close()
        c = H2(r.port, [(h2.INITIAL_WINDOW, 0)])
        c.window(0, 1 << 24)
        body = json_file("stream")
        for s in range(1, 41, 2):
            c.ask(s, "/v1/chat/completions", "POST", ("content-type", "application/json"), body=body)
        got, ended = {}, set()
        heads = set()
        while len(heads) < 20:
            kind, flags, of, _ = c.read()
            heads |= {of} if kind == h2.HEADERS and of else set()
        c.send(h2.SETTINGS, 0, 0, b"\0\x04\0\0\x40\0")  # 16 KiB, by SETTINGS alone
        while len(got) < 20 or any(len(b) < 16384 for b in got.values()):
            kind, flags, of, payload = c.read()
            if kind == h2.DATA:
                got[of] = got.get(of, b"") + payload
        c.send(h2.SETTINGS, 0, 0, b"\0\x04\0\x10\0\0")
        while len(ended) < 20:
            kind, flags, of, payload = c.read()
            if kind == h2.DATA:
                got[of] = got.get(of, b"") + payload
                ended |= {of} if flags & h2.END_STREAM else set()
        assert all(b == PIECE * 256 + b"data: [DONE]\n\n" for b in got.values())
        c.close()


def test_B161():
    """a reload every moment under HTTP/2 traffic: no request fails, no connection hangs (B161)"""
    e = engine(flood(4))
    r = Router(config={"workers": [{"url": e.url}]}, ready=1)
    stop, failures, done = threading.Event(), [], []

    def client():
        try:
            while not stop.is_set():
                c = H2(r.port)
                for s in range(1, 41, 2):
                    c.ask(s, "/v1/chat/completions", "POST", ("content-type", "application/json"), body=json_file("stream" if s % 4 == 1 else "plain"))
                    status, body, code = c.answer(s)
                    assert status == 200 and code is None and (s % 4 != 1 or body.endswith(b"data: [DONE]\n\n")), (s, status, code)
                    done.append(s)
                c.close()
        except Exception as x:  # told by the test
            failures.append(x)

    threads = [threading.Thread(target=client) for _ in range(4)]
    [t.start() for t in threads]
    for i in range(20):
        n = len(done)
        assert http(r.admin, "POST", "/reload")[0] == 200
        until(lambda: len(done) >= n + 20 or failures, 20, "traffic between reloads")
    stop.set()
    [t.join() for t in threads]
    assert not failures, failures[:2]
    rules(r, [e])


# --- TLS ---

def slow_body(q):
    """An engine that streams 32 MB."""
    q.sse_head()
    for _ in range(512):
        q.chunk(PIECE * 64)
    q.end()


def test_B178():
    """a TLS client with small buffers gets every byte of a long stream; a TLS engine that reads slowly gets every byte of a body (B178)"""
    a = Authority()
    e = FakeEngine(slow_body)
    r = Router([e], *with_tls(a.sign("server", LOCAL)))
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(60)
    plain.connect(("127.0.0.1", r.port))
    s = a.context().wrap_socket(plain, server_hostname="localhost")
    s.sendall(post(chat_body(True), extra=b"Connection: close\r\n"))
    want = PIECE * 64 * 512
    got = bytearray()
    f = s.makefile("rb")
    while f.readline() != b"\r\n":
        pass
    while n := int(f.readline(), 16):
        got += f.read(n)
        f.readline()
    assert bytes(got) == want
    s.close()
    r.at_rest()
    r.end()
    slow_tls_engine(a)


def slow_tls_engine(a):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*a.sign("engine", LOCAL))
    bodies = []

    def serve(s):
        with contextlib.suppress(OSError, ssl.SSLError), context.wrap_socket(s, server_side=True) as t:
            f = t.makefile("rb", buffering=4096)
            while line := f.readline():
                n = 0
                while (field := f.readline()) != b"\r\n":
                    if field.lower().startswith(b"content-length:"):
                        n = int(field.split(b":")[1])
                if n:
                    got = bytearray()
                    while len(got) < n:
                        got += f.read(min(65536, n - len(got)))
                    bodies.append(bytes(got))
                page = json.dumps(CHAT if n else {"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
                t.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)

    def accept():
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    r = Router([f"https://localhost:{listener.getsockname()[1]},ca={a.ca}"])
    body = chat_body(pad="".join(chr(97 + i % 26) for i in range(1 << 20)) * 16)
    assert http(r.port, "POST", "/v1/chat/completions", body)[0] == 200 and bodies == [body]
    r.at_rest()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_B179():
    """what lies inside the TLS library is never waited for: head and body in one record, two requests in one, records of every awkward size (B179)"""
    a = Authority()
    e = engine()
    r = Router([e], *with_tls(a.sign("server", LOCAL)))
    with connect(r.port, a.context()) as s:
        s.sendall(post(chat_body()))
        assert status_of(one_answer(s)) == 200
        s.sendall(post(chat_body()) * 2)
        assert [status_of(one_answer(s)) for _ in range(2)] == [200, 200]
        for n in (16383, 16384, 16385, 32769):
            body = chat_body(pad="")
            body = chat_body(pad="x" * (n - len(body)))
            s.sendall(post_head(len(body)))
            s.sendall(body)
            assert status_of(one_answer(s)) == 200 and e.requests[-1].body == body, n
            s.sendall(post(body))
            assert status_of(one_answer(s)) == 200 and e.requests[-1].body == body, n
    context = a.context()
    context.set_alpn_protocols(["h2"])
    c = H2.__new__(H2)
    c.s, c.buf = connect(r.port, context), b""
    c.s.sendall(h2.PREFACE + h2.frame(h2.SETTINGS, 0, 0, b"\0\x01\0\0\0\0") +
                h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, h2.request("/v1/models")))
    assert c.answer(1)[0] == 200
    c.close()
    r.at_rest()


def read_chunked(c):
    """A chunked answer of a TLS client, as far as it comes: the data, and whether it was whole."""
    got = b""
    while piece := c.read():
        got += piece
        if got.endswith(b"\r\n0\r\n\r\n"):
            break
    head, _, rest = got.partition(b"\r\n\r\n")
    data, at = bytearray(), 0
    while at < len(rest):
        end = rest.find(b"\r\n", at)
        n = int(rest[at:end], 16) if end > at else -1
        if n <= 0:
            return bytes(data), n == 0
        data += rest[end + 2:end + 2 + n]
        at = end + 4 + n
    return bytes(data), False


def test_B180():
    """new keys in mid-stream do a blocked stream no harm; a flood of them ends in a close; renegotiation is refused; others never notice (B180)"""
    a = Authority()
    wrote = [0]

    def answer(q):
        q.sse_head()
        for i in range(400):
            q.chunk(PIECE * 16)
            wrote[0] += 1
        q.end()

    e = engine(answer)
    r = Router([e], *with_tls(a.sign("server", LOCAL)))

    def stalled():
        before = wrote[0]
        time.sleep(0.2)  # the engine's own pace: two looks that are the same
        return before == wrote[0] > 0

    beside = connect(r.port, a.context())
    for times in (1, 5):
        wrote[0] = 0
        c = TlsClient(r.port, TLS13, rcvbuf=4096)
        assert c.write(post(chat_body(True), extra=b"Connection: close\r\n"))
        until(stalled)
        for _ in range(times):
            assert c.update()
        data, whole = read_chunked(c)
        assert whole and data == PIECE * 16 * 400, (times, len(data))
        c.close()
    wrote[0] = 0
    c = TlsClient(r.port, TLS13, rcvbuf=4096)
    assert c.write(post(chat_body(True)))
    until(stalled)
    c.s.settimeout(None)
    memory = rss(r)
    for _ in range(10000):
        if not c.update():
            break
    beside.sendall(post(chat_body(user="fk:plain")))
    assert status_of(one_answer(beside)) == 200
    assert sanitized() or rss(r) < memory + (16 << 10)  # a sanitizer keeps what was freed
    assert not read_chunked(c)[1], "a flood of key updates was taken"
    c.close()
    wrote[0] = 0
    c = TlsClient(r.port, TLS12)
    assert c.write(post(chat_body(True), extra=b"Connection: close\r\n"))
    assert not c.renegotiate()
    c.close()
    beside.sendall(post(chat_body(user="fk:plain")))
    assert status_of(one_answer(beside)) == 200
    beside.close()
    r.at_rest()


def rss(r):
    """Of the router, in KiB."""
    return int(open(f"/proc/{r.p.pid}/status").read().split("VmRSS:")[1].split()[0])
