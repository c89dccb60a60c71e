# SPDX-License-Identifier: Apache-2.0
"""The index checks itself: what it holds is shown, and held against what engines hold and say."""
import subprocess

import lib
from lib import MODEL, Router, http
from test_feeds import FedEngine, completion, live


def fleet(n, *args, config=None, ranks=1, **kw):
    engines = [FedEngine(*args, ranks=ranks, **kw) for _ in range(n)]
    conf = {"models": [{"name": MODEL, **(config or {})}],
            "workers": [{"id": f"w{i}", "url": e.url, "events": f"tcp://127.0.0.1:{e.events}", "replay": f"tcp://127.0.0.1:{e.replay}", "ranks": ranks}
                        for i, e in enumerate(engines)]}
    r = Router(config=conf, ready=n)
    live(r, n * ranks)
    return r, *engines


def ctl(r, *words):
    p = subprocess.run([lib.BINARY, "ctl", "--admin", f"http://127.0.0.1:{r.admin}", *map(str, words)], capture_output=True, text=True, timeout=30)
    return p.returncode, p.stdout, p.stderr


def numbers(first, n):
    return list(range(first, first + n))


def equal(r, engines):
    """As test_feeds.quiescent, by the ids that fleet() gives."""
    def same():
        index = {(w["worker"], w["rank"]): w for w in r.get("/index")["workers"]}
        return all(index[(f"w{i}", k)][t] == len(d[t]) for i, e in enumerate(engines) for k, d in ((int(k), d) for k, d in e.dump().items())
                   for t in ("gpu", "cpu", "disk"))
    lib.until(same, 10, "the index equal to every engine's dump")


def test_top_shared_prefixes():
    """/index?top=N and `ctl index --top N` show the longest prefixes that several workers hold, and who holds them"""
    r, *engines = fleet(3)
    shared, other = numbers(100, 800), numbers(5000, 160)
    for i, e in enumerate(engines):
        completion(e.port, shared + numbers(9000 + 100 * i, 64))
    for e in engines[:2]:
        completion(e.port, other + [1])
    equal(r, engines)
    index = r.get("/index?top=5")
    assert [(t["blocks"], t["holders"]) for t in index["top"]] == [(50, 3), (10, 2)], index["top"]
    first, second = index["top"]
    assert first["model"] == MODEL and first["block_size"] == 16
    assert {w["worker"] for w in first["workers"]} == {"w0", "w1", "w2"} and {w["worker"] for w in second["workers"]} == {"w0", "w1"}
    held = {e[2] for e in engines[0].dump()["0"]["gpu"]}
    assert first["block_hash"] in held and second["block_hash"] in held
    for w, e in zip(index["workers"], engines):
        assert w["blocks"] == w["gpu"] == len(e.dump()["0"]["gpu"]) and w["bytes"] >= 12 * w["blocks"], w
    assert set(index["growth"]) == {"blocks", "locations", "bytes"}
    assert len(r.get("/index?top=1")["top"]) == 1 and "top" not in r.get("/index")
    for bad in ("0", "101", "x", ""):
        assert http(r.admin, "GET", f"/index?top={bad}")[0] == 400, bad
    rc, out, err = ctl(r, "index", "--top", 2)
    assert rc == 0 and first["block_hash"] in out and "w0/0 w1/0 w2/0" in out, (out, err)
    assert ctl(r, "workers", "--top", 2)[0] == 2
