# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 frame by frame (RFC 9113), for what no library's client would do.  Knows just enough HPACK (RFC 7541) to say fields and read a status."""
import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL, TIMEOUT, CLOSED, SIZE, REFUSED, CANCEL, COMPRESSION, CONNECT, CALM = range(12)
INITIAL_WINDOW = 4
STATUS = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}
DIGITS = {"00000": "0", "00001": "1", "00010": "2", "011001": "3", "011010": "4", "011011": "5", "011100": "6", "011101": "7", "011110": "8",
          "011111": "9"}


def number(n):
    """An HPACK integer of a 7-bit prefix."""
    if n < 127:
        return bytes([n])
    out, n = [127], n - 127
    while n >= 128:
        out.append(n % 128 + 128)
        n //= 128
    return bytes([*out, n])


def fields(*pairs):
    return b"".join(b"\x00" + number(len(k)) + k.encode() + number(len(v)) + v.encode() for k, v in pairs)


def request(path, method="GET", *more):
    return fields((":method", method), (":scheme", "http"), (":path", path), (":authority", "x"), *more)


def status(block):
    """Of a block of fields that begins with :status; the table is kept empty (see H2)."""
    while block[0] & 0xE0 == 0x20:
        block = block[1:]
    if block[0] in STATUS:
        return STATUS[block[0]]
    n, text = block[1] & 127, block[2:]
    if not block[1] & 128:
        return int(text[:n])
    bits, out = "".join(f"{b:08b}" for b in text[:n]), ""
    while len(out) < 3:
        size = 5 if bits[:5] in DIGITS else 6
        out += DIGITS[bits[:size]]
        bits = bits[size:]
    return int(out)


class H2:
    def __init__(self, port, settings=(), preface=True, timeout=30):
        settings = [(1, 0), *settings]  # HEADER_TABLE_SIZE
        self.s = socket.create_connection(("127.0.0.1", port), timeout)
        self.buf = b""
        if preface:
            self.s.sendall(PREFACE)
            self.send(SETTINGS, 0, 0, b"".join(struct.pack(">HI", k, v) for k, v in settings))

    def send(self, kind, flags, stream, payload=b""):
        self.s.sendall(frame(kind, flags, stream, payload))

    def ask(self, stream, path="/v1/models", method="GET", *more, body=None):
        self.send(HEADERS, END_HEADERS | (END_STREAM if body is None else 0), stream, request(path, method, *more))
        for at in range(0, len(body or b""), 16384):
            self.send(DATA, END_STREAM if at + 16384 >= len(body) else 0, stream, body[at:at + 16384])

    def window(self, stream, n):
        self.send(WINDOW, 0, stream, struct.pack(">I", n))

    def read(self):
        """(kind, flags, stream, payload), or None at the end.  SETTINGS and PING are answered."""
        while len(self.buf) < 9 or len(self.buf) < 9 + int.from_bytes(self.buf[:3], "big"):
            try:
                more = self.s.recv(65536)
            except ConnectionError:
                more = b""
            if not more:
                return None
            self.buf += more
        n = int.from_bytes(self.buf[:3], "big")
        kind, flags, stream = self.buf[3], self.buf[4], int.from_bytes(self.buf[5:9], "big") & 0x7FFFFFFF
        payload, self.buf = self.buf[9:9 + n], self.buf[9 + n:]
        if kind == SETTINGS and not flags & ACK:
            self.send(SETTINGS, ACK, 0)
        return kind, flags, stream, payload

    def until(self, kind, stream=None):
        """The next frame of that kind, or None at the end."""
        while True:
            f = self.read()
            if f is None or (f[0] == kind and stream in (None, f[2])):
                return f

    def answer(self, stream):
        """(status, body, how it ended: None, or the code of a reset); windows are given back."""
        code, body = None, b""
        while True:
            f = self.read()
            assert f, f"the connection ended before stream {stream} had"
            kind, flags, of, payload = f
            if of != stream:
                continue
            if kind == HEADERS and code is None and status(payload) >= 200:
                code = status(payload)
            if kind == DATA:
                body += payload
                if payload:
                    self.window(0, len(payload))
                    if not flags & END_STREAM:
                        self.window(stream, len(payload))
            if kind == RST:
                return code, body, struct.unpack(">I", payload)[0]
            if flags & END_STREAM and kind in (HEADERS, DATA):
                return code, body, None

    def close(self):
        self.s.close()


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def error_of(goaway):
    return struct.unpack(">I", goaway[3][4:8])[0]
