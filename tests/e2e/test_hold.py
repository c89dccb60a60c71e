# SPDX-License-Identifier: Apache-2.0
"""Late binding: while no worker is free requests wait in the router, and go, the cheapest first, to whoever is free first."""
import collections
import json
import pathlib
import socket
import threading

import lib
from lib import MODEL, Engine, FakeEngine, Router, http, until

# Prompts of the default profile, at speed 1: 3 s (more where all is slow: what comes meanwhile must find it at work), 1 s, 40 ms.
FIRST, LONG, SHORT = int(45000 * min(lib.slowness(), 3)), 18000, 600


def prompt(seed, n):
    return [1000 + (k * 7919 + seed * 104729) % 100000 for k in range(n)]


class Asked(threading.Thread):
    """A request in a thread of its own: when its head came, and what it said."""

    def __init__(self, r, seed, n, order=None, headers=None, **more):
        super().__init__(daemon=True)
        self.r, self.seed, self.order, self.headers = r, seed, order, headers
        self.body = {"model": MODEL, "prompt": prompt(seed, n), "max_tokens": 1, "stream": True, **more}
        self.start()

    def run(self):
        self.status, self.h, self.got = http(self.r.port, "POST", "/v1/completions", self.body, self.headers, timeout=60)
        if self.order is not None:
            self.order.append(self.seed)

    def held_ms(self):
        self.join(60)
        assert self.status == 200, (self.status, self.got)
        return int(self.h["x-warmpath-held-ms"])


def held(r, n):
    until(lambda: r.metric("warmpath_queue_depth") == n, 15, f"{n} held")


def show(r):
    """Lets the only worker show what it costs: until then nobody is held for more than 2 s."""
    n = 0
    while r.workers()[0]["calibration"]["samples"] < 16:
        assert n < 100, r.workers()[0]["calibration"]
        Asked(r, 900 + n, SHORT).held_ms()
        n += 1
    return n


def rest(r):
    r.at_rest()
    assert r.metric("warmpath_queue_depth") == 0


def test_the_cheapest_goes_first():
    """while a long prefill keeps the only worker busy, short and long ones that came later are held and go in order of cost; all are answered"""
    e = Engine()
    r = Router([e])
    show(r)
    order = []
    first = Asked(r, 1, FIRST, order)
    until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first")
    later = []
    for i, (seed, n) in enumerate(((2, LONG), (3, SHORT), (4, LONG + 2000), (5, SHORT + 200))):
        later.append(Asked(r, seed, n, order))
        held(r, i + 1)
    ms = {a.seed: a.held_ms() for a in (first, *later)}
    assert ms[1] == 0 and all(ms[s] > 0 for s in (2, 3, 4, 5)), ms
    assert ms[3] < ms[4] and ms[5] < ms[4] and order[-1] == 4, ("shortest first", ms, order)
    assert order.index(3) < order.index(2) < order.index(4) and order.index(5) < order.index(4), order
    assert r.metric("warmpath_queue_wait_seconds_count") == 4
    over = int(later[0].h["x-warmpath-overhead-us"])
    assert over < 1000 * ms[2], ("queueing is no overhead", over, ms)
    rest(r)


def test_a_worker_that_has_shown_nothing():
    """while a worker has shown nothing its wait is a guess: who is held goes out after 2 s, though the engine takes none until it has two"""
    both = threading.Event()
    e = FakeEngine(lambda q: (both.set() if len(e.requests) == 2 else None, both.wait(30), q.answer(200, {"choices": [], "usage": None})))
    r = Router([e])
    a, b = Asked(r, 1, FIRST), None
    until(lambda: len(e.requests) == 1, 10, "the first at the engine")
    b = Asked(r, 2, SHORT)
    assert a.held_ms() == 0 and 1000 <= b.held_ms() < 15000
    rest(r)


def test_nobody_is_held_while_somebody_is_free():
    """a second, idle worker takes the next one at once; only the third waits, and goes to whoever is free first"""
    a, b = Engine(), Engine()
    r = Router([a, b])
    one = Asked(r, 1, FIRST)
    until(lambda: sum(w["in_flight"] for w in r.workers()) == 1, 10, "the first")
    two = Asked(r, 2, FIRST)
    until(lambda: sum(w["in_flight"] for w in r.workers()) == 2, 10, "the second")
    three = Asked(r, 3, SHORT)
    held(r, 1)
    assert one.held_ms() == 0 and two.held_ms() == 0 and three.held_ms() > 0
    assert {one.h["x-warmpath-worker"], two.h["x-warmpath-worker"]} == {f"127.0.0.1:{a.port}", f"127.0.0.1:{b.port}"}
    rest(r)


def test_a_client_that_leaves_while_it_is_held():
    """its place in the queue is gone at once, no engine ever sees it, and those behind it are served"""
    e = Engine()
    r = Router([e])
    shown = show(r)
    first = Asked(r, 1, FIRST)
    until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first")
    body = json.dumps({"model": MODEL, "prompt": prompt(2, SHORT), "max_tokens": 1}).encode()
    s = socket.create_connection(("127.0.0.1", r.port))
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    held(r, 1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    s.close()
    held(r, 0)
    third = Asked(r, 3, SHORT)
    assert first.held_ms() == 0 and third.held_ms() >= 0
    assert r.metric("warmpath_client_gone_total") == 1
    rest(r)
    assert sum(w["requests"] for w in r.workers()) == shown + 2, "the engine was never asked"


def test_the_bound_of_the_queue():
    """beyond limits.queue held ones a request is answered 429, queue, with Retry-After; 0 holds nobody; a policy without a price holds nobody"""
    for more, may_hold in ((("--set", "limits.queue=2"), True), (("--set", "limits.queue=0"), False), (("--policy", "least_loaded"), False),
                           (("--set", "policy.price.hold_max=0"), False)):
        e = Engine("--speed", 4)
        r = Router([e], *more, config={"models": [{"name": MODEL, "speed": 4}]}, ready=1)
        first = [Asked(r, 1, 3 * FIRST)]
        until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first")
        if not may_hold:
            first += [Asked(r, s, SHORT) for s in (2, 3, 4)]
            until(lambda: r.workers()[0]["in_flight"] == 4, 10, "all on the worker")
            assert r.metric("warmpath_queue_depth") == 0
            assert [a.held_ms() for a in first] == [0] * 4
        else:
            first += [Asked(r, 2, SHORT)]
            held(r, 1)
            first += [Asked(r, 3, SHORT)]
            held(r, 2)
            status, h, got = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt(4, SHORT)})
            error = json.loads(got)["error"]
            assert (status, error["code"], error["param"]) == (429, "overloaded", "queue"), got
            assert 1 <= int(h["retry-after"]) <= 5
            assert all(a.held_ms() > 0 for a in first[1:])
        rest(r)
        r.end()


def test_requests_wait_for_a_place_on_a_worker():
    """limits.per_worker no longer answers 429 while the queue has room: who finds all places taken is held until one is free"""
    go = threading.Event()

    def answer(q):
        go.wait(20)
        q.answer(200, lib.CHAT)
    e = FakeEngine(answer)
    r = Router([e], "--set", "limits.per_worker=1")
    one = Asked(r, 1, 50)
    until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first")
    two = Asked(r, 2, 50)
    held(r, 1)
    go.set()
    assert one.held_ms() == 0 and two.held_ms() >= 0
    rest(r)


def test_a_wait_that_would_be_too_long():
    """far more than the fleet can do, from everybody alike: who would be held for longer than hold_most_us is told so at once, with Retry-After"""
    turn = threading.Semaphore(1)

    def answer(q):
        with turn:
            threading.Event().wait(0.04)  # what it computes
            q.answer(200, lib.CHAT)
    e = FakeEngine(answer)
    r = Router([e], "--set", "limits.per_worker=1", "--set", "policy.price.hold_most_us=400000")
    said = []

    def ask():
        for _ in range(6):
            status, h, got = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt(1, 50)}, timeout=60)
            said.append((status, json.loads(got)["error"]["param"] if status != 200 else None, h["retry-after"]))
    all_ = [threading.Thread(target=ask, daemon=True) for _ in range(60)]
    for t in all_:
        t.start()
    for t in all_:
        t.join(120 * lib.slowness())
    assert len(said) == 360 and {s[0] for s in said} == {200, 429}, collections.Counter(s[:2] for s in said)
    assert {s[1] for s in said if s[0] == 429} == {"queue"} and all(1 <= int(s[2]) <= 60 for s in said if s[0] == 429)
    rest(r)


def test_a_prompt_that_fits_few_or_none():
    """a prompt that fits no worker is 400 at once, however busy they are; one that fits one of them alone goes there, and is held for it"""
    go = threading.Event()

    def answer(q):
        go.wait(30)
        q.answer(200, lib.CHAT)
    small, large = FakeEngine(answer), FakeEngine(answer)
    r = Router(config={"workers": [{"url": small.url, "max_model_len": 500}, {"url": large.url, "max_model_len": 5000}], "limits": {"per_worker": 1}}, ready=2)
    one = Asked(r, 1, 1000)
    until(lambda: len(large.requests) == 1, 10, "the first")
    two = Asked(r, 2, 1000)
    held(r, 1)
    three = Asked(r, 3, 50)
    until(lambda: len(small.requests) == 1, 10, "the third")
    status, h, got = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt(4, 5001)})
    error = json.loads(got)["error"]
    assert (status, error["code"], h["x-should-retry"]) == (400, "context_too_long", "false") and "5001" in error["message"] and "5000" in error["message"], got
    assert (len(small.requests), len(large.requests)) == (1, 1)
    go.set()
    assert one.held_ms() == 0 and two.held_ms() >= 0 and three.held_ms() == 0
    assert (len(small.requests), len(large.requests)) == (1, 2)
    rest(r)


def test_the_longest_hold():
    """at policy.price.hold_most_us, or half of what a client says it waits, a request goes out whoever is free"""
    for more, headers in ((("--set", "policy.price.hold_most_us=300000"), None), ((), {"x-stainless-read-timeout": "1"}), ((), {"x-stainless-read-timeout": "1.0"})):
        e = Engine()
        r = Router([e], *more)
        first = Asked(r, 1, FIRST)
        until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first")
        second = Asked(r, 2, SHORT, headers=headers)
        held(r, 1)
        until(lambda: r.workers()[0]["in_flight"] == 2, 10, "both on the worker")
        assert second.held_ms() >= 290 and first.held_ms() == 0
        rest(r)
        r.end()


def test_a_router_that_ends():
    """held requests are served while the router drains; when its patience is over they are told so"""
    e = Engine()
    r = Router([e])
    show(r)
    all_ = [Asked(r, 1, FIRST)]
    until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first")
    all_.append(Asked(r, 2, SHORT))
    held(r, 1)
    r.p.terminate()
    assert all_[1].held_ms() > 0 and all_[0].held_ms() == 0
    r.end()

    r = Router([e], "--set", "limits.drain_s=0.2")
    show(r)
    all_ = [Asked(r, 11, FIRST)]
    until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first")
    all_.append(Asked(r, 12, SHORT))
    held(r, 1)
    r.p.terminate()
    all_[1].join(20)
    assert all_[1].status == 503 and json.loads(all_[1].got)["error"]["param"] == "drain", all_[1].got
    r.end()


def test_a_reload_that_ends_holding():
    """limits.queue: 0 by a reload sends everybody who is held"""
    e = Engine()
    conf = {"workers": [{"url": e.url}]}
    r = Router(config=conf, ready=1)
    show(r)
    first = Asked(r, 1, FIRST)
    until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first")
    later = [Asked(r, s, SHORT) for s in (2, 3)]
    held(r, 2)
    pathlib.Path(r.file).write_text(json.dumps({**conf, "limits": {"queue": 0}}))
    assert http(r.admin, "POST", "/reload", {})[0] == 200
    until(lambda: r.workers()[0]["in_flight"] == 3, 10, "all on the worker")
    assert first.held_ms() == 0 and all(a.held_ms() >= 0 for a in later)
    rest(r)


def test_a_worker_that_is_lost_meanwhile():
    """held requests go to the worker that is left, or to one that is added"""
    a, b = Engine(), Engine("--speed", 50)
    r = Router([a], "--set", "health.interval_s=0.2")
    show(r)
    first = Asked(r, 1, FIRST)
    until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first")
    later = [Asked(r, s, SHORT) for s in (2, 3)]
    held(r, 2)
    assert http(r.admin, "POST", "/workers", {"url": b.url})[0] == 201
    assert all(x.held_ms() > 0 for x in later)
    assert {x.h["x-warmpath-worker"] for x in later} == {f"127.0.0.1:{b.port}"}
    assert first.held_ms() == 0
    rest(r)


def test_several_loops_share_one_queue():
    """requests on all loops wait in one queue, and each is sent by its own loop"""
    e = Engine()
    r = Router([e], "--threads", 3)
    show(r)
    first = Asked(r, 1, FIRST)
    until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first")
    later = []
    for i in range(9):
        later.append(Asked(r, 10 + i, SHORT + 100 * (9 - i)))
        held(r, i + 1)
    ms = [a.held_ms() for a in later]
    assert first.held_ms() == 0 and all(m > 0 for m in ms), ms
    assert ms[-1] == min(ms), ("the cheapest was held least", ms)
    rest(r)
