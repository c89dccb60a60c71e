# SPDX-License-Identifier: Apache-2.0
"""A router that is started again knows what it knew: index.snapshot, with engines that went on meanwhile."""
import os
import stat
import tempfile

from lib import Engine, Router, http, until
from test_feeds import FedEngine, Talk, claimed, completion, live, play, probes_agree, quiescent


def snapshot_file():
    return os.path.join(tempfile.mkdtemp(), "index.snapshot")


def warm(engines, file, *args):
    return Router([e.spec for e in engines], "--set", f"index.snapshot={file}", "--set", "index.snapshot_s=0", *args)


def fleet(n, *args):
    return [FedEngine("--speed", 40, "--gpu-blocks", 400, "--cpu-blocks", 200, "--hash-seed", i, *args) for i in range(n)]


def blocks(r):
    return {(w["worker"], w["rank"]): w["gpu"] + w["cpu"] + w["disk"] for w in r.get("/index")["workers"]}


def sure(r):
    until(lambda: r.get("/index")["doubtful"] == 0, 20, "no doubt left")


def take(r):
    n = r.metric('warmpath_index_snapshots_total{result="good"}') or 0
    assert http(r.admin, "POST", "/index/snapshot", b"")[0] == 200
    until(lambda: r.metric('warmpath_index_snapshots_total{result="good"}') > n, 20, "a snapshot")


def test_a_restarted_router_is_warm_at_once():
    """SIGTERM, requests past the router meanwhile, restart: what is claimed is what was, nothing is asked of an engine twice, and events go on exactly"""
    engines, file, talk = fleet(3), snapshot_file(), Talk(31)
    r = warm(engines, file)
    live(r, 3)
    play(r, talk, 150, threads=2)
    quiescent(r, engines)
    before = blocks(r)
    r.end()
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert not os.path.exists(file + ".new")
    second = warm(engines, file)
    second.wait_log(r"restored \d+ blocks at \d+ locations")
    live(second, 3)
    quiescent(second, engines)
    assert blocks(second) == before
    sure(second)
    h, body = completion(second.port, talk.talks[-1])
    assert int(h["x-warmpath-overlap"].split(";")[0][6:]) == body["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    second.end()
    for e in engines:  # they go on without a router
        for _ in range(10):
            completion(e.port, talk.next())
    third = warm(engines, file)
    live(third, 3)
    quiescent(third, engines)
    sure(third)
    bad = play(third, talk, 100, threads=1)
    assert len(bad) <= 5, bad[:5]  # 0 as a rule
    quiescent(third, engines)
    probes_agree(third, engines, talk, n=4)
    third.at_rest()


def test_a_killed_router_goes_on_from_its_last_snapshot():
    """a snapshot under traffic, more traffic, SIGKILL: the replay brings what came after it"""
    engines, file, talk = fleet(2), snapshot_file(), Talk(32)
    r = warm(engines, file, "--set", "threads=2")
    live(r, 2)
    play(r, talk, 80, threads=3)
    take(r)
    play(r, talk, 60, threads=3)
    take(r)
    assert r.metric("warmpath_index_snapshot_bytes") == os.stat(file).st_size
    assert r.metric("warmpath_index_snapshot_age_seconds") >= 0
    play(r, talk, 40, threads=2)
    r.kill()
    r.p.wait()
    second = warm(engines, file)
    live(second, 2)
    quiescent(second, engines)
    sure(second)
    probes_agree(second, engines, talk, n=4)


def test_what_changed_meanwhile_is_not_claimed():
    """an engine that was started anew holds nothing; one whose replay does not reach back is in doubt; one that is not configured any more is dropped"""
    engines, file, talk = fleet(2) + fleet(1, "--replay-buffer", 4), snapshot_file(), Talk(33)
    anew, short = engines[0], engines[2]
    r = warm(engines, file)
    live(r, 3)
    for e in engines:
        for _ in range(12):
            completion(e.port, talk.next())
    quiescent(r, engines)
    r.end()
    anew.kill()
    anew.p.wait()
    again = Engine("--events", f"tcp://127.0.0.1:{anew.events}", "--events-mode", "bind", "--replay", f"tcp://127.0.0.1:{anew.replay}",
                   "--speed", 40, "--gpu-blocks", 400, "--hash-seed", 9, port=anew.port)
    for _ in range(3):
        completion(again.port, talk.next())
    for _ in range(30):
        completion(short.port, talk.next())
    second = warm([anew, short], file)
    live(second, 2)
    index = {w["worker"]: w for w in second.get("/index")["workers"]}
    assert len(index) == 2
    until(lambda: claimed(second, f"127.0.0.1:{anew.port}", talk.system[0] + talk.tokens(16))["total"] <= 160, 10, "the new engine's claims")
    second.wait_log(rf"worker=127\.0\.0\.1:{anew.port} rank=0 started anew")
    second.wait_log(rf"worker=127\.0\.0\.1:{short.port} rank=0 lost messages")
    assert second.get("/index")["doubtful"] > 0
    index = {w["worker"]: w for w in second.get("/index")["workers"]}
    assert index[f"127.0.0.1:{anew.port}"]["doubtful"] == 0
    assert index[f"127.0.0.1:{short.port}"]["doubtful"] > 0


def test_a_file_that_is_not_whole_is_refused():
    """a wrong byte, a cut file and a folder: the reason is logged, and the router starts with nothing"""
    engines, file, talk = fleet(1), snapshot_file(), Talk(34)
    r = warm(engines, file)
    live(r, 1)
    play(r, talk, 30, threads=1)
    r.end()
    whole = open(file, "rb").read()
    wrong = bytearray(whole)
    wrong[len(wrong) // 2] ^= 4
    for data, why in ((wrong, "a checksum is wrong"), (whole[:len(whole) * 2 // 3], "a frame is longer than what is left"),
                      (whole[:40], "a frame is longer than what is left"), (b"", "empty, or not a file"),
                      (b"x" * 100, "it begins with other bytes")):
        open(file, "wb").write(data)
        second = warm(engines, file)
        second.wait_log(r"refused, starting with an empty index: .*" + why)
        live(second, 1)
        quiescent(second, engines)  # its replay reaches back to the beginning
        second.kill()
        second.p.wait()


def test_a_snapshot_that_cannot_be_written():
    """a folder that is gone: a metric and a line, the router goes on; without a file the call says so"""
    engines, file = fleet(1), snapshot_file()
    r = warm(engines, file)
    os.rmdir(os.path.dirname(file))
    assert http(r.admin, "POST", "/index/snapshot", b"")[0] == 200
    until(lambda: r.metric('warmpath_index_snapshots_total{result="failed"}') == 1, 10, "the failure being counted")
    r.wait_log(r"index\.snapshot: .*the one before stays")
    r.end()
    plain = Router([e.spec for e in engines])
    assert http(plain.admin, "POST", "/index/snapshot", b"")[0] == 400


def test_ranks_come_back():
    """two ranks behind one port take their own records again"""
    e, file, talk = FedEngine("--speed", 40, "--gpu-blocks", 400, ranks=2), snapshot_file(), Talk(35)
    r = warm([e], file)
    live(r, 2)
    play(r, talk, 40, threads=4)
    quiescent(r, [e])
    before = blocks(r)
    r.end()
    second = warm([e], file)
    live(second, 2)
    quiescent(second, [e])
    assert blocks(second) == before
    sure(second)
