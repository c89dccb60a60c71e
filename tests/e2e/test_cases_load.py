# SPDX-License-Identifier: Apache-2.0
"""Load that this router did not make: what engines report counts in its choice."""
import threading

from lib import MODEL, Engine, Router, http, until

INTERVAL = ("--set", "health.interval_s=0.2")


def ask(r, prompt, n):
    status, h, body = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": n, "ignore_eos": True})
    assert status == 200, body
    return h["x-warmpath-worker"]


def test_another_routers_load_is_avoided():
    """two routers over the same engines, all load through one: the other sends its requests where there is none (B125)"""
    busy, idle = Engine("--speed", 1), Engine("--speed", 1)
    name = {e: f"127.0.0.1:{e.port}" for e in (busy, idle)}
    first = Router([busy], *INTERVAL, "--set", "limits.queue=0")
    second = Router([busy, idle], *INTERVAL)
    stop = threading.Event()

    def load(k):
        i = 0
        while not stop.is_set():
            ask(first, [k * 1000 + i] * 3000, 60)
            i += 1

    def seen(e):
        w = next(w for w in second.workers() if w["id"] == name[e])
        return w["foreign_running"] + w["foreign_waiting"], w["wait_us"]

    threads = [threading.Thread(target=load, args=(k,)) for k in range(1, 25)]
    [t.start() for t in threads]
    try:
        until(lambda: seen(busy)[0] >= 8, 20, "the other router's requests being seen")
        assert seen(idle) == (0, 0)
        for i in range(10):
            if seen(busy)[0] < 4:
                until(lambda: seen(busy)[0] >= 8, 20, "them being seen again")
            assert ask(second, [90000 + i] * 500, 1) == name[idle], (i, seen(busy))
    finally:
        stop.set()
        [t.join() for t in threads]
    until(lambda: seen(busy) == (0, 0), 10, "none of it at rest")
    first.at_rest()
    second.at_rest()
    picked = {ask(second, [70000 + i] * 20, 1) for i in range(30)}
    assert picked == set(name.values()), "and both are used again"


def test_ones_own_load_is_no_others():
    """a router alone with its engine sees nobody else's requests, however many it sends"""
    e = Engine("--speed", 1)
    r = Router([e], *INTERVAL)
    seen, stop = [], threading.Event()

    def load(k):
        i = 0
        while not stop.is_set():
            ask(r, [k * 1000 + i] * 3000, 60)
            i += 1

    threads = [threading.Thread(target=load, args=(k,)) for k in range(1, 13)]
    [t.start() for t in threads]
    try:
        for _ in range(40):
            w = r.workers()[0]
            seen.append(w["foreign_running"] + w["foreign_waiting"])
            stop.wait(0.1)
    finally:
        stop.set()
        [t.join() for t in threads]
    assert max(seen) <= 2, seen  # one that has ended here and not yet there
    r.at_rest()
