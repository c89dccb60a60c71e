# SPDX-License-Identifier: Apache-2.0
"""The admin port, `warmpath ctl` and `warmpath check`, against router and fake engines."""
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import threading

import lib
from cases import *
from lib import CHAT, MODEL, Router, chat, http, raw, until

GETS = ("/metrics", "/version", "/config", "/workers", "/index", "/decisions", "/decisions?last=5")


def tokens(n, seed=1):
    return [1000 + (i * 7919 + seed * 104729) % 100000 for i in range(n)]


def ident(e):
    return f"127.0.0.1:{e.port}"


def explain(r, **body):
    status, _, got = http(r.admin, "POST", "/explain", {"model": MODEL, **body})
    assert status == 200, got
    return json.loads(got)


def test_every_call_without_a_key():
    """every admin call answers as surface.md says; unknown ones are 404, wrong methods 405 with all that are right"""
    with stage() as (r, e):
        assert chat(r.port)[0] == 200
        for path in ("/livez", "/readyz", *GETS):
            status, h, body = http(r.admin, "GET", path)
            assert status == 200, path
            if path == "/metrics":
                assert h["content-type"].startswith("text/plain; version=0.0.4")
            else:
                assert h["content-type"] == "application/json" and json.loads(body)
            status, h, body = http(r.admin, "HEAD", path)
            assert status == 200 and body == b"", path
        one = json.loads(http(r.admin, "GET", "/decisions?last=1")[2])["decisions"]
        assert len(one) == 1 and r.get(f"/decisions/{one[0]['id']}") == one[0]
        assert r.get(f"/workers/{ident(e)}")["url"] == e.url
        for path in ("/", "/nothing", "/workers/none", "/decisions/0", "/decisions/x", "/decisions/99999999999999999999", "/livez/", "/workers/a/b"):
            if path == "/" and http(r.admin, "GET", path)[0] == 200:
                continue  # the page comes with a later issue
            got = raw(r.admin, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert check_error(got, 404)["code"] == "not_found", path
        assert r.metric('warmpath_requests_total{code="404"}') is None, "the admin port's answers are not the API's"
        for method, path, allow in (("PUT", "/workers", {"GET", "HEAD", "POST"}), ("GET", "/explain", {"POST"}), ("POST", "/metrics", {"GET", "HEAD"}),
                                    ("POST", f"/workers/{ident(e)}", {"GET", "HEAD", "DELETE"}), ("GET", "/reload", {"POST"})):
            status, h, body = http(r.admin, method, path)
            assert status == 405 and set(h["allow"].split(", ")) == allow, (path, h["allow"])
            assert code(body) == "method_not_allowed"
        for bad in ("last=0", "last=-1", "last=x", "last=1025", "last="):
            status, _, body = http(r.admin, "GET", "/decisions?" + bad)
            assert status == 400 and json.loads(body)["error"]["param"] == "last", bad


def test_every_call_with_a_key():
    """with an admin key every call but /livez and /readyz needs it; a wrong one is 401 and changes nothing"""
    file = tempfile.NamedTemporaryFile("w", suffix=".key", delete=False)
    file.write("admin-secret\n")
    file.close()
    os.chmod(file.name, 0o600)
    e = engine()
    r = Router([e], "--set", f"listen.admin_key_file={file.name}", ready=0)
    good = {"Authorization": "Bearer admin-secret"}
    until(lambda: http(r.admin, "GET", "/readyz")[0] == 200, 10)
    assert http(r.admin, "GET", "/livez")[0] == 200
    calls = [("GET", p) for p in GETS] + [("POST", "/workers"), ("POST", "/explain"), ("POST", "/reload"), ("DELETE", f"/workers/{ident(e)}"),
                                           ("POST", f"/workers/{ident(e)}/drain"), ("GET", "/nothing"), ("PUT", "/workers")]
    for method, path in calls:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic admin-secret"}):
            status, h, body = http(r.admin, method, path, headers=headers)
            assert status == 401 and h["www-authenticate"] == "Bearer" and code(body) == "unauthorized", (method, path, status)
    for path in GETS:
        status, _, body = http(r.admin, "GET", path, headers=good)
        assert status == 200 and b"admin-secret" not in body
    workers = json.loads(http(r.admin, "GET", "/workers", headers=good)[2])["workers"]
    assert [w["id"] for w in workers] == [ident(e)] and not workers[0]["draining"]
    assert http(r.admin, "GET", "/nothing", headers=good)[0] == 404
    os.unlink(file.name)


def test_ports_beyond_loopback_need_keys():
    """neither port listens beyond loopback without its key; what would allow it is said"""
    for flags in (["--listen", "0.0.0.0:0"], ["--admin", "0.0.0.0:0"], ["--listen", "[::]:0"], ["--listen", ":0"], ["--listen", "192.0.2.1:0"]):
        base = {"--listen": "127.0.0.1:0", "--admin": "127.0.0.1:0"}
        given = [x for k, v in base.items() if k not in flags for x in (k, v)]
        p = subprocess.run([lib.BINARY, "serve", *given, *flags, "--worker", "http://127.0.0.1:1"], capture_output=True, text=True, timeout=20)
        assert p.returncode == 2 and "insecure" in p.stderr, (flags, p.stderr)


def check_terms(c):
    """The terms of a price add up to it."""
    terms = c["terms_us"]
    assert c["price_us"] is not None and all(v >= 0 for v in terms.values()), c
    assert abs(sum(terms.values()) - c["price_us"]) <= 1e-6 * max(1, c["price_us"]), c
    assert {"wait", "compute", "room"} <= set(terms), terms
    o = c["overlap"]
    assert o["total"] == sum(v for k, v in o.items() if k not in ("total", "doubtful", "history", "in_flight")), o


def test_explain_is_what_is_then_chosen():
    """POST /explain says what is then chosen; terms add up to the price; it dispatches and changes nothing"""
    with stage(None, None, None) as (r, *engines):
        warm = tokens(4000)
        _, h, _ = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": warm})
        holder = h["x-warmpath-worker"]
        sent = sum(len(e.requests) for e in engines)
        r.at_rest()
        before = r.get("/decisions?last=1")
        for prompt in (warm, warm + tokens(500, 2), warm[:2000], warm[:100]):
            x = explain(r, prompt=prompt)
            assert len(x["candidates"]) == 3 and x["tokens"] == len(prompt) and x["kind"] == "tokens" and x["policy"] == "price"
            for c in x["candidates"]:
                check_terms(c)
                usable = (min(len(prompt), len(warm)) - (len(prompt) <= len(warm))) // 16 * 16 if c["worker"] == holder else 0
                assert c["overlap"]["total"] == c["overlap"]["history"] == usable, (c, usable)
            best = min(c["price_us"] for c in x["candidates"])
            chosen = next(c for c in x["candidates"] if c["worker"] == x["chosen"])
            assert chosen["price_us"] <= best * 1.02 + 1100, "the choice is no near-tie of the cheapest"
        x = explain(r, prompt=warm)
        assert x["chosen"] == holder
        assert sum(len(e.requests) for e in engines) == sent and r.get("/decisions?last=1") == before
        _, h, _ = http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": warm}, {"x-warmpath-explain": "1"})
        assert h["x-warmpath-worker"] == holder and h["x-warmpath-overlap"].startswith("total=3984;")
        r.at_rest()
        d = r.get(f"/decisions/{h['x-warmpath-decision']}")
        assert d["chosen"] == holder and d["policy"] == "price" and d["outcome"] == "good" and d["actual_ttft_us"] > 0
        assert [c["worker"] for c in d["candidates"]][0] == holder and len(d["candidates"]) == d["workers"] == 3
        for c in d["candidates"]:
            check_terms(c)
        by = {c["worker"]: c for c in x["candidates"]}
        for c in d["candidates"]:  # the same facts gave the same prices
            assert abs(c["price_us"] - by[c["worker"]]["price_us"]) < 1e-6 * c["price_us"] + 1
        prices = [c["price_us"] for c in d["candidates"][1:]]
        assert prices == sorted(prices)


def test_explain_shows_load():
    """requests under way show as wait, in flight entries as overlap; both end with them"""
    hold = threading.Event()
    with stage(lambda q: (hold.wait(20), q.answer(200, CHAT))) as (r, e):
        prompt = tokens(8000)
        t = threading.Thread(target=lambda: http(r.port, "POST", "/v1/completions", {"model": MODEL, "prompt": prompt}))
        t.start()
        until(lambda: e.requests)
        c = explain(r, prompt=prompt)["candidates"][0]
        check_terms(c)
        assert c["in_flight"] == 1 and c["terms_us"]["wait"] > 0 and c["overlap"]["in_flight"] == 7984 and c["overlap"]["history"] == 0, c
        w = r.workers()[0]
        assert w["in_flight"] == 1 and w["prefill_backlog_tokens"] == 8000 and w["wait_us"] > 0
        assert r.metric("warmpath_worker_in_flight") == 1 and r.metric("warmpath_worker_prefill_backlog_tokens") == 8000
        assert r.get("/index")["in_flight_blocks"] == 500
        hold.set()
        t.join()
        r.at_rest()
        c = explain(r, prompt=prompt)["candidates"][0]
        assert c["terms_us"]["wait"] == 0 and c["overlap"]["in_flight"] == 0 and c["overlap"]["history"] == 7984
        assert r.metric("warmpath_worker_in_flight") == 0 and r.metric("warmpath_worker_prefill_backlog_tokens") == 0


def test_explain_says_why_not():
    """/explain refuses what a request would be refused for, and says why nobody can be chosen"""
    with stage() as (r, e):
        for body, status, want in ((b"{", 400, "bad_json"), (b'{"model":"none","prompt":"x"}', 404, "model_not_found"),
                                   (b'{"model":"test-model","messages":null}', 200, None), (b'{"model":"test-model","messages":7}', 400, "invalid_value"),
                                   (b'{"model":"test-model","prompt":{}}', 400, "invalid_value"),
                                   (b'{"model":"test-model","prompt":"x","bootstrap_room":1}', 400, "routing_field_refused")):
            got = http(r.admin, "POST", "/explain", body)
            assert got[0] == status or (status == 200 and got[0] == 400), (body, got)
            assert status == 200 or code(got[2]) == want, (body, got)
        assert http(r.admin, "POST", f"/workers/{ident(e)}/drain", b"")[0] == 200
        x = explain(r, prompt="hello")
        assert x["chosen"] is None and x["why"] == "drain" and x["candidates"] == []
        assert http(r.admin, "POST", f"/workers/{ident(e)}/undrain", b"")[0] == 200
    for policy in ("round_robin", "random", "least_loaded", "power_of_two", "prefix_hash", "session",
                   "least_work", "dynamo", "sglang", "llmd", "preble", "conductor"):
        with stage(None, None, args=("--policy", policy)) as (r, *_):
            x = explain(r, prompt=tokens(100))
            assert x["policy"] == policy and x["chosen"] in [c["worker"] for c in x["candidates"]] and len(x["candidates"]) == 2
            for c in x["candidates"] if policy != "conductor" else []:  # what they compare stands as the term `score`
                assert c["price_us"] is None or c["price_us"] == c["terms_us"]["score"], c


def test_workers_at_run_time():
    """workers are added, drained, brought back and removed by hand; what is wrong is 400, 404 or 409 and changes nothing"""
    with stage() as (r, e):
        extra = engine()
        status, _, body = http(r.admin, "POST", "/workers", {"url": extra.url, "id": "extra", "tags": {"zone": "a"}})
        assert status == 201, body
        until(lambda: r.get("/workers/extra")["ready"], 5)
        assert r.get("/workers/extra")["tags"] == {"zone": "a"}
        for bad, want in (({"url": extra.url, "id": "extra"}, 409), ({"url": "nonsense"}, 400), ({}, 400), ({"url": extra.url, "urll": 1}, 400),
                          ({"url": extra.url, "engine": "vlm"}, 400), ({"url": extra.url, "id": "a/b"}, 400), ([], 400), ("x", 400)):
            status, _, body = http(r.admin, "POST", "/workers", bad)
            assert status == want and json.loads(body)["error"]["message"], (bad, status, body)
        for bad in (b"", b"{", b'{"url":', b"\0", b"url: http://x:1"):
            assert http(r.admin, "POST", "/workers", bad)[0] == 400, bad
        assert http(r.admin, "POST", "/workers", b"x" * (2 << 20))[0] == 413
        assert sorted(w["id"] for w in r.workers()) == sorted([ident(e), "extra"])
        assert http(r.admin, "POST", f"/workers/{ident(e)}/drain", b"")[0] == 200
        for _ in range(5):
            assert chat(r.port)[1]["x-warmpath-worker"] == "extra"
        assert http(r.admin, "POST", "/workers/extra/drain")[0] == 200
        status, h, body = chat(r.port)
        assert status == 503 and code(body) == "no_worker" and json.loads(body)["error"]["param"] == "drain" and h["retry-after"]
        assert http(r.admin, "GET", "/readyz")[0] == 503 and http(r.port, "GET", "/health")[0] == 503
        for name in (ident(e), "extra"):
            assert http(r.admin, "POST", f"/workers/{name}/undrain", b"")[0] == 200
        assert http(r.admin, "DELETE", "/workers/extra")[0] == 200
        for act in ("added", "drained", "undrained", "removed"):
            until(lambda: r.grep(f"info admin: {act} worker=extra by=127\\.0\\.0\\.1$"), 5, act)
        for method, path in (("DELETE", "/workers/extra"), ("POST", "/workers/extra/drain"), ("POST", "/workers/extra/undrain"), ("GET", "/workers/extra")):
            assert http(r.admin, method, path)[0] == 404, path
        extra.close()


def test_the_model_list_is_a_union():
    """/v1/models is the union of what workers list, each once; ids with slashes are found, plain and encoded"""
    a, b = engine(), engine(model="org/other model")
    r = Router(config={"models": [{"name": MODEL, "aliases": ["short"]}], "workers": [{"url": e.url} for e in (a, b, engine())]}, ready=3)
    page = json.loads(http(r.port, "GET", "/v1/models")[2])
    assert page["object"] == "list" and [m["id"] for m in page["data"]] == [MODEL, "org/other model", "short"]
    assert all(m["object"] == "model" and {"created", "owned_by", "root", "parent"} <= set(m) for m in page["data"])
    for path, want in (("/v1/models/" + MODEL, MODEL), ("/v1/models/org/other%20model", "org/other model"), ("/v1/models/org%2Fother%20model", "org/other model"),
                       ("/v1/models/short", "short")):
        status, _, body = http(r.port, "GET", path)
        assert status == 200 and json.loads(body)["id"] == want, path
    for path in ("/v1/models/", "/v1/models/none", "/v1/models/%", "/v1/models/%zz", "/v1/models/" + "x" * 2000):
        status, _, body = http(r.port, "GET", path)
        assert status == 404 and code(body) in ("model_not_found", "not_found"), (path, body)
    r.at_rest()


def test_metrics_page():
    """the metrics page is what Prometheus reads: a HELP and TYPE each, numbers, buckets that add up, and the names of surface.md"""
    with stage() as (r, e):
        e.on_request = lambda q: play_stream(q)
        chat(r.port, stream=True)
        r.at_rest()
        text = http(r.admin, "GET", "/metrics")[2].decode()
        types, seen = {}, set()
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ", 3)
                assert name not in types
                types[name] = kind
            elif not line.startswith("#"):
                m = re.fullmatch(r'([a-z_:]+)(\{(?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)', line)
                assert m, line
                float(m[3].replace("Inf", "inf"))
                base = re.sub(r"_(bucket|sum|count)$", "", m[1])
                assert m[1] in types or base in types, line
                assert line.rsplit(" ", 1)[0] not in seen, "a series twice"
                seen.add(line.rsplit(" ", 1)[0])
        for name in ("warmpath_requests_total", "warmpath_request_ttft_seconds", "warmpath_request_itl_seconds", "warmpath_overhead_seconds",
                     "warmpath_prompt_tokens_total", "warmpath_price_error_seconds", "warmpath_index_blocks", "warmpath_index_bytes",
                     "warmpath_index_cap_bytes", "warmpath_worker_in_flight", "warmpath_worker_prefill_backlog_tokens", "warmpath_worker_up",
                     "warmpath_worker_breaker_state", "warmpath_retries_total", "warmpath_loop_lag_seconds", "warmpath_build_info"):
            assert name in types, name
        for name, kind in types.items():
            if kind == "histogram":
                count = lib.metric(text, name + "_count")
                last = lib.metric(text, name + '_bucket{le="+Inf"}')
                assert last == count, name
        assert r.metric(f'warmpath_requests_total{{model="{MODEL}",code="200"}}') == 1


def play_stream(q):
    q.sse_head()
    for _ in range(3):
        q.chunk(EVENT)
    q.chunk(b"data: [DONE]\n\n")
    q.end()


def ctl(r, *words, body=None, key=None):
    more = ["--key-file", key] if key else []
    p = subprocess.run([lib.BINARY, "ctl", "--admin", f"http://127.0.0.1:{r.admin}" if r else "http://127.0.0.1:1", *more, *words],
                       input=body, capture_output=True, text=True, timeout=30)
    return p.returncode, p.stdout, p.stderr


def test_ctl():
    """`warmpath ctl` has a command for each call, prints tables or JSON, and ends with 0, 1 or 2"""
    with stage() as (r, e):
        chat(r.port)
        body = json.dumps({"model": MODEL, "prompt": tokens(100)})
        number = r.get("/decisions?last=1")["decisions"][0]["id"]
        for words, stdin, want in ((["version"], None, "version"), (["workers"], None, ident(e)), (["workers", "show", ident(e)], None, e.url),
                                   (["index"], None, "in_flight_blocks"), (["decisions"], None, "decision"), (["decision", str(number)], None, ident(e)),
                                   (["explain", "--body", "-"], body, "policy price, 100 prompt tokens (tokens)"), (["workers", "drain", ident(e)], None, "done"),
                                   (["workers"], None, "drain"), (["workers", "undrain", ident(e)], None, "done")):
            if words[:2] == ["workers", "drain"] and ctl(r, *words)[0] == 2:
                words = words[1:]  # spelt `ctl drain ID`
            elif words[:2] == ["workers", "undrain"] and ctl(r, *words)[0] == 2:
                words = words[1:]
            rc, out, err = ctl(r, *words, body=stdin)
            assert rc == 0 and want in out and not err, (words, rc, out, err)
            rc, out, err = ctl(r, "--json", *words, body=stdin)
            assert rc == 0 and json.loads(out), (words, out, err)
        for words in ([], ["worker"], ["wrkers"], ["workers", "sho", "x"], ["decision"], ["explain"], ["workers", "show"], ["index", "x"], ["--admn", "x", "index"],
                      ["a", "b", "c", "d", "e"]):
            rc, out, err = ctl(r, *words)
            assert rc == 2 and not out and err.startswith("warmpath ctl: "), (words, rc, out, err)
        assert 'did you mean "workers"' in ctl(r, "wrkers")[2]
        for words in (["workers", "show", "none"], ["decision", "0"], ["workers", "remove", "none"]):
            rc, out, err = ctl(r, *words)
            assert rc in (1, 2) and err.startswith("warmpath ctl: "), (words, rc, out, err)
        assert ctl(r, "explain", "--body", "/no/such/file")[0] == 1
        assert ctl(r, "explain", "--body", "-", body="{")[0] == 1
        rc, out, err = ctl(None, "workers")
        assert rc == 1 and "connection refused" in err, err
        assert ctl(r, "--help")[0] == 0 and "workers" in ctl(r, "--help")[1]
    silent = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=lambda: (lambda s: (s.recv(9999), s.sendall(b"garbage\r\n\r\n"), s.close()))(silent.accept()[0]), daemon=True).start()
    p = subprocess.run([lib.BINARY, "ctl", "--admin", f"http://127.0.0.1:{silent.getsockname()[1]}", "workers"], capture_output=True, text=True, timeout=30)
    assert p.returncode == 1 and p.stderr.startswith("warmpath ctl: "), p.stderr
    silent.close()


def test_ctl_with_a_key():
    """ctl sends the key of --key-file; without one it says what the router said and ends with 1"""
    file = tempfile.NamedTemporaryFile("w", suffix=".key", delete=False)
    file.write("admin-secret\n")
    file.close()
    os.chmod(file.name, 0o600)
    r = Router(["http://127.0.0.1:1"], "--set", f"listen.admin_key_file={file.name}", ready=0)
    assert ctl(r, "workers", key=file.name)[0] == 0
    rc, _, err = ctl(r, "workers")
    assert rc == 1 and "401" in err and "key" in err
    assert ctl(r, "workers", key="/no/such/file")[0] == 1
    os.unlink(file.name)


def test_a_worker_that_never_comes_is_told_of():
    """an address where nobody listens is said once in the log, with its cause, and stands with it in `ctl workers`"""
    good = FakeEngine()
    with socket.create_server(("127.0.0.1", 0)) as s:
        nobody = f"127.0.0.1:{s.getsockname()[1]}"
    r = Router([good, f"http://{nobody}"], "--set", "health.fail=2", "--set", "health.interval_s=0.1", ready=1, log="info")
    r.wait_log(rf"warn worker: worker={nobody} .*has not come up: connection refused")
    rc, out, err = ctl(r, "workers")
    row = next(l for l in out.splitlines() if l.startswith(nobody))
    assert rc == 0 and " joining " in row and "(connection refused)" in row, out
    assert "(" not in next(l for l in out.splitlines() if l.startswith(f"127.0.0.1:{good.port}")), out
    FakeEngine(port=int(nobody.rpartition(":")[2]))
    until(lambda: all(w["ready"] for w in r.workers()), 10, "it came")
    assert len([l for l in r.log if "has not come up" in l]) == 1, r.log


def test_a_request_can_be_traced():
    """its id leads to its decision and to one line of the log; a failed one is a warning, and its answer names the worker"""
    def answer(q):
        if b"die" in q.body:
            q.reset()
        elif b"bad" in q.body:
            q.answer(400, {"error": {"message": "bad"}})
        else:
            q.answer(200, CHAT)

    r = Router([FakeEngine(answer)], "--set", "health.fail=100")
    worker = r.workers()[0]["id"]

    def ask(name, **body):
        return chat(r.port, headers={"x-request-id": name}, **body)

    assert ask("good-1")[0] == 200
    assert ask("bad-1", user="bad")[0] == 400
    status, h, _ = ask("die-1", user="die")
    assert status == 502 and h["x-warmpath-worker"] == worker and h["x-request-id"] == "die-1", h.items()
    assert ask("no-1", model="no-such-model")[0] == 404
    line = r.wait_log(r"debug request: (id=good-1 .*)")[1]
    for part in (f" model={MODEL} ", f" worker={worker} ", " status=200 ", " attempts=1 ", " outcome=good", " ttft_ms="):
        assert part in line + " ", (part, line)
    assert " ttft_ms=- " not in line and re.search(r" tokens=[1-9]\d* hit=\d+ ", line), line
    assert " status=400 " in r.wait_log(r"debug request: (id=bad-1 .* outcome=neutral)")[1]
    assert "did not answer" in r.wait_log(rf"warn request: id=die-1 .* worker={worker} status=502 .* outcome=failed: (.*)")[1]
    r.wait_log(r"debug request: id=no-1 .* worker=- status=404 .* outcome=refused")
    for name in ("good-1", "bad-1", "die-1", "no-1"):
        assert len([l for l in r.log if f"id={name} " in l and " status=" in l]) == 1, name
    found = {d["request_id"]: d["outcome"] for d in r.get("/decisions?last=10")["decisions"]}
    assert found["good-1"] == "good" and found["bad-1"] == "neutral" and "no-1" not in found, found
    number = r.get("/decisions?last=10")["decisions"][0]["id"]
    assert "request die-1," in ctl(r, "decision", str(number))[1]
    count = lambda outcome: r.metric(f'warmpath_worker_requests_total{{worker="{worker}",outcome="{outcome}"}}')
    assert (count("good"), count("failed"), count("busy")) == (1, 1, 0), [count(o) for o in ("good", "failed", "busy")]
    for i in range(40):
        ask(f"die-{i + 2}", user="die")
    r.wait_log(r"debug request: id=die-41 .* outcome=failed")
    assert 5 <= len([l for l in r.log if "warn request: id=die" in l]) <= 25


def check(text):
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False) as f:
        f.write(text)
    p = subprocess.run([lib.BINARY, "check", "-c", f.name], capture_output=True, text=True, timeout=30)
    os.unlink(f.name)
    return p.returncode, p.stdout.replace(f.name, "FILE"), p.stderr.replace(f.name, "FILE")


def test_check():
    """`warmpath check` says FILE:LINE: key: want, got; a right file ends with 0, a wrong one with 2, and never starts"""
    rc, out, err = check("workers:\n  - {url: 'http://127.0.0.1:1'}\npolicy: {name: price}\n")
    assert rc == 0 and not err, (rc, out, err)
    for text, line, words in (("workers:\n  - {url: 'http://127.0.0.1:1'}\npolicy: {name: prise}\n", 3, ["prise", "price"]),
                              ("workers:\n  - {ur: 'http://127.0.0.1:1'}\n", 2, ["ur", "url"]),
                              ("workers:\n  - {url: 'ftp://127.0.0.1:1'}\n", 2, ["url"]),
                              ("workers:\n  - {url: 'http://127.0.0.1:1'}\nlimits:\n  head_s: -1\n", 4, ["limits.head_s", "-1"]),
                              ("workers:\n  - {url: 'http://127.0.0.1:1'}\nlimits:\n  head_s: 1\n  head_s: 2\n", 5, ["head_s"]),
                              ("a: &x 1\nb: *x\n", 1, []), ("workers: [\n", None, []), ("{\"workers\": [}", None, []),
                              ("workers:\n  - {url: 'http://127.0.0.1:1'}\n  - {url: 'http://127.0.0.1:1'}\n", 3, ["127.0.0.1:1"])):
        rc, out, err = check(text)
        assert rc == 2 and "FILE:" in out + err, (text, rc, out, err)
        said = out + err
        assert line is None or f"FILE:{line}: " in said, (text, said)
        assert all(w in said for w in words), (text, said)
    p = subprocess.run([lib.BINARY, "check", "-c", "/no/such/file"], capture_output=True, text=True)
    assert p.returncode == 2 and "/no/such/file" in p.stderr + p.stdout
    p = subprocess.run([lib.BINARY, "check"], capture_output=True, text=True)
    assert p.returncode == 2
    sample = pathlib.Path(lib.__file__).resolve().parents[2] / "deploy/warmpath.yaml"
    assert subprocess.run([lib.BINARY, "check", "-c", str(sample)], capture_output=True).returncode == 0


def test_ctl_shows_no_control_bytes():
    """names that hold control bytes reach no terminal, and the chosen worker stands first"""
    with stage(None, None) as (r, *_):
        fake = engine(model="evil\x1b]0;x\x07\u009b31m")
        assert http(r.admin, "POST", "/workers", {"url": fake.url, "id": "evil"})[0] == 201
        until(lambda: r.get("/workers/evil")["ready"], 5)
        rc, out, _ = ctl(r, "workers")
        assert rc == 0 and "evil?]0;x???31m" in out and not any(ord(c) < 32 and c != "\n" or 127 <= ord(c) < 160 for c in out), out
        rc, out, _ = ctl(r, "explain", "--body", "-", body=json.dumps({"model": MODEL, "prompt": tokens(100)}))
        assert rc == 0 and out.splitlines()[2].startswith("* "), out
        rc, _, err = ctl(r, "workers", "show", "nope")
        assert rc == 1 and "There is no worker of that id" in err, err


def test_a_reload_of_costs():
    """what a model's engines cost is in force after a reload for workers that are there already"""
    e = engine()
    conf = {"workers": [{"url": e.url}], "models": [{"name": MODEL}]}
    r = Router(config=conf, ready=1)
    assert r.workers()[0]["speed"] == 1 and r.workers()[0]["found"] == "openai"
    with open(r.file, "w") as f:
        json.dump({**conf, "models": [{"name": MODEL, "speed": 4}]}, f)
    assert http(r.admin, "POST", "/reload", b"")[0] == 200
    assert r.workers()[0]["speed"] == 4
    assert r.metric("warmpath_history_blocks") == 0
    chat(r.port, messages=[{"role": "user", "content": "x" * 5000}])
    r.at_rest()
    assert r.metric("warmpath_history_blocks") == r.workers()[0]["history_blocks"] > 0
    os.unlink(r.file)
