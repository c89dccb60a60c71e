#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same request to an engine directly and through the router: what differs must be in docs/rewrites.md.

    tests/diff/routed.py build/warmpath [--n 10000] [--seed 1] [--case N]

Requests and answers are made from a seed: bodies with every spelling that JSON has, forms, fields of all kinds, both framings, packets
cut anywhere; answers with any status, with a length, chunked or until the close, event streams with every line end, and answers that
break off.  The engine notes what it was sent, the client what it got.  Each row of the two tables in docs/rewrites.md has a
function here that makes its edit on what went directly; a row without function, or a function without row, is a failure.
A difference prints the case's number, with which it can be run alone.
"""
import argparse
import contextlib
import fcntl
import gzip
import json
import os
import pathlib
import random
import re
import socket
import struct
import sys
import termios
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "e2e"))
import lib  # noqa: E402

MODEL, ALIAS = "test-model", "other name"
HOP = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
STEERING = {b"x-data-parallel-rank", b"x-data-parallel-host-port", b"x-prefiller-host-port", b"x-gateway-destination-endpoint",
            b"x-gateway-destination-endpoint-subset", b"x-smg-target-worker", b"x-worker-id", b"x-request-priority", b"x-conversation-id"}


# --- a connection ----------------------------------------------------------------------------------------------------


class Wire:
    """A socket read by messages: heads as lists of fields, bodies by their framing."""

    def __init__(self, s):
        self.s, self.buf, self.ended = s, b"", False
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.settimeout(60 * lib.slowness())

    def more(self):
        try:
            piece = self.s.recv(1 << 16)
        except ConnectionError:
            raise EOFError("reset")
        if not piece:
            raise EOFError("end")
        self.buf += piece

    def until(self, mark):
        while mark not in self.buf:
            self.more()
        got, _, self.buf = self.buf.partition(mark)
        return got

    def head(self):
        line, *fields = self.until(b"\r\n\r\n").split(b"\r\n")
        return line, [(k, v.strip(b" \t")) for k, _, v in (f.partition(b":") for f in fields)]

    def exactly(self, n, into):
        while n:
            if not self.buf:
                self.more()
            take = self.buf[:n]
            into += take
            self.buf, n = self.buf[len(take):], n - len(take)

    def chunked(self, into):
        while n := int(self.until(b"\r\n").split(b";")[0], 16):
            self.exactly(n, into)
            assert self.until(b"\r\n") == b""
        trailers = []
        with contextlib.suppress(EOFError):  # behind the last chunk nothing is missing (RFC 9112 8)
            while line := self.until(b"\r\n"):
                trailers.append(line)
            return trailers
        self.ended = True
        return trailers

    def to_the_end(self, into):
        try:
            while True:
                into += self.buf
                self.buf = b""
                self.more()
        except EOFError as e:
            if str(e) == "reset":
                raise


def value(fields, name):
    return next((v for k, v in fields if k.lower() == name), None)


def is_chunked(fields):
    return (value(fields, b"transfer-encoding") or b"").lower() == b"chunked"


class Answer:
    """What a client got: the status line, fields, body, and whether it was whole."""

    def __init__(self, wire, minor):
        self.interims = -1
        status = 100
        while 100 <= status < 200:
            self.line, self.fields = wire.head()
            status = int(self.line.split(b" ")[1])
            self.interims += 1
        self.status, self.reason = status, self.line.split(b" ", 2)[2] if self.line.count(b" ") > 1 else b""
        body = bytearray()
        self.whole = True
        length = value(self.fields, b"content-length")
        self.until_close = False
        try:
            if status in (204, 304):
                pass
            elif is_chunked(self.fields):
                wire.chunked(body)
            elif length is not None:
                wire.exactly(int(length), body)
            else:
                self.until_close = True
                wire.to_the_end(body)
        except EOFError:
            self.whole = False
        self.body = bytes(body)
        self.keep = self.whole and not wire.ended and not self.until_close and (value(self.fields, b"connection") or b"").lower() != b"close" and minor


class Engine:
    """Plays the case's answer to whoever asks, and notes what it was asked."""

    def __init__(self):
        self.seen, self.answer = [], None
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            s, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(Wire(s),), daemon=True).start()

    def serve(self, wire):
        wire.s.settimeout(None)
        with contextlib.suppress(EOFError, OSError):
            while True:
                line, fields = wire.head()
                body = bytearray()
                trailers = []
                if (value(fields, b"expect") or b"").lower() == b"100-continue":
                    wire.s.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
                if is_chunked(fields):
                    trailers = wire.chunked(body)
                elif value(fields, b"content-length"):
                    wire.exactly(int(value(fields, b"content-length")), body)
                if line.startswith(b"GET "):  # a probe
                    page = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
                    wire.s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(page), page))
                    continue
                self.seen.append((line, fields, bytes(body), trailers))
                answer = self.answer  # another case's may come before this is over
                for piece in answer.pieces:
                    wire.s.sendall(piece)
                if answer.end == "reset":
                    while fcntl.ioctl(wire.s, termios.TIOCOUTQ, b"\0" * 4) != b"\0" * 4:
                        time.sleep(0.001)  # a reset overtakes what has not arrived
                    wire.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if answer.end != "keep" or line.endswith(b"1.0"):
                    break
        wire.s.close()


# --- making cases ----------------------------------------------------------------------------------------------------


class Make:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.chance = lambda p: self.rng.random() < p
        self.pick = self.rng.choice

    def blank(self):
        return self.pick(("", "", "", " ", "\n", "\t", "\r\n  "))

    def string(self):
        parts = ("a", "hello", " ", "\\n", "\\\"", "\\\\", "\\/", "/", "\\u00e9", "é", "\\ud83d\\ude00", "😀", "\\ud800", "\\u0000", "\\b", "日本", "'", "<", "&",
                 "\u2028", "\x7f", "data: ", "model", "}", "]", ",", ":")
        return '"' + "".join(self.pick(parts) for _ in range(self.rng.randrange(8))) + '"'

    def number(self):
        return self.pick(("0", "-0", "1", "1.0", "1.10", "1e5", "1E+5", "-1.5e-7", "0.1", "3.141592653589793238462643383279", "12345678901234567890123",
                          "1e400", "-1e-400", "9007199254740993", str(self.rng.randrange(10 ** 9))))

    def value(self, depth=0):
        kind = self.rng.randrange(9 if depth < 5 else 6)
        if kind < 2:
            return self.string()
        if kind < 4:
            return self.number()
        if kind < 6:
            return self.pick(("true", "false", "null"))
        items = [self.value(depth + 1) for _ in range(self.rng.randrange(4))]
        if kind == 8:
            return "{" + ",".join(f"{self.blank()}{self.string()}{self.blank()}:{self.blank()}{i}{self.blank()}" for i in items) + "}"
        return "[" + ",".join(self.blank() + i + self.blank() for i in items) + "]"

    def member_name(self):
        return self.pick(('"temperature"', '"top_p"', '"stop"', '"tools_x"', '"x"', '"X"', '"é"', '"a\\u0062"', '"logit_bias"', '"metadata"', '"user"', '"n_x"',
                          '"guided_json"', '"response_format"', '"stream_options"', '""', '"seed"'))

    def messages(self):
        content = self.pick((self.string(), self.string(), f'[{{"type":"text","text":{self.string()}}}]', "null"))
        return "[" + ",".join('{"role":%s,"content":%s%s}' % (self.pick(('"user"', '"system"', '"assistant"')), content,
                                                              self.pick(("", f',"name":{self.string()}'))) for _ in range(self.rng.randrange(1, 4))) + "]"

    def json_body(self, route, stream):
        """(text, the edited text's pattern): members in any order and spelling, some twice."""
        name = self.pick((MODEL, MODEL, MODEL, ALIAS))
        spelt = json.dumps(name) if self.chance(0.8) else '"' + "".join(f"\\u{ord(c):04x}" for c in name) + '"'
        members = [['"model"', spelt, None]]
        if name == ALIAS:
            members[0][2] = re.escape(json.dumps(MODEL).encode())
        if "chat" in route or "messages" in route:
            members.append(['"messages"', self.messages(), None])
        elif "completions" in route:
            members.append(['"prompt"', self.pick((self.string(), "[1, 2,3]", "[[1,2],[3]]", '["a","b"]')), None])
        else:
            members.append(['"input"', self.pick((self.string(), '["a"]')), None])
        if stream:
            members.append(['"stream"', "true", None])
        for key in ('"request_id"', '"rid"'):
            if self.chance(0.08):
                members.append([key, '"' + self.pick(("same", "a b", "\\u00e9")) + '"', rb'"[0-9A-Za-z._:+/=@~-]+-[0-9a-f]+"'])
        if self.chance(0.05):
            members.append(['"vllm_xargs"', '{"kv_cache_report_mode":"full","x":1.0}', rb'\{"x":1\.0\}'])
        for _ in range(self.rng.randrange(6)):
            members.append([self.member_name(), self.value(), None])
        self.rng.shuffle(members)
        text, want = self.blank() + "{", b""
        want = re.escape(text.encode())
        for i, (key, v, edited) in enumerate(members):
            before = f"{',' if i else ''}{self.blank()}{key}{self.blank()}:{self.blank()}"
            after = self.blank()
            text += before + v + after
            want += re.escape(before.encode()) + (edited or re.escape(v.encode())) + re.escape(after.encode())
        tail = "}" + self.blank()
        mark = b"\xef\xbb\xbf" if self.chance(0.05) else b""
        return mark + (text + tail).encode(), mark + want + re.escape(tail.encode())

    def form_body(self):
        boundary = self.pick(("b", "----x1", "a'b"))
        name = self.pick((MODEL, ALIAS))
        file = bytes(self.rng.randrange(256) for _ in range(self.rng.randrange(200))) + self.pick((b"", b"\r\n--", b"--b", b"\r\n\r\n"))
        parts = [b'Content-Disposition: form-data; name="model"\r\n\r\n%s', b'Content-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + file.replace(b"%", b"%%"),
                 b'Content-Disposition: form-data; name="language"\r\nContent-Type: text/plain\r\n\r\nen']
        self.rng.shuffle(parts)
        b = boundary.encode()
        text = b"".join(b"--%s\r\n%s\r\n" % (b, p) for p in parts) + b"--%s--\r\n" % b
        kind = 'multipart/form-data; boundary=' + (boundary if "'" not in boundary else f'"{boundary}"')
        return text % name.encode(), re.escape(text % MODEL.encode()), kind

    def field(self):
        name = self.pick(("X-A", "x-a", "Accept", "User-Agent", "X-Long-Name-Of-A-Field", "Cookie", "OpenAI-Organization", "traceparent", "X_Under", "!odd|",
                          "Authorization", "X-Api-Key", "Accept-Encoding", "Content-Language", "Via", "Forwarded", "X-Forwarded-Host", "Cache-Control", "Range", "ETag"))
        v = self.pick((b"", b"1", b"a, b", b"a  b", b"\xe9\xff", b'"q\\"', b"x" * 300, b"text/event-stream", b"a=b; c=d", b"  lead"[2:], b"=?utf-8?q?=C3=A9?="))
        return (name.encode(), v)

    def request_fields(self):
        out = [self.field() for _ in range(self.rng.randrange(6))]
        if self.chance(0.2):
            out.append((b"X-Forwarded-For", self.pick((b"6.6.6.6", b"1.1.1.1, 2.2.2.2", b""))))
        if self.chance(0.1):
            out.append((b"x-forwarded-for", b"7.7.7.7"))
        if self.chance(0.2):
            out.append((b"X-Request-Id", self.pick((b"r1", b"a b", b"x" * 200, b"\xe9", b"ok-_.:1"))))
        if self.chance(0.1):
            out.append((self.pick((b"X-Worker-Id", b"x-data-parallel-rank", b"X-SMG-Target-Worker", b"x-request-priority", b"X-Conversation-Id")), b"0"))
        if self.chance(0.1):
            out.append((self.pick((b"X-Warmpath-Session", b"x-warmpath-anything")), b"s"))
        if self.chance(0.1):
            out.append((self.pick((b"TE", b"Trailer", b"Keep-Alive", b"Proxy-Authorization", b"proxy-connection", b"Upgrade")), b"x"))
        if self.chance(0.1):
            out += [(b"Connection", self.pick((b"X-Private", b"keep-alive, x-private", b"close, X-PRIVATE"))), (b"X-Private", b"1")]
        self.rng.shuffle(out)
        return out

    def cut(self, data, most=6):
        """Pieces of it, cut anywhere; mostly few."""
        if not data or self.chance(0.5):
            return [data] if data else []
        at = sorted(self.rng.randrange(len(data) + 1) for _ in range(self.rng.randrange(1, most)))
        return [p for p in (data[a:b] for a, b in zip([0, *at], [*at, len(data)])) if p]

    def chunks(self, data):
        out = b""
        for p in self.cut(data, 12):
            out += b"%s%x%s\r\n%s\r\n" % (self.pick((b"", b"", b"0")), len(p), self.pick((b"", b"", b";a=b", b';q="x y"')), p)
        return out + b"0\r\n" + self.pick((b"", b"", b"X-Trailer: 1\r\n")) + b"\r\n"


class Request:
    def __init__(self, m):
        self.route = m.pick(("/v1/chat/completions", "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/rerank",
                             "/v1/messages/count_tokens", "/tokenize", "/generate", "/v1/audio/transcriptions", "/v1/images/edits"))
        self.target = self.route + m.pick(("", "", "", "?", "?a=b&c=%20%2F", "?x=/../y;z"))
        self.stream = "completions" in self.route and m.chance(0.5)
        kind = "application/json"
        if self.route.startswith(("/v1/audio", "/v1/images")):
            self.body, self.edited, kind = m.form_body()
        else:
            self.body, self.edited = m.json_body(self.route, self.stream)
        self.minor = 0 if m.chance(0.05) else 1
        self.fields = [(b"Host", m.pick((b"router.test", b"router.test:80", b"[::1]:8000"))), *m.request_fields()]
        self.fields.insert(m.rng.randrange(len(self.fields) + 1), (m.pick((b"Content-Type", b"content-type")), kind.encode()))
        self.expect = bool(self.minor) and m.chance(0.05)
        if self.expect:
            self.fields.append((b"Expect", m.pick((b"100-continue", b"100-Continue"))))
        if self.minor and m.chance(0.3):
            self.fields.append((b"Transfer-Encoding", m.pick((b"chunked", b"Chunked"))))
            wire = m.chunks(self.body)
        else:
            self.fields.append((m.pick((b"Content-Length", b"content-length")), b"%d" % len(self.body)))
            wire = self.body
        head = b"POST %s HTTP/1.%d\r\n" % (self.target.encode(), self.minor)
        head += b"".join(k + m.pick((b": ", b":", b": \t")) + v + m.pick((b"", b"", b" ")) + b"\r\n" for k, v in self.fields) + b"\r\n"
        self.pieces = m.cut(head + wire) if not self.expect else [head, wire]


class Reply:
    """pieces to send, how the connection ends then, and whether the message is whole."""

    def __init__(self, m, q):
        self.status = m.pick((200,) * 12 + (201, 202, 400, 401, 403, 404, 409, 413, 422, 500, 501, 502, 504, 299, 418, 599, 204, 304)) if m.chance(0.999) else 429
        self.reason = m.pick((b"OK", b"", b"Odd Reason", b"\xe9"))
        self.sse = q.stream and self.status == 200 and m.chance(0.8) or m.chance(0.03)
        body = self.events(m) if self.sse else m.pick((m.value().encode(), b"", b"\x00\xff" * 50, b'{"usage":{"prompt_tokens":3,"completion_tokens":1}}'))
        kind = m.pick((b"text/event-stream", b"text/event-stream; charset=utf-8", b"Text/Event-Stream")) if self.sse else m.pick(
            (b"application/json", b"text/plain", b"application/octet-stream"))
        self.fields = [m.field() for _ in range(m.rng.randrange(5))]
        self.fields = [f for f in self.fields if f[0] != b"Range"] + m.pick(([], [], [(b"Set-Cookie", b"a=1"), (b"set-cookie", b"b=2; Path=/")],
                       [(b"Keep-Alive", b"timeout=500")], [(b"Connection", b"x-private"), (b"X-Private", b"1")], [(b"x-warmpath-worker", b"liar")],
                       [(b"X-Request-Id", b"engine's")], [(b"Date", b"Mon, 30 Nov 2026 13:00:00 GMT")], [(b"Cache-Control", b"private"), (b"X-Accel-Buffering", b"yes")],
                       [(b"Upgrade", b"h2c")], [(b"Trailer", b"X-Trailer")], [(b"Proxy-Authenticate", b"x")]))
        self.coded = m.chance(0.05)
        if self.coded:
            body = gzip.compress(body, mtime=0)
            self.fields.append((b"Content-Encoding", b"gzip"))
        self.fields.insert(m.rng.randrange(len(self.fields) + 1), (b"Content-Type", kind))
        m.rng.shuffle(self.fields)
        bodiless = self.status in (204, 304)
        framing = m.pick(("length", "chunked", "chunked", "close")) if not bodiless else "none"
        head = m.pick((b"", b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n")) if m.chance(0.1) and q.minor and not q.expect else b""
        minor = 0 if framing in ("length", "close") and m.chance(0.05) else 1
        head += b"HTTP/1.%d %d %s\r\n" % (minor, self.status, self.reason)
        wire = b""
        if framing == "length":
            self.fields.append((b"Content-Length", b"%d" % len(body)))
            wire = body
        elif framing == "chunked":
            self.fields.append((b"Transfer-Encoding", m.pick((b"chunked", b"Chunked"))))
            wire = m.chunks(body)
        elif framing == "close":
            wire = body
        self.fields += [(b"Connection", b"close")] if framing == "close" and m.chance(0.5) else []
        head += b"".join(k + b": " + v + b"\r\n" for k, v in self.fields) + b"\r\n"
        self.end = "close" if framing == "close" or minor == 0 else m.pick(("keep",) * 6 + ("close",))
        self.cut_at = None
        if wire and m.chance(0.08) and not q.expect:
            at = m.rng.randrange(len(wire))
            if framing != "close" or m.chance(0.5):
                wire = wire[:at]
                self.end = "reset" if framing == "close" else "close"
                self.cut_at = at
        self.pieces = m.cut(head + wire, 10) if self.cut_at is None else [head, *m.cut(wire)]

    def events(self, m):
        out = b"\xef\xbb\xbf" if m.chance(0.05) else b""
        for i in range(m.rng.randrange(8)):
            eol = m.pick((b"\n", b"\n", b"\n", b"\r\n", b"\r"))
            text = m.pick(('{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":%s}}]}' % m.string(),
                           '{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}', m.value().replace("\n", " ").replace("\r", ""),
                           '{"error":{"message":"boom","code":500}}' if i else "{}", "[DONE]", "x" * m.pick((10, 20000)))).encode()
            lines = m.pick(([b"data: " + text], [b"data:" + text], [b": comment", b"data: " + text], [b"event: e", b"id: 1", b"data: " + text],
                            [b"data: {", b"data: }"], [b"retry: 10"], [b"data"], [b":"], [b"unknown: x", b"data: " + text]))
            out += b"".join(line + eol for line in lines) + eol
        return out + m.pick((b"data: [DONE]\n\n",) * 3 + (b"", b"data: no end"))


# --- the list --------------------------------------------------------------------------------------------------------


def connection_names(fields):
    return {t.strip().lower() for k, v in fields if k.lower() == b"connection" for t in v.split(b",")} - {b"host", b"content-length"}


def without_hops(fields):
    named = connection_names(fields)
    return [(k, v) for k, v in fields if k.lower() not in HOP | named and not k.lower().startswith(b"proxy-")]


def less(*names):
    return lambda c, fields: [(k, v) for k, v in fields if k.lower() not in names]


def forwarded_for(c, fields):
    """The peer behind all that came, at the end."""
    came = [v for k, v in fields if k.lower() == b"x-forwarded-for" and v]
    return less(b"x-forwarded-for")(c, fields) + [(b"x-forwarded-for", b", ".join([*came, b"127.0.0.1"]))]


def request_id(c, fields):
    """A unique part behind the client's own id; ours where that is odd."""
    return less(b"x-request-id")(c, fields) + [(b"x-request-id", ID_PATTERN)]


ID_PATTERN = object()
same = lambda c, x: x  # noqa: E731: made while the case is compared, or by no case of ours

# The rows of docs/rewrites.md by what they are about, in the order in which the edits are made; on a list of fields.
REQUEST_ROWS = {
    "hop-by-hop fields": lambda c, f: without_hops(f),
    "framing": less(b"content-length"),
    "`Host`": lambda c, f: [(b"Host", b"127.0.0.1:%d" % c.engine.port)] + less(b"host")(c, f),
    "`Expect`": less(b"expect"),
    "steering fields": less(*STEERING),
    "`X-Warmpath-*`": lambda c, f: [(k, v) for k, v in f if not k.lower().startswith(b"x-warmpath-")],
    "`Authorization`, `X-Api-Key`": same,  # nobody has a key here
    "path": same,  # the worker's URL has none
    "`X-Request-Id`": request_id,
    "`X-Forwarded-For`": forwarded_for,
    "body member `model`": same,  # Make.json_body() knows the edited text
    "form field `model` of a multipart body (audio, images)": same,
    "body members `request_id`, `rid`": same,
    "body member `vllm_xargs`": same,
    "body member `stream_options`": same,  # confirm is not inject
    "`Accept-Encoding`": same,
}


def event_stream(c, fields):
    if not c.reply.sse:
        return fields
    names = {k.lower() for k, _ in fields}
    return fields + [f for f in ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")) if f[0] not in names]


ANSWER_ROWS = {
    "hop-by-hop fields": lambda c, f: without_hops(f),
    "1xx": same,  # checked where answers are compared
    "framing": less(b"content-length"),
    "`X-Request-Id`": less(b"x-request-id"),
    "`X-Warmpath-*`": lambda c, f: [(k, v) for k, v in f if not k.lower().startswith(b"x-warmpath-")],
    "event streams": event_stream,
    "the usage of a stream that we asked for": same,
    "`Date`": same,
    "a broken event stream": same,
    "a half-closed client on an event stream": same,  # nobody half-closes here
    "a half-closed client before the answer": same,
}


def rows(title):
    """The first cells of the table below a title of docs/rewrites.md."""
    text = (HERE.parents[1] / "docs/rewrites.md").read_text().split(f"## {title}")[1].split("\n## ")[0]
    return [line.split(" | ")[0][2:] for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| what |", "| --- |"))]


# --- comparing -------------------------------------------------------------------------------------------------------


class Case:
    def __init__(self, number, seed, engine):
        m = Make(f"{seed}/{number}")
        self.engine, self.request = engine, Request(m)
        self.reply = Reply(m, self.request)

    def ask(self, port, kept):
        """Sends the request on a kept connection or a new one: (what the engine saw, the answer, the connection if it is good for more)."""
        q, n = self.request, len(self.engine.seen)
        wire = kept if kept and q.minor else Wire(socket.create_connection(("127.0.0.1", port)))
        self.engine.answer = self.reply
        for i, piece in enumerate(q.pieces):
            with contextlib.suppress(ConnectionError):  # an answer may come early
                wire.s.sendall(piece)
            if q.expect and i == 0 and wire.head()[0] != b"HTTP/1.1 100 Continue":
                raise AssertionError("no 100 before the body")
        try:
            a = Answer(wire, q.minor)
        except EOFError as e:
            raise EOFError(f"{'direct' if port == self.engine.port else 'routed'}: {e} in place of an answer, {'kept' if wire is kept else 'new'} connection, "
                           f"the engine was asked {len(self.engine.seen) - n} times")
        keep = a.keep and b"close" not in connection_names(q.fields) and (port != self.engine.port or self.reply.end == "keep")
        if not keep:
            wire.s.close()
        return self.engine.seen[n:], a, wire if keep else None

    def check_request(self, direct, routed):
        (line, fields, body, _), (line2, fields2, body2, trailers) = direct[0], routed[0]
        for row in REQUEST_ROWS.values():
            fields = row(self, fields)
        assert line2.split(b" ")[:2] == line.split(b" ")[:2] and line2.endswith(b"HTTP/1.1"), (line, line2)
        assert not trailers and [v for k, v in fields2 if k.lower() == b"content-length"] == [b"%d" % len(body2)], fields2
        got = [(k, ID_PATTERN if k.lower() == b"x-request-id" and re.fullmatch(rb"[0-9A-Za-z._:+/=@~-]+-[0-9a-f]+", v) else v) for k, v in fields2]
        got = less(b"content-length")(self, got)
        assert sorted(map(repr, got)) == sorted(map(repr, fields)), ("fields of the request", fields, got)
        ours = (b"x-request-id", b"x-forwarded-for")
        assert less(*ours)(self, got) == less(*ours)(self, fields), ("order of the request's fields", fields, got)
        assert re.fullmatch(self.request.edited, body2, re.S), ("body of the request", body, body2)

    def check_answer(self, direct, routed):
        fields = direct.fields
        for row in ANSWER_ROWS.values():
            fields = row(self, fields)
        assert (routed.status, routed.reason) == (direct.status, direct.reason), (direct.line, routed.line)
        assert routed.interims == 0, "an interim answer of the engine's came through"
        known = {k.lower() for k, _ in direct.fields}
        got = [(k, v) for k, v in without_hops(routed.fields) if k.lower() not in (b"content-length", b"x-request-id") and not k.lower().startswith(b"x-warmpath-")]
        if b"date" not in {k.lower() for k, _ in fields}:
            assert value(got, b"date"), "no Date"
            got = less(b"date")(self, got)
        assert got == fields, ("fields of the answer", fields, got)
        mine = value(self.request.fields, b"x-request-id") if b"x-request-id" not in connection_names(self.request.fields) else None
        ident = value(routed.fields, b"x-request-id")
        assert ident == mine if mine in (b"r1", b"ok-_.:1") else re.fullmatch(rb"[0-9a-f]{32}", ident), (mine, ident)
        length = value(direct.fields, b"content-length") if b"transfer-encoding" not in known else None
        if length is not None and direct.status not in (204, 304):
            assert value(routed.fields, b"content-length") == length, (direct.fields, routed.fields)
        self.check_body(direct, routed)

    def check_body(self, direct, routed):
        framed = value(direct.fields, b"content-length") is not None  # then the event has room, or not; the end is missing either way
        if direct.whole or not self.reply.sse or self.reply.coded or (framed and routed.body == direct.body):
            assert routed.body == direct.body and routed.whole == direct.whole, ("body of the answer", direct.whole, routed.whole, direct.body, routed.body)
            return
        assert routed.whole != framed, "an event stream that broke must end in its last chunk"
        came, _, rest = routed.body.rpartition(b'data: {"error":')
        assert came in (direct.body, direct.body + b"\n\n") and rest.endswith(b"}}\n\n"), (direct.body, routed.body)
        assert json.loads(b'{"error":' + rest)["error"]["code"] == "upstream_failed"

    def check(self, port, kept):
        direct = self.ask(self.engine.port, kept.get("direct"))
        routed = self.ask(port, kept.get("routed"))
        kept["direct"], kept["routed"] = direct[2], routed[2]
        if self.before_an_answer(direct[1], routed[1]):
            return
        assert len(routed[0]) == 1, f"the engine was asked {len(routed[0])} times"
        self.check_request(direct[0], routed[0])
        self.check_answer(direct[1], routed[1])

    def before_an_answer(self, direct, routed):
        """A stream that died before its first byte has not been an answer: 502, which is no edit."""
        return self.reply.cut_at is not None and self.reply.sse and not direct.body and routed.status in (502, 503)


def serving(port):
    q = b'{"model":"test-model","messages":[{"role":"user","content":"hi"}]}'

    def look():
        with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as s:
            w = Wire(s)
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(q), q))
            return Answer(w, 1).status == 200
    lib.until(look, 20, "the router serving again")


class Plain:
    pieces, end = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"], "keep"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binary")
    p.add_argument("--n", type=int, default=10000)
    p.add_argument("--seed", default="1")
    p.add_argument("--case", type=int, help="this one alone")
    args = p.parse_args()
    lib.BINARY = os.path.abspath(args.binary)
    failed = passed = 0
    for title, known in (("Requests, on their way to an engine", REQUEST_ROWS), ("Answers, on their way to a client", ANSWER_ROWS)):
        if sorted(rows(title)) != sorted(known):
            print(f"docs/rewrites.md, {title}: rows without a function, or the other way round: {sorted(set(rows(title)) ^ set(known))}")
            failed += 1
    engine = Engine()
    router = lib.Router(config={"models": [{"name": MODEL, "aliases": [ALIAS]}], "workers": [{"url": f"http://127.0.0.1:{engine.port}"}],
                                "health": {"fail": 1000}, "limits": {"rest_max_s": 0}}, ready=1, log="info")
    kept = {}
    for number in [args.case] if args.case is not None else range(args.n):
        case = Case(number, args.seed, engine)
        try:
            case.check(router.port, kept)
            passed += 1
        except Exception as e:  # one case's fault
            failed += 1
            kept = {}
            print(f"case {number} of seed {args.seed} differs: {type(e).__name__}: {str(e)[:1500]}", flush=True)
            if failed > 20:
                break
        if case.reply.status in (429, 503):
            engine.answer = Plain
            serving(router.port)
    router.at_rest()
    lib.end_all()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
