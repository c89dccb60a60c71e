# SPDX-License-Identifier: Apache-2.0
"""Feeds that nobody configured: the engine says where its KV events come from."""
import json
import os
import tempfile
import threading

from lib import CHAT, MODEL, Engine, FakeEngine, Router, http, until
from test_feeds import FedEngine, Talk, completion, free_ports, held, live, quiescent

PAGE = "vllm:num_requests_running{engine=\"0\"} 0\nvllm:num_requests_waiting{engine=\"0\"} 0\n"


class LocalEngine(Engine):
    """An engine that publishes through a socket of this machine."""

    def __init__(self, *args, port=0):
        self.dir = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.dir.name, "kv")
        self.ranks = 1
        replay = f"tcp://127.0.0.1:{free_ports(1)}"
        super().__init__("--events", f"ipc://{self.path}", "--replay", replay, "--speed", 40, *args, port=port)

    def dump(self):
        return json.loads(http(self.port, "GET", "/sim/cache")[2])


def front(sources, models=(MODEL,)):
    """A fake engine that announces such sources."""
    def health(r):
        if r.target == "/metrics":
            r.answer(200, PAGE.encode())
        elif r.target == "/kv_event_sources":
            r.answer(200, sources() if callable(sources) else sources)
        else:
            r.answer(200, {"object": "list", "data": [{"id": m, "object": "model"} for m in models]})
    return FakeEngine(health=health)


def source(endpoint, replay=None):
    return {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint, "replay_endpoint": replay, "topic": "kv@x@y"}


def test_nothing_but_a_url():
    """a router that was told nothing but the worker's URL follows its events; events=none leaves them alone"""
    e = LocalEngine("--gpu-blocks", 400)
    r = Router([e.url])
    live(r, 1)
    talk = Talk(31)
    for _ in range(30):
        h, body = completion(r.port, talk.next())
        claim = int(h["x-warmpath-overlap"].split(";")[0][6:])
        assert claim == body["usage"]["prompt_tokens_details"]["cached_tokens"]
        quiescent(r, [e])
    assert held(e.dump())["gpu"] > 0 and r.workers()[0]["feed"] == "live"
    r.at_rest()
    alone = Router([e.url + ",events=none"])
    completion(alone.port, talk.next())
    w = alone.workers()[0]
    assert w["feed"] == "none" and w["coverage"] == 0 and w["index_blocks"] == 0, w
    assert not any("announces KV events" in l for l in alone.log)
    alone.at_rest()


def test_ranks_are_found_with_their_ports():
    """every interface stands for the worker's host, and each entry for a rank"""
    e = FedEngine("--speed", 40, "--gpu-blocks", 400, ranks=2)
    f = front({str(i): source(f"tcp://*:{e.events + i}", f"tcp://*:{e.replay + i}") for i in (1, 0)})
    r = Router([f.url])
    live(r, 2)
    for _ in range(6):
        completion(e.port, Talk(32).next())
    want = [held(e.dump(), i)["gpu"] for i in range(2)]
    until(lambda: [w["gpu"] for w in r.get("/index")["workers"]] == want, 10, f"blocks {want}")
    assert r.workers()[0]["ranks"] == 2 and sum(want) > 0


def test_an_engine_that_connects_is_told_of():
    """an endpoint that the engine connects to needs somebody who listens: one line says what to configure, and history stands in"""
    port = free_ports(1)
    f = front({"0": source(f"tcp://127.0.0.1:{port}")})
    r = Router([f.url], "--set", "health.interval_s=0.1")
    until(lambda: len([x for x in r.log if "events_mode: bind" in x and f"tcp://127.0.0.1:{port}" in x]) >= 1, 10, "the advice")
    asked = len(f.requests)
    http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": [1] * 64})
    assert len(f.requests) == asked + 1 and r.workers()[0]["feed"] == "none"
    assert len([x for x in r.log if "events_mode: bind" in x]) == 1


def test_a_publisher_that_moves_is_followed():
    """an engine that comes back with its events elsewhere, or without any, is followed there; what it told before is gone"""
    first, second = (FedEngine("--speed", 40, "--gpu-blocks", 400) for _ in range(2))
    now = {"sources": {"0": source(f"tcp://*:{first.events}", f"tcp://*:{first.replay}")}, "up": True}

    def health(r):
        if not now["up"]:
            r.answer(500, b"{}", reason="Down")
        elif r.target == "/metrics":
            r.answer(200, PAGE.encode())
        elif r.target == "/kv_event_sources":
            r.answer(200, now["sources"])
        else:
            r.answer(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    f = FakeEngine(health=health)
    r = Router([f.url], "--set", "health.interval_s=0.1")

    def blocks(n):
        until(lambda: r.get("/index")["workers"][0]["gpu"] == n, 10, f"{n} blocks")

    live(r, 1)
    completion(first.port, [7] * 100)
    blocks(held(first.dump())["gpu"])
    for sources, e, prompt in (({"0": source(f"tcp://*:{second.events}", f"tcp://*:{second.replay}")}, second, [8] * 200), ({}, None, None)):
        now["up"] = False
        until(lambda: not r.workers()[0]["ready"], 10, "down")
        now.update(sources=sources, up=True)
        until(lambda: r.workers()[0]["ready"], 10, "up")
        if e:
            completion(e.port, prompt)
        blocks(held(e.dump())["gpu"] if e else 0)
        until(lambda: r.workers()[0]["feed"] == ("live" if e else "none"), 10, "the feed")
    r.at_rest()


def test_another_number_of_ranks_is_followed():
    """an engine that comes back with two ranks where it had one, while a request is under way: each new rank has its feed, the request ends where it was"""
    one, two = FedEngine("--speed", 40, "--gpu-blocks", 400), FedEngine("--speed", 40, "--gpu-blocks", 400, ranks=2)
    now = {"sources": {"0": source(f"tcp://*:{one.events}", f"tcp://*:{one.replay}")}, "up": True}
    go = threading.Event()

    def health(r):
        if not now["up"]:
            r.answer(500, b"{}", reason="Down")
        elif r.target == "/metrics":
            r.answer(200, PAGE.encode())
        elif r.target == "/kv_event_sources":
            r.answer(200, now["sources"])
        else:
            r.answer(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    def answer(q):
        if b"[1, 1" in q.body:
            go.wait(30)
        q.answer(200, CHAT)

    f = FakeEngine(answer, health=health)
    r = Router([f.url], "--set", "health.interval_s=0.1", "--set", "health.fail=1000", log="info")
    live(r, 1)
    completion(one.port, [7] * 100)
    until(lambda: r.get("/index")["workers"][0]["gpu"] == held(one.dump())["gpu"] > 0, 10, "the first rank's blocks")
    got = []
    t = threading.Thread(target=lambda: got.append(http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": [1] * 64})))
    t.start()
    until(lambda: f.requests, 10, "the request under way")
    now["up"] = False
    until(lambda: r.workers()[0]["trouble"], 10, "a bad probe")
    now.update(sources={str(i): source(f"tcp://*:{two.events + i}", f"tcp://*:{two.replay + i}") for i in range(2)}, up=True)
    live(r, 2)
    w = r.workers()[0]
    assert w["ranks"] == 2 and w["in_flight"] == 1, w
    for i in range(6):
        completion(two.port, [20 + i] * 100)
    want = [held(two.dump(), i)["gpu"] for i in range(2)]
    until(lambda: [x["gpu"] for x in r.get("/index")["workers"]] == want, 10, f"blocks {want}")
    asked = len(f.requests)
    assert http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": [2] * 64})[0] == 200
    assert f.requests[0].headers.get("x-data-parallel-rank") is None and f.requests[asked].headers["x-data-parallel-rank"] in ("0", "1")
    go.set()
    t.join()
    assert got[0][0] == 200 and got[0][1]["x-warmpath-worker"] == w["id"], got
    r.at_rest()
