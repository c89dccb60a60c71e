# SPDX-License-Identifier: Apache-2.0
"""The pages against the program: calls of the admin port, metrics, flags.  Run by itself it makes docs/admin.md's examples anew."""
import json
import os
import pathlib
import re
import subprocess
import tempfile

import lib
from lib import Engine, Router, http

ROOT = pathlib.Path(__file__).resolve().parents[2]
FENCE = re.compile(r"```console\n\$ (\S+) (\S+)(?: (\{[^\n]*\}))?\n(.*?)```\n", re.S)
WIDTH, LINES = 150, 24


def page(name):
    return (ROOT / name).read_text()


def laid_out(x, indent=0):
    """JSON that a person can read: what fits on a line is on one."""
    short = json.dumps(x)
    if not isinstance(x, (dict, list)) or not x or len(short) + indent <= WIDTH:
        return short
    pad = " " * (indent + 2)
    inner = [f"{json.dumps(k)}: {laid_out(v, indent + 2)}" for k, v in x.items()] if isinstance(x, dict) else [laid_out(v, indent + 2) for v in x]
    lines = [inner[0]]
    for piece in inner[1:]:
        if len(lines[-1]) + len(piece) + indent < WIDTH and "\n" not in lines[-1] + piece:
            lines[-1] += ", " + piece
        else:
            lines.append(piece)
    return ("{\n" if isinstance(x, dict) else "[\n") + ",\n".join(pad + l for l in lines) + "\n" + " " * indent + ("}" if isinstance(x, dict) else "]")


def shape(x):
    if isinstance(x, dict):
        return {k: shape(v) for k, v in x.items()}
    return [shape(x[0])] if isinstance(x, list) and x else type(x).__name__ if isinstance(x, (list, str)) else "value"


class Stage:
    """A router with one engine, which has served the same prompt twice."""

    def __init__(self):
        self.engine, self.second = Engine("--speed", 50, model="demo"), Engine(model="demo")
        conf = {"models": [{"name": "demo"}], "workers": [{"id": "gpu-1", "url": self.engine.url, "tags": {"zone": "a"}}],
                "index": {"snapshot": os.path.join(tempfile.mkdtemp(), "index.snapshot")}}
        self.router = Router(config=conf, ready=1)
        for _ in range(2):
            assert http(self.router.port, "POST", "/v1/completions", {"model": "demo", "prompt": list(range(1, 2001)), "max_tokens": 4})[0] == 200
        self.router.at_rest()

    def call(self, method, path, body):
        real = body and body.replace("http://10.0.0.2:8000", self.second.url)
        status, h, got = http(self.router.admin, method, path, real)
        assert status in (200, 201), (path, status, got)
        text = got.decode().replace(self.engine.url, "http://10.0.0.1:8000").replace(self.second.url, "http://10.0.0.2:8000")
        text = text.replace('"admin":"127.0.0.1:0"', '"admin":"127.0.0.1:29000"').replace('"api":"127.0.0.1:0"', '"api":"127.0.0.1:30000"')
        return json.loads(text) if h["content-type"] == "application/json" else text


def run(each):
    s = Stage()
    return FENCE.sub(lambda m: each(m, s.call(m[1], m[2], m[3])), page("docs/admin.md"))


def test_the_admin_page():
    """docs/admin.md has every call of the admin port, and its examples have the members that answers have"""
    def compare(m, got):
        text = m[4].rstrip()
        if not text.endswith("..."):
            assert shape(json.loads(text)) == shape(got), (m[1], m[2], got)
        return ""
    run(compare)
    shown = {(m[1], re.sub(r"\?.*", "", m[2])) for m in FENCE.finditer(page("docs/admin.md"))}
    rows = re.findall(r'^    \{"(GET|POST|DELETE)", *"(/[^"]*)"', page("router/admin.c"), re.M)
    assert len(rows) > 10
    for method, path in rows:
        pattern = re.compile(re.escape(path).replace(r"\*", "[^/]+") + "$")
        assert any(a == method and pattern.match(b) for a, b in shown), f"{method} {path} is not in docs/admin.md"


def test_the_metrics_page():
    """docs/metrics.md has every metric with its type and labels, and no other"""
    e = Engine("--speed", 50)
    r = Router([f"{e.url},events=tcp://127.0.0.1:1"], ready=1)
    lib.chat(r.port)
    lib.chat(r.port, stream=True)
    r.at_rest()
    text = http(r.admin, "GET", "/metrics")[2].decode()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    said = {m[1]: (m[2], set(re.findall(r"\w+", m[3]))) for m in re.finditer(r"^\| `(warmpath_\w+)` \| (\w+) \|([^|]*)\|", page("docs/metrics.md"), re.M)}
    assert set(types) == set(said), set(types) ^ set(said)
    for name, kind in types.items():
        assert said[name][0] == kind, name
    seen = {}
    for line in text.splitlines():
        m = re.match(r"(\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$", line)
        if m and not line.startswith("#"):
            name = m[1] if m[1] in types else re.match(r"\w+", line)[0]
            seen.setdefault(name, set()).update(re.findall(r'(\w+)="', m[2] or ""))
    for name, labels in seen.items():
        assert labels - {"le"} == said[name][1], (name, labels, said[name])


def test_the_man_page():
    """deploy/warmpath.1 has every command with all of its flags, and no others"""
    man = page("deploy/warmpath.1").replace("\\-", "-")
    sections = dict(re.findall(r"^\.SS (\w+)\n(.*?)(?=^\.S[SH] )", man, re.M | re.S))
    overview = subprocess.run([lib.BINARY, "help"], capture_output=True, text=True).stdout
    commands = re.findall(r"^  (\w+) ", overview, re.M)
    assert set(commands) == set(sections), set(commands) ^ set(sections)
    for command in commands:
        text = subprocess.run([lib.BINARY, "help", command], capture_output=True, text=True).stdout if command != "help" else ""
        want = set(re.findall(r"^  (--?\w[\w-]*)(?: ([A-Z]\S*|[a-z-]+(?:\|[a-z-]+)+))?  ", text, re.M))
        got = set(re.findall(r'^\.BI? "?(--?\w[\w-]*)(?: " (\S+))?$', sections[command], re.M))
        assert want == got, (command, want ^ got)
        for verb in re.findall(r"^  (\w[\w ]*?)  ", text.partition("\ncommands:\n")[2], re.M):
            assert re.search(rf"^\.B {verb}\b", sections[command], re.M), (command, verb)


def test_the_links():
    """what a page links to is there"""
    for name in ("README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page(name)):
            assert (ROOT / name).parent.joinpath(target).exists(), (name, target)


def fill(m, got):
    text = laid_out(got) if not isinstance(got, str) else got.rstrip()
    lines = text.splitlines()
    if len(lines) > LINES:
        lines = lines[:10] + ["..."]
    return f"```console\n$ {m[1]} {m[2]}{' ' + m[3] if m[3] else ''}\n" + "\n".join(lines) + "\n```\n"


if __name__ == "__main__":
    lib.BINARY = os.environ.get("WARMPATH", str(ROOT / "build/warmpath"))
    try:
        made = run(fill)
        (ROOT / "docs/admin.md").write_text(made)
    finally:
        lib.end_all()
