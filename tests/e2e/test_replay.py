# SPDX-License-Identifier: Apache-2.0
"""warmpath replay: the command, over traces that warmpath trace makes."""
from html.parser import HTMLParser
import json
import os
import subprocess
import tempfile
import xml.etree.ElementTree

import lib


def warmpath(*args):
    return subprocess.run([lib.BINARY, *map(str, args)], capture_output=True, text=True, timeout=300)


def made(folder, kind="chat", requests=300):
    path = f"{folder}/{kind}.jsonl.gz"
    assert warmpath("trace", "--kind", kind, "--requests", requests, "--out", path).returncode == 0
    return path


def test_side_by_side():
    """policies stand side by side in one table, --json has the same figures, and the same seed gives the same bytes"""
    with tempfile.TemporaryDirectory() as folder:
        trace = made(folder)
        args = ("replay", "--trace", trace, "--workers", 4, "--policy", "round_robin,price,dynamo:dynamo.prefill_weight=16:pull=true", "--seed", 7,
                "--stale-ms", 50, "--copies", 2, "--scale", 0.3, "--jitter", 1)
        once = warmpath(*args, "--json", f"{folder}/a.json")
        again = warmpath(*args, "--json", f"{folder}/b.json")
        other = warmpath(*args[:-5], 0.31, *args[-4:])
        assert once.returncode == 0, once.stderr
        assert once.stdout == again.stdout and open(f"{folder}/a.json").read() == open(f"{folder}/b.json").read()
        assert other.stdout != once.stdout
        got = json.load(open(f"{folder}/a.json"))
        assert [c["label"] for c in got] == ["round_robin", "price", "dynamo:dynamo.prefill_weight=16:pull=true"]
        rows = {line[:18].strip(): line[18:].split() for line in once.stdout.splitlines()}
        assert rows["requests"] == [str(c["requests"]) for c in got] and got[0]["requests"] > 500
        assert rows["errors"] == ["0"] * 3 and got[0]["workers"] == 4 and got[0]["seed"] == 7 and got[0]["stale_ms"] == 50
        assert got[0]["bytes_fetched"] == 0 and got[2]["bytes_fetched"] > 0
        assert got[1]["hit_share"] > got[0]["hit_share"]
        for c in got:
            assert abs(c["hit_share"] + c["recomputed_share"] - 1) < 1e-6, c


def test_one_report_compares_with_others():
    """one policy's --json is a report as load's: load --compare reads it"""
    with tempfile.TemporaryDirectory() as folder:
        trace = made(folder, "tool", 200)
        for policy in ("random", "price"):
            r = warmpath("replay", "--trace", trace, "--workers", 2, "--policy", policy, "--scale", 0.2, "--json", f"{folder}/{policy}.json")
            assert r.returncode == 0, r.stderr
        r = warmpath("load", "--compare", f"{folder}/random.json", f"{folder}/price.json")
        assert r.returncode == 0 and "random" in r.stdout and "TTFT p99" in r.stdout, r.stderr
        r = warmpath("replay", "--trace", trace, "--workers", 2, "--json", "-")
        assert json.loads(r.stdout)["label"] == "price"


def test_recorded_decisions():
    """what a run with --record decided, fetches, store and queue included, is decided again to the bit; a file that is cut is told"""
    with tempfile.TemporaryDirectory() as folder:
        trace, file = made(folder, requests=600), f"{folder}/decisions"
        args = ("replay", "--trace", trace, "--workers", 4, "--policy", "price,dynamo,preble,conductor", "--scale", 2, "--set", "fleet.gpu_blocks=300",
                "--set", "fleet.cpu_blocks=400", "--set", "fleet.store_blocks=5000", "--record", file)
        ran = warmpath(*args)
        assert ran.returncode == 0, ran.stderr
        p = warmpath("replay", "--decisions", file)
        assert p.returncode == 0 and "the same 2400, otherwise 0, not judged 0; missing in the file 0" in p.stdout and "outcomes 2400" in p.stdout, p
        data = open(file, "rb").read()
        open(file, "wb").write(data[:len(data) // 2])
        p = warmpath("replay", "--decisions", file)
        assert p.returncode == 2 and "otherwise 0" in p.stdout and "byte" in p.stderr, p
        p = warmpath(*args[:-1], f"{folder}/none/decisions")
        assert p.returncode == 1 and "not found" in p.stderr, p
        p = warmpath(*args, "--capacity")
        assert p.returncode == 2 and "--capacity" in p.stderr, p


def test_capacity():
    """--capacity finds the scale where 90 % are within SLO: there they are, and 3 % above they are not"""
    with tempfile.TemporaryDirectory() as folder:
        trace = made(folder, "chat", 300)
        args = ("replay", "--trace", trace, "--workers", 2, "--policy", "least_loaded", "--json", "-")
        found = json.loads(warmpath(*args, "--capacity").stdout)
        assert found["slo_share"] >= 0.9, found
        above = json.loads(warmpath(*args, "--scale", found["scale"] * 1.0101).stdout)
        assert above["slo_share"] < 0.9 or above["slo_share"] < found["slo_share"] + 0.01, (found, above)


def test_wrong_words():
    """a wrong flag, policy, key, profile or file is said with what would be right, and ends with 2, or 1 for a file"""
    with tempfile.TemporaryDirectory() as folder:
        trace = made(folder, "chat", 20)
        for args, want, status in (
                (("--trase", trace), "--trace", 2), (("--policy", "price"), "--trace", 2), (("--trace", trace, "--policy", "dynamoo"), '"dynamo"', 2),
                (("--trace", trace, "--policy", "dynamo:dynamo.prefil_weight=1"), "prefill_weight", 2), (("--trace", trace, "--set", "fleet.links=1"), "fleet", 2),
                (("--trace", trace, "--profile", "llama-3-8b-1xh10"), "llama-3-8b-1xh100", 2), (("--trace", trace, "--workers", "0"), "--workers", 2),
                (("--trace", trace, "--policy", ""), "policy", 2), (("--trace", f"{folder}/none.jsonl"), "none.jsonl", 1),
                (("--trace", trace, "--set", "fleet.gpu_blocks=1", "--capacity"), "90 %", 2)):
            r = warmpath("replay", *args)
            assert r.returncode == status and want in r.stderr and len(r.stderr.splitlines()) == 1, (args, r)


def test_decide():
    """decide answers each line that asks, line by line, and names what is wrong with a line and where"""
    lines = open("tests/data/decide/short.txt", encoding="utf-8").read()
    asked = [line.split()[2] for line in lines.splitlines() if line.startswith("R ")]
    for policy in ("price", "round_robin"):
        r = subprocess.run([lib.BINARY, "decide", "--stdio", "--policy", policy], input=lines, capture_output=True, text=True, timeout=100)
        assert r.returncode == 0 and not r.stderr, r.stderr
        got = [line.split() for line in r.stdout.splitlines()]
        assert [g[1] for g in got if g[0] in "PH"][: len(asked)] == asked if policy == "round_robin" else len(got) >= len(asked)
    for args, text, status, says in (
        (["--stdio"], "I workers=2\nR 0 1 x 0\n", 1, "line 2: field 4, input_tokens"),
        ([], "", 2, "want --stdio"),
        (["--stdio", "--set", "price.near=1"], "", 2, "did you mean"),
        (["--stdio", "--nic", "3-1=1e9"], "", 2, "FIRST-LAST=BYTES/S"),
        (["--stdio", "--policy", "pirce"], "", 2, "did you mean"),
    ):
        r = subprocess.run([lib.BINARY, "decide", *args], input=text, capture_output=True, text=True, timeout=100)
        assert r.returncode == status and says in r.stderr, (args, r.returncode, r.stderr)


def test_tune():
    """--tune searches within its bound and says the same twice; its JSON and its text agree; two policies, or one without settings, are refused"""
    with tempfile.TemporaryDirectory() as folder:
        trace = made(folder, requests=260)
        args = ("replay", "--trace", trace, "--workers", 4, "--scale", 0.3, "--tune", 4)
        once, again = (warmpath(*args, "--json", f"{folder}/{k}.json") for k in "ab")
        assert once.returncode == 0, once.stderr
        assert once.stdout == again.stdout and open(f"{folder}/a.json").read() == open(f"{folder}/b.json").read()
        got = json.load(open(f"{folder}/a.json"))
        assert 1 <= got["evaluations"] <= 4 and got["policy"] == "price" and got["figure"] == "ttft_mean_s", got
        assert got["searched_requests"] + got["held_out_requests"] == 260 and len(got["held_out"]["as_found"]) == 5
        assert got["real"] == ("policy:" in once.stdout) == ("configuration" in got)
        assert f"{sum(f['ttft_mean_s'] for f in got['held_out']['as_found']) / 5:.3f}" in once.stdout
        for more, why in ((("--policy", "price,dynamo"), "--tune: want one policy, got 2"), (("--policy", "random"), "nothing to tune in random"),
                          (("--tune-for", "speed"), 'unknown figure "speed"'), (("--capacity",), "--tune goes with none of"),
                          (("--tune", 0), "--tune: want a whole number from 1")):
            bad = warmpath(*args, *more)
            assert bad.returncode in (1, 2) and why in bad.stderr, (more, bad.returncode, bad.stderr)


class Page(HTMLParser):
    """What a browser's parser would see: figures by their row, texts, tags, and links to anywhere."""

    def __init__(self, text):
        super().__init__()
        self.row, self.rows, self.tags, self.links, self.text = None, {}, {}, [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.links += [v for k, v in attrs.items() if k in ("src", "href", "xlink:href", "action", "data") or k.startswith("on")]
        self.row = attrs.get("id") if tag == "tr" else self.row
        if "data-value" in attrs:
            self.rows.setdefault(self.row, []).append(attrs["data-value"])

    def handle_data(self, data):
        self.text.append(data)


def test_report():
    """--report writes one page that is well formed, loads nothing, runs nothing, escapes what it shows, and has the figures of --json"""
    with tempfile.TemporaryDirectory() as folder:
        trace = f"{folder}/<img src=x onerror=1>&'\".jsonl.gz"
        os.rename(made(folder), trace)
        args = ("replay", "--trace", trace, "--workers", 3, "--scale", 0.8, "--policy", "round_robin,price:price.hold_us=1000,dynamo:pull=true", "--set", "fleet.cpu_blocks=50")
        done = warmpath(*args, "--json", f"{folder}/a.json", "--report", f"{folder}/a.html")
        assert done.returncode == 0, done.stderr
        text = open(f"{folder}/a.html", encoding="utf-8").read()
        xml.etree.ElementTree.fromstring(text)  # strict, where browsers are not
        page, got = Page(text), json.load(open(f"{folder}/a.json"))
        figures = {k: v for k, v in got[0].items() if k not in ("label", "trace", "workers", "scale", "copies", "stale_ms", "seed")}
        assert set(page.rows) == set(figures), set(page.rows) ^ set(figures)
        for key, cells in page.rows.items():
            assert [float(c) for c in cells] == [c[key] for c in got], (key, cells)
        assert page.links == [] and not {"img", "script", "link", "iframe", "object"} & set(page.tags), page.tags
        assert "default-src 'none'" in text
        assert trace in page.text, "the name, as it is"
        assert page.tags["svg"] == 2 + 1 + 3 + 1, page.tags
        assert any("price.hold_us = 1000" in t for t in page.text) and any("pull = true" in t for t in page.text)
        again = warmpath(*args, "--report", f"{folder}/b.html")
        assert again.returncode == 0 and open(f"{folder}/b.html", encoding="utf-8").read() == text
        bad = warmpath(*args, "--report", f"{folder}/nowhere/a.html")
        assert bad.returncode == 1 and "nowhere/a.html: No such file" in bad.stderr, bad.stderr
