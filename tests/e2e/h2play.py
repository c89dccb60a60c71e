# SPDX-License-Identifier: Apache-2.0
"""Plays the scripts of tests/data/cases/h2 (tests/data/cases/README.md says how they read)."""
import re
import select
import struct
import time

import h2client as h2
from cases import CASES
from h2client import END_HEADERS, END_STREAM, H2
from lib import PATIENCE, slowness

KINDS = {"DATA": h2.DATA, "HEADERS": h2.HEADERS, "RST_STREAM": h2.RST, "SETTINGS": h2.SETTINGS, "PING": h2.PING, "GOAWAY": h2.GOAWAY,
         "WINDOW_UPDATE": h2.WINDOW, "CONTINUATION": h2.CONTINUATION}
FLAGS = {"-": 0, "END_STREAM": END_STREAM, "END_HEADERS": END_HEADERS}
MAX_STREAMS = 128  # what the router announces


def payload(text):
    """Hex, `-` for nothing, HEX*N repeated."""
    piece, _, times = text.partition("*")
    return b"" if piece == "-" else bytes.fromhex(piece) * int(times or 1)


class Player:
    """One script at a port.  What comes is gathered: .frames of the connection at hand, all connections' in .past.

    give_back: the windows of what came are opened again.  enough(player): what a `wait` waits for, at most as long as it says times four.
    after(player, words) is called behind each line that was played.
    """

    def __init__(self, port, name, give_back=True, deaf=False, enough=None, after=None):
        self.port, self.give_back, self.deaf, self.enough, self.after = port, give_back, deaf, enough, after
        self.past, self.frames, self.streams, self.broken = [], [], [], False
        self.lines = [line.split("   #")[0].strip() for line in (CASES / "h2" / f"{name}.txt").read_text().splitlines()]
        self.connect()

    def connect(self):
        self.c = H2(self.port, preface=False)
        self.owed = b""  # acknowledgements and windows: behind what is being sent
        self.frames, self.streams, self.broken, self.closed = [], [], False, False

    def send(self, data):
        """All of it, reading meanwhile what comes, unless the player is deaf."""
        self.c.s.setblocking(False)
        try:
            while (data or self.owed) and not self.broken:
                if not data:
                    data, self.owed = self.owed, b""
                ready = select.select([] if self.deaf else [self.c.s], [self.c.s], [], PATIENCE * slowness())
                if not ready[0] and not ready[1]:
                    break  # the router takes no more
                if ready[0] and not self.take():
                    break
                if ready[1]:
                    data = data[self.c.s.send(data):]
        except (ConnectionError, BlockingIOError):
            self.broken = self.broken or not self.deaf
        return not data

    def take(self):
        """Reads what is there; false at the end."""
        try:
            piece = self.c.s.recv(1 << 16)
        except BlockingIOError:
            return True
        except ConnectionError:
            piece = b""
        self.broken = self.closed = self.broken or not piece
        self.c.buf += piece
        while len(self.c.buf) >= 9 and len(self.c.buf) >= 9 + int.from_bytes(self.c.buf[:3], "big"):
            n = int.from_bytes(self.c.buf[:3], "big")
            kind, flags, stream = self.c.buf[3], self.c.buf[4], int.from_bytes(self.c.buf[5:9], "big") & 0x7FFFFFFF
            body, self.c.buf = self.c.buf[9:9 + n], self.c.buf[9 + n:]
            self.frames.append((kind, flags, stream, body))
            if kind == h2.SETTINGS and not flags & h2.ACK:
                self.owed += h2.frame(h2.SETTINGS, h2.ACK, 0)
            if kind == h2.DATA and n and self.give_back:
                self.owed += h2.frame(h2.WINDOW, 0, 0, struct.pack(">I", n))
                if not flags & END_STREAM:
                    self.owed += h2.frame(h2.WINDOW, 0, stream, struct.pack(">I", n))
        return not self.broken

    def pump(self, done, seconds=PATIENCE):
        """Reads until done() or the end or the time is over; whether it is done."""
        end = time.monotonic() + max(seconds, 0) * slowness()
        self.c.s.setblocking(False)
        while not done():
            left = end - time.monotonic()
            if left <= 0 or self.broken:
                return done()
            if select.select([self.c.s], [], [], left)[0] and self.take():
                self.send(b"")
        return True

    def has(self, kind, stream=None):
        return any(f[0] == kind and stream in (None, f[2]) for f in self.frames)

    def ended(self, stream):
        """How a stream ended: "end", the code of its reset, or None when it has not."""
        for kind, flags, of, body in self.frames:
            if of == stream and kind == h2.RST:
                return int.from_bytes(body, "big")
            if of == stream and kind in (h2.DATA, h2.HEADERS) and flags & END_STREAM:
                return "end"
        return None

    def status(self, stream):
        got = [h2.status(f[3]) for f in self.frames if f[0] == h2.HEADERS and f[2] == stream]
        return next((s for s in got if s >= 200), None)

    def body(self, stream):
        return b"".join(f[3] for f in self.frames if f[0] == h2.DATA and f[2] == stream)

    def request(self, file):
        body = (CASES / file).read_bytes()
        self.streams.append(self.streams[-1] + 2 if self.streams else 1)
        head = h2.request("/v1/chat/completions", "POST", ("content-type", "application/json"), ("content-length", str(len(body))))
        self.send(h2.frame(h2.HEADERS, END_HEADERS, self.streams[-1], head) + h2.frame(h2.DATA, END_STREAM, self.streams[-1], body))

    def line(self, words):
        if words[0] == "PREFACE":
            self.send(h2.PREFACE)
        elif words[0] == "RECONNECT":
            self.past.append((self.frames, self.broken))
            self.c.close()
            self.connect()
        elif words[0] == "REQUEST":
            self.request(words[2])
        elif words[0] == "wait-for":
            self.pump(lambda: self.has(KINDS[words[1]], int(words[2])))
        else:
            kind, flags, stream, body = KINDS[words[0]], FLAGS[words[1]], words[2], payload(words[3])
            for of in self.streams if stream == "each" else [int(stream)]:
                if kind == h2.HEADERS:
                    self.streams.append(of)
                self.send(h2.frame(kind, flags, of, body))

    def play(self, upto=None):
        """Plays the lines that are left, or those before the first that begins with upto."""
        while self.lines:
            text = self.lines[0]
            if upto and text.startswith(upto):
                return self
            self.lines.pop(0)
            words = text.split()
            if not words or text.startswith("#"):
                continue
            times = 1
            m = re.fullmatch(r"x(@MAX@|\d+)", words[0])
            if m:
                times = MAX_STREAMS if m[1] == "@MAX@" else int(m[1])
                words = words[1:]
            if words[0] == "wait":
                self.pump(lambda: self.enough and self.enough(self), max(int(words[1]) / 250, PATIENCE) if self.enough else int(words[1]) / 1000)
                continue
            if times > 500:  # a flood goes out at once
                self.send(h2.frame(KINDS[words[0]], FLAGS[words[1]], int(words[2]), payload(words[3])) * times)
                continue
            for _ in range(times):
                self.line(words)
                if self.after:
                    self.after(self, words)
        return self

    def close(self):
        self.c.close()
