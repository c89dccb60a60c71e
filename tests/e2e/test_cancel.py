# SPDX-License-Identifier: Apache-2.0
"""A client that leaves, in each state of its request and in each way there is: the engine is freed, nothing is left, nobody is blamed."""
import contextlib
import json
import socket
import threading

import h2client as h2
from cases import *
from h2client import H2
from lib import MODEL, FakeEngine, Router, reset, until
from test_tls import LOCAL, Authority, connect, with_tls


class Plain:
    """HTTP/1.1; leaves by a reset."""
    tls = False

    def __init__(self, r, authority):
        self.s = connect(r.port, authority.context()) if self.tls else socket.create_connection(("127.0.0.1", r.port))

    def ask(self, body, part):
        self.s.sendall(post(body) if part is None else post_head(len(body)) + body[:part])

    def first(self):
        got = b""
        while b"tick" not in got:
            got += self.s.recv(65536)

    def leave(self):
        reset(self.s)


class PlainFin(Plain):
    def leave(self):
        self.s.close()


class Tls(PlainFin):
    tls = True


class TlsReset(Plain):
    tls = True


class Http2:
    """One stream; leaves by RST_STREAM, and the connection must go on."""

    def __init__(self, r, authority):
        self.c = H2(r.port)

    def ask(self, body, part):
        self.c.send(h2.HEADERS, h2.END_HEADERS, 1, h2.request("/v1/chat/completions", "POST", ("content-type", "application/json")))
        self.c.send(h2.DATA, h2.END_STREAM if part is None else 0, 1, body[:part])

    def first(self):
        assert b"tick" in self.c.until(h2.DATA, 1)[3]

    def leave(self):
        self.c.send(h2.RST, 0, 1, h2.CANCEL.to_bytes(4, "big"))
        self.c.ask(3)
        assert self.c.answer(3)[0] == 200
        self.c.close()


class Http2Gone(Http2):
    def leave(self):
        self.c.close()


WAYS = [Plain, PlainFin, Http2, Http2Gone]
TLS_WAYS = [Tls, TlsReset]


def silent(q, gone):
    gone.append(q.gone(30))


def head_alone(q, gone):
    q.sse_head()
    gone.append(q.gone(30))


def streaming(q, gone):
    q.sse_head()
    q.chunk(EVENT)
    gone.append(q.gone(30))


def dripping(q, gone):
    """Events go on: the client's going must be noticed while there is always something to write."""
    q.sse_head()
    with contextlib.suppress(OSError):
        while not q.gone(0.01):
            q.chunk(EVENT)
    gone.append(True)


def left(r, n):
    until(lambda: r.metric("warmpath_client_gone_total") == n, 20, "the client's going being noticed")
    r.at_rest()
    w = r.workers()[0]
    assert w["failed"] == 0 and w["breaker"] == "closed", w


def leaves_everywhere(ways, *args, authority=None):
    mode, gone = {}, []
    e = FakeEngine(lambda q: mode["fn"](q, gone))
    r = Router([e], *args)
    n = 0
    for way in ways:
        for fn, waits in ((silent, False), (head_alone, False), (streaming, True), (dripping, True)):
            mode["fn"] = fn
            client = way(r, authority)
            asked, was = len(e.requests), len(gone)
            client.ask(chat_body(True), None)
            until(lambda: len(e.requests) == asked + 1, 20, "the request at its engine")
            if waits:
                client.first()
            client.leave()
            n += 1
            until(lambda: len(gone) == was + 1, 20, f"the engine being free of {way.__name__} in {fn.__name__}")
            assert gone[-1] is True, (way.__name__, fn.__name__)
            left(r, n)
        client = way(r, authority)  # in the middle of its body: no engine has heard of it
        asked = len(e.requests)
        client.ask(chat_body(pad="x" * 10000), 5000)
        client.leave()
        r.at_rest()
        assert len(e.requests) == asked
        n = int(r.metric("warmpath_client_gone_total"))
    r.end()
    e.close()


def test_in_every_state():
    """over HTTP/1.1 by FIN and RST, over HTTP/2 by RST_STREAM and with the connection: before the answer, behind its head, in mid-stream, in the body"""
    leaves_everywhere(WAYS)


def test_in_every_state_over_tls():
    """the same over TLS, with its end and with a reset of the TCP below it"""
    a = Authority()
    leaves_everywhere(TLS_WAYS, *with_tls(a.sign("server", LOCAL)), authority=a)


class Deaf:
    """An engine whose probes are answered on the connection that they have, and that accepts no other: who connects waits."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.fill = []
        self.deaf = threading.Event()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while not self.deaf.is_set():
                s, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        page = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
        with contextlib.suppress(OSError):
            got = b""
            while piece := s.recv(65536):
                got += piece
                while b"\r\n\r\n" in got:
                    got = got.partition(b"\r\n\r\n")[2]
                    s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))

    def stop_listening(self):
        """Accepts one more, and fills what the kernel accepts by itself."""
        self.deaf.set()
        self.fill.append(socket.create_connection(("127.0.0.1", self.port)))
        for _ in range(8):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", self.port))
            self.fill.append(s)

    def close(self):
        for s in [self.listener, *self.fill]:
            s.close()


def test_while_it_connects():
    """a client that leaves while its worker is being connected to: the attempt ends at once, over HTTP/1.1 and HTTP/2"""
    e = Deaf()
    r = Router([e.url], "--set", "limits.connect_s=600", "--set", "health.interval_s=600")
    e.stop_listening()
    for n, way in enumerate(WAYS):
        client = way(r, None)
        client.ask(chat_body(True), None)
        until(lambda: r.workers()[0]["in_flight"] == 1, 20, "the request on its worker")
        client.leave()
        left(r, n + 1)
    e.close()
    r.end()
