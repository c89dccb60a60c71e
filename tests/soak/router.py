#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The router for as long as one likes, among workers that come and go and clients that misbehave; in the end all is where it was.

    tests/soak/router.py build/warmpath [--seconds 1800] [--seed 1]

Simulated engines are killed, restarted, drained, removed and added; two more cut their streams, reset, stall, and answer rubbish.  Clients
read all, or slowly, or leave: in their body, before the answer, in mid-stream, over HTTP/1.1 and HTTP/2, with a FIN or a reset; others send what is
no HTTP.  The configuration is reloaded meanwhile.  A client that does nothing wrong must get an answer that is one: 200, or an error of
the router's or a rude engine's; never silence, never half of one without a sign.

A tenth of the time is for warming up.  Then the router is left in peace, and its descriptors, its gauges and its size are noted; after the
rest of the time once more.  Gauges must be 0, descriptors as before; of sockets two listeners are left, and at most one kept for the probes of each worker and
one of our own.  Its size may have grown by what the allocator holds in odd places (a sixteenth and 12 MiB).
"""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import socket
import struct
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "e2e"))
import lib  # noqa: E402
from cases import EVENT, chat_body, post, post_head  # noqa: E402
from h2client import CANCEL, DATA, HEADERS, END_STREAM, H2, RST  # noqa: E402
from lib import CHAT, MODEL, Engine, FakeEngine, Router, http, until  # noqa: E402

# What follows requests up and down.  What is learnt (costs, waits, history) has no place where it was.
GAUGES = ("warmpath_worker_in_flight", "warmpath_worker_prefill_backlog_tokens", "warmpath_queue_depth")
CLIENTS = 24


def rude(rng):
    """An engine's ways, one a request."""
    def answer(q):
        draw = rng.random()
        stream = b'"stream": true' in q.body
        if draw < 0.1:
            q.reset()
        elif draw < 0.15:
            q.sock.close()
        elif draw < 0.2:
            q.send(b"HTTP/1.1 2\0 rubbish\r\n\r\n")
        elif draw < 0.25:
            q.answer(500, {"error": {"message": "odd"}})
        elif draw < 0.27:
            q.answer(429, {"error": {"message": "busy"}}, [("Retry-After", "1")])
        elif draw < 0.3:
            q.gone(2)  # silence, for a while
            q.reset()
        elif stream:
            q.sse_head()
            for _ in range(rng.randrange(30)):
                q.chunk(EVENT * rng.choice((1, 1, 50)))
            if draw < 0.5:
                q.reset()
            else:
                q.chunk(b"data: [DONE]\n\n")
                q.end()
        else:
            q.answer(200, {**CHAT, "pad": "x" * rng.choice((1, 100000))})

    def quietly(q):
        with contextlib.suppress(OSError):
            answer(q)
    return quietly


class Fleet:
    """Simulated engines at fixed ports, and rude ones; one thing happens to them now and then."""

    def __init__(self, rng):
        self.rng = rng
        self.engines = [Engine("--speed", "200") for _ in range(3)]
        self.rude = [FakeEngine(rude(random.Random(rng.random()))) for _ in range(2)]
        self.urls = [e.url for e in self.engines] + [e.url for e in self.rude]

    def config(self):
        return {"workers": [{"url": u} for u in self.urls], "health": {"interval_s": 0.3}, "doctor": False,
                "limits": {"first_byte_s": 3, "idle_s": 3, "send_s": 3, "keepalive_s": 5, "body_s": 3, "head_s": 2, "drain_s": 5}}

    def happen(self, router):
        what = self.rng.randrange(5)
        i = self.rng.randrange(len(self.engines))
        if what == 0:  # dies, and comes back
            self.engines[i].kill()
            self.engines[i].p.wait()
            self.engines[i] = Engine("--speed", "200", port=self.engines[i].port)
        elif what == 1:
            assert http(router.admin, "POST", "/reload")[0] == 200
        else:
            workers = router.workers()
            w = self.rng.choice(workers)
            if what == 2:
                http(router.admin, "POST", f"/workers/{w['id']}/drain")
                http(router.admin, "POST", f"/workers/{w['id']}/undrain")
            elif what == 3 and len(workers) > 3:
                http(router.admin, "DELETE", f"/workers/{w['id']}")
                http(router.admin, "POST", "/workers", {"url": w["url"]})
            else:
                os.kill(self.engines[i].p.pid, 19)  # SIGSTOP
                time.sleep(0.7)
                os.kill(self.engines[i].p.pid, 18)

    def whole(self, router):
        """All of them are there again, and well."""
        have = {w["url"] for w in router.workers()}
        for u in self.urls:
            if u not in have:
                http(router.admin, "POST", "/workers", {"url": u})


class Client(threading.Thread):
    """One kind of behaviour after the other, chosen at random."""

    def __init__(self, port, seed):
        super().__init__(daemon=True)
        self.port, self.rng, self.stop = port, random.Random(seed), threading.Event()
        self.kinds, self.wrong = collections.Counter(), []

    def run(self):
        ways = [self.polite, self.polite, self.polite, self.stream, self.stream, self.kept, self.leaves, self.leaves, self.slow, self.in_the_body, self.odd,
                self.http2, self.half_closed, self.large]
        while not self.stop.is_set():
            way = self.rng.choice(ways)
            self.kinds[way.__name__] += 1
            try:
                way()
            except (OSError, AssertionError, ValueError) as e:
                self.wrong.append(f"{way.__name__}: {type(e).__name__}: {e}")

    def connect(self, rcvbuf=0):
        s = socket.socket()
        if rcvbuf:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        s.settimeout(60 * lib.slowness())
        s.connect(("127.0.0.1", self.port))
        return contextlib.closing(s)

    def body(self, stream=False, **more):
        return chat_body(stream, max_tokens=self.rng.choice((1, 8, 64)), user=f"u{self.rng.randrange(50)}", **more)

    def hear(self, s):
        """One whole answer, or one that was cut: its status."""
        got = lib.read_until(s, b"\r\n\r\n", 60)
        while got.startswith(b"HTTP/1.1 1"):
            _, _, got = got.partition(b"\r\n\r\n")
            if b"\r\n\r\n" not in got:
                got += lib.read_until(s, b"\r\n\r\n", 60)
        head, _, rest = got.partition(b"\r\n\r\n")
        status = int(head.split(b" ")[1])
        assert status in (200, 400, 429, 500, 502, 503, 504), head
        length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), None)
        while (len(rest) < length) if length is not None else not rest.endswith(b"0\r\n\r\n"):
            piece = s.recv(1 << 16)
            if not piece:
                return -status  # cut: a rude engine
            rest += piece
        return status

    def polite(self):
        with self.connect() as s:
            s.sendall(post(self.body()))
            self.hear(s)

    def stream(self):
        with self.connect() as s:
            s.sendall(post(self.body(True)))
            assert self.hear(s) > 0, "a stream was cut without a sign"

    def kept(self):
        with self.connect() as s:
            for _ in range(self.rng.randrange(1, 20)):
                s.sendall(post(self.body(self.rng.random() < 0.3)))
                if self.hear(s) < 0:
                    return

    def leaves(self):
        """Somewhere on the way, by a FIN or a reset."""
        with self.connect() as s:
            s.sendall(post(self.body(True)))
            for _ in range(self.rng.randrange(4)):
                s.recv(self.rng.choice((1, 100, 4096)))
            if self.rng.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def slow(self):
        with self.connect(4096) as s:
            s.sendall(post(self.body(True)))
            for _ in range(20):
                if not s.recv(256):
                    break
                time.sleep(0.01)  # its own pace

    def in_the_body(self):
        with self.connect() as s:
            s.sendall(post_head(100000) + b"x" * self.rng.randrange(1000))
            if self.rng.random() < 0.5:
                s.shutdown(socket.SHUT_WR)
                s.recv(1000)

    def odd(self):
        with self.connect() as s, contextlib.suppress(ConnectionError):
            s.sendall(self.rng.choice((b"GARBAGE\r\n\r\n", b"\x16\x03\x01" + b"\0" * 50 + b"\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", post_head(5, extra=b"Transfer-Encoding: chunked\r\n"),
                                       b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 200 + b"\r\n", b"GET /v1/models HTTP/1.1\r\nHost:")))
            s.recv(1000) if self.rng.random() < 0.7 else None

    def half_closed(self):
        with self.connect() as s:
            s.sendall(post(self.body(self.rng.random() < 0.5)))
            s.shutdown(socket.SHUT_WR)
            self.hear(s)

    def large(self):
        with self.connect() as s:
            body = chat_body(pad="x" * self.rng.choice((100000, 2000000)))
            s.sendall(post(body))
            self.hear(s)

    def http2(self):
        c = H2(self.port, timeout=60 * lib.slowness())
        try:
            streams = set()
            for n in range(1, 2 * self.rng.randrange(2, 20), 2):
                c.ask(n, "/v1/chat/completions", "POST", ("content-type", "application/json"), body=self.body(True))
                streams.add(n)
            for n in list(streams):
                if self.rng.random() < 0.4:
                    c.send(RST, 0, n, CANCEL.to_bytes(4, "big"))
                    streams.discard(n)
            if self.rng.random() < 0.3:
                return  # with all that runs
            while streams:
                f = c.read()
                assert f, "the connection ended with streams on it"
                kind, flags, of, payload = f
                if kind == DATA and payload:
                    c.window(0, len(payload))
                    if not flags & END_STREAM and of in streams:
                        c.window(of, len(payload))
                if kind == RST or (kind in (DATA, HEADERS) and flags & END_STREAM):
                    streams.discard(of)
        finally:
            c.close()


def descriptors(r):
    """Of the router, by what they are: sockets, and the rest."""
    out = collections.Counter()
    for fd in os.listdir(f"/proc/{r.p.pid}/fd"):
        with contextlib.suppress(OSError):
            out["socket" if "socket" in os.readlink(f"/proc/{r.p.pid}/fd/{fd}") else "other"] += 1
    return out


def rss_kib(r):
    return int(open(f"/proc/{r.p.pid}/status").read().split("VmRSS:")[1].split()[0])


def gauges(r):
    _, _, page = http(r.admin, "GET", "/metrics")
    return {name: lib.metric(page.decode(), name) for name in GAUGES}


def at_peace(r, fleet):
    """Nobody asks, all workers are up, and kept connections have gone: what the router has then."""
    fleet.whole(r)
    until(lambda: all(w["ready"] for w in r.workers()), 40, "all workers being ready")
    r.at_rest()
    seen = []

    def settled():
        time.sleep(1)
        seen.append(tuple(sorted(descriptors(r).items())))
        return len(seen) > 7 and len(set(seen[-7:])) == 1  # longer than limits.keepalive_s
    until(settled, 120, "the descriptors settling")
    return descriptors(r), gauges(r), rss_kib(r)


def churn(r, fleet, seconds, seed):
    """Clients and accidents for so long."""
    clients = [Client(r.port, f"{seed}/{i}") for i in range(CLIENTS)]
    for c in clients:
        c.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and r.p.poll() is None:
        fleet.happen(r)
        time.sleep(min(1.0, seconds / 20))
    for c in clients:
        c.stop.set()
    for c in clients:
        c.join(120)
        assert not c.is_alive(), "a client waits for ever"
    return sum((c.kinds for c in clients), collections.Counter()), [w for c in clients for w in c.wrong]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binary")
    p.add_argument("--seconds", type=float, default=1800)
    p.add_argument("--seed", default="1")
    args = p.parse_args()
    lib.BINARY = os.path.abspath(args.binary)
    fleet = Fleet(random.Random(args.seed))
    r = Router(config=fleet.config(), ready=len(fleet.urls), log="info")
    failures = []
    churn(r, fleet, args.seconds / 10, "warm")
    before = at_peace(r, fleet)
    kinds, wrong = churn(r, fleet, args.seconds * 9 / 10, args.seed)
    after = at_peace(r, fleet)
    print(f"soak: {sum(kinds.values())} acts of clients: {dict(kinds)}")
    print(f"soak: descriptors {dict(before[0])} then {dict(after[0])}, gauges {before[1]} then {after[1]}, size {before[2]} then {after[2]} KiB")
    if wrong:
        failures.append(f"{len(wrong)} answers that were none: {collections.Counter(wrong).most_common(5)}")
    if after[0]["other"] > before[0]["other"] or any(d["socket"] > 3 + len(fleet.urls) for d in (before[0], after[0])):
        failures.append("descriptors were left behind")
    if any(before[1].values()) or any(after[1].values()):
        failures.append("gauges did not return")
    if not lib.sanitized() and after[2] > before[2] * 17 / 16 + (12 << 10):  # a sanitizer keeps what was freed
        failures.append("the process grew")
    try:
        lib.end_all()
    except AssertionError as e:
        failures.append(str(e)[:3000])
    for f in failures:
        print(f"soak: {f}")
    print(f"{int(not failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
