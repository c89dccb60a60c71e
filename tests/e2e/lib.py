# SPDX-License-Identifier: Apache-2.0
"""What end-to-end tests share: the processes under test, an engine that plays scripts, raw sockets.

Nothing sleeps to synchronise: until() asks again until a condition holds or its time is out, and every process tells its
own port.  Whatever was started is ended by end_all(), by pid, and must have ended well.
"""
from http.client import HTTPConnection
import json
import os
import pathlib
import re
import select
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

BINARY = "build/warmpath"
DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
MODEL = "test-model"
_running = []
_servers = []


class Skip(Exception):
    pass


def slowness():
    """How much slower than a plain build this binary is: limits are stretched by it, nothing is measured with it."""
    return float(os.environ.get("WP_SLOW", "1"))


PATIENCE = 20.0  # seconds at least: what comes late on a busy machine has come


def sanitized():
    """Whether this binary is one that a sanitizer watches."""
    data = pathlib.Path(BINARY).read_bytes()
    return b"__asan_init" in data or b"__tsan_init" in data


def until(condition, seconds=10.0, what="the condition"):
    end = time.monotonic() + max(seconds, PATIENCE) * slowness()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true in {max(seconds, PATIENCE):g} s")
        time.sleep(0.01)  # between two looks, not instead of one


class Process:
    """A warmpath command; its log is gathered and can be waited for."""

    def __init__(self, *args, env=None, stdin=None):
        self.log = []
        self.out = []
        self.expect_exit = 0
        self.p = subprocess.Popen([BINARY, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  stdin=stdin, env={**os.environ, **(env or {})}, errors="replace")
        self.args = args
        self.threads = [threading.Thread(target=self._read, args=(f, to), daemon=True)
                        for f, to in ((self.p.stdout, self.out), (self.p.stderr, self.log))]
        for t in self.threads:
            t.start()
        _running.append(self)

    def _read(self, f, to):
        for line in f:
            to.append(line.rstrip("\n"))
            if os.environ.get("WP_E2E_LOG"):
                print(f"[{self.args[0]} {self.p.pid}] {line}", end="", flush=True)

    def grep(self, pattern, where=None):
        for line in (self.log if where is None else where):
            m = re.search(pattern, line)
            if m:
                return m
        return None

    def wait_log(self, pattern, seconds=10):
        def look():
            m = self.grep(pattern) or self.grep(pattern, self.out)
            if not m and self.p.poll() is not None:
                for t in self.threads:
                    t.join(1)
                m = self.grep(pattern) or self.grep(pattern, self.out)
                if not m:
                    raise AssertionError(f"{self.args[0]} ended with {self.p.returncode}:\n" + "\n".join(self.log[-30:]))
            return m
        return until(look, seconds, f"{self.args[0]} saying {pattern!r}")

    def kill(self, sig=signal.SIGKILL):
        self.expect_exit = None
        self.p.send_signal(sig)

    def end(self, seconds=15):
        """Ends it as an operator would and checks that it ended well: exit 0 and nothing of a sanitizer in its log."""
        if self in _running:
            _running.remove(self)
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGCONT)
            self.p.send_signal(signal.SIGTERM)
        try:
            self.p.wait(seconds * slowness())
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()
            raise AssertionError(f"{self.args[0]} did not end on SIGTERM:\n" + "\n".join(self.log[-30:]))
        for t in self.threads:
            t.join(5)
        bad = [l for l in self.log if re.search(r"ERROR: \w*Sanitizer|runtime error:|WARNING: ThreadSanitizer|detected memory leaks", l)]
        if bad:
            raise AssertionError("\n".join(self.log[-120:]))
        if self.expect_exit is not None and self.p.returncode != self.expect_exit:
            raise AssertionError(f"{self.args[0]} ended with {self.p.returncode}, want {self.expect_exit}:\n" + "\n".join(self.log[-40:]))


def end_all():
    errors = []
    for s in list(_servers):
        s.close()
    for p in list(reversed(_running)):
        try:
            p.end()
        except AssertionError as e:
            errors.append(str(e))
    if errors:
        raise AssertionError("\n".join(errors))


class Engine(Process):
    """`warmpath engine` on a free port."""

    def __init__(self, *args, model=MODEL, port=0, **kw):
        super().__init__("engine", "--listen", f"127.0.0.1:{port}", "--model", model, *args, **kw)
        self.port = int(self.wait_log(r"listening on 127\.0\.0\.1:(\d+)")[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def metric(self, name):
        _, _, body = http(self.port, "GET", "/metrics")
        return metric(body.decode(), name)


class Router(Process):
    """`warmpath serve` on free ports, ready when `ready` of its workers are."""

    def __init__(self, workers=(), *args, config=None, ready=None, log="debug", env=None):
        more = []
        if config is not None:
            f = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False)
            f.write(config if isinstance(config, str) else json.dumps(config))
            f.close()
            self.file = f.name
            more += ["-c", f.name]
        for w in workers:
            more += ["--worker", w if isinstance(w, str) else w.url]
        super().__init__("serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-level", log, *more,
                         *os.environ.get("WP_E2E_SERVE", "").split(), *args, env=env)  # as in WP_E2E_SERVE="--threads 3"
        m = self.wait_log(r"api=127\.0\.0\.1:(\d+) admin=127\.0\.0\.1:(\d+)")
        self.port, self.admin = int(m[1]), int(m[2])
        want = len(workers) if ready is None else ready
        if want:
            until(lambda: sum(w["ready"] for w in self.workers()) >= want, 20, "workers being ready")

    def workers(self):
        return self.get("/workers")["workers"]

    def get(self, path):
        status, _, body = http(self.admin, "GET", path)
        assert status == 200, (status, body)
        return json.loads(body)

    def metric(self, name):
        _, _, body = http(self.admin, "GET", "/metrics")
        return metric(body.decode(), name)

    def at_rest(self):
        """Gauges return to 0 when nothing is under way."""
        until(lambda: all(w["in_flight"] == 0 and w["prefill_backlog_tokens"] == 0 for w in self.workers()), 10, "in_flight 0")
        until(lambda: self.get("/index")["in_flight_blocks"] == 0, 10, "no blocks in flight")


def metric(page, name):
    """The sum of a metric's series whose name (and labels, when given) are these; None when there is none."""
    want, _, labels = name.partition("{")
    total = None
    for line in page.splitlines():
        m = re.match(r"([\w:]+)(?:\{(.*)\})? (\S+)$", line)
        if m and m[1] == want and all(l in (m[2] or "") for l in labels.rstrip("}").split(",") if l):
            total = (total or 0) + float(m[3])
    return total


def http(port, method, path, body=None, headers=None, timeout=30):
    """One request on a connection of its own: (status, headers, body)."""
    c = http_client(port, timeout)
    try:
        c.request(method, path, body=json.dumps(body) if isinstance(body, (dict, list)) else body,
                  headers={**({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})})
        r = c.getresponse()
        return r.status, r.headers, r.read()
    finally:
        c.close()


def http_client(port, timeout=30):
    return HTTPConnection("127.0.0.1", port, timeout=timeout * slowness())


def chat(port, stream=False, headers=None, **body):
    return http(port, "POST", "/v1/chat/completions",
                {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": stream, **body}, headers)


def raw(port, data, seconds=5.0):
    """Sends bytes, then reads until close or that long a silence."""
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(data)
        return read_all(s, seconds)


def read_all(s, seconds=5.0):
    got = b""
    while select.select([s], [], [], seconds * slowness())[0]:
        try:
            piece = s.recv(65536)
        except ConnectionResetError:
            break
        if not piece:
            break
        got += piece
    return got


def read_until(s, mark, seconds=10.0):
    got = b""
    end = time.monotonic() + max(seconds, PATIENCE) * slowness()
    while mark not in got:
        left = end - time.monotonic()
        assert left > 0 and select.select([s], [], [], left)[0], f"no {mark!r} in {got[-500:]!r}"
        piece = s.recv(65536)
        assert piece, f"closed before {mark!r}: {got[-500:]!r}"
        got += piece
    return got


def reset(s):
    """Closes with RST."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


class Request:
    """What a fake engine was sent, and the socket to answer on."""

    def __init__(self, engine, sock, head, body, number):
        self.engine, self.sock, self.head, self.body, self.number = engine, sock, head, body, number
        line, *fields = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = line.split(" ", 2)
        self.fields = [tuple(f.split(": ", 1)) for f in fields if f]
        self.headers = {k.lower(): v for k, v in self.fields}

    def json(self):
        return json.loads(self.body)

    def send(self, data):
        self.sock.sendall(data)

    def answer(self, status=200, body=b"{}", headers=(), reason="OK"):
        body = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.send((head + "".join(f"{k}: {v}\r\n" for k, v in headers) + "\r\n").encode() + body)

    def sse_head(self, extra=""):
        self.send(f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n{extra}\r\n".encode())

    def chunk(self, data):
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def end(self):
        self.send(b"0\r\n\r\n")

    def reset(self):
        reset(self.sock)

    def gone(self, seconds=10):
        """Waits until the router has closed this connection; true when it did."""
        end = time.monotonic() + seconds * slowness()
        while time.monotonic() < end:
            if select.select([self.sock], [], [], 0.05)[0]:
                try:
                    if not self.sock.recv(4096):
                        return True
                except OSError:
                    return True
        return False


CHAT = {"id": "c1", "object": "chat.completion", "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}}


class FakeEngine:
    """An engine whose answers are a function.  on_request(r) answers in a thread of the connection; health and model list
    are answered by itself unless health(r) is given.  Every API request is kept in .requests."""

    def __init__(self, on_request=None, model=MODEL, health=None, port=0):
        self.on_request = on_request or (lambda r: r.answer(200, CHAT))
        self.health = health
        self.model = model
        self.requests = []
        self.connections = 0
        self.lock = threading.Lock()
        self.sockets = set()
        self.listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.closed = False
        threading.Thread(target=self._accept, daemon=True).start()
        _servers.append(self)

    def close(self):
        self.closed = True
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        with self.lock:
            for s in self.sockets:
                try:
                    s.close()
                except OSError:
                    pass
        if self in _servers:
            _servers.remove(self)

    def _accept(self):
        while not self.closed:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.lock:
                self.sockets.add(s)
                self.connections += 1
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _serve(self, s):
        left = b""
        try:
            while True:
                while b"\r\n\r\n" not in left:
                    piece = s.recv(65536)
                    if not piece:
                        return
                    left += piece
                head, left = left.split(b"\r\n\r\n", 1)
                m = re.search(rb"\r\ncontent-length: *(\d+)", head, re.I)
                n = int(m[1]) if m else 0
                body = bytearray(left[:n])
                left = left[n:]
                while len(body) < n:
                    piece = s.recv(min(n - len(body), 1 << 20))
                    if not piece:
                        return
                    body += piece
                body = bytes(body)
                r = Request(self, s, head, body, len(self.requests))
                self._answer(r)
                if s.fileno() < 0:
                    return
        except OSError:
            return
        finally:
            with self.lock:
                self.sockets.discard(s)
            try:
                s.close()
            except OSError:
                pass

    def _answer(self, r):
        if r.method == "GET" and r.target in ("/health", "/v1/models", "/metrics", "/kv_event_sources"):
            if self.health:
                self.health(r)
            elif r.target in ("/metrics", "/kv_event_sources"):
                r.answer(404, b"{}", reason="Not Found")
            else:
                r.answer(200, {"object": "list", "data": [{"id": self.model, "object": "model"}]})
            return
        with self.lock:
            r.number = len(self.requests)
            self.requests.append(r)
        self.on_request(r)


def play(r, script):
    """Plays a .sse script of tests/data/cases/sse to a request."""
    eol, each, text = b"\n", 0, b""

    def flush():
        nonlocal text
        while text:
            piece = text[:each] if each else text
            text = text[len(piece):]
            r.chunk(piece)

    def run(lines):
        nonlocal eol, each, text
        i = 0
        while i < len(lines):
            line = lines[i]
            i += 1
            word, _, rest = line.partition(" ")
            if line.startswith("#"):
                continue
            if not line.startswith("!"):
                text += line.encode() + eol
            elif word == "!flush":
                flush()
            elif word == "!wait":
                flush()
                time.sleep(int(rest) / 1000)  # the script's own pace
            elif word == "!each":
                each = int(rest)
            elif word == "!eol":
                eol = b"\r\n"
            elif word == "!repeat":
                end = i
                while lines[end] != "!again":
                    end += 1
                for _ in range(int(rest)):
                    run(lines[i:end])
                i = end + 1
            elif word == "!raw":
                flush()
                r.send(rest.replace("\\r", "\r").replace("\\n", "\n").encode())
            elif word == "!end":
                flush()
                r.end()
                return True
            elif word == "!fin":
                flush()
                r.sock.close()
                return True
            elif word == "!rst":
                flush()
                r.reset()
                return True
        return False

    r.sse_head()
    if not run(script.splitlines()):
        flush()
        if "!raw" not in script:
            r.end()
