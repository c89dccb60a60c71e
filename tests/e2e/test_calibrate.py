# SPDX-License-Identifier: Apache-2.0
"""An engine that is not as fast as its profile says: the router learns it from when its answers begin.

How well is held against the engine model in virtual time (tests/unit/calibrate.c); on a loaded machine times only say whether it moves
the right way and settles.
"""
from lib import MODEL, Engine, Router, http, until

REQUESTS = 60


def ask(r, i):
    prompt = [1000 + (k * 7919 + i * 104729) % 100000 for k in range(3000 + 100 * (i % 30))]
    status, h, got = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 2, "stream": True,
                                                             "stream_options": {"include_usage": True}})
    assert status == 200, got
    return float(h["x-warmpath-ttft-ms"])


def router(e, speed, *more):
    return Router([e], *more, config={"models": [{"name": MODEL, "speed": speed}]}, ready=1)


def test_an_engine_that_is_slower_than_its_profile():
    """a worker at a tenth of the speed that is configured: predictions grow about tenfold and stay there; the metric and /workers say so"""
    e = Engine("--speed", 4)
    r = router(e, 40)
    first = ask(r, 0)
    told = [ask(r, i) for i in range(1, REQUESTS)]
    w = until(lambda: [w for w in r.workers() if w["calibration"]["samples"] >= REQUESTS // 2], 10, "samples")[0]
    assert w["correction"] > 3, w
    assert max(told[-10:]) > 3 * first, (first, told)
    assert max(told[-10:]) < 3 * min(told[-10:]), ("it has settled", told)
    c = w["calibration"]
    assert c["used"] and c["compute"]["factor"] > 2 and 0 < c["error"] < 0.3, c
    assert c["idle"]["answers"] + c["waiting"]["answers"] >= REQUESTS // 2, c
    factor = r.metric("warmpath_worker_cost_factor")
    assert factor > 3, factor
    inside = r.metric('warmpath_price_interval_total{result="inside"}')
    assert 0 < inside <= r.metric("warmpath_price_interval_total") == r.metric("warmpath_price_error_seconds_count"), inside
    r.at_rest()


def test_it_can_be_switched_off():
    """policy.price.calibrate: false believes the profile, whatever answers say"""
    e = Engine("--speed", 4)
    r = router(e, 40, "--set", "policy.price.calibrate=false")
    first, last = ask(r, 0), [ask(r, i * 30) for i in range(1, 12)][-1]
    assert abs(last / first - 1) < 0.05, (first, last)
    assert r.workers()[0]["calibration"]["used"] is False
    r.at_rest()
