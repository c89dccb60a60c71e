# SPDX-License-Identifier: Apache-2.0
"""Checks on two engines whose model takes a second or two for 1,000 tokens: what a user can see."""
import random
import statistics

import lib
from lib import http, until
from rig import Talk, claims, fleet, freed, nothing_odd, probe, quiet, router, say, stream, ttft


def slow():
    return fleet("slow", *[{"model": "slow", "tokens": 5120, "events": events, "more": ("--max-num-batched-tokens", "512")}
                           for events in ("ipc", "dial")])


def test_cancel_in_prefill():
    """a client that goes away while its prompt is computed frees the engine at the end of the step"""
    engines = slow()
    r = router(engines)
    talk = Talk(8, engines[0].block)
    prompt = talk.tokens(1900)
    before = sum(e.metric("vllm:prompt_tokens_total") for e in engines)
    s = stream(r, prompt, 4)
    until(lambda: sum(w["in_flight"] for w in r.workers()) == 1, 10, "the request under way")
    until(lambda: max(claims(r, prompt=prompt)[0].values()) > 0, 20, "a chunk being announced")
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
