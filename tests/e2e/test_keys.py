# SPDX-License-Identifier: Apache-2.0
"""API keys with models and limits, over sockets."""
import hashlib
import json
import tempfile
import threading

from lib import MODEL, Engine, Router, http, until


def keys_file(*lines):
    f = tempfile.NamedTemporaryFile("w", suffix=".keys")
    f.write("\n".join(lines) + "\n")
    f.flush()
    return f


def ask(r, key, path="/v1/completions", body=None, **more):
    if body is None and path == "/v1/completions":
        body = {"model": MODEL, "prompt": [7] * 100, "max_tokens": 4, **more}
    status, head, text = http(r.port, "POST" if body else "GET", path, body, {"Authorization": f"Bearer {key}"} if key else {})
    return status, head, json.loads(text)


def test_keys_by_hash_and_models():
    """a key may stand in the file by its hash; it sees and reaches its models alone; nothing of a key is in log, config or metrics"""
    secret = "sk-very-secret"
    f = keys_file("# keys", f"sha256:{hashlib.sha256(secret.encode()).hexdigest()} name=a models=other", "open-key name=b")
    r = Router([Engine("--speed", 50)], "--set", f"listen.api_keys_file={f.name}")
    assert ask(r, None)[0] == 401 and ask(r, "sk-very")[0] == 401 and ask(r, None, "/health")[0] == 200
    status, _, body = ask(r, secret)
    assert status == 403 and body["error"]["code"] == "model_not_allowed" and body["error"]["param"] == "model", body
    assert ask(r, secret, "/v1/models")[2]["data"] == []
    assert ask(r, secret, f"/v1/models/{MODEL}")[0] == 404
    assert ask(r, "open-key")[0] == 200 and ask(r, "open-key", "/v1/models")[2]["data"][0]["id"] == MODEL
    page = http(r.admin, "GET", "/metrics")[2].decode() + json.dumps(r.get("/config")) + "\n".join(r.log)
    assert secret not in page and "open-key" not in page
    r.at_rest()


def test_limits_of_a_key():
    """requests, tokens and requests at once of a key are refused beyond their limit, with which and when; other keys go on; a reload forgets nothing"""
    f = keys_file("few requests=2", "small tokens=150", "one at_once=1", "free")
    e = Engine("--speed", 1)
    r = Router([e], "--set", f"listen.api_keys_file={f.name}")
    for key, limit, wait in (("few", "requests", 31), ("small", "tokens", 60)):
        assert ask(r, key)[0] == 200 and ask(r, key)[0] == 200
        assert http(r.admin, "POST", "/reload")[0] == 200
        status, head, body = ask(r, key)
        assert status == 429 and body["error"]["param"] == limit and body["error"]["code"] == "rate_limit_exceeded", body
        assert 1 <= int(head["retry-after"]) <= wait, head["retry-after"]
        assert limit in body["error"]["message"]
    slow = threading.Thread(target=ask, args=(r, "one"), kwargs={"prompt": [9] * 40000})
    slow.start()
    until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the first being under way")
    status, head, body = ask(r, "one")
    assert status == 429 and body["error"]["param"] == "at_once", body
    assert ask(r, "free")[0] == 200
    slow.join()
    until(lambda: ask(r, "one")[0] == 200, 10, "the turn being free again")  # a moment behind the answer
    assert r.metric('warmpath_key_limits_total{limit="requests"}') == 1 and r.metric('warmpath_key_limits_total{limit="at_once"}') == 1
    r.at_rest()


def test_a_bad_line_refuses_the_reload():
    """a line that is not right is named by its number, not by its text, and the keys in force stay"""
    f = keys_file("good")
    r = Router([Engine("--speed", 50)], "--set", f"listen.api_keys_file={f.name}")
    f.write("secret with blanks\n")
    f.flush()
    status, _, body = http(r.admin, "POST", "/reload")
    assert status == 400 and b"key 2: want name=" in body and b"secret" not in body, body
    assert ask(r, "good")[0] == 200 and ask(r, "secret")[0] == 401
