# SPDX-License-Identifier: Apache-2.0
"""Engines that fail, each in its way."""
import json
import socket
import threading
import time

from lib import CHAT, DATA, MODEL, FakeEngine, Router, chat, http, play, read_all, until


def code(body):
    return json.loads(body)["error"]["code"]


def script(name):
    return (DATA / "cases/sse" / name).read_text()


def test_a_connect_failure_goes_to_the_other_worker():
    """a refused connect goes to the other worker at once and costs nothing upstream"""
    gone = FakeEngine()
    good = FakeEngine()
    r = Router([gone, good], "--policy", "round_robin", "--set", "health.interval_s=60")
    gone.close()
    for _ in range(6):
        assert chat(r.port)[0] == 200
    assert len(good.requests) == 6
    r.at_rest()


def test_both_engines_down_then_up():
    """with all engines down each request gets 503 JSON with Retry-After at once; service is back within the probe interval (B064, B104)"""
    a, b = FakeEngine(), FakeEngine()
    ports = a.port, b.port
    r = Router([a, b], "--set", "health.interval_s=1")
    a.close()
    b.close()
    for _ in range(50):
        status, h, body = chat(r.port)
        assert status in (502, 503) and code(body) in ("no_worker", "upstream_failed"), body
        assert 1 <= int(h["retry-after"]) <= 5
    FakeEngine(port=ports[0])
    FakeEngine(port=ports[1])
    until(lambda: chat(r.port)[0] == 200, 10, "service")
    until(lambda: all(w["ready"] for w in r.workers()), 20, "both ready")
    r.at_rest()


def test_429_goes_elsewhere_and_marks_nobody():
    """a 429 is tried once on the other worker; neither is marked broken, and its Retry-After is kept (B106)"""
    busy = FakeEngine(lambda q: q.answer(429, {"error": {"message": "busy"}}, [("Retry-After", "2")], "Too Many"))
    good = FakeEngine()
    r = Router([busy, good], "--policy", "round_robin")
    for _ in range(4):
        assert chat(r.port)[0] == 200
    assert len(busy.requests) == 1, "the worker was asked again inside its own Retry-After"
    assert all(w["breaker"] == "closed" for w in r.workers())
    r.at_rest()


def test_429_without_retry_after_does_not_attract():
    """an engine that says 429 to everything, without Retry-After, rests: it gets a few requests and the clients none of its answers"""
    busy = FakeEngine(lambda q: q.answer(429, {"error": {"message": "busy"}}, reason="Too Many"))
    good = FakeEngine(lambda q: (time.sleep(0.005), q.answer(200, CHAT)))
    r = Router([busy, good])
    statuses = []

    def client():
        for _ in range(25):
            statuses.append(chat(r.port)[0])

    threads = [threading.Thread(target=client) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert statuses == [200] * 200, statuses
    assert len(busy.requests) <= 40, len(busy.requests)
    w = next(w for w in r.workers() if w["url"] == busy.url)
    assert w["breaker"] == "closed" and w["failed"] == 0 and w["busy"] == len(busy.requests), w
    r.wait_log(r"warn worker: worker=\S+ rests for 0\.5 s: .*429")
    r.at_rest()


def test_a_fleet_that_is_full_says_429():
    """engines that say 429 to everything: the first answers are theirs, then the router says the same without asking them"""
    e = FakeEngine(lambda q: q.answer(429, {"error": {"message": "mine"}}, reason="Too Many"))
    r = Router([e])
    answers = [chat(r.port) for _ in range(30)]
    assert all(status == 429 for status, _, _ in answers)
    assert b"mine" in answers[0][2]
    assert any(code(body) == "overloaded" and 1 <= int(h["retry-after"]) <= 5 for _, h, body in answers if b"mine" not in body)
    assert len(e.requests) < 15, len(e.requests)
    r.at_rest()


def test_the_only_worker_saying_503_is_passed_on():
    """an engine's own 503 and 429 pass unchanged when nobody else can serve"""
    answers = [(503, {"error": {"message": "loading", "x": 1.0}}), (429, {"object": "error", "message": "flat"})]
    e = FakeEngine(lambda q: q.answer(*answers[q.number % 2]))
    r = Router([e], "--set", "health.interval_s=0.2")
    for want, body in answers:
        status, _, got = until(lambda: (lambda a: a if a[0] != 503 or b"no_worker" not in a[2] else None)(chat(r.port)), 5)
        assert status == want and json.loads(got) == body


def test_every_exclusion_ends():
    """two engines that each said 503 once are served again after a bounded pause (B193)"""
    state = {"bad": True}

    def answer(q):
        q.answer(503, {"error": {"message": "at capacity"}}) if state["bad"] else q.answer(200, CHAT)

    r = Router([FakeEngine(answer), FakeEngine(answer)], "--set", "health.interval_s=0.5")
    for _ in range(20):
        chat(r.port)
    state["bad"] = False
    until(lambda: chat(r.port)[0] == 200, 10, "service")
    until(lambda: all(w["breaker"] == "closed" and w["ready"] for w in [chat(r.port)] and r.workers()), 20, "both back")


def test_4xx_pass_and_are_neutral():
    """4xx of an engine pass byte for byte and never open its breaker"""
    body = b'{"error":{"message":"no \\ud800","code":400, "n": 1e400}}'
    e = FakeEngine(lambda q: q.answer(400, body, [("X-Odd", "a  b")], "Bad Request"))
    r = Router([e])
    for _ in range(30):
        status, h, got = chat(r.port)
        assert (status, got, h["X-Odd"]) == (400, body, "a  b")
    assert r.workers()[0]["breaker"] == "closed" and r.workers()[0]["ready"]


def test_a_request_that_kills_its_worker_is_repeated_once():
    """a request in flight on a worker that dies is repeated once; if that one dies too it is 502 and goes nowhere else"""
    def die(q):
        q.reset()

    engines = [FakeEngine(die) for _ in range(4)]
    r = Router(engines, "--policy", "round_robin")
    status, h, body = chat(r.port)
    assert status == 502 and code(body) == "upstream_failed" and h["x-should-retry"] == "false"
    asked = [len(e.requests) for e in engines if e.requests]
    assert asked == [1, 1], asked  # probes have connections of their own, so none of these was a kept one
    r.at_rest()


def test_a_worker_that_resets_everything_costs_no_client_an_answer():
    """requests that an engine resets, on kept connections and on fresh ones, are served by the other one"""
    bad = FakeEngine(lambda q: q.reset())
    good = FakeEngine()
    r = Router([bad, good], "--policy", "round_robin", "--set", "health.fail=1000")
    answers = [chat(r.port)[0] for _ in range(30)]
    assert answers == [200] * 30, answers
    assert len(good.requests) == 30 and len(bad.requests) >= 15
    r.at_rest()


def test_the_reuse_race_is_not_the_clients_problem():
    """a kept connection that the engine closes as the request arrives is repeated on a fresh one"""
    def answer(q):
        q.answer(200, CHAT)
        q.sock.close()  # without Connection: close: the router may believe that it can use it again

    e = FakeEngine(answer)
    r = Router([e])
    for i in range(200):
        status, _, body = chat(r.port)
        assert status == 200, (i, body)
    assert r.workers()[0]["breaker"] == "closed"
    r.at_rest()


def test_a_stream_that_dies_ends_in_one_error_event():
    """a stream that dies after 1 or n events ends in an OpenAI-shaped error event, never in [DONE] (B075)"""
    for events in (1, 3):
        def answer(q, n=events):
            q.sse_head()
            for i in range(n):
                q.chunk(b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
            until(lambda: True)
            q.reset()

        e = FakeEngine(answer)
        r = Router([e])
        status, h, body = chat(r.port, stream=True)
        assert status == 200 and body.count(b"upstream_failed") == 1 and b"[DONE]" not in body, body
        last = [l for l in body.decode().split("\n\n") if l][-1]
        assert last.startswith("data: ") and json.loads(last[6:])["error"]["code"] == "upstream_failed"
        assert r.metric("warmpath_broken_answers_total") == 1
        r.at_rest()


def test_a_stream_that_dies_before_its_first_event_is_not_begun():
    """a stream of which nothing but the head came is asked for elsewhere; where there is no other it is 502, not a stream (B075)"""
    def die(q):
        q.sse_head()
        q.reset()

    def serve(q):
        q.sse_head()
        q.chunk(b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
        q.chunk(b"data: [DONE]\n\n")
        q.end()

    bad, good = FakeEngine(die), FakeEngine(serve)
    r = Router([bad, good], "--policy", "round_robin", "--set", "health.fail=1000")
    for _ in range(10):
        status, _, body = chat(r.port, stream=True)
        assert status == 200 and body.endswith(b"data: [DONE]\n\n") and b"error" not in body, body
    assert len(bad.requests) >= 5 and len(good.requests) == 10
    r.at_rest()
    good.close()
    status, h, body = chat(r.port, stream=True)
    assert status in (502, 503) and h["content-type"].startswith("application/json"), (status, body)
    r.at_rest()


def test_a_frozen_engine_lets_its_requests_go():
    """an engine that is stopped with requests in it: when its probes say so they are served elsewhere, and their connections closed"""
    frozen = threading.Event()
    thaw = threading.Event()
    gone = []

    def wait(q):
        frozen.set()
        gone.append(q.gone(30))

    def health(q):
        if frozen.is_set():
            thaw.wait(30)
        q.answer(200, {"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    bad, good = FakeEngine(wait, health=health), FakeEngine()
    r = Router([bad, good], "--policy", "round_robin", "--set", "health.interval_s=0.2", "--set", "health.fail=2")
    results = []
    threads = [threading.Thread(target=lambda s=s: results.append(chat(r.port, stream=s)[0])) for s in (True, False) * 3]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert results == [200] * 6, results
    until(lambda: len(gone) == len(bad.requests) >= 1 and all(gone), 10, "the connections being closed")
    assert r.metric('warmpath_retries_total{reason="down"}') == len(bad.requests)
    thaw.set()
    r.at_rest()


def test_a_cut_json_answer_is_cut_for_the_client_too():
    """an answer with a length that breaks off is never passed off as whole"""
    def answer(q):
        q.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"a\":")
        q.reset()

    r = Router([FakeEngine(answer)])
    body = b'{"model":"test-model","messages":[{"role":"user","content":"x"}]}'
    with socket.create_connection(("127.0.0.1", r.port)) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        got = read_all(s, 3)
    assert b"content-length: 1000" in got.lower() and not got.endswith(b"}")
    r.at_rest()


def test_an_error_as_the_first_event_is_a_failure():
    """an error as the first event of a 200 stream passes unchanged, gives no TTFT and moves the breaker (B200)"""
    text = script("B200-error-first.sse")
    e = FakeEngine(lambda q: play(q, text))
    r = Router([e], "--set", "health.interval_s=60")
    for _ in range(3):
        status, _, body = chat(r.port, stream=True)
        assert status == 200 and b"error" in body
    assert r.workers()[0]["breaker"] == "open"
    assert r.metric("warmpath_request_ttft_seconds_count") == 0
    r.at_rest()


def test_garbage_from_an_engine_is_an_error_for_its_request_alone():
    """answers that are not HTTP, too long a head, both lengths, endless 1xx: 502 each, and the router goes on"""
    bad = [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100000 + b"\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"",
    ]
    e = FakeEngine(lambda q: (q.send(bad[q.number % len(bad)]), q.sock.close()))
    r = Router([e], "--set", "health.fail=1000")
    for i in range(len(bad)):
        status, _, body = chat(r.port)
        assert status == 502 and code(body) == "upstream_failed", (i, status, body)
    assert r.p.poll() is None
    r.at_rest()


def test_retries_are_bounded_by_the_budget():
    """when every engine says 503 the requests written upstream stay near the requests asked (amplification)"""
    engines = [FakeEngine(lambda q: q.answer(503, {"error": {}})) for _ in range(4)]
    r = Router(engines, "--set", "health.fail=1000", "--set", "retry.budget=0.1")
    n = 300
    for _ in range(n):
        chat(r.port)
    written = sum(len(e.requests) for e in engines)
    assert written <= n * 1.1 + 11, written


def test_a_dead_engine_does_not_block_the_start():
    """one dead engine and one that accepts and never answers do not keep the third from serving"""
    silent = socket.create_server(("127.0.0.1", 0))
    good = FakeEngine()
    r = Router(["http://127.0.0.1:1", f"http://127.0.0.1:{silent.getsockname()[1]}", good], ready=1)
    assert chat(r.port)[0] == 200
    assert http(r.admin, "GET", "/readyz")[0] == 200
    silent.close()


def test_a_removed_or_dead_worker_never_holds_up_others():
    """a stopped engine (it accepts, and answers nothing) is avoided after its deadline; others serve meanwhile"""
    hang = threading.Event()
    slow = FakeEngine(lambda q: (hang.wait(20), q.sock.close()))
    good = FakeEngine()
    r = Router([slow, good], "--policy", "least_loaded", "--set", "limits.first_byte_s=2")
    results = []
    threads = [threading.Thread(target=lambda: results.append(chat(r.port, stream=True)[0])) for _ in range(10)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    hang.set()
    assert results == [200] * 10, results
    r.at_rest()
