# SPDX-License-Identifier: Apache-2.0
"""What the checks of real engines share: the engines of a kind, conversations, claims and probes."""
import json
import os
import random
import socket
import threading
import time

import capture
from engine import NAME, RealEngine, cached
import lib
from lib import Router, http, metric, until

LONGEST = 2048
VERSION = "0.32.0"
_kind = None
_engines = []


def fleet(kind, *specs):
    """The engines of a kind, RealEngine's arguments each; started once, after those of the last kind have ended, and anew when
    a check left one of them dead.
    """
    global _kind
    if kind != _kind or not all(e.alive() for e in _engines):
        end_engines()
        _kind = kind
        for i, spec in enumerate(specs):
            _engines.append(RealEngine(VERSION, number=i + 1, **spec))
        try:
            for e in _engines:
                e.ready()
        except AssertionError:
            end_engines()
            raise
    return _engines


def end_engines():
    global _kind
    for e in _engines:
        e.end()
    _engines.clear()
    _kind = None


def pair():
    """Two engines with a model that takes no time and room for 3,072 tokens; one binds its event socket, the other connects.

    The one that connects renders: from 0.32 on that wants a flag.
    """
    scale_out = ("--enable-scale-out",) if VERSION != "0.23.0" else ()
    return fleet("tiny", {"model": "tiny", "tokens": 3072, "events": "ipc"},
                 {"model": "tiny", "tokens": 3072, "events": "dial", "more": scale_out})


def say(text):
    print(f"    {text}", flush=True)


class Talk:
    """Conversations that grow on shared system prompts, drawn from a seed; exact multiples of a block come up often.

    What is new in a prompt is a run of the generator that captures name it by.
    """

    def __init__(self, seed, block, longest=LONGEST):
        self.rng = random.Random(seed)
        self.block, self.longest = block, longest
        self.system = [self.tokens(block * n) for n in (5, 7)] + [self.tokens(block * 4 + 9)]
        self.talks = []

    def tokens(self, n):
        seed = self.rng.randrange(100000)
        return [capture.token(seed, i) for i in range(n)]

    def next(self):
        self.talks = [t for t in self.talks if len(t) < self.longest // 2][-8:]
        if len(self.talks) < 4 or self.rng.random() < 0.25:
            self.talks.append(list(self.rng.choice(self.system)))
        t = self.rng.choice(self.talks)
        t += self.tokens(self.rng.choice([self.block, 2 * self.block, 3 * self.block, 37, 91, 5]))
        return list(t)


def completion(r, prompt, n=8, **more):
    """Through the router: (the header's claim, what the engine had, the answer, the worker)."""
    status, h, body = http(r.port, "POST", "/v1/completions",
                           {"model": NAME, "prompt": prompt, "max_tokens": n, "ignore_eos": True, "temperature": 0, **more}, timeout=120)
    assert status == 200, (status, body)
    body = json.loads(body)
    return int(h["x-warmpath-overlap"].split(";")[0][6:]), cached(body), body, h["x-warmpath-worker"]


def claims(r, **body):
    """What the index claims of a request, by worker (and rank); history and what is under way are not asked."""
    status, _, b = http(r.admin, "POST", "/explain", {"model": NAME, **body})
    assert status == 200, b
    b = json.loads(b)
    ranked = {w["id"] for w in r.workers() if w["ranks"] > 1}
    return {c["worker"] + (f"/{c['rank']}" if c["worker"] in ranked else ""): c["overlap"]["index"] for c in b["candidates"]}, b


def quiet(r, seconds=0.4):
    """No batch of events has come for that long, longer where others use the machine; an engine that runs publishes within a few milliseconds
    of a step."""
    seen, since = None, time.monotonic()
    seconds *= min(max(1.0, os.getloadavg()[0] / os.cpu_count()), 4.0)

    def look():
        nonlocal seen, since
        now = r.metric('warmpath_kv_events_total{kind="batch"}')
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > seconds

    until(look, 30, "the feeds being quiet")


def live(r, n=2):
    until(lambda: (r.metric('warmpath_kv_feed_state{state="live"}') or 0) >= n, 30, f"{n} feeds live")


def router(engines, *args):
    r = Router([e.spec for e in engines], *args, log="info")
    live(r, len(engines))
    quiet(r)
    return r


def nothing_odd(r, doubted=0):
    """No batch was refused, no chain hangs in the air, nothing is in doubt without a cause (None: there was one)."""
    page = http(r.admin, "GET", "/metrics")[2].decode()
    odd = [l for l in page.splitlines() if l.startswith("warmpath_kv_events_total") and not l.endswith(" 0")
           and not any(ok in l for ok in ('result="applied"', 'result="gone"', 'result="duplicate"'))]
    assert not odd, odd
    assert metric(page, "warmpath_index_floating") == 0, metric(page, "warmpath_index_floating")
    assert doubted is None or metric(page, "warmpath_index_doubtful") == doubted, metric(page, "warmpath_index_doubtful")


def probe(r, engines, prompts, **more):
    """Asks each engine itself for each prompt: (probes, differing ones, tokens claimed)."""
    wrong, n, total = [], 0, 0
    for prompt in prompts:
        for e in engines:
            for rank, (name, headers) in enumerate(e.holders()):
                quiet(r, 0.15)
                want = claims(r, prompt=prompt, **more)[0][name]
                c = capture.open_of(e)
                mark = c.mark() if c else None
                got = e.cached(prompt, headers, **more)
                if c:
                    c.expect(mark, prompt, got, rank, **more)
                n += 1
                total += want
                if want != got:
                    wrong.append((name, len(prompt), want, got))
    if n > 1 or wrong:
        say(f"{n} probes, {total} tokens claimed: {len(wrong)} differ {wrong[:5] if wrong else ''}")
    return n, wrong, total


def prefixes(talk, n=8, most=None):
    """Every prefix of each conversation that a block can tell from the others: each exact multiple and one token beyond it, and the
    whole prompt; most of them, drawn from the talk's own seed."""
    out = {}
    for t in talk.talks[-n:]:
        for whole in range(talk.block, len(t) + 1, talk.block):
            for cut in (whole, whole + 1):
                out[tuple(t[:cut])] = True
        out[tuple(t)] = True
    out = [list(p) for p in out]
    talk.rng.shuffle(out)
    return out[:most]


def play(r, talk, n, threads=1, settled=False):
    """n turns; returns those whose header claimed something else than the engine had.  settled: each waits until what the turn before
    has changed is told."""
    wrong, lock, left = [], threading.Lock(), [n]

    def go():
        while True:
            with lock:
                if left[0] == 0:
                    return
                left[0] -= 1
                prompt = talk.next()
            if settled:
                quiet(r, 0.15)
            claim, had, _, worker = completion(r, prompt)
            if claim != had:
                wrong.append((worker, len(prompt), claim, had))

    ts = [threading.Thread(target=go) for _ in range(threads)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return wrong


def stream(r, prompt, n):
    """A stream of the router or of an engine: the socket, on which nothing has been read yet."""
    s = socket.create_connection(("127.0.0.1", r.port))
    body = json.dumps({"model": NAME, "prompt": prompt, "max_tokens": n, "ignore_eos": True, "stream": True}).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    return s


def freed(r, engines, what, seconds):
    started = time.monotonic()
    until(lambda: sum(e.metric("vllm:num_requests_running") for e in engines) == 0, seconds, "the engine being free")
    say(f"{what}: free after {time.monotonic() - started:.2f} s")
    r.at_rest()


def ttft(r, prompt):
    started = time.monotonic()
    s = stream(r, prompt, 2)
    got = lib.read_until(s, b"data: ", 60)
    took = time.monotonic() - started
    if b"[DONE]" not in got:
        lib.read_until(s, b"[DONE]", 60)
    s.close()
    return took
