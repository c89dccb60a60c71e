# SPDX-License-Identifier: Apache-2.0
"""The prefix doctor through real sockets: who breaks his own prefix cache is found, and who does not is not."""
import json
import subprocess

import lib
from lib import MODEL, Engine, Router, http, until

SECRET = "zanzibar"


def words(seed, n=60):
    return " ".join(f"{SECRET}{(seed * 7919 + i * 104729) % 5000}" for i in range(n))


def talk(who, turn, oldest=0):
    out = []
    for t in range(oldest, turn + 1):
        out.append({"role": "user", "content": words(who * 100 + 2 * t)})
        if t < turn:
            out.append({"role": "assistant", "content": words(who * 100 + 2 * t + 1)})
    return out


def system(line):
    return [{"role": "system", "content": "Be of help.\nBe kind.\n" + line + "\n" + "\n".join(words(900 + i, 12) for i in range(20))}]


CLIENTS = {
    "good": lambda t: {"messages": system("It is a day.") + talk(1, t)},
    "dated": lambda t: {"messages": system(f"It is 10:{t:02}.") + talk(2, t)},
    "window": lambda t: {"messages": system("It is a day.") + talk(3, t, max(0, t - 4))},
    "tools": lambda t: {"messages": system("It is a day.") + talk(4, t),
                        "tools": [{"type": "function", "function": {"name": f"f{(i + t) % 5}", "description": words(700 + (i + t) % 5)}} for i in range(5)]},
}


def send(r, body):
    status, _, got = http(r.port, "POST", "/v1/chat/completions", {"model": MODEL, "max_tokens": 1, **body})
    assert status == 200, got


def findings(r):
    got = r.get("/doctor")
    assert got["enabled"] and [m["model"] for m in got["models"]] in ([], [MODEL]), got
    return {f["kind"]: f for m in got["models"] for f in m["findings"]}


def test_each_client_is_judged_by_what_it_does():
    """GET /doctor, ctl doctor, metrics and the log name the three habits among four clients, with place and cost, and no text"""
    e = Engine("--speed", 200)
    r = Router([e])
    for t in range(12):
        for body in CLIENTS.values():
            send(r, body(t))
        if t == 2:
            assert not findings(r), "two turns are no habit"
    got = findings(r)
    assert set(got) == {"line", "window", "tools_order"}, got
    assert (got["line"]["part"], got["line"]["number"]) == ("system", 2), got["line"]
    assert (got["window"]["part"], got["window"]["number"]) == ("messages", 1), got["window"]
    assert got["tools_order"]["part"] == "tools"
    assert 0.5 < got["line"]["lost_share"] <= 1 and got["line"]["requests"] == 11 and got["line"]["sessions"] == 1, got["line"]
    assert got["window"]["stepwise_hit_share"] > got["window"]["hit_share"] > 0, got["window"]
    for kind, f in got.items():
        assert r.metric(f'warmpath_prefix_breaks_total{{model="{MODEL}",kind="{kind}"}}') == f["requests"]
        assert r.metric(f'warmpath_prefix_lost_tokens_total{{model="{MODEL}",kind="{kind}"}}') > 0
        assert len([l for l in r.log if "doctor" in l and f": {kind} at " in l]) == 1, "one line for each finding"
    said = subprocess.run([lib.BINARY, "ctl", "--admin", f"http://127.0.0.1:{r.admin}", "doctor"], capture_output=True, text=True, timeout=20)
    assert said.returncode == 0 and all(k in said.stdout for k in ("line", "window", "tools_order", "at system 2", "cut by steps")), said.stdout
    for text in (json.dumps(r.get("/doctor")), said.stdout, "\n".join(r.log), http(r.admin, "GET", "/metrics")[2].decode()):
        assert SECRET not in text, "no text of a prompt anywhere"
    r.at_rest()


def test_it_can_be_switched_off():
    """doctor: false looks at nothing, also by a reload"""
    e = Engine("--speed", 200)
    r = Router([e], "--set", "doctor=false")
    for t in range(6):
        send(r, CLIENTS["dated"](t))
    assert r.get("/doctor") == {"enabled": False}
    assert r.metric("warmpath_prefix_breaks_total") is None
    said = subprocess.run([lib.BINARY, "ctl", "--admin", f"http://127.0.0.1:{r.admin}", "doctor"], capture_output=True, text=True, timeout=20)
    assert "off" in said.stdout, said.stdout


def test_several_loops_share_one_doctor():
    """a client's requests come over several connections and loops, and are one conversation all the same"""
    e = Engine("--speed", 200)
    r = Router([e], "--threads", 3)
    for t in range(8):
        send(r, CLIENTS["dated"](t))
    until(lambda: "line" in findings(r), 5, "the finding")
