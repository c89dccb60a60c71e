#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Our decoder of KV events against the model of its contract (tests/data/spec/ref_decoder.py), over mutated fixtures.

    tests/diff/decode.py build/tests/diff/dump_event [--n 20000] [--seed 1]

Half of the mutations are of bytes, half of values: a value becomes another, moves, goes, comes twice, or is written in
another width.  The verdict and every field must agree; of the reason for a refusal, which is advice, only whether the bytes
are MessagePack at all, for one with two faults may be refused for either.  A difference prints its seed and payload and is
kept in build/diff/, so that it can join tests/data/fuzz/kv_event/.
"""
import argparse
import glob
import json
import os
import random
import struct
import subprocess
import sys
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(HERE, "..", "data")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(DATA, "spec"))
import ref_decoder as ref  # noqa: E402

ref.Ext.__repr__ = lambda self: f"Ext({self.kind}, {self.data!r})"  # as a map's key it is printed
BATCH = 2000
LONGEST = 4000


# --- writing MessagePack, in any width ------------------------------------------------------------------------------


def sized(rng, n, forms):
    """A head that says n: one of (limit, mark, format) that can hold it, mostly the shortest."""
    fit = [f for f in forms if n <= f[0]]
    limit, mark, form = fit[0] if rng.random() < 0.8 else rng.choice(fit)
    return bytes([mark | n]) if form is None else bytes([mark]) + struct.pack(form, n)


STR = ((31, 0xA0, None), (0xFF, 0xD9, ">B"), (0xFFFF, 0xDA, ">H"), (0xFFFFFFFF, 0xDB, ">I"))
BIN = ((0xFF, 0xC4, ">B"), (0xFFFF, 0xC5, ">H"), (0xFFFFFFFF, 0xC6, ">I"))
ARRAY = ((15, 0x90, None), (0xFFFF, 0xDC, ">H"), (0xFFFFFFFF, 0xDD, ">I"))
MAP = ((15, 0x80, None), (0xFFFF, 0xDE, ">H"), (0xFFFFFFFF, 0xDF, ">I"))
EXT = ((0xFF, 0xC7, ">B"), (0xFFFF, 0xC8, ">H"), (0xFFFFFFFF, 0xC9, ">I"))
UINT = ((127, 0x00, None), (0xFF, 0xCC, ">B"), (0xFFFF, 0xCD, ">H"), (0xFFFFFFFF, 0xCE, ">I"), ((1 << 64) - 1, 0xCF, ">Q"))
INT = ((7, 0xD0, ">b"), (15, 0xD1, ">h"), (31, 0xD2, ">i"), (63, 0xD3, ">q"))


def integer(rng, v):
    if -32 <= v < 0 and rng.random() < 0.8:
        return bytes([v & 0xFF])
    if v >= 0 and (rng.random() < 0.95 or v >> 63):
        return sized(rng, v, UINT)
    fit = [f for f in INT if -(1 << f[0]) <= v < 1 << f[0]]
    _, mark, form = fit[0] if rng.random() < 0.8 else rng.choice(fit)
    return bytes([mark]) + struct.pack(form, v)


def write(rng, v):
    if v is None:
        return b"\xc0"
    if isinstance(v, bool):
        return b"\xc3" if v else b"\xc2"
    if isinstance(v, int):
        return integer(rng, v)
    if isinstance(v, float):
        return b"\xcb" + struct.pack(">d", v)
    if isinstance(v, ref.Text):
        return sized(rng, len(v), STR) + v
    if isinstance(v, bytes):
        return sized(rng, len(v), BIN) + v
    if isinstance(v, ref.Ext):
        return sized(rng, len(v.data), EXT) + struct.pack(">b", v.kind) + v.data
    if isinstance(v, ref.Pairs):
        return sized(rng, len(v), MAP) + b"".join(write(rng, x) for pair in v for x in pair)
    return sized(rng, len(v), ARRAY) + b"".join(write(rng, x) for x in v)


# --- mutations ------------------------------------------------------------------------------------------------------

WORDS = [ref.Text(w) for w in (
    b"", b"x", b"BlockStored", b"BlockRemoved", b"AllBlocksCleared", b"BlockPinned", b"type", b"ts", b"events",
    b"data_parallel_rank", b"block_hashes", b"parent_block_hash", b"token_ids", b"block_size", b"lora_id", b"lora_name",
    b"medium", b"extra_keys", b"group_idx", b"kv_cache_spec_kind", b"kv_cache_spec_sliding_window", b"locality",
    b"ownership", b"session_id", b"cache_salt", b"mm_keys", b"full_attention", b"mla_attention", b"sink_full_attention",
    b"sliding_window", b"mamba", b"GPU", b"gpu", b"Cpu", b"CPU_TIER2", b"external", b"\xc3\xa9", b"\xff", b"\xed\xa0\x80", b"\xc0\x80",
    b"\xf4\x90\x80\x80", b"a\x00b", b"\xf0\x9f\x98\x80")]
NUMBERS = [0, 1, 2, 4, 15, 16, 127, 128, 255, 256, 65535, 65536, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63,
           (1 << 64) - 1, -1, -32, -33, -128, -129, -(1 << 31), -(1 << 63)]
SCALARS = [None, True, False, 0.0, 1.5, -2.0, 1e300, float("inf"), float("nan"), b"", b"\x01", bytes(8), bytes(range(32)), bytes(64), bytes(65)]


def any_value(rng, depth=0):
    k = rng.randrange(8 if depth < 3 else 5)
    if k == 0:
        return rng.choice(WORDS)
    if k == 1:
        return rng.choice(NUMBERS)
    if k == 2:
        return rng.choice(SCALARS)
    if k == 3:
        return rng.randrange(200000)
    if k == 4:
        return ref.Ext(rng.randrange(-128, 128), bytes(rng.randrange(20)))
    if k == 5:
        return [any_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if k == 6:
        return [[rng.randrange(9), rng.randrange(9)] for _ in range(rng.randrange(1, 4))]
    return ref.Pairs([any_value(rng, depth + 1), any_value(rng, depth + 1)] for _ in range(rng.randrange(3)))


def thaw(v):
    """A copy whose containers can be changed; a pair of a map is a list of two."""
    if isinstance(v, ref.Pairs):
        return ref.Pairs([thaw(k), thaw(x)] for k, x in v)
    return [thaw(x) for x in v] if isinstance(v, list) else v


def containers(v, out):
    if isinstance(v, ref.Pairs):
        out.append(v)
        for pair in v:
            out.append(pair)
            containers(pair[0], out)
            containers(pair[1], out)
    elif isinstance(v, list):
        out.append(v)
        for x in v:
            containers(x, out)
    return out


def mutate_values(rng, tree):
    tree = thaw(tree)
    if rng.random() < 0.05:
        return [tree]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        all_of_them = containers(tree, [])
        c = rng.choice(all_of_them)
        pair = next((p for m in all_of_them if isinstance(m, ref.Pairs) for p in m if p is c), None)
        if pair is not None:                        # keeps its two
            c[rng.randrange(2)] = any_value(rng)
            continue
        item = (lambda: [any_value(rng), any_value(rng)]) if isinstance(c, ref.Pairs) else (lambda: any_value(rng))
        i, act = rng.randrange(len(c) + 1), rng.randrange(6)
        if act == 0 or not c:
            c.insert(i, item())
        elif act == 1:
            del c[i % len(c)]
        elif act == 2:
            c[i % len(c)] = item()
        elif act == 3:
            c.insert(i, thaw([c[i % len(c)]])[0])   # comes twice
        elif act == 4:
            k = rng.randrange(len(c))
            c[i % len(c)], c[k] = c[k], c[i % len(c)]
        else:
            x = c[i % len(c)]
            if isinstance(c, ref.Pairs):
                x[1] = x[1] + rng.choice((-1, 1)) if ref.is_int(x[1]) and 0 < x[1] < 1 << 63 else any_value(rng)
            elif ref.is_int(x) and 0 < x < 1 << 63:
                c[i % len(c)] = x + rng.choice((-1, 1))
            else:
                c[i % len(c)] = [x]
    return tree


def mutate_bytes(rng, data, others):
    b = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        i = rng.randrange(len(b) + 1)
        act = rng.randrange(7)
        if act == 0 or not b:
            b.insert(i, rng.randrange(256))
        elif act == 1:
            del b[i % len(b)]
        elif act == 2:
            b[i % len(b)] = rng.randrange(256)
        elif act == 3:
            b[i % len(b)] ^= 1 << rng.randrange(8)
        elif act == 4:
            b[i % len(b)] = rng.choice(b"\x00\x7f\x80\x90\xa0\xc0\xc1\xc2\xc3\xc4\xca\xcb\xcc\xcd\xce\xcf\xd0\xd3\xd4\xd9\xdc\xdd\xde\xdf\xff")
        elif act == 5:
            del b[i:i + rng.randrange(1, 20)]
        else:
            o = rng.choice(others)
            k = rng.randrange(len(o) + 1)
            b[i:i + rng.randrange(20)] = o[k:k + rng.randrange(20)]
    return bytes(b)


# --- comparing ------------------------------------------------------------------------------------------------------


def text(v):
    return json.dumps(v, sort_keys=True)  # NaN equals NaN


NO_MESSAGEPACK = ("truncated", "trailing_bytes", "depth", "reserved_byte")


def refused(code):
    return {"reject": "no MessagePack" if code in NO_MESSAGEPACK else "no batch"}


def expected(payload):
    try:
        batch = ref.decode(payload)
    except ref.Reject as r:
        return refused(r.code)
    batch["ts"] = float(batch["ts"])
    return batch


def settle(got):
    """What we sent as raw bytes, read by the model's own parser."""
    if "reject" in got:
        return refused(got["reject"])
    for e in got.get("events", ()):
        for name in ("extra_keys", "mm_keys"):
            if e.get(name) is not None:
                parser = ref.Parser(bytes.fromhex(e[name]))
                try:
                    e[name] = ref.jsonable(parser.value())
                except ref.Reject as r:
                    e[name] = r.code
                if parser.pos != parser.end:
                    e[name] = "bytes left over"
    return got


def run(dump, payloads):
    """A line for each payload; fewer when the program died."""
    data = b"".join(struct.pack("<I", len(p)) + p for p in payloads)
    done = subprocess.run([dump], input=data, capture_output=True)
    lines = done.stdout.decode("utf-8").split("\n")[:-1]
    if done.returncode != 0:
        sys.stderr.write(done.stderr.decode("utf-8", "replace"))
    return lines, done.returncode


def report(kind, payload, want, got, seed):
    folder = os.path.join(HERE, "..", "..", "build", "diff")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{kind}-{zlib.crc32(payload):08x}.msgpack")
    with open(path, "wb") as f:
        f.write(payload)
    print(f"FAILED {kind} (seed {seed}, {os.path.relpath(path)})\n  payload {payload.hex()[:2000]}\n  want {want[:2000]}\n  got  {got[:2000]}")


def compare(dump, payloads, seed):
    """-> (agreeing, accepted, differing)"""
    lines, status = run(dump, payloads)
    good = accepted = bad = 0
    for payload, line in zip(payloads, lines):
        want = expected(payload)
        w, g = text(want), text(settle(json.loads(line)))
        accepted += "reject" not in want
        if w == g:
            good += 1
        else:
            bad += 1
            if bad < 4:
                report("difference", payload, w, g, seed)
    if status != 0 or len(lines) != len(payloads):
        bad += 1
        report("death", payloads[min(len(lines), len(payloads) - 1)], "an answer", f"exit status {status}", seed)
    return good, accepted, bad


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("dump")
    args.add_argument("--n", type=int, default=20000, help="mutations")
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    files = sorted(glob.glob(os.path.join(DATA, "fuzz", "kv_event", "*")))
    raw = []
    for f in files:
        with open(f, "rb") as h:
            raw.append(h.read())
    small = [p for p in raw if 0 < len(p) <= LONGEST]
    trees = []
    for p in small:
        try:
            parser = ref.Parser(p)
            tree = parser.value()
            if isinstance(tree, list):
                trees.append(tree)
        except ref.Reject:
            pass
    rng = random.Random(args.seed)
    good, accepted, bad = compare(args.dump, raw, args.seed)
    done = 0
    while done < args.n and bad == 0:
        batch = []
        for _ in range(min(BATCH, args.n - done)):
            if rng.random() < 0.5:
                batch.append(mutate_bytes(rng, rng.choice(small), small))
            else:
                batch.append(write(rng, mutate_values(rng, rng.choice(trees))))
        _, a, b = compare(args.dump, batch, args.seed)
        accepted, bad, done = accepted + a, bad + b, done + len(batch)
    if bad == 0 and not args.n // 10 < accepted < args.n:
        bad += 1
        print(f"FAILED the mutations say little: {accepted} of {done} are accepted")
    good += bad == 0  # all mutations together are one case, each fixture is one
    print(f"{len(files)} fixtures and {done} mutations, {accepted} accepted")
    print(f"{good} passed, {bad} failed")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
