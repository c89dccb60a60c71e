# SPDX-License-Identifier: Apache-2.0
"""Prompts as the engine's own token ids: models[].tokenizer.kind: engine."""
import json
import os
import re
import signal
import socket
import threading

from lib import CHAT, MODEL, Engine, FakeEngine, Router, http, reset, until

ASK = ("--set", f"models.0.name={MODEL}", "--set", "models.0.tokenizer.kind=engine")
PATIENT = (*ASK, "--set", "models.0.tokenizer.limit_ms=20000", "--set", "models.0.tokenizer.hedge_ms=20000")


def counted(r, result):
    return r.metric(f'warmpath_tokens_total{{result="{result}"}}') or 0


def ask(r, path="/v1/chat/completions", **body):
    status, h, b = http(r.port, "POST", path, {"model": MODEL, "max_tokens": 1, **body})
    assert status == 200, (status, b)
    m = re.match(r"total=(\d+);.*kind=(\w+)", h["x-warmpath-overlap"])
    return int(m[1]), m[2], json.loads(b).get("usage")


def test_a_growing_chat_is_matched_exactly():
    """a growing chat is matched by its tokens: the header's overlap is the engine's cached_tokens"""
    engines = [Engine("--speed", "1000") for _ in range(2)]
    r = Router(engines, *PATIENT)
    messages = [{"role": "system", "content": "You are terse. " * 20}]
    last = 0
    for turn in range(8):
        messages.append({"role": "user", "content": f"Question {turn}: " + "why? " * (3 * turn + 1)})
        total, kind, usage = ask(r, messages=messages, tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
        assert kind == "tokens"
        assert total == usage["prompt_tokens_details"]["cached_tokens"], (turn, total, usage)
        assert total > last or turn == 0, (turn, total)
        last = total
        messages.append({"role": "assistant", "content": f"!{turn} because."})
    assert counted(r, "asked") == 8 and r.metric("warmpath_tokens_calls_total") == 8
    assert r.metric("warmpath_tokens_wrong_total") == 0
    r.at_rest()


def test_completions_and_explain():
    """completion text too; the same prompt again is not asked again; explain sees the same"""
    e = Engine("--speed", "1000")
    r = Router([e], *PATIENT)
    text = "all work and no play " * 40
    assert ask(r, "/v1/completions", prompt=text)[:2] == (0, "tokens")
    total, kind, usage = ask(r, "/v1/completions", prompt=[text])  # a list of one prompt is that prompt
    assert kind == "tokens" and total == usage["prompt_tokens_details"]["cached_tokens"] == (len(text) - 1) // 16 * 16
    assert ask(r, "/v1/completions", prompt=[text, text])[1] == "bytes"  # two have no one prefix
    assert counted(r, "asked") == 1 and counted(r, "cached") == 1
    for prompt in (text, text + "more"):
        status, _, b = http(r.admin, "POST", "/explain", {"model": MODEL, "prompt": prompt})
        b = json.loads(b)
        assert status == 200 and b["kind"] == "tokens" and b["tokens"] == len(prompt), b
        assert b["candidates"][0]["overlap"]["total"] == (len(text) - (prompt == text)) // 16 * 16, b
    assert counted(r, "asked") == 2


def test_a_ceiling_over_all_caches():
    """limits.caches_bytes: ids of prompts are kept only as far as what the index, history and the doctor leave; what is kept is counted"""
    n, ids = 400000, json.dumps({"count": 400000, "tokens": list(range(1000, 401000))}).encode()  # 1.6 MB of ids each

    def answer(q):
        q.answer(200, ids if q.target == "/tokenize" else CHAT)
    e = FakeEngine(answer)
    r = Router([e], *PATIENT, "--set", "limits.caches_bytes=16Mi", "--threads", "1")
    for i in range(14):
        assert ask(r, "/v1/completions", prompt=f"{i:02}" + "x" * n)[1] == "tokens"
    assert counted(r, "asked") == 14
    ceiling = 16 << 20
    assert r.metric("warmpath_index_cap_bytes") == ceiling / 2

    def kept():
        return {c: r.metric(f'warmpath_cache_bytes{{cache="{c}"}}') for c in ("tokens", "doctor", "history", "index")}
    ticks = r.metric("warmpath_loop_lag_seconds_count")
    until(lambda: r.metric("warmpath_loop_lag_seconds_count") > ticks + 21, 20, "two looks at the caches")
    until(lambda: 0 < kept()["tokens"] and sum(kept().values()) <= ceiling, 20, "below the ceiling")
    assert r.metric("warmpath_cache_ceiling_bytes") == ceiling
    ask(r, "/v1/completions", prompt="13" + "x" * n)
    assert counted(r, "cached") == 1, "the newest is still there"
    ask(r, "/v1/completions", prompt="00" + "x" * n)
    assert counted(r, "asked") == 15, "the oldest is not"


def test_engines_without_the_route():
    """engines that lack /tokenize are found out once; requests go by bytes"""
    def answer(q):
        if q.target == "/tokenize":
            q.answer(404, {"detail": "Not Found"}, reason="Not Found")
        else:
            q.answer(200, CHAT)

    engines = [FakeEngine(answer), FakeEngine(answer)]
    r = Router(engines, *PATIENT)
    for i in range(5):
        assert ask(r, messages=[{"role": "user", "content": f"hi {i}"}])[1] == "bytes"
    asked = [q for e in engines for q in e.requests if q.target == "/tokenize"]
    assert len(asked) == 2, len(asked)
    assert counted(r, "refused") == 1 and counted(r, "nobody") == 4
    r.at_rest()


def test_silence_does_not_hold_requests():
    """an engine that is silent at /tokenize delays a request by no more than the limit, and its prompt is matched as bytes"""
    hold = threading.Event()

    def answer(q):
        if q.target == "/tokenize":
            hold.wait(20)
            q.answer(200, {"count": 1, "max_model_len": 1, "tokens": [7], "token_strs": None})
        else:
            q.answer(200, CHAT)

    e = FakeEngine(answer)
    r = Router([e], *ASK, "--set", "models.0.tokenizer.limit_ms=1")
    messages = [{"role": "user", "content": "x" * 1000}]
    assert ask(r, messages=messages)[1] == "bytes"
    assert counted(r, "late") == 1
    hold.set()
    until(lambda: ask(r, messages=messages)[1] == "tokens", 10, "the late answer being kept")
    assert r.metric("warmpath_tokens_calls_total") >= 1
    r.at_rest()


def test_a_silent_engine_is_hedged():
    """when the first worker is silent at /tokenize, the second is asked"""
    hold = threading.Event()

    def answer(silent):
        def on(q):
            if q.target == "/tokenize" and silent:
                hold.wait(20)
            q.answer(200, {"count": 2, "tokens": [7, 8]} if q.target == "/tokenize" else CHAT)
        return on

    engines = [FakeEngine(answer(True)), FakeEngine(answer(False))]
    r = Router(engines, *PATIENT, "--set", "models.0.tokenizer.hedge_ms=1")

    def hedged():
        assert ask(r, messages=[{"role": "user", "content": os.urandom(8).hex()}])[1] == "tokens"
        return counted(r, "hedged")

    until(hedged, 10, "the silent one being asked first")
    hold.set()
    r.at_rest()


def test_a_client_that_goes_while_tokens_are_awaited():
    """a client that goes away while its prompt's tokens are awaited: the call is cancelled, nothing is dispatched"""
    asked, gone = threading.Event(), threading.Event()

    def answer(q):
        assert q.target == "/tokenize", q.target
        asked.set()
        if q.gone(20):
            gone.set()

    e = FakeEngine(answer)
    r = Router([e], *PATIENT)
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}).encode()
    s = socket.create_connection(("127.0.0.1", r.port))
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    assert asked.wait(10)
    reset(s)
    assert gone.wait(10)
    until(lambda: counted(r, "canceled") == 1, 10, "the question being cancelled")
    assert len(e.requests) == 1
    r.at_rest()


def test_a_reload_changes_the_tokenizer():
    """a reload switches the tokenizer on and off"""
    e = Engine("--speed", "1000")
    conf = {"listen": {"api": "127.0.0.1:0"}, "workers": [{"url": e.url}], "models": [{"name": MODEL, "tokenizer": {"kind": "bytes"}}]}
    r = Router(config=conf, ready=1)

    def switch(kind):
        conf["models"][0]["tokenizer"] = {"kind": kind, "limit_ms": 20000}
        with open(r.file, "w") as f:
            json.dump(conf, f)
        before = r.metric('warmpath_reloads_total{result="applied"}') or 0
        r.p.send_signal(signal.SIGHUP)
        until(lambda: r.metric('warmpath_reloads_total{result="applied"}') == before + 1, 10, "the reload")

    messages = [{"role": "user", "content": "hello there " * 10}]
    assert ask(r, messages=messages)[1] == "bytes"
    switch("engine")
    until(lambda: ask(r, messages=messages)[1] == "tokens", 10, "tokens")
    switch("bytes")
    until(lambda: ask(r, messages=messages)[1] == "bytes", 10, "bytes")
    switch("engine")
    until(lambda: ask(r, messages=messages)[1] == "tokens", 10, "tokens")
    r.at_rest()


def test_stopping_while_tokens_are_awaited():
    """the router stops at once, when told twice, while a prompt's tokens are awaited"""
    asked = threading.Event()

    def answer(q):
        asked.set()
        q.gone(20)

    e = FakeEngine(answer)
    r = Router([e], *PATIENT)
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}).encode()
    with socket.create_connection(("127.0.0.1", r.port)) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        assert asked.wait(10)
        r.p.send_signal(signal.SIGTERM)
        r.wait_log("drain")
        r.p.send_signal(signal.SIGTERM)
        r.p.wait(10)
