# SPDX-License-Identifier: Apache-2.0
"""What the index shows of itself: /query, /query_by_hash, ctl index and ctl query, over engines that announce what they hold."""
import json
import subprocess

import lib
from lib import MODEL, Router, http, until
from test_feeds import FedEngine, Talk, completion, live, quiescent


def ask(r, path, **body):
    status, _, got = http(r.admin, "POST", path, body)
    assert status == 200, got
    return json.loads(got)


def ctl(r, *words, body=None):
    p = subprocess.run([lib.BINARY, "ctl", "--admin", f"http://127.0.0.1:{r.admin}", *words], input=body, capture_output=True, text=True, timeout=30)
    assert p.returncode == 0, p.stderr
    return p.stdout


def test_a_query_is_what_the_engine_would_serve():
    """both forms of /query say of each engine and rank what it then serves from its cache"""
    engines = [FedEngine("--speed", 40, "--gpu-blocks", 400, ranks=1), FedEngine("--speed", 40, "--gpu-blocks", 400, ranks=2)]
    r = Router([e.spec for e in engines])
    live(r, 3)
    talk = Talk(21)
    for _ in range(40):
        completion(r.port, talk.next())
    quiescent(r, engines)
    one = engines[0]
    name = f"127.0.0.1:{one.port}"
    for t in talk.talks[-6:]:
        prompt = t + [7]  # one more than whole blocks can hold: an engine never serves the last token
        d = ask(r, "/query", model_name=MODEL, token_ids=prompt)
        m = ask(r, "/query", model=MODEL, block_size=16, token_ids=prompt)
        assert d["instances"] == m["instances"] and set(d["scores"]) == {f"127.0.0.1:{e.port}" for e in engines}
        assert {len(x["dp"]) for x in d["instances"].values()} == {1, 2}
        want = d["instances"][name]["longest_matched"]
        assert m["default"][name]["longest_matched"] == m["default"][name]["DP"]["0"] == d["scores"][name]["0"] == want
        got = completion(one.port, prompt, n=1)[1]["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert want == got, (want, got, len(prompt))
        quiescent(r, engines)
    page = ctl(r, "index").splitlines()
    rows = {tuple(l.split()[:3]) for l in page[2:]}
    assert rows == {(name, "0", "live"), *((f"127.0.0.1:{engines[1].port}", str(i), "live") for i in range(2))}, page
    assert "coverage" in page[1] and any(" 100% " in l for l in page[2:]), page
    assert all(w["feed"] == "live" for w in r.workers())
    assert all(w["coverage"] == 1 for w in r.get("/index")["workers"] if w["gpu"]), "known from its first batch"
    shown = ctl(r, "query", "--body", "-", body=json.dumps({"model_name": MODEL, "token_ids": prompt}))
    assert any(l.split() == [name, "0", *3 * [str(len(prompt) // 16 * 16)]] for l in shown.splitlines()), shown
    assert name in ctl(r, "query", "hash", "--body", "-", body=json.dumps({"model": MODEL, "seq_hashes": [1, 2]}))
    r.at_rest()


def test_doubt_ends_with_the_engines_word():
    """after lost messages the engine's cached_tokens confirms or contradicts what was claimed: prompts sent again are in doubt no more, and claimed as they are"""
    e = FedEngine("--speed", 40, "--gpu-blocks", 400, "--cpu-blocks", 0, "--fault", "lose=1,every=40,count=1", replay=False)
    r = Router([e.spec])
    live(r, 1)
    name = f"127.0.0.1:{e.port}"
    talk = Talk(22)
    for _ in range(200):
        completion(r.port, talk.next())
        if r.get("/index")["doubtful"]:
            break

    def doubtful(prompt):
        return next(c for c in ask(r, "/explain", model=MODEL, prompt=prompt)["candidates"] if c["worker"] == name)["overlap"]["doubtful"]

    asked = [p for p in talk.talks if doubtful(p)]
    assert asked, "no prompt in doubt"
    for prompt in asked:
        completion(r.port, prompt)
        until(lambda: doubtful(prompt) == 0, 10, "no doubt")
        claim, body = completion(r.port, prompt)
        assert int(claim["x-warmpath-overlap"].split(";")[0][6:]) == body["usage"]["prompt_tokens_details"]["cached_tokens"]
    r.at_rest()
