# SPDX-License-Identifier: Apache-2.0
"""Checks on two engines whose model takes no time: claims, resets, salts, chats, a restart."""
import contextlib
import json
import threading

import capture
from engine import NAME, cached
import lib
from lib import Router, http, until
from rig import (LONGEST, Talk, claims, completion, freed, live, nothing_odd, pair, play, prefixes, probe, quiet, router, say,
                 stream)


def test_discovery():
    """models, longest context, block size and cache size are asked of the engines"""
    engines = pair()
    r = router(engines)
    for w in r.workers():
        e = next(e for e in engines if e.id == w["id"])
        say(json.dumps({k: w.get(k) for k in ("id", "found", "models", "block_size", "max_model_len", "kv_tokens", "ranks", "feed", "coverage")}))
        assert w["found"] == "vllm" and w["models"] == [NAME] and w["ranks"] == 1, w
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
    _, bad, tokens = probe(r, engines, prefixes(talk, most=200))
    evicted = r.metric('warmpath_kv_events_total{kind="removed",result="applied"}')
    say("%.0f batches, %.0f blocks removed" % (r.metric('warmpath_kv_events_total{kind="batch"}'), evicted))
    assert not bad, bad[:6]
    assert evicted > 0 and tokens > 0
    assert len(wrong) <= 4, wrong
    nothing_odd(r)
    r.at_rest()


def test_copies():
    """equal prompts computed side by side leave copies of their blocks: the claim stands until the last of them is evicted"""
    engines = pair()
    e = engines[0]
    talk = Talk(13, e.block)
    r = router(engines)
    prompts = [talk.tokens(e.block * n + more) for n, more in ((6, 0), (9, 1), (4, 7))]
    with capture.captured(e, "copies"):
        quiet(r)
        stored = 'warmpath_kv_events_total{kind="stored",result="applied"}'
        for prompt in prompts:
            before = r.metric(stored)
            ts = [threading.Thread(target=e.completion, args=(prompt, 4)) for _ in range(4)]
            [t.start() for t in ts]
            [t.join() for t in ts]
            quiet(r)
            say(f"4 requests for {len(prompt) // e.block} blocks: {r.metric(stored) - before:.0f} blocks stored")
        _, bad, tokens = probe(r, [e], prompts)
        assert not bad and tokens > 0, bad
        while claims(r, prompt=prompts[0])[0][e.id]:  # each of the others is evicted step by step; what is asked is seen on its way out
            e.completion(talk.tokens(e.block * 8 + 1), 1)
            quiet(r, 0.15)
            _, bad, _ = probe(r, [e], [prompts[2][:e.block * 2 + 1]])
            assert not bad, bad
        _, bad, _ = probe(r, [e], prompts)
        assert not bad, bad
    nothing_odd(r)


def test_requests_side_by_side():
    """four clients at once: when they have ended, claims are exact again"""
    engines = pair()
    r = router(engines)
    talk = Talk(2, engines[0].block)
    with capture.captured(engines[0], "clients"):
        wrong = play(r, talk, 40, threads=4)
        quiet(r)
        _, bad, _ = probe(r, engines, prefixes(talk, most=20))
        assert not bad, bad[:6]
        wrong += play(r, talk, 40, threads=4)
        quiet(r)
        _, bad, _ = probe(r, engines, prefixes(talk, most=20))
        assert not bad, bad[:6]
    wrong += play(r, talk, 40, threads=4)
    say(f"120 turns by four clients: {len(wrong)} headers differ")
    quiet(r)
    _, bad, tokens = probe(r, engines, prefixes(talk, most=60))
    assert not bad and tokens > 0, bad[:6]
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
    _, bad, tokens = probe(r, engines, prefixes(talk, most=60))
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
    e = engines[0]
    r = router(engines)
    talk = Talk(5, e.block)
    prompt = talk.tokens(e.block * 8 + 1)

    def agree(want):
        quiet(r)
        _, bad, tokens = probe(r, [e], [prompt])
        assert not bad and tokens == want, (bad, tokens, want)

    def reset(query=""):
        status, _, body = http(e.port, "POST", "/reset_prefix_cache" + query, b"")
        return f"{status} {body.decode()}"

    def busy(query):
        """While an answer streams; the gauge of running requests lags."""
        s = stream(e, talk.tokens(40), 600)
        lib.read_until(s, b"data: ", 60)
        said = reset(query)
        lib.read_until(s, b"[DONE]", 120)
        s.close()
        return said

    with capture.captured(e, "resets"):
        e.completion(prompt)
        until(lambda: claims(r, prompt=prompt)[0][e.id] == e.block * 8, 10, "the claim")
        agree(e.block * 8)
        say(f"idle reset: {reset()}")
        e.completion(talk.tokens(5))  # the clear comes with the next step
        until(lambda: claims(r, prompt=prompt)[0][e.id] == 0, 10, "the claim gone")
        agree(0)
        say(f"busy reset: {busy('')}")
        agree(e.block * 8)
        say(f"forced reset: {busy('?reset_running_requests=true')}")
        agree(0)
        agree(e.block * 8)
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


def post(port, path, body):
    status, _, answer = http(port, "POST", path, body, timeout=60)
    return status, json.loads(answer)


def test_tokenize_and_render():
    """/tokenize, the render routes, the router and the answer's usage agree on every form of a prompt; errors are as the spec has them"""
    engines = pair()
    e = engines[1]  # this one renders
    r = router(engines, *ASK)
    talk = [{"role": "system", "content": "You are a terse librarian. " * 30}, {"role": "user", "content": "Where are the books on caches?"}]
    tool = {"type": "function", "function": {"name": "look", "description": "Looks a word up.",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}}}}
    parts = [{"role": "user", "content": [{"type": "text", "text": "first part, "}, {"type": "text", "text": "second part"}]}]
    forms = [{"messages": talk}, {"messages": talk, "tools": [tool], "tool_choice": "none"},
             {"messages": talk, "chat_template_kwargs": {"enable_thinking": False}}, {"messages": talk, "add_generation_prompt": False},
             {"messages": talk + [{"role": "assistant", "content": "On shelf"}], "add_generation_prompt": False, "continue_final_message": True},
             {"messages": parts}, {"messages": talk, "reasoning_effort": "low"}]
    for form in forms:
        body = {"model": NAME, "max_tokens": 2, "temperature": 0, **form}
        status, render = post(e.port, "/v1/chat/completions/render", body)
        assert status == 200, render
        ids = render["token_ids"]
        told = {k: v for k, v in form.items() if k not in ("tool_choice", "reasoning_effort")}
        if "reasoning_effort" in form:
            told["chat_template_kwargs"] = {"reasoning_effort": form["reasoning_effort"]}
        for port in (e.port, engines[0].port, r.port):
            status, answer = post(port, "/tokenize", {"model": NAME, **told})
            assert status == 200 and answer["tokens"] == ids and answer["count"] == len(ids), (form, port, answer, ids)
            assert answer["max_model_len"] == LONGEST, answer
        claim, b = claims(r, **form)
        assert b["kind"] == "tokens" and b["tokens"] == len(ids), (form, b["tokens"], len(ids))
        status, _, answer = http(r.port, "POST", "/v1/chat/completions", body, timeout=120)
        answer = json.loads(answer)
        assert status == 200 and answer["usage"]["prompt_tokens"] == len(ids), (answer, len(ids))
        quiet(r, 0.2)
        by_ids = claims(r, prompt=ids)[0]
        by_form = claims(r, **form)[0]
        assert by_ids == by_form and max(by_ids.values()) == (len(ids) - 1) // e.block * e.block, (form, by_ids, by_form, len(ids))
    texts = ["Hello", "World is"]
    status, renders = post(e.port, "/v1/completions/render", {"model": NAME, "max_tokens": 2, "prompt": texts})
    assert status == 200 and len(renders) == 2, renders
    for text, render in zip(texts, renders):
        _, answer = post(r.port, "/tokenize", {"model": NAME, "prompt": text})
        assert answer["tokens"] == render["token_ids"], (answer, render)
        assert post(r.port, "/detokenize", {"model": NAME, "tokens": render["token_ids"]})[1]["prompt"] == text
    status, renders = post(e.port, "/v1/completions/render", {"model": NAME, "max_tokens": 2, "prompt": [1, 2, 3]})
    assert status == 200 and renders[0]["token_ids"] == [1, 2, 3], renders
    say(f"{len(forms)} chats and {len(texts)} texts: the same ids everywhere")
    status, answer = post(engines[0].port, "/v1/chat/completions/render", {"model": NAME, "messages": talk})
    say(f"render without a flag: {status}")
    assert status == (200 if e.version == "0.23.0" else 403), answer
    assert post(e.port, "/tokenize", {"model": "nope", "prompt": "x"})[0] == 404
    assert post(r.port, "/tokenize", {"model": "nope", "prompt": "x"})[0] == 404
    assert post(r.port, "/tokenize", {"model": NAME, "prompt": ["a", "b"]})[0] == 400
    assert post(r.port, "/v1/chat/completions/render", {"model": NAME, "messages": talk})[0] == 404, "no route of the router"
    nothing_odd(r)


def test_kill_and_restart():
    """an engine that is killed and comes back with another hash seed: its claims go, and are exact again afterwards"""
    engines = pair()
    r = Router([e.spec for e in engines], "--set", "health.interval_s=1", log="info")
    live(r)
    talk = Talk(7, engines[0].block)
    for e in engines:
        with capture.captured(e, "restart") if e.how == "ipc" else contextlib.nullcontext():
            play(r, talk, 12)
            quiet(r)
            prompt = talk.talks[-1]
            e.completion(prompt)
            until(lambda: claims(r, prompt=prompt)[0][e.id] > 0, 10, "a claim")
            probe(r, [e], prefixes(talk, most=6))
            e.kill()
            until(lambda: not next(w for w in r.workers() if w["id"] == e.id)["ready"], 20, "the worker being down")
            wrong = play(r, talk, 6)
            assert not wrong, wrong
            e.start()
            say(f"{e.id} ({'connects' if e.how == 'dial' else 'binds'}) ready again after {e.ready():.0f} s")
            until(lambda: next(w for w in r.workers() if w["id"] == e.id)["ready"], 20, "the worker being back")
            until(lambda: claims(r, prompt=prompt)[0].get(e.id) == 0, 30, "nothing claimed of what it held")
            play(r, talk, 20)
            e.completion(prompt)
            quiet(r)
            _, bad, tokens = probe(r, engines, prefixes(talk, most=20))
            assert not bad and tokens > 0, bad[:6]
    nothing_odd(r)
