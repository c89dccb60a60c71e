# SPDX-License-Identifier: Apache-2.0
"""What the modules that play tests/data/cases share: a stage with router and engines, and the rules that hold for every case."""
import contextlib
import json
import re
import selectors
import socket
import threading
import time

from lib import CHAT, DATA, MODEL, FakeEngine, Router, http, play, raw, read_until, slowness, until

CASES = DATA / "cases"
EVENT = b'data: {"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"tick"}}]}\n\n'


def raw_file(name):
    return (CASES / "raw" / f"{name}.http").read_bytes()


def json_file(name):
    return (CASES / "json" / f"{name}.json").read_bytes()


def script(name):
    return (CASES / "sse" / name).read_text()


def response(name):
    return (CASES / "sse" / name).read_bytes()


def code(body):
    return json.loads(body)["error"]["code"]


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None


def check_error(answer, *statuses):
    """A router's own error: one of these statuses, and JSON in OpenAI's shape whose length is right."""
    assert status_of(answer) in statuses, answer[:300]
    head, body = answer.split(b"\r\n\r\n", 1)
    e = json.loads(body)["error"]
    assert set(e) == {"message", "type", "param", "code"} and e["message"], body
    return e


def engine(on_request=None, **kw):
    """A fake engine that always serves the plain request, whatever else it does."""
    def answer(q):
        if b"fk:plain" in q.body or not on_request:
            q.answer(200, CHAT)
        else:
            on_request(q)
    return FakeEngine(answer, **kw)


def served_plainly(r):
    """The router answers the next plain request, once a breaker that the case may have opened lets it."""
    def look():
        got = raw(r.port, raw_file("plain").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1), 5)
        return status_of(got) == 200
    until(look, 10, "a plain request being served")


def rules(r, engines):
    """What holds after every case."""
    assert r.p.poll() is None, "the router has ended"
    served_plainly(r)
    for e in engines:
        assert not [q.target for q in e.requests if "smuggled" in q.target]
    r.at_rest()


@contextlib.contextmanager
def stage(*behaviours, args=(), **kw):
    """A router in front of one fake engine a behaviour (None: it serves); afterwards the rules are checked."""
    engines = [engine(b) for b in behaviours or (None,)]
    r = Router(engines, "--set", "health.interval_s=0.2", *args, **kw)
    yield r, *engines
    rules(r, engines)
    r.end()
    for e in engines:
        e.close()


def send_split(port, data, at):
    """Sends the bytes in two pieces that arrive apart, then reads the answer."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.sendall(data[:at])
        with contextlib.suppress(OSError):
            s.sendall(data[at:])
        got = b""
        s.settimeout(2 * slowness())
        with contextlib.suppress(OSError):
            while piece := s.recv(65536):
                got += piece
        return got


def closing(data):
    """The same request with Connection: close, so that its answer's end is seen at once."""
    return data.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)


def one_answer(s):
    """Reads one answer with a length from a connection that goes on."""
    head = read_until(s, b"\r\n\r\n")
    head, body = head.split(b"\r\n\r\n", 1)
    n = int(re.search(rb"content-length: (\d+)", head, re.I)[1])
    while len(body) < n:
        piece = s.recv(n - len(body))
        assert piece, "closed inside an answer"
        body += piece
    assert len(body) == n
    return head + b"\r\n\r\n" + body


def post_head(length, path="/v1/chat/completions", extra=b""):
    return b"POST %s HTTP/1.1\r\nHost: router.test\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n" % (
        path.encode(), extra, length)


def post(body, path="/v1/chat/completions", extra=b""):
    return post_head(len(body), path, extra) + body


def chat_body(stream=False, **more):
    return json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": stream, **more}).encode()


def open_stream(port, **more):
    """Sends a streaming chat request; the socket is the caller's."""
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(post(chat_body(True, **more)))
    return s


class RawEngine:
    """An engine of bare sockets: conn(s) is called for each connection that is no probe, with the bytes read so far."""

    def __init__(self, conn):
        self.calls = 0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.conn = conn
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _serve(self, s):
        with contextlib.suppress(OSError):
            while True:
                got = b""
                while b"\r\n\r\n" not in got:
                    piece = s.recv(1 << 16)
                    if not piece:
                        return
                    got += piece
                if got.startswith(b"GET "):
                    page = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
                    s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
                    continue
                self.calls += 1
                if not self.conn(s, got, self.calls):
                    return

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Crowd:
    """Many streaming clients in one thread, by a selector: what each has received."""

    def __init__(self, port, n, request):
        self.sel = selectors.DefaultSelector()
        self.got = {}
        self.open = 0
        for _ in range(n):
            s = socket.create_connection(("127.0.0.1", port))
            s.sendall(request)
            s.setblocking(False)
            self.got[s] = bytearray()
            self.sel.register(s, selectors.EVENT_READ)
            self.open += 1

    def pump(self, done, seconds):
        """Reads until done(self) or time is out; true when done."""
        end = time.monotonic() + seconds * slowness()
        while not done(self):
            if time.monotonic() > end:
                return False
            for key, _ in self.sel.select(0.1):
                try:
                    piece = key.fileobj.recv(65536)
                except OSError:
                    piece = b""
                if piece:
                    self.got[key.fileobj] += piece
                else:
                    self.sel.unregister(key.fileobj)
                    self.open -= 1
        return True

    def all_have(self, mark):
        return all(mark in g for g in self.got.values())

    def close(self):
        for s in self.got:
            s.close()


def labels_of(r, name):
    """The series of a metric, as a set of label texts."""
    _, _, page = http(r.admin, "GET", "/metrics")
    return {l.split("{", 1)[1].rsplit("}", 1)[0] for l in page.decode().splitlines() if l.startswith(name + "{")}


__all__ = [n for n in dir() if not n.startswith("_")]
