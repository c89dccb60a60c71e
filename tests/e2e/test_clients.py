# SPDX-License-Identifier: Apache-2.0
"""The official OpenAI clients (Python, Node), curl, openssl s_client, nghttp and h2load, as they are, through the router.

The clients come from PyPI and npm into build/venv and build/node, for these tests alone; where they cannot be had the tests
are skipped and say so.
"""
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import lib
from cases import *
from lib import CHAT, MODEL, Engine, Router, Skip, until
from test_tls import LOCAL, Authority, with_tls

SET = "clients"
HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build"


def install(what, *commands, cwd=None):
    for command in commands:
        try:
            p = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=50)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise Skip(f"{what} cannot be had: {e}")
        if p.returncode:
            raise Skip(f"{what} cannot be had: {' '.join(map(str, command))}: {(p.stderr or p.stdout).strip().splitlines()[-1:]}")


@functools.cache
def python():
    exe = BUILD / "venv/bin/python"
    if not exe.exists():
        install("a Python environment", [sys.executable, "-m", "venv", str(BUILD / "venv")])
    if subprocess.run([exe, "-c", "import openai"], capture_output=True).returncode:
        install("openai for Python", [exe, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "openai"])
    return [str(exe), str(HERE / "clients/client.py")]


@functools.cache
def node():
    if not shutil.which("node"):
        raise Skip("node is not installed")
    folder = BUILD / "node"
    if not (folder / "node_modules/openai").exists():
        if not shutil.which("npm"):
            raise Skip("npm is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text('{"private": true}\n')
        install("openai for Node", ["npm", "install", "--silent", "--no-audit", "--no-fund", "openai"], cwd=folder)
    return ["node", str(HERE / "clients/client.mjs")]


def run(client, scene, r, ca=None):
    """ca: over TLS, with that authority."""
    url = f"https://localhost:{r.port}/v1" if ca else f"http://127.0.0.1:{r.port}/v1"
    p = subprocess.run([*client(), scene, url], capture_output=True, text=True, timeout=50,
                       env={**os.environ, "WP_NODE": str(BUILD / "node"), "NO_PROXY": "*", "OPENAI_LOG": "off",
                            **({"SSL_CERT_FILE": ca, "NODE_EXTRA_CA_CERTS": ca} if ca else {})})
    assert p.returncode == 0, f"{scene}: {p.stderr[-2000:]}"
    return json.loads(p.stdout.splitlines()[-1])


def stream(q, n=3):
    q.sse_head()
    for i in range(n):
        q.chunk(b'data: ' + json.dumps({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [
            {"index": 0, "delta": {"content": f"w{i} "}, "finish_reason": None}]}).encode() + b"\n\n")


def served(client):
    """Through simulated engines: everything that a program does with the client on a good day."""
    r = Router([Engine("--speed", 50), Engine("--speed", 50)])
    got = run(client, "serve", r)
    assert got["models"] == [MODEL] and got["one"] == MODEL, got
    assert got["chat"] and got["stream"] and got["text"] and got["pieces"] >= 8 and got["ids"] == 1, got
    assert got["usage"] > 8 and got["stream_usage"] == got["usage"], got
    assert got["finish"] in ("length", "stop") and len(got["request_id"]) == 32, got
    assert run(client, "many", r) == {"ok": 60}
    r.at_rest()


def over_tls(client):
    """The same over https: a good day, an error, a stream that breaks, and one that is dropped."""
    a = Authority()
    tls = with_tls(a.sign("server", LOCAL))
    fast = Engine("--speed", 50)
    r = Router([fast], *tls)
    got = run(client, "serve", r, a.ca)
    assert got["models"] == [MODEL] and got["chat"] and got["stream"] and got["stream_usage"] == got["usage"], got
    assert run(client, "many", r, a.ca) == {"ok": 60}
    assert run(client, "not_found", r, a.ca)["code"] == "model_not_found"
    r.at_rest()
    r.end()
    e = Engine("--speed", 1)
    r = Router([e], *tls)
    assert run(client, "cancel", r, a.ca) == {"ok": True}
    until(lambda: e.metric("vllm:num_requests_running") == 0, 5, "the engine being free")
    r.at_rest()
    r.end()
    r = Router([engine(lambda q: (stream(q), q.reset()))], *tls)
    got = run(client, "stream_error", r, a.ca)
    assert got["error"] == "APIError" and got["code"] == "upstream_failed" and got["seen"] == 3, got
    r.at_rest()


def errors(client):
    """Each error arrives as the class that the client has for it, with code, param and request id; keys."""
    with stage() as (r, e):
        got = run(client, "not_found", r)
        assert (got["error"], got["status"], got["code"], got["param"]) == ("NotFoundError", 404, "model_not_found", "model"), got
        assert len(got["request_id"]) == 32
        assert run(client, "no_model", r)["error"] == "NotFoundError"
        got = run(client, "bad", r)
        assert (got["error"], got["status"], got["param"]) == ("BadRequestError", 400, "messages"), got
        said = {"error": {"message": "max_tokens is too large", "type": "BadRequestError", "param": "max_tokens", "code": 400}}
        e.on_request = lambda q: q.answer(422, said)
        got = run(client, "plain", r)
        assert got["error"] == "UnprocessableEntityError" and got["param"] == "max_tokens", got
        e.on_request = lambda q: q.answer(200, CHAT)
    keys = BUILD / "test.keys"
    keys.write_text("sk-right\n")
    os.chmod(keys, 0o600)
    e = engine()
    r = Router([e], "--set", f"listen.api_keys_file={keys}")
    got = run(client, "wrong_key", r)
    assert (got["error"], got["status"], got["code"]) == ("AuthenticationError", 401, "unauthorized"), got
    assert "error" not in run(client, "right_key", r)


def retries(client):
    """429 and 503 are tried again after retry-after; what the router has tried itself is not (x-should-retry)."""
    def busy_once(q):
        if q.number == 0:
            q.answer(429, {"error": {"message": "busy", "type": "rate_limit_error", "param": None, "code": "429"}}, [("Retry-After", "1")])
        else:
            q.answer(200, CHAT)

    with stage(busy_once) as (r, e):
        started = time.monotonic()
        assert "error" not in run(client, "patient", r)
        assert time.monotonic() - started >= 1, "it came back before retry-after"
        assert [q.number for q in e.requests] == [0, 1]
    with stage(args=("--set", "limits.per_worker=1", "--set", "limits.queue=0")) as (r, e):
        first = threading.Event()
        e.on_request = lambda q: (first.wait(20), q.answer(200, CHAT))
        t = threading.Thread(target=lambda: lib.chat(r.port))
        t.start()
        until(lambda: e.requests)
        got = run(client, "plain", r)
        assert (got["error"], got["status"], got["code"], got["param"]) == ("RateLimitError", 429, "overloaded", "queue"), got
        release = threading.Thread(target=lambda: (until(lambda: r.metric('warmpath_requests_total{code="429"}') >= 2), first.set()))
        release.start()
        assert "error" not in run(client, "patient", r)
        release.join()
        t.join()
    r = Router(["http://127.0.0.1:1"], ready=0)
    got = run(client, "plain", r)
    assert (got["error"], got["status"], got["code"]) == ("InternalServerError", 503, "no_worker"), got
    r.end()
    with stage(lambda q: q.reset(), lambda q: q.reset(), args=("--policy", "round_robin")) as (r, a, b):
        got = run(client, "patient", r)
        assert (got["error"], got["status"], got["code"]) == ("InternalServerError", 502, "upstream_failed"), got
        assert len(a.requests) + len(b.requests) == 2 and r.metric('warmpath_requests_total{code="502"}') == 1, "the client asked again"


def streams(client):
    """A stream that breaks raises the client's own error behind what came; one that is dropped frees the engine."""
    with stage(lambda q: (stream(q), q.reset())) as (r, e):
        got = run(client, "stream_error", r)
        assert got["error"] == "APIError" and got["code"] == "upstream_failed" and got["seen"] == 3, got
    e = Engine("--speed", 1)
    r = Router([e])
    assert run(client, "cancel", r) == {"ok": True}
    until(lambda: r.metric("warmpath_client_gone_total") == 2)
    until(lambda: e.metric("vllm:num_requests_running") == 0, 5, "the engine being free")
    r.at_rest()


def test_python_is_served():
    """the official Python client: chat, completions, streams, models, 60 at once"""
    served(python)


def test_python_errors():
    """the official Python client gets its own error classes, with code, param and request id"""
    errors(python)


def test_python_retries():
    """the official Python client retries after retry-after, and not what x-should-retry forbids"""
    retries(python)


def test_python_streams():
    """the official Python client: a broken stream raises, a dropped one frees the engine"""
    streams(python)


def test_node_is_served():
    """the official Node client: chat, completions, streams, models, 60 at once"""
    served(node)


def test_node_errors():
    """the official Node client gets its own error classes, with code, param and request id"""
    errors(node)


def test_node_retries():
    """the official Node client retries after retry-after, and not what x-should-retry forbids"""
    retries(node)


def test_node_streams():
    """the official Node client: a broken stream raises, a dropped one frees the engine"""
    streams(node)


def test_python_over_tls():
    """the official Python client over https: served, errors, a broken and a dropped stream"""
    over_tls(python)


def test_node_over_tls():
    """the official Node client over https: served, errors, a broken and a dropped stream"""
    over_tls(node)


def tool(name):
    if not shutil.which(name):
        raise Skip(f"{name} is not installed")
    return name


def test_s_client():
    """openssl s_client: TLS 1.2 and 1.3, sessions that are taken up again, ALPN, a request by hand, renegotiation refused"""
    a = Authority()
    r = Router([engine()], *with_tls(a.sign("server", LOCAL)))

    def talk(*args, say=b"", code=0):
        p = subprocess.run([tool("openssl"), "s_client", "-connect", f"localhost:{r.port}", "-CAfile", a.ca, "-verify_return_error", *args], input=say,
                           capture_output=True, timeout=40)
        assert code is None or p.returncode == code, (args, p.stdout[-500:], p.stderr[-500:])
        return p.stdout + p.stderr

    ask = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for version in ("-tls1_2", "-tls1_3"):
        got = talk(version, "-quiet", "-ign_eof", say=ask)
        assert b"HTTP/1.1 200 OK" in got and MODEL.encode() in got, got
        with tempfile.NamedTemporaryFile() as session:
            talk(version, "-ign_eof", "-sess_out", session.name, say=ask)
            assert b"Reused, TLSv1" in talk(version, "-ign_eof", "-sess_in", session.name, say=ask)
    assert b"ALPN protocol: h2" in talk("-alpn", "h2,http/1.1") and b"ALPN protocol: http/1.1" in talk("-alpn", "http/1.1")
    assert b"CONNECTED" in talk("-tls1_1", code=None) and b"alert" in talk("-tls1_1", code=None)
    got = talk("-tls1_2", say=b"R\n" + ask, code=None)
    assert b"HTTP/1.1 200" not in got and b"RENEGOTIATING" in got, got[-300:]
    r.at_rest()


def test_nghttp2_over_tls():
    """nghttp and h2load over TLS by ALPN: a stream, and 2,000 requests on 4 connections with 32 streams each of which none fails"""
    a = Authority()
    e = Engine("--speed", 100)
    r = Router([e], *with_tls(a.sign("server", LOCAL)))
    url = f"https://localhost:{r.port}/v1/chat/completions"
    with tempfile.NamedTemporaryFile() as f:
        f.write(chat_body(True, max_tokens=8))
        f.flush()
        out = subprocess.run([tool("nghttp"), "-y", "-d", f.name, "-H", "content-type: application/json", url], capture_output=True, text=True, timeout=40)
        assert out.stdout.rstrip().endswith("data: [DONE]"), out
        out = subprocess.run([tool("h2load"), "-n", "2000", "-c", "4", "-m", "32", "-d", f.name, "-H", "content-type: application/json", url],
                             capture_output=True, text=True, timeout=100)
    assert "2000 succeeded, 0 failed, 0 errored" in out.stdout and "Application protocol: h2" in out.stdout, out.stdout
    r.at_rest()


def curl(*args, body=None):
    if not shutil.which("curl"):
        raise Skip("curl is not installed")
    p = subprocess.run(["curl", "-sS", "--noproxy", "*", "-i", *args], input=body, capture_output=True, timeout=40)
    assert p.returncode == 0, (args, p.stderr)
    return p.stdout


def test_curl():
    """curl: streams with -N, chunked uploads with -T-, Expect with a body of 2 MiB, HTTP/1.0, HEAD"""
    with stage(lambda q: (stream(q), q.chunk(b"data: [DONE]\n\n"), q.end()) if b'"stream": true' in q.body else q.answer(200, CHAT)) as (r, e):
        url = f"http://127.0.0.1:{r.port}/v1/chat/completions"
        kind = ("-H", "Content-Type: application/json")
        got = curl("-N", *kind, "-d", chat_body(True).decode(), url)
        assert status_of(got) == 200 and got.endswith(b"data: [DONE]\n\n")
        got = curl("-T-", "-X", "POST", *kind, "--expect100-timeout", "20", url, body=chat_body())
        assert got.count(b"HTTP/1.1 200 OK") == 1, got
        big = chat_body(pad="x" * (2 << 20))
        got = curl("--expect100-timeout", "20", *kind, "-H", "Expect: 100-continue", "--data-binary", "@-", url, body=big)
        assert b"HTTP/1.1 100 Continue" in got and b"HTTP/1.1 200 OK" in got and e.requests[-1].body == big
        got = curl("--http1.0", *kind, "-d", chat_body(True).decode(), url)
        assert got.startswith(b"HTTP/1.1 200") and got.endswith(b"data: [DONE]\n\n")
        assert curl("-I", f"http://127.0.0.1:{r.port}/v1/models").startswith(b"HTTP/1.1 200")
        got = curl("-F", f"model={MODEL}", "-F", "file=@-;filename=a.wav", f"http://127.0.0.1:{r.port}/v1/audio/transcriptions", body=b"RIFF" * 1000)
        assert b"HTTP/1.1 200 OK" in got and b"RIFF" * 1000 in e.requests[-1].body
        got = curl(*kind, "-d", "{", url)
        assert status_of(got) == 400


def test_curl_gone_in_mid_stream():
    """a curl that is killed in mid-stream frees the engine"""
    if not shutil.which("curl"):
        raise Skip("curl is not installed")
    gone = []
    with stage(lambda q: (stream(q), gone.append(q.gone(20)))) as (r, e):
        p = subprocess.Popen(["curl", "-sSN", "--noproxy", "*", "-d", chat_body(True).decode(), f"http://127.0.0.1:{r.port}/v1/chat/completions"],
                             stdout=subprocess.PIPE)
        while b"w2" not in p.stdout.readline():
            pass
        p.kill()
        p.wait()
        p.stdout.close()
        until(lambda: gone, 5, "the engine's connection being closed")
        assert gone == [True]
