# SPDX-License-Identifier: Apache-2.0
"""The index checks itself: what it holds is shown, and held against what engines hold and say."""
import json
import subprocess

import lib
from lib import MODEL, FakeEngine, Router, chat, http
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


class Liar(FakeEngine):
    """Between the router and an engine: says that the engine had less in its cache than it had, from .less on."""

    def __init__(self, engine):
        self.engine, self.less, self.edit = engine, None, None
        super().__init__(self.pass_on, health=self.pass_on)

    def pass_on(self, r):
        if self.edit and r.target.partition("?")[0].endswith("/sim/cache"):
            r.answer(*self.edit(r.target))
            return
        status, h, body = http(self.engine.port, r.method, r.target, r.body if r.body else None)
        if h.get("content-type", "").startswith("application/json") and self.less is not None and b"cached_tokens" in body:
            j = json.loads(body)
            j["usage"]["prompt_tokens_details"]["cached_tokens"] = self.less
            body = json.dumps(j).encode()
        r.answer(status, body)


def lying_fleet(**config):
    e = FedEngine()
    liar = Liar(e)
    r = Router(config={"models": [{"name": MODEL, **config}],
                       "workers": [{"id": "w0", "url": liar.url, "events": f"tcp://127.0.0.1:{e.events}", "replay": f"tcp://127.0.0.1:{e.replay}"}]}, ready=1)
    live(r, 1)
    return r, e, liar


def test_wrong_claims_are_resynced():
    """a worker whose engine says, beyond chance, that it has less than its events claim is in doubt, once, and asked for everything again"""
    r, e, liar = lying_fleet()
    prompt = numbers(100, 400)
    completion(r.port, prompt)
    equal(r, [e])
    for _ in range(20):
        completion(r.port, prompt)
    w = r.get("/workers/w0")
    assert w["claims"] >= 20 and w["claims_wrong"] == 0 and w["resyncs"] == 0 and w["resync_why"] == "", w
    assert r.metric('warmpath_index_drift_blocks_bucket{worker="w0",le="0"}') == r.metric('warmpath_index_drift_blocks_count{worker="w0"}')
    for null in ("null", "absent"):  # says nothing, and is not 0
        liar.less = None
        before = r.metric('warmpath_index_drift_blocks_count{worker="w0"}')
        keep, liar.on_request = liar.on_request, lambda q, null=null: q.answer(200, {
            "id": "c", "object": "text_completion", "choices": [{"index": 0, "text": "a", "finish_reason": "length"}],
            "usage": {"prompt_tokens": len(prompt), "completion_tokens": 1, **({"prompt_tokens_details": None} if null == "null" else {})}})
        for _ in range(8):
            completion(r.port, prompt)
        liar.on_request = keep
        assert r.metric('warmpath_index_drift_blocks_count{worker="w0"}') == before, null
    liar.less = 0
    for _ in range(8):  # these tell of each token of the prompt, so that no cache is read
        completion(r.port, prompt, prompt_logprobs=None, echo=False)
    assert r.get("/workers/w0")["resyncs"] == 0
    for _ in range(6):
        assert r.get("/workers/w0")["resyncs"] == 0
        completion(r.port, prompt)
    r.wait_log(r"kv_events: worker=w0 rank=0 resync: \d+ of \d+ answers in a row had fewer cached tokens .*asked for again")
    lib.until(lambda: r.get("/index")["workers"][0]["feed"] == "live", 5, "the feed live again")
    w = r.get("/workers/w0")
    assert w["resyncs"] == 1 and "fewer cached tokens" in w["resync_why"], w
    assert r.metric('warmpath_index_resyncs_total{worker="w0"}') == 1
    lib.until(lambda: (lambda i: i["doubtful"] == i["gpu"] == 25)(r.get("/index")["workers"][0]), 5, "all there, and in doubt")
    liar.less = None
    completion(r.port, prompt)  # the engine's word: it has them
    lib.until(lambda: r.get("/index")["workers"][0]["doubtful"] <= 2, 5, "doubt that ends")
    for _ in range(20):
        completion(r.port, prompt)
    assert r.get("/workers/w0")["resyncs"] == 1


def test_confirm_off():
    """confirm: off leaves what an answer says of the cache alone"""
    r, e, liar = lying_fleet(confirm="off")
    prompt = numbers(100, 400)
    completion(r.port, prompt)
    equal(r, [e])
    liar.less = 0
    for _ in range(12):
        completion(r.port, prompt)
    w = r.get("/workers/w0")
    assert w["claims"] == 0 and w["resyncs"] == 0, w


def test_verify_agrees():
    """`ctl index --verify` says that the index has what a simulated engine has: digests by rank and tier, at the same batch"""
    r, e = fleet(1, "--gpu-blocks", 60, "--cpu-blocks", 300, ranks=2)
    for i in range(12):
        completion(r.port, numbers(1000 * i, 320))
    v = r.get("/index/verify/w0")
    assert v["agrees"] is True and v["engine"] == "simulated" and len(v["ranks"]) == 2, v
    dump = e.dump()
    for k, rank in enumerate(v["ranks"]):
        assert rank["feed_next"] == rank["engine_next"] == dump[str(k)]["next"] and rank["agrees"] is True, rank
        for t in rank["tiers"]:
            names = [int(b[0]) for b in dump[str(k)][t["tier"]]]
            assert t["index_names"] == t["engine_names"] == len(names) and t["index_digest"] == str(digest(names)), t
            assert t["missing"] == t["extra"] == 0 and t["agrees"] is True
    assert sum(t["index_names"] for rank in v["ranks"] for t in rank["tiers"] if t["tier"] == "cpu") > 0
    rc, out, err = ctl(r, "index", "--verify", "w0")
    assert rc == 0 and "the index has what the engine has" in out and "cpu   agrees" in out, (out, err)
    assert ctl(r, "index", "--verify", "w0", "--top", 1)[0] == 2 and ctl(r, "index", "--verify", "nobody")[0] == 1
    assert http(r.admin, "GET", "/index/verify/nobody")[0] == 404


def digest(names):
    """wp_index_digest() by its words: the first output of SplitMix64 from each name, added up."""
    total, mask = 0, 2**64 - 1
    for x in names:
        x = (x + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
        total += x ^ x >> 31
    return total & mask


def test_verify_differs():
    """what differs is told by name, and `ctl index --verify` ends with 1; what an engine does not tell is not known"""
    r, e, liar = lying_fleet()
    completion(r.port, numbers(100, 320))
    equal(r, [e])
    gone = []

    def edit(target):
        dump = json.loads(http(e.port, "GET", target)[2])
        if target.endswith("?names=true"):
            gone.append(dump["0"]["gpu"].pop(3))
            dump["0"]["gpu"] += ["1", "2"]
        else:
            dump["0"]["gpu"]["digest"] = "5"
        return 200, dump

    liar.edit = edit
    v = r.get("/index/verify/w0")
    gpu, cpu, disk = v["ranks"][0]["tiers"]
    assert v["agrees"] is False and v["ranks"][0]["agrees"] is False and cpu["agrees"] is True and disk["agrees"] is True, v
    assert gpu["agrees"] is False and gpu["index_names"] == 20 and gpu["engine_names"] == 21, gpu
    assert gpu["missing"] == 2 and sorted(gpu["missing_hashes"]) == ["1", "2"] and gpu["extra"] == 1 and gpu["extra_hashes"] == gone, gpu
    rc, out, err = ctl(r, "index", "--verify", "w0")
    assert rc == 1 and "gpu   differs: index 20, engine 21" in out and f"1 that only the index has: {gone[0]}" in out, (out, err)
    liar.edit = lambda target: (200, {**json.loads(http(e.port, "GET", target)[2]), "0": {
        **json.loads(http(e.port, "GET", target)[2])["0"], "next": 99, "gpu": [] if "names" in target else {"names": 0, "digest": "0"}}})
    v = r.get("/index/verify/w0")
    assert v["agrees"] is None and "goes on" in v["says"] and v["ranks"][0]["engine_next"] == 99, v
    liar.edit = lambda target: (404, {}, (), "Not Found")  # as real engines say
    v = r.get("/index/verify/w0")
    rank = v["ranks"][0]
    assert v["agrees"] is None and "does not tell" in v["says"] and rank["gpu_blocks"] == 20 and rank["capacity_blocks"] >= 20, v
    lib.until(lambda: r.get("/index/verify/w0")["ranks"][0]["in_use_blocks"] is not None, 10, "its usage known")
    rc, out, err = ctl(r, "index", "--verify", "w0")
    assert rc == 0 and "index 20 blocks on the gpu" in out and "room for" in out, (out, err)
    for bad in (b"{", b"[]", b"{}", b'{"0":7}', b'{"0":{"next":1,"pending":0,"gpu":[],"cpu":[],"disk":[]}}'):
        liar.edit = lambda target, bad=bad: (200, bad)
        assert r.get("/index/verify/w0")["agrees"] is None, bad
    liar.close()
    status, _, body = http(r.admin, "GET", "/index/verify/w0")
    assert status == 502, (status, body)


FRAME = '{"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":8}}}'
ONE = '{"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}'
EMPTY = '{"id":"c","choices":[],"prompt_filter_results":[]}'  # some engines' first one
BOTH = '{"id":"c","choices":[{"index":0,"delta":{"content":"b"}}],"usage":{"prompt_tokens":11,"completion_tokens":1}}'


def events(eol, *data, before=""):
    return before + "".join(f"data: {d}{eol}{eol}" for d in data)


def test_usage_that_is_injected_is_taken_out_again():
    """confirm: inject asks for usage in streams, and the client gets every byte but those of the event that brings it"""
    long = '{"id":"c","choices":[],"usage":{},"pad":"' + "x" * 20000 + '"}'  # more than is kept back: not taken for it
    streams = [(events(eol, EMPTY, ONE, BOTH), events(eol, FRAME), events(eol, "[DONE]")) for eol in ("\n", "\r\n", "\r")]
    streams += [(events("\n", ONE, before="\ufeff: hello\n\n\n"), events("\n", FRAME, before="event: usage\n: more\n"), ": bye\n\n" + events("\n", "[DONE]")),
                (events("\n", ONE), events("\n", FRAME.replace(',"usage"', ',\ndata: "usage"')), "data: [DONE]"),  # no end; and a frame of two lines
                (events("\n", ONE, long), events("\n", FRAME), events("\n", "[DONE]")),
                (events("\n", ONE), "", events("\n", "[DONE]"))]
    for before, frame, after in streams:
        for cut in (1, 7, 100000):
            def answer(q, whole=(before + frame + after).encode(), cut=cut):
                if cut == 1 and len(whole) > 5000:
                    cut = 997
                q.sse_head()
                for i in range(0, len(whole), cut):
                    q.chunk(whole[i:i + cut])
                q.end()

            e = FakeEngine(answer)
            r = Router(config={"models": [{"name": MODEL, "confirm": "inject"}], "workers": [{"url": e.url}]}, ready=1)
            sent = b'{"model": "%s", "stream" : true, "messages":[{"role":"user","content":"hi"}]}' % MODEL.encode()
            status, _, got = http(r.port, "POST", "/v1/chat/completions", sent)
            assert status == 200 and got == (before + after).encode(), (cut, frame, got)
            assert e.requests[-1].body == sent[:-1] + b',"stream_options":{"include_usage":true}}', e.requests[-1].body
            r.at_rest()
            assert (r.metric('warmpath_prompt_tokens_confirmed_total{source="gpu"}') or 0) == (8 if frame else 0)
            if cut == 7:
                for options in ({"include_usage": True}, {"continuous_usage_stats": True, "x": 1}):
                    status, _, got = chat(r.port, stream=True, stream_options=options)
                    assert status == 200 and got == (before + frame + after).encode() and json.loads(e.requests[-1].body)["stream_options"] == options
                for options in ({"include_usage": False}, {"x": 1.50}, {}, {"include_usage": None, "continuous_usage_stats": False}):
                    status, _, got = chat(r.port, stream=True, stream_options=options)
                    assert status == 200 and got == (before + after).encode(), options
                    assert json.loads(e.requests[-1].body)["stream_options"] == {**options, "include_usage": True}
                chat(r.port)
                assert "stream_options" not in json.loads(e.requests[-1].body)
                chat(r.port, stream=True, stream_options=None)
                assert json.loads(e.requests[-1].body)["stream_options"] == {"include_usage": True}
            r.end()
            e.close()


def test_streams_that_are_cut_while_usage_is_injected():
    """what was kept back of an event goes to the client before the event that tells of the break"""
    e = FakeEngine(lambda q: (q.sse_head(), q.chunk(events("\n", ONE).encode() + b'data: {"choi'), q.reset()))
    r = Router(config={"models": [{"name": MODEL, "confirm": "inject"}], "workers": [{"url": e.url}]}, ready=1)
    status, _, got = chat(r.port, stream=True)
    assert status == 200 and got.startswith(events("\n", ONE).encode() + b'data: {"choi\n\ndata: {"error"'), got
    r.at_rest()


def test_injected_usage_confirms():
    """with confirm: inject streams tell what the engine had, too; without, they do not"""
    for confirm, want in (("inject", 5), ("passive", 0)):
        r, e = fleet(1, config={"confirm": confirm})
        prompt = numbers(100, 400)
        completion(r.port, prompt)
        equal(r, [e])
        for _ in range(5):
            status, _, body = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt, "max_tokens": 2, "stream": True})
            assert status == 200 and b"[DONE]" in body and b"usage" not in body, body
        r.at_rest()
        assert r.get("/workers/w0")["claims"] == want and r.get("/workers/w0")["claims_wrong"] == 0, confirm
        r.end()
