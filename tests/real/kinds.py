# SPDX-License-Identifier: Apache-2.0
"""Checks on engines of other kinds: adapters, data-parallel ranks, a sliding window."""
import capture
import engine
from engine import NAME
from lib import Router, http, until
import rig
from rig import Talk, claims, completion, fleet, live, nothing_odd, play, prefixes, probe, quiet, router, say


def lora_call(e, path, name, folder=None):
    body = {"lora_name": name, **({"lora_path": str(folder)} if folder else {})}
    status, _, answer = http(e.port, "POST", f"/v1/{path}_lora_adapter", body)
    assert status == 200, (status, answer)


def listed(r, name, there=True):
    until(lambda: all((name in w["models"]) == there for w in r.workers()), 20, f"{name} {'on' if there else 'off'} the router's list")


def test_adapters():
    """LoRA adapters, one there from the start and one loaded later, match their own blocks only; one reloaded from another path is right after its first request"""
    python = engine.python_of(rig.VERSION)
    one, two = engine.model_of(python, "adapter-1"), engine.model_of(python, "adapter-2")
    engines = fleet("lora", {"model": "tiny", "tokens": 3072, "env": {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"},
                             "more": ("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"ad1={one}")})
    e = engines[0]
    r = router(engines, "--set", "health.interval_s=0.5")
    listed(r, "ad1")
    talk = Talk(10, e.block)
    prompt = talk.tokens(e.block * 4 + 5)

    def turn(want, **more):
        quiet(r, 0.2)
        claim = claims(r, prompt=prompt, **more)[0][e.id]
        mark = c.mark()
        _, had, _, _ = completion(r, prompt, **more)
        c.expect(mark, prompt, had, label="turn", **more)
        assert claim == had == want, (more, claim, had, want)

    with capture.captured(e, "adapters") as c:
        adapters_in_turn(e, r, prompt, turn, one, two)
    nothing_odd(r, doubted=None)


def adapters_in_turn(e, r, prompt, turn, one, two):
    """What the engine and the index say of one prompt, under each name that it can be asked under."""
    whole = e.block * 4
    turn(0)
    turn(0, model="ad1")
    turn(whole, model="ad1")
    turn(whole)
    turn(0, model="ad1", cache_salt="s")
    turn(whole, model="ad1", cache_salt="s")
    turn(whole, model="ad1")
    lora_call(e, "load", "ad2", one)
    listed(r, "ad2")
    turn(0, model="ad2")
    turn(whole, model="ad2")
    lora_call(e, "unload", "ad2")
    listed(r, "ad2", False)
    lora_call(e, "load", "ad2", one)
    listed(r, "ad2")
    capture.page(e, "adapters_models.json")
    turn(whole, model="ad2")
    lora_call(e, "unload", "ad2")
    listed(r, "ad2", False)
    lora_call(e, "load", "ad2", two)
    listed(r, "ad2")
    # 0.32 hashes the path and its events do not say it: what the name held before is claimed once more, in doubt, then it is right.
    # 0.23 does not hash it, and reuses what other weights have computed.
    until(lambda: r.metric("warmpath_index_doubtful") > 0, 20, "doubt, since the adapter is another one")
    quiet(r)
    claim, _ = claims(r, model="ad2", prompt=prompt)
    _, had, _, _ = completion(r, prompt, model="ad2")
    say(f"ad2 from another path: the engine has {had}, {claim[e.id]} claimed")
    assert had == (whole if rig.VERSION == "0.23.0" else 0), had
    turn(whole, model="ad2")


def ranked(how):
    return fleet("ranks-" + how, {"model": "tiny", "tokens": 1536, "max_len": 1024, "events": how, "ranks": 2})


def the_ranks_agree(r, e, seed, turns, probes):
    talk = Talk(seed, e.block, 1024)
    wrong = play(r, talk, turns)
    say(f"{turns} turns: {len(wrong)} headers differ {wrong[:4]}")
    used = lambda: {d["chosen_rank"] for d in r.get("/decisions?last=1000")["decisions"]}
    for _ in range(10):  # one by one, the rank that has a shared prompt may be the better one each time
        play(r, talk, 16, threads=4)
        if used() == {0, 1}:
            break
    assert used() == {0, 1}, used()
    quiet(r)
    _, bad, tokens = probe(r, [e], prefixes(talk, most=probes))
    assert not bad and tokens > 0, bad[:6]
    assert len(wrong) <= 4, wrong
    nothing_odd(r)
    return talk


def test_ranks_that_bind():
    """--data-parallel-size 2, each rank binding a TCP port of its own: rank-exact, and followed through a kill and a restart"""
    e, = ranked("star")
    r = Router([e.spec], "--set", "health.interval_s=1", log="info")
    live(r, 2)
    with capture.captured(e, "ranks"):
        talk = the_ranks_agree(r, e, 11, 30, 20)
    capture.page(e, "ranks_metrics.prom")
    the_ranks_agree(r, e, 15, 40, 60)
    prompt = talk.talks[-1]
    for _, headers in e.holders():
        e.completion(prompt, 1, headers)
    until(lambda: all(claims(r, prompt=prompt)[0][name] > 0 for name, _ in e.holders()), 10, "a claim of each rank")
    e.kill()
    until(lambda: not r.workers()[0]["ready"], 20, "the worker being down")
    e.start()
    say(f"ready again after {e.ready():.0f} s")
    until(lambda: r.workers()[0]["ready"], 20, "the worker being back")
    until(lambda: not any(claims(r, prompt=prompt)[0].values()), 30, "nothing claimed of what it held")
    the_ranks_agree(r, e, 16, 40, 30)


def test_found_without_configuration():
    """a router that is told the URL alone: from 0.32 on it finds models, block size, ranks and events; before, it says that there are none"""
    e, = ranked("star")
    r = Router([e.url], log="info")
    until(lambda: r.workers()[0]["kv_tokens"] == e.block * e.blocks, 20, "the capacity of one rank, not of both")
    if e.version == "0.23.0":
        assert http(e.port, "GET", "/kv_event_sources")[0] == 404
        w = r.workers()[0]
        assert w["feed"] == "none" and w["block_size"] == e.block and w["models"] == [NAME], w
        return
    capture.page(e, "ranks_sources.json")
    live(r, 2)
    w = r.workers()[0]
    assert w["ranks"] == 2 and w["block_size"] == e.block and w["models"] == [NAME] and w["found"] == "vllm", w
    the_ranks_agree(r, e, 17, 30, 30)


def test_ranks_that_connect():
    """--data-parallel-size 2, each rank connecting to a port of the router: rank-exact, and requests go to the rank that was chosen"""
    e, = ranked("dial")
    r = Router([e.spec], log="info")
    live(r, 2)
    the_ranks_agree(r, e, 14, 60, 60)


def test_a_sliding_window():
    """a model of two groups, one with a window of 64 tokens: claims are exact, also where a shared prompt's window is gone"""
    engines = fleet("window", {"model": "window", "tokens": 2048, "max_len": 768})
    r = router(engines)
    talk = Talk(12, engines[0].block, 768)
    with capture.captured(engines[0], "window"):
        wrong = play(r, talk, 20)
        quiet(r)
        _, bad, _ = probe(r, engines, prefixes(talk, most=40))
        assert not bad, bad[:6]
    settled = play(r, talk, 60, settled=True)
    say(f"60 turns, each when the one before is told: {len(settled)} headers differ {settled[:4]}")
    wrong += play(r, talk, 60)
    say(f"80 turns at once: {len(wrong)} headers differ {wrong[:4]}")
    quiet(r)
    _, bad, tokens = probe(r, engines, prefixes(talk, most=120))
    assert not bad and tokens > 0, bad[:6]
    assert not settled, settled  # what is not told yet is all that a header may be wrong by
    assert len(wrong) <= 4, wrong
    nothing_odd(r)
