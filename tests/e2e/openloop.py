# SPDX-License-Identifier: Apache-2.0
"""A trace played at an OpenAI endpoint in open loop, and what became of each request.

Prompts are token ids: the id of a block of 512 tokens decides them, as in sim/trace.h (other numbers, the same property).
"""
import array
import asyncio
import gzip
import hashlib
import json
import os
import pathlib
import random
import subprocess
import tempfile

import lib

TRACES = pathlib.Path(os.environ.get("WP_TRACES", "../shared/traces"))
BLOCK = 512


def trace(n, jitter=3, seed=1):
    """The first n requests of the conversation trace, or of a made one where it is not there; and which of them it was."""
    real = TRACES / "conversation_trace.jsonl.gz"
    with tempfile.TemporaryDirectory() as d:
        path, name = real, "conversation trace"
        if not real.is_file():
            path, name, jitter = pathlib.Path(d) / "made.jsonl", "trace made by `warmpath trace --kind chat`", 0
            subprocess.run([lib.BINARY, "trace", "--kind", "chat", "--requests", str(n), "--seed", "1", "--out", path],
                           check=True, stderr=subprocess.DEVNULL)
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as f:
            got = [json.loads(line) for line, _ in zip(f, range(n))]
    rng = random.Random(seed)
    for r in got:  # its time stamps are three seconds apart
        r["at"] = r["timestamp"] / 1000 + rng.random() * jitter
    return sorted(got, key=lambda r: r["at"]), name


_piece = {}


def piece(block_id):
    """The 512 tokens of a block, as words of JSON."""
    if block_id not in _piece:
        bits = array.array("H", hashlib.shake_128(b"%d" % block_id).digest(2 * BLOCK))
        _piece[block_id] = [str(1000 + b % 30000) for b in bits]
    return _piece[block_id]


def words(r):
    """The prompt of a request: token ids as words."""
    return [w for i in r["hash_ids"] for w in piece(i)][:r["input_length"]]


def tokens(r):
    return [int(w) for w in words(r)]


class Shot:
    """One request and its answer."""

    def __init__(self, r, at):
        self.r, self.at = r, at
        self.error = None
        self.claim = self.cached = self.worker = self.decision = self.end = None

    def read(self, raw):
        head, _, body = raw.partition(b"\r\n\r\n")
        line, *fields = head.decode("latin-1").split("\r\n")
        h = {k.lower(): v for k, v in (f.split(": ", 1) for f in fields)}
        if " 200 " not in line:
            self.error = line
            return
        if h.get("transfer-encoding") == "chunked":
            whole = b""
            while body:
                size, _, body = body.partition(b"\r\n")
                whole += body[:int(size, 16)]
                body = body[int(size, 16) + 2:]
            body = whole
        self.worker, self.decision = h["x-warmpath-worker"], h.get("x-warmpath-decision")
        self.overlap = h["x-warmpath-overlap"]
        self.claim = int(self.overlap.split(";")[0][len("total="):])
        if body.startswith(b"data:"):
            if not body.rstrip().endswith(b"data: [DONE]"):
                self.error = "a stream that broke"
                return
            body = body.rstrip().split(b"data: ")[-2]
        usage = json.loads(body)["usage"]
        self.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)

    def off(self, slack=16):
        return self.error is not None or abs(self.claim - self.cached) > slack


async def _shoot(port, shot, model, stream):
    body = (f'{{"model":"{model}","max_tokens":{shot.r["output_length"] or 1},"ignore_eos":true,' +
            ('"stream":true,"stream_options":{"include_usage":true},' if stream else "") +
            f'"prompt":[{",".join(words(shot.r))}]}}').encode()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     b"X-Warmpath-Explain: 1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        raw = await reader.read(-1)
        writer.close()
        shot.read(raw)
    except (OSError, ValueError, KeyError, IndexError) as e:
        shot.error = repr(e)
    shot.end = asyncio.get_running_loop().time()


async def _play(port, requests, speed, model, steps, stream):
    loop = asyncio.get_running_loop()
    start = loop.time() - requests[0]["at"] / speed
    tasks, shots = [], []
    for i, r in enumerate(requests):
        if i in steps:
            await asyncio.to_thread(steps[i])
        await asyncio.sleep(max(0, start + r["at"] / speed - loop.time()))
        shots.append(Shot(r, loop.time()))
        tasks.append(asyncio.ensure_future(_shoot(port, shots[-1], model, stream(i))))
    await asyncio.gather(*tasks)
    return shots


def play(port, requests, speed, model=lib.MODEL, steps=None, stream=lambda i: i % 4 != 0):
    """Sends each request when it is due, `speed` times as fast, whatever became of those before.  steps: what to do before the
    i-th one.  A quarter asks for whole answers, the others stream."""
    return asyncio.run(_play(port, requests, speed, model, steps or {}, stream))
