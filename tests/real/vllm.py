#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real vLLM engines, on the CPU, behind the router: `make real-vllm`.  See docs/engines-vllm.md.

Engines with models of random weights and caches small enough to evict.  What is held against them is the index's claim: for
a prompt it must be the engine's own cached_tokens.  The last line is the totals; where it cannot run it says why, loudly.
"""
import argparse
import json
import os
import random
import re
import signal
import statistics
import sys
import threading
import time
import traceback

import engine
from engine import NAME, cached
import lib
from lib import Router, Skip, http, until
import rig
from rig import (LONGEST, Talk, claims, completion, end_engines, freed, fleet, live, nothing_odd, pair, play, prefixes, probe,
                 quiet, router, say, stream, ttft)

def test_discovery():
    """models, longest context, block size and cache size are asked of the engines"""
    engines = pair()
    r = router(engines)
    for w in r.workers():
        e = next(e for e in engines if e.id == w["id"])
        say(json.dumps({k: w.get(k) for k in ("id", "models", "block_size", "max_model_len", "kv_tokens", "version", "engine", "ranks")}))
        assert w["models"] == [NAME] or NAME in json.dumps(w["models"]), w
        assert w["block_size"] == e.block and w["max_model_len"] == LONGEST, w
        assert w["kv_tokens"] in (e.block * e.blocks, e.block * (e.blocks - 1)), w
    nothing_odd(r)


def test_claims_equal_cached_tokens():
    """after conversations one by one, for every prefix the index's claim is the engine's cached_tokens; copies and evictions included"""
    engines = pair()
    r = router(engines)
    talk = Talk(1, engines[0].block)
    wrong = play(r, talk, 80)
    say(f"80 turns: {len(wrong)} headers differ {wrong[:4]}")
    quiet(r)
    _, bad, tokens = probe(r, engines, prefixes(talk))
    evicted = r.metric('warmpath_kv_events_total{kind="removed",result="applied"}')
    say("%.0f batches, %.0f blocks removed" % (r.metric('warmpath_kv_events_total{kind="batch"}'), evicted))
    assert not bad, bad[:6]
    assert evicted > 0 and tokens > 0
    assert len(wrong) <= 4, wrong
    nothing_odd(r)
    r.at_rest()


def test_requests_side_by_side():
    """four clients at once: when they have ended, claims are exact again"""
    engines = pair()
    r = router(engines)
    talk = Talk(2, engines[0].block)
    wrong = play(r, talk, 80, threads=4)
    say(f"80 turns by four clients: {len(wrong)} headers differ")
    quiet(r)
    _, bad, tokens = probe(r, engines, prefixes(talk))
    assert not bad, bad[:6]
    nothing_odd(r)
    r.at_rest()


def test_a_second_router_finds_it_all():
    """a router that comes later learns from the replay what is held"""
    engines = pair()
    first = router(engines)
    talk = Talk(3, engines[0].block)
    play(first, talk, 30)
    first.end()
    play_direct = [e.completion(talk.next(), 4) for e in engines for _ in range(5)]
    assert len(play_direct) == 10
    r = router(engines)
    _, bad, tokens = probe(r, engines, prefixes(talk))
    assert not bad and tokens > 0, bad[:6]
    nothing_odd(r)


def test_salts():
    """a cache_salt matches its own prompts and no others"""
    engines = pair()
    r = router(engines)
    talk = Talk(4, engines[0].block)
    prompt = talk.tokens(engines[0].block * 6 + 3)
    for salt in ("a", "b"):
        assert completion(r, prompt, cache_salt=salt)[:2] == (0, 0)
    quiet(r)
    whole = engines[0].block * 6
    for more, want in (({"cache_salt": "a"}, whole), ({"cache_salt": "b"}, whole), ({"cache_salt": "c"}, 0), ({}, 0)):
        claim = claims(r, prompt=prompt, **more)[0]
        assert max(claim.values()) == want, (more, claim)
        for e in engines:
            had = e.cached(prompt, **more)
            assert had == claim[e.id], (more, e.id, claim, had)
    nothing_odd(r)


def test_resets():
    """/reset_prefix_cache, idle and while a request runs, is followed with the engine's next step"""
    engines = pair()
    r = router(engines)
    talk = Talk(5, engines[0].block)
    e = engines[0]
    prompt = talk.tokens(e.block * 8 + 1)
    e.completion(prompt)
    until(lambda: claims(r, prompt=prompt)[0][e.id] == e.block * 8, 10, "the claim")
    say(f"idle reset: {http(e.port, 'POST', '/reset_prefix_cache', b'')[0]}")
    e.completion(talk.tokens(5))  # the clear comes with the next step
    until(lambda: claims(r, prompt=prompt)[0][e.id] == 0, 10, "the claim gone")
    assert e.cached(prompt) == 0
    t = threading.Thread(target=e.completion, args=(talk.tokens(40), 600))
    t.start()
    until(lambda: e.metric("vllm:num_requests_running") == 1, 20, "a request running")
    status, _, body = http(e.port, "POST", "/reset_prefix_cache", b"")
    say(f"busy reset: {status} {body.decode()}")
    t.join()
    quiet(r)
    claim = claims(r, prompt=prompt)[0][e.id]
    assert claim == e.cached(prompt) > 0, claim
    t = threading.Thread(target=e.completion, args=(talk.tokens(40), 600))
    t.start()
    until(lambda: e.metric("vllm:num_requests_running") == 1, 20, "a request running")
    status, _, body = http(e.port, "POST", "/reset_prefix_cache?reset_running_requests=true", b"")
    say(f"forced reset: {status} {body.decode()}")
    t.join()
    quiet(r)
    claim = claims(r, prompt=prompt)[0][e.id]
    assert claim == e.cached(prompt) == 0, claim
    nothing_odd(r)


def test_cancel_in_decode():
    """a client that goes away in mid-stream frees the engine, and what was computed stays claimed"""
    engines = pair()
    r = router(engines)
    talk = Talk(6, engines[0].block)
    prompt = talk.tokens(engines[0].block * 3 + 1)
    before = sum(e.metric("vllm:generation_tokens_total") for e in engines)
    s = stream(r, prompt, 1900)
    lib.read_until(s, b"data: ")
    until(lambda: sum(e.metric("vllm:num_requests_running") for e in engines) == 1, 20, "a request running")
    lib.reset(s)
    freed(r, engines, "decode", 10)
    said = sum(e.metric("vllm:generation_tokens_total") for e in engines) - before
    say(f"{said:.0f} of 1900 tokens were generated")
    assert said < 1500, said
    quiet(r)
    _, bad, tokens = probe(r, engines, [prompt])
    assert not bad and tokens == engines[0].block * 3, (bad, tokens)
    nothing_odd(r)


ASK = ("--set", f"models.0.name={NAME}", "--set", "models.0.tokenizer.kind=engine",
       "--set", "models.0.tokenizer.limit_ms=20000", "--set", "models.0.tokenizer.hedge_ms=20000")


def test_chat_by_the_engines_tokens():
    """tokenizer.kind engine: a growing chat, with tools and thinking off and on, is claimed exactly"""
    engines = pair()
    r = router(engines, *ASK)
    tool = {"type": "function", "function": {"name": "look", "description": "Looks a word up.",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}}
    n = 0
    for more in ({}, {"tools": [tool], "tool_choice": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}):
        messages = [{"role": "system", "content": "You are a terse librarian who knows where each book stands. " * 6}]
        for turn in range(5):
            messages.append({"role": "user", "content": f"Question {turn}: where are the books on the history of caches, shelf {turn * 7}?"})
            quiet(r, 0.15)
            body = {"model": NAME, "messages": messages, "max_tokens": 8, **more}
            claim, b = claims(r, **{k: v for k, v in body.items() if k != "model"})
            assert b["kind"] == "tokens", b
            status, h, answer = http(r.port, "POST", "/v1/chat/completions", body, timeout=120)
            assert status == 200, answer
            answer = json.loads(answer)
            assert b["tokens"] == answer["usage"]["prompt_tokens"], (b["tokens"], answer["usage"])
            assert claim[h["x-warmpath-worker"]] == cached(answer), (more, turn, claim, answer["usage"])
            n += 1
            messages.append({"role": "assistant", "content": f"On shelf {turn * 7 + 1}, behind the door."})
    text = "all work and no play makes a long prompt " * 20
    for _ in range(2):
        quiet(r, 0.15)
        claim, b = claims(r, prompt=text)
        _, had, answer, worker = completion(r, text)
        assert b["kind"] == "tokens" and b["tokens"] == answer["usage"]["prompt_tokens"], (b, answer["usage"])
        assert claim[worker] == had, (claim, had)
    say(f"{n} turns and 2 texts: every claim is exact")
    assert r.metric("warmpath_tokens_wrong_total") == 0
    nothing_odd(r)


def test_kill_and_restart():
    """an engine that is killed and comes back with another hash seed: its claims go, and are exact again afterwards"""
    engines = pair()
    r = Router([e.spec for e in engines], "--set", "health.interval_s=1", log="info")
    live(r)
    talk = Talk(7, engines[0].block)
    play(r, talk, 20)
    quiet(r)
    for e in engines:
        prompt = talk.talks[-1]
        e.completion(prompt)
        until(lambda: claims(r, prompt=prompt)[0][e.id] > 0, 10, "a claim")
        e.kill()
        until(lambda: not next(w for w in r.workers() if w["id"] == e.id)["ready"], 20, "the worker being down")
        wrong = play(r, talk, 6)
        assert not wrong, wrong
        e.start()
        say(f"{e.id} ({'connects' if e.events.startswith('tcp') else 'binds'}) ready again after {e.ready():.0f} s")
        until(lambda: next(w for w in r.workers() if w["id"] == e.id)["ready"], 20, "the worker being back")
        until(lambda: claims(r, prompt=prompt)[0].get(e.id) == 0, 30, "nothing claimed of what it held")
        play(r, talk, 20)
        quiet(r)
        _, bad, tokens = probe(r, engines, prefixes(talk, 3))
        assert not bad, bad[:6]
    nothing_odd(r)


def slow():
    return fleet("slow", *[{"model": "slow", "tokens": 5120, "dial": dial, "more": ("--max-num-batched-tokens", "512")} for dial in (False, True)])


def test_cancel_in_prefill():
    """a client that goes away while its prompt is computed frees the engine at the end of the step"""
    engines = slow()
    r = router(engines)
    talk = Talk(8, engines[0].block)
    prompt = talk.tokens(1900)
    before = sum(e.metric("vllm:prompt_tokens_total") for e in engines)
    s = stream(r, prompt, 4)
    until(lambda: sum(w["in_flight"] for w in r.workers()) == 1, 10, "the request under way")
    until(lambda: any(max(claims(r, prompt=prompt)[0].values()) > 0 for _ in (1,)), 20, "a chunk being announced")
    lib.reset(s)
    freed(r, engines, "prefill", 20)
    quiet(r)
    claim = max(claims(r, prompt=prompt)[0].values())
    say(f"{claim} of 1900 tokens were computed and are claimed; prompt_tokens_total rose by "
        f"{sum(e.metric('vllm:prompt_tokens_total') for e in engines) - before:.0f}")
    assert 0 < claim < 1800, claim
    _, bad, _ = probe(r, engines, [prompt])
    assert not bad, bad
    nothing_odd(r)


def test_a_gain_that_can_be_seen():
    """seven conversations on 1,000-token prompts, more than one cache holds: TTFT under price and under round_robin"""
    engines = slow()
    mean = {}
    for policy in ("round_robin", "price"):
        for e in engines:
            http(e.port, "POST", "/reset_prefix_cache", b"")
            e.completion([5, 6, 7])
        r = router(engines, "--policy", policy)
        rng = random.Random(9)
        talks = [[rng.randrange(1000, 100000) for _ in range(1000)] for _ in range(7)]
        times = []
        for turn in range(4):
            for t in talks:
                t += [rng.randrange(1000, 100000) for _ in range(20)]
                took = ttft(r, t)
                if turn:
                    times.append(took)
        mean[policy] = statistics.mean(times)
        say(f"{policy}: TTFT of later turns: mean {mean[policy] * 1e3:.0f} ms, median {statistics.median(times) * 1e3:.0f} ms, "
            f"worst {max(times) * 1e3:.0f} ms, {len(times)} requests")
        nothing_odd(r)
        r.end()
    assert mean["price"] < mean["round_robin"] / 1.5, mean


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
    whole = e.block * 4

    def turn(want, **more):
        quiet(r, 0.2)
        claim = claims(r, prompt=prompt, **more)[0][e.id]
        _, had, _, _ = completion(r, prompt, **more)
        assert claim == had == want, (more, claim, had, want)

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
    nothing_odd(r, doubted=None)


def test_ranks():
    """--data-parallel-size 2: each rank's claims are exact, and requests go to the rank that was chosen"""
    engines = fleet("ranks", {"model": "tiny", "tokens": 1536, "max_len": 1024, "dial": True, "ranks": 2})
    r = Router([e.spec for e in engines], log="info")
    live(r, 2)
    talk = Talk(11, engines[0].block, 1024)
    wrong = play(r, talk, 60)
    say(f"60 turns: {len(wrong)} headers differ {wrong[:4]}")
    quiet(r)
    _, bad, tokens = probe(r, engines, prefixes(talk))
    assert not bad and tokens > 0, bad[:6]
    ranks = {d["chosen_rank"] for d in r.get("/decisions?last=100")["decisions"]}
    assert ranks == {0, 1}, ranks
    nothing_odd(r)


def test_a_sliding_window():
    """a model of two groups, one with a window of 64 tokens: claims are exact, also where a shared prompt's window is gone"""
    engines = fleet("window", {"model": "window", "tokens": 2048, "max_len": 768})
    r = router(engines)
    talk = Talk(12, engines[0].block, 768)
    wrong = play(r, talk, 60)
    say(f"60 turns: {len(wrong)} headers differ {wrong[:4]}")
    quiet(r)
    _, bad, tokens = probe(r, engines, prefixes(talk))
    assert not bad and tokens > 0, bad[:6]
    nothing_odd(r)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default="build/warmpath")
    p.add_argument("--version", default=rig.VERSION, choices=sorted(engine.OVERRIDES))
    p.add_argument("--only", default="", help="run tests whose name matches this")
    args = p.parse_args()
    lib.BINARY = os.path.abspath(args.binary)
    rig.VERSION = args.version
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    passed = failed = skipped = 0
    try:
        engine.HOME.mkdir(parents=True, exist_ok=True)
        engine.memory()
        engine.model_of(engine.python_of(rig.VERSION), "tiny")
        for name, fn in list(globals().items()):
            if not name.startswith("test_") or not re.search(args.only, name):
                continue
            started = time.monotonic()
            word = "ok"
            try:
                fn()
            except Skip as e:
                word = f"SKIPPED: {e}"
            except Exception:
                word = "FAILED"
                traceback.print_exc()
            try:
                lib.end_all()
            except AssertionError as e:
                word = "FAILED"
                print(e, file=sys.stderr)
            passed, failed, skipped = passed + (word == "ok"), failed + (word == "FAILED"), skipped + word.startswith("SKIPPED")
            print(f"vllm {rig.VERSION}: {fn.__doc__.splitlines()[0]} ... {word} ({time.monotonic() - started:.1f} s)", flush=True)
    except Skip as e:
        print(f"SKIPPED real-vllm: {e}", flush=True)
        skipped += 1
    finally:
        end_engines()
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
