# SPDX-License-Identifier: Apache-2.0
"""Captures: what one engine published during a check, with what it said of each prompt at that moment, as `make check` replays it.

In the form of tests/data/spec/real: NAME_events.jsonl has the messages and, between them, where a step begins; NAME_expected.json
what the step asked and what the engine had of it.  They are left in build/real/captures and become fixtures when they are
copied to tests/data/real.
"""
import json
import subprocess

import engine
from engine import NAME

LIMIT = 180_000
_open = None


def page(e, name):
    """An HTTP answer of the engine as a fixture: /metrics without its help and its buckets, JSON as it came."""
    path = {"metrics.prom": "/metrics", "models.json": "/v1/models", "sources.json": "/kv_event_sources"}[name.split("_")[-1]]
    status, _, body = engine.http(e.port, "GET", path)
    assert status == 200, (status, body)
    lines = [line for line in body.decode().splitlines(keepends=True)
             if name[-4:] != "prom" or line.startswith("vllm:") and "_bucket{" not in line and "_created{" not in line]
    folder = engine.HOME / "captures"
    folder.mkdir(exist_ok=True)
    (folder / f"vllm_{e.version}_{name}").write_text("".join(lines).replace(str(engine.HOME), "/models"))


def token(seed, i):
    return 1000 + (seed * 7919 + i * 104729) % 100000


def parts(tokens):
    """A prompt as runs of the generator; any token from 1,000 to 100,999 is one, if only of length 1."""
    back, out = pow(7919, -1, 100000), []
    for t in tokens:
        if out and token(out[-1][1], out[-1][2]) == t:
            out[-1][2] += 1
        else:
            out.append(["gen", (t - 1000) * back % 100000, 1])
    return out


class Capture:
    """Open from the engine's empty cache on: it is reset, and the clear is the first thing that is written."""

    def __init__(self, e, name):
        self.engine, self.name, self.steps, self.n, self.full = e, f"vllm_{e.version}_{name}", [], 0, False
        folder = engine.HOME / "captures"
        folder.mkdir(exist_ok=True)
        self.events, self.expected = (folder / f"{self.name}_{kind}" for kind in ("events.jsonl", "expected.json"))
        self.p = subprocess.Popen([str(e.python), str(engine.HERE / "tap.py"), str(self.events), str(LIMIT), *e.endpoints()],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while True:  # a subscription takes a moment to arrive
            self.clear()
            if int(self.say("look")) > 0:
                break

    def clear(self):
        """The clear comes with a step, and eight tokens leave no block."""
        e = self.engine
        assert engine.http(e.port, "POST", "/reset_prefix_cache", b"")[0] == 200
        for _, headers in e.holders():
            e.completion([1000 + i for i in range(8)], 1, headers)

    def say(self, line):
        self.p.stdin.write(line + "\n")
        self.p.stdin.flush()
        answer = self.p.stdout.readline().strip()
        assert answer, "the capture ended"
        return answer

    def mark(self, **what):
        """A step begins; nothing is under way now.  None once the capture is full."""
        if self.full:
            return None
        self.full = self.say(json.dumps({"kind": "step", "id": self.n, **what}, separators=(",", ":"))) == "full"
        self.n += 1
        return None if self.full else self.n - 1

    def expect(self, mark, prompt, cached, rank=0, stale=False, label="probe", **more):
        if mark is None:
            return
        step = {"id": mark, "label": label, "prompt": parts(prompt), "prompt_tokens": len(prompt), "cached_tokens": cached}
        step.update({"rank": rank} if rank else {}, **({"stale": True} if stale else {}))
        step.update({"cache_salt": more["cache_salt"]} if "cache_salt" in more else {})
        step.update({"lora": more["model"]} if more.get("model", NAME) != NAME else {})
        self.steps.append(step)

    def end(self):
        self.p.stdin.close()
        self.p.wait(30)
        e = self.engine
        head = {"engine": e.version, "block_size": e.block, "num_gpu_blocks": e.blocks,
                "generator": "gen(seed, n): token i = 1000 + (seed*7919 + i*104729) mod 100000"}
        asked = {s["id"] for s in self.steps}
        lines = [line for line in self.events.read_text().splitlines(keepends=True)
                 if '"kind":"step"' not in line or json.loads(line)["id"] in asked]
        self.events.write_text("".join(lines))
        steps = ",\n ".join(json.dumps(s, separators=(",", ":")) for s in self.steps)
        self.expected.write_text(json.dumps(head)[:-1] + ', "steps": [\n ' + steps + "]}\n")
        print(f"    captured {self.name}: {len(lines) - len(asked)} messages, {len(asked)} steps, "
              f"{self.events.stat().st_size // 1000} kB{', until it was full' if self.full else ''}", flush=True)


class captured:
    """with captured(engine, "name"): ...  One at a time."""

    def __init__(self, e, name):
        self.e, self.name = e, name

    def __enter__(self):
        global _open
        _open = Capture(self.e, self.name)
        return _open

    def __exit__(self, kind, *_):
        global _open
        capture, _open = _open, None
        if kind is None:
            capture.end()
        else:
            capture.p.kill()
            capture.p.wait()


def open_of(e):
    """The capture of this engine, when one is open."""
    return _open if _open and _open.engine is e else None
