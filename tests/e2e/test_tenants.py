# SPDX-License-Identifier: Apache-2.0
"""Tenants and priorities: who is held goes by priority, then by the tokens its tenant had; who floods is refused and crowds nobody out."""
import collections
import json
import threading

import lib
from lib import MODEL, Engine, FakeEngine, Router, http, until
from test_hold import FIRST, SHORT, Asked, held, prompt, rest, show


def who(tenant, priority=None):
    return {"x-warmpath-tenant": tenant, **({} if priority is None else {"x-warmpath-priority": str(priority)})}


def busy(r, seed=1):
    """Keeps the only worker busy for some seconds."""
    a = Asked(r, seed, FIRST)
    until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first")
    return a


def test_priorities_then_tenants():
    """priorities go first, then the tenant that had less; among one tenant's the cheapest; explain, metrics and the record say whose they are"""
    e = Engine()
    r = Router([e], config={"tenants": {"weights": {"a": 1, "b": 1}}}, ready=1)
    show(r)
    first = busy(r)
    asked = {}
    # What comes later may not matter: a has three, b one that costs more, and one is urgent.
    for i, (seed, n, headers) in enumerate(((2, SHORT, who("a")), (3, SHORT + 50, who("a")), (4, SHORT + 100, who("a")), (5, SHORT + 400, who("b")),
                                            (6, SHORT + 900, who("a", -1)))):
        asked[seed] = Asked(r, seed, n, headers={**headers, "x-warmpath-explain": "1"})
        held(r, i + 1)
    assert r.metric('warmpath_tenant_held{tenant="a"}') == 4 and r.metric('warmpath_tenant_held{tenant="b"}') == 1
    status, _, got = http(r.admin, "POST", "/explain", {"model": MODEL, "prompt": prompt(9, SHORT)}, who("a", 3))
    said = json.loads(got)
    assert (status, said["tenant"], said["priority"], said["queue"]["held"], said["queue"]["held_of_tenant"]) == (200, "a", 3, 5, 4), said
    ms = {seed: a.held_ms() for seed, a in asked.items()}
    assert first.held_ms() == 0
    # b's comes right behind the urgent one, before the rest of a's: a had that one already.
    placed = sorted(asked, key=lambda seed: int(asked[seed].h["x-warmpath-decision"]))
    assert placed == [6, 5, 2, 3, 4] and all(m > 0 for m in ms.values()), (placed, ms)
    record = r.get("/decisions/" + asked[5].h["x-warmpath-decision"])
    assert (record["tenant"], record["priority"]) == ("b", 0) and record["held_us"] > 0, record
    assert r.get("/decisions/" + asked[6].h["x-warmpath-decision"])["priority"] == -1
    rest(r)
    assert r.metric("warmpath_tenant_held") == 0
    assert r.metric('warmpath_tenant_held_seconds_total{tenant="a"}') > 0 and r.metric('warmpath_tenant_held_seconds_total{tenant="b"}') > 0
    assert r.metric('warmpath_tenant_tokens_total{tenant="b"}') == SHORT + 401
    assert r.metric('warmpath_tenant_tokens_total{tenant="a"}') == 4 * SHORT + 1050 + 4


def test_the_queue_is_shared():
    """when limits.queue is reached the last to come of who has the most gives way: 429, tenant, with Retry-After; an urgent one takes a worse one's place"""
    e = Engine()
    r = Router([e], "--set", "limits.queue=3")
    show(r)
    first = busy(r)
    flood = []
    for i in range(3):
        flood.append(Asked(r, 10 + i, SHORT, headers=who("flood")))
        held(r, i + 1)
    status, h, got = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt(20, SHORT)}, who("flood"))
    assert (status, json.loads(got)["error"]["param"]) == (429, "queue"), ("nobody else has come since the first was held", got)
    victim = Asked(r, 30, SHORT, headers=who("victim"))
    flood[2].join(30)
    error = json.loads(flood[2].got)["error"]
    assert (flood[2].status, error["code"], error["param"]) == (429, "overloaded", "tenant"), flood[2].got
    assert "flood" in error["message"] and 1 <= int(flood[2].h["retry-after"]) <= 60
    urgent = Asked(r, 40, SHORT, headers=who("flood", -2))
    flood[1].join(30)
    assert flood[1].status == 429, "the last of the worst priority"
    assert first.held_ms() == 0 and victim.held_ms() > 0 and urgent.held_ms() > 0 and flood[0].held_ms() > 0
    rest(r)


def test_names_that_are_none():
    """a tenant or a priority that cannot be is 400 with what would be right; headers of ours do not reach an engine"""
    e = FakeEngine()
    r = Router([e])
    for headers, param in (({"x-warmpath-tenant": 'a"b'}, "x-warmpath-tenant"), ({"x-warmpath-tenant": "x" * 65}, "x-warmpath-tenant"),
                           ({"x-warmpath-priority": "high"}, "x-warmpath-priority"), ({"x-warmpath-priority": "-101"}, "x-warmpath-priority"),
                           ({"x-warmpath-slo-ttft-ms": "soon"}, "x-warmpath-slo-ttft-ms")):
        status, _, got = lib.chat(r.port, headers=headers)
        error = json.loads(got)["error"]
        assert (status, error["code"], error["param"]) == (400, "bad_header", param), got
    assert lib.chat(r.port, headers=who("a-b.c", 100))[0] == 200
    assert len(e.requests) == 1 and not any(k.startswith("x-warmpath") for k in e.requests[0].headers)


def test_a_request_with_a_target():
    """x-warmpath-slo-ttft-ms: where the first token cannot come in time it is 429, deadline, with Retry-After; with time enough it is held and served"""
    e = Engine()
    r = Router([e])
    show(r)
    first = busy(r)
    status, h, got = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt(2, SHORT)}, {"x-warmpath-slo-ttft-ms": "10"})
    error = json.loads(got)["error"]
    assert (status, error["code"], error["param"]) == (429, "overloaded", "deadline"), got
    assert "10 ms" in error["message"] and int(h["retry-after"]) >= 1
    late = Asked(r, 3, SHORT, headers={"x-warmpath-slo-ttft-ms": "700"})  # it may be held at first
    late.join(30)
    assert late.status == 429 and json.loads(late.got)["error"]["param"] == "deadline", (late.status, late.got)
    kept = Asked(r, 4, SHORT, headers={"x-warmpath-slo-ttft-ms": "60000", "x-warmpath-explain": "1"})
    assert kept.held_ms() > 0 and first.held_ms() == 0
    assert r.get("/decisions/" + kept.h["x-warmpath-decision"])["target_us"] == 60000000
    rest(r)


def test_a_flood_over_sockets():
    """one tenant keeps far more requests under way than the engine takes, four others one at a time: they are served as often as it is, and never refused"""
    turns = 12
    e = FakeEngine(lambda q: q.answer(200, lib.CHAT))
    gate = threading.Semaphore(2)  # the engine answers two at a time

    def answer(q):
        with gate:
            q.answer(200, lib.CHAT)
    e.on_request = answer
    r = Router([e], "--set", "limits.per_worker=2", "--set", "limits.queue=16")
    stop = threading.Event()
    served, refused = collections.Counter(), collections.Counter()
    body = {"model": MODEL, "prompt": prompt(1, 50), "max_tokens": 1}

    def ask(tenant):
        status, h, got = http(r.port, "POST", "/v1/completions", body, who(tenant), timeout=60)
        assert status in (200, 429), (status, got)
        (served if status == 200 else refused)[tenant] += 1
        if status == 429:
            error = json.loads(got)["error"]
            assert error["param"] in ("tenant", "queue") and 1 <= int(h["retry-after"]) <= 60, got
        return status

    def flood():
        while not stop.is_set():
            ask("flood")

    def normal(tenant):
        for _ in range(turns):
            assert ask(tenant) == 200, tenant

    floods = [threading.Thread(target=flood, daemon=True) for _ in range(40)]
    for t in floods:
        t.start()
    until(lambda: r.metric("warmpath_queue_depth") >= 10, 20, "a flood")
    others = [threading.Thread(target=normal, args=(f"t{i}",), daemon=True) for i in range(4)]
    for t in others:
        t.start()
    for t in others:
        t.join(120 * lib.slowness())
    stop.set()
    for t in floods:
        t.join(60 * lib.slowness())
    assert all(served[f"t{i}"] == turns and not refused[f"t{i}"] for i in range(4)), (served, refused)
    assert refused["flood"] > 0 and served["flood"] > 0, (served, refused)
    assert r.metric('warmpath_tenant_refused_total{tenant="other"}') > 0
    rest(r)


def test_weights_that_are_read_again():
    """a reload changes weights; a bad one is refused with its place, and the old ones stay"""
    e = FakeEngine()
    conf = {"workers": [{"url": e.url}], "tenants": {"weights": {"a": 2}}}
    r = Router(config=conf, ready=1)
    assert lib.chat(r.port, headers=who("a"))[0] == 200
    with open(r.file, "w") as f:
        json.dump({**conf, "tenants": {"weights": {"a": -2}}}, f)
    status, _, got = http(r.admin, "POST", "/reload", {})
    assert status == 400 and b"tenants.weights.a: want a number from 0.001" in got, (status, got)
    with open(r.file, "w") as f:
        json.dump({**conf, "tenants": {"weights": {"b": 3}}}, f)
    assert http(r.admin, "POST", "/reload", {})[0] == 200
    assert lib.chat(r.port, headers=who("b"))[0] == 200
    until(lambda: r.metric('warmpath_tenant_tokens_total{tenant="b"}'), 10, "b's own series")
