#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The router beside haproxy and nginx as plain balancers, over the same two engines that do nothing, in one run.

For each body h2load (HTTP/1.1, kept connections) plays requests at each contender in turn, ROUNDS times; CPU is what the contender's processes
used, from /proc, and of the rounds the median is told, and the best.  All contenders have one thread.  --out FILE writes the page.
"""
import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
TICK = os.sysconf("SC_CLK_TCK")


def free_ports(n):
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in socks]
    for s in socks:
        s.close()
    return ports


def wait_for(c, path="/v1/models", seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{c.port}{path}", timeout=2).status == 200:
                return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{c.name} does not serve on port {c.port}")


class Contender:
    def __init__(self, name, port, *command):
        self.name, self.port = name, port
        self.p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if command else None

    def pids(self):
        if not self.p:
            return []
        out = subprocess.run(["ps", "-o", "pid=", "--pid", str(self.p.pid), "--ppid", str(self.p.pid)], capture_output=True, text=True).stdout
        return [int(x) for x in out.split()]

    def cpu(self):
        total = 0
        for pid in self.pids():
            f = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
            total += int(f[11]) + int(f[12])
        return total / TICK

    def rss(self):
        return sum(int(l.split()[1]) for pid in self.pids() for l in open(f"/proc/{pid}/status") if l.startswith("VmRSS")) / 1024

    def end(self):
        if self.p:
            self.p.terminate()
            try:
                self.p.wait(10)
            except subprocess.TimeoutExpired:
                self.p.kill()


def contenders(work, binary, engines):
    haproxy, nginx, ours, admin = free_ports(4)
    servers = "\n".join(f"  server s{i} 127.0.0.1:{p}" for i, p in enumerate(engines))
    (work / "haproxy.cfg").write_text(f"global\n  nbthread 1\n  maxconn 9900\ndefaults\n  mode http\n  timeout connect 2s\n  timeout client 60s\n"
                                      f"  timeout server 60s\nfrontend f\n  bind 127.0.0.1:{haproxy}\n  default_backend b\nbackend b\n  balance roundrobin\n"
                                      f"  http-reuse always\n{servers}\n")
    upstream = "".join(f"server 127.0.0.1:{p};" for p in engines)
    (work / "nginx.conf").write_text(f"worker_processes 1;daemon off;pid {work}/pid;error_log /dev/null;events{{worker_connections 19800;}}http{{access_log off;"
                                     f"keepalive_requests 1000000000;client_max_body_size 64m;client_body_buffer_size 1m;"
                                     f"client_body_temp_path {work}/b;proxy_temp_path {work}/p;fastcgi_temp_path {work}/f;uwsgi_temp_path {work}/u;"
                                     f"scgi_temp_path {work}/s;upstream e{{{upstream}keepalive 256;keepalive_requests 1000000000;}}"
                                     f"server{{listen 127.0.0.1:{nginx};location /{{proxy_pass http://e;proxy_http_version 1.1;"
                                     f"proxy_set_header Connection \"\";proxy_buffering off;proxy_request_buffering on;}}}}}}")
    found = []
    if shutil.which("haproxy"):
        found.append(Contender("haproxy", haproxy, "haproxy", "-db", "-f", str(work / "haproxy.cfg")))
    if shutil.which("nginx"):
        found.append(Contender("nginx", nginx, "nginx", "-e", "/dev/null", "-c", str(work / "nginx.conf")))
    found.append(Contender("warmpath", ours, binary, "serve", "--listen", f"127.0.0.1:{ours}", "--admin", f"127.0.0.1:{admin}", "--log-level", "error", "--set", "limits.connections=20000",
                           *[w for p in engines for w in ("--worker", f"http://127.0.0.1:{p}")]))
    return found


def body(kind, size):
    if kind == "ids":
        ids = [100 + i * 7919 % 90000 for i in range(size)]
        text, n = json.dumps(ids, separators=(",", ":")), 0
        while len(text) > size:
            ids = ids[:int(len(ids) * size / len(text))]
            text = json.dumps(ids, separators=(",", ":"))
        return json.dumps({"model": "null", "prompt": ids, "max_tokens": 4}, separators=(",", ":")).encode()
    words = " ".join(f"word{i}" for i in range(size // 6))[:size]
    return json.dumps({"model": "null", "messages": [{"role": "user", "content": words}], "max_tokens": 4}).encode()


def play(c, path, data, headers, n, connections, rate=None):
    """(seconds, CPU seconds, sorted latencies in us); None when a request failed."""
    with tempfile.NamedTemporaryFile() as f, tempfile.NamedTemporaryFile() as log:
        f.write(data)
        f.flush()
        command = ["h2load", "--h1", "-n", str(n), "-c", str(connections), "-d", f.name, f"--log-file={log.name}", "-H", "content-type: application/json"]
        for h in headers:
            command += ["-H", h]
        before, then = c.cpu(), time.monotonic()
        out = subprocess.run([*command, f"http://127.0.0.1:{c.port}{path}"], capture_output=True, text=True, timeout=600).stdout
        took, used = time.monotonic() - then, c.cpu() - before
        if f"{n} succeeded" not in out or f"{n} 2xx" not in out:
            print(f"  {c.name}: {out}", file=sys.stderr)
            return None
        return took, used, sorted(int(l.split()[2]) for l in log.read().decode().splitlines())


def open_streams(c, n):
    """n streams that have had their first event and get no more; the sockets."""
    data = body("ids", 1000)
    ask = (f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nx-stream: 1\r\nx-hold: 1\r\n"
           f"content-length: {len(data)}\r\n\r\n").encode() + data
    found = []
    while len(found) < n:
        fresh = [socket.create_connection(("127.0.0.1", c.port), 60) for _ in range(min(100, n - len(found)))]
        for s in fresh:
            s.sendall(ask)
        for s in fresh:
            got = b""
            while b"data: " not in got:
                more = s.recv(65536)
                if not more:
                    raise SystemExit(f"{c.name}: {got!r}")
                got += more
        found += fresh
    return found


def what_streams_take(c, numbers):
    """MiB resident with so many idle streams."""
    found = {}
    for n in numbers:
        try:
            socks = open_streams(c, n)
        except OSError as e:
            print(f"{c.name}: {n} streams: {e}", file=sys.stderr)
            found[n] = float("nan")
            continue
        found[n] = c.rss()
        for s in socks:
            s.close()
        time.sleep(5)  # they have gone everywhere
    return found


def idle_cpu(binary, engine, workers=100, seconds=20):
    """Per cent of a processor that the router takes with so many workers and nothing to do."""
    ports = free_ports(workers)
    null = Contender("null", ports[0], engine, *map(str, ports))
    api, admin = free_ports(2)
    ours = Contender("warmpath", api, binary, "serve", "--listen", f"127.0.0.1:{api}", "--admin", f"127.0.0.1:{admin}", "--log-level", "error",
                     *[w for p in ports for w in ("--worker", f"http://127.0.0.1:{p}")])
    try:
        wait_for(null)
        wait_for(ours)
        time.sleep(5)
        before, then = ours.cpu(), time.monotonic()
        time.sleep(seconds)
        return (ours.cpu() - before) / (time.monotonic() - then) * 100
    finally:
        ours.end()
        null.end()


CASES = [("ids", 1), ("ids", 8), ("ids", 32), ("ids", 128), ("ids", 500), ("text", 1), ("text", 8), ("text", 32), ("text", 128), ("text", 500)]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default="build/warmpath")
    p.add_argument("--engine", default="build/bench/null_engine")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--scale", type=float, default=1, help="times the number of requests")
    p.add_argument("--out")
    args = p.parse_args()
    if not shutil.which("h2load"):
        raise SystemExit("h2load is not here (Debian: nghttp2-client)")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    numbers = (256, min(10000, (most - 500) // 2 if most != resource.RLIM_INFINITY else 10000))  # a stream is two descriptors of the router's
    rows, rss, streams = [], {}, {}
    idle = idle_cpu(args.binary, args.engine)
    print(f"idle: {idle:.2f} %", flush=True)
    with tempfile.TemporaryDirectory() as d:
        engines = free_ports(2)
        null = Contender("null", engines[0], args.engine, *map(str, engines))
        everybody = contenders(pathlib.Path(d), args.binary, engines)
        try:
            for c in [null, *everybody]:
                wait_for(c)
            direct = Contender("direct", engines[0])
            cases = [(f"{size} KB of {'token ids' if kind == 'ids' else 'text'}", "/v1/completions" if kind == "ids" else "/v1/chat/completions",
                      body(kind, size * 1000), [], int(args.scale * max(300, 12000 / (1 + size / 8)))) for kind, size in CASES]
            cases += [(f"a stream of {n} events", "/v1/completions", body("ids", 1000), [f"x-stream: {n}"], int(args.scale * 3000)) for n in (32, 50)]
            for label, path, data, headers, n in cases:
                got = {c.name: [] for c in [direct, *everybody]}
                for _ in range(args.rounds):
                    for c in [direct, *everybody]:
                        play(c, path, data, headers, max(n // 10, 32), 16)
                        busy = play(c, path, data, headers, n, 16)
                        calm = play(c, path, data, headers, max(n // 6, 100), 1)
                        if busy and calm:
                            got[c.name].append((n / busy[0], busy[1] / n * 1e6, calm[2][len(calm[2]) // 2], calm[2][len(calm[2]) * 99 // 100]))
                rows.append((label, got))
                print(label, {k: [round(statistics.median(x), 1) for x in zip(*v)] for k, v in got.items() if v}, flush=True)
            for c in everybody:
                rss[c.name] = c.rss()
            for c in everybody:
                streams[c.name] = what_streams_take(c, numbers)
                print(c.name, streams[c.name], flush=True)
        finally:
            for c in [*everybody, null]:
                c.end()
    page = report(rows, rss, streams, idle, args)
    print(page)
    if args.out:
        pathlib.Path(args.out).write_text(page)


def report(rows, rss, streams, idle, args):
    names = [n for n in ("direct", "haproxy", "nginx", "warmpath") if any(got.get(n) for _, got in rows)]
    mid = lambda got, name, i: statistics.median(x[i] for x in got[name]) if got.get(name) else float("nan")
    best = lambda got, name, i: min(x[i] for x in got[name]) if got.get(name) else float("nan")
    out = ["# The router as a proxy", "", "Written by `make bench-proxy OUT=docs/bench-proxy.md`.", "",
           f"haproxy and nginx balance by turns and look at nothing; the router reads, matches and prices each request. All have one thread, and the same two engines that do nothing "
           f"(`tests/bench/null_engine.c`). h2load, HTTP/1.1 with kept connections, {args.rounds} rounds in turn, medians; every request has the same body. "
           f"{os.cpu_count()} cores ({platform.machine()}), {datetime.date.today()}. Generator, engines and proxy share them, so requests a second say little; CPU is the contender's own.", ""]
    columns = [n for n in names if n != "direct"]
    out += ["## CPU, microseconds a request, 16 connections", "", "| body | " + " | ".join(columns) + " | ours / haproxy | best of ours / best of haproxy |",
            "| --- |" + " ---: |" * (len(columns) + 2)]
    for label, got in rows:
        out.append(f"| {label} | " + " | ".join(f"{mid(got, n, 1):.0f}" for n in columns) +
                   f" | {mid(got, 'warmpath', 1) / mid(got, 'haproxy', 1):.2f} | {best(got, 'warmpath', 1) / best(got, 'haproxy', 1):.2f} |")
    out += ["", "## Latency, microseconds, one connection: p50 / p99", "", "| body | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    for label, got in rows:
        out.append(f"| {label} | " + " | ".join(f"{mid(got, n, 2):.0f} / {mid(got, n, 3):.0f}" for n in names) + " |")
    out += ["", "## Requests a second, 16 connections", "", "| body | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
    for label, got in rows:
        out.append(f"| {label} | " + " | ".join(f"{mid(got, n, 0):.0f}" for n in names) + " |")
    out += ["", "## Memory behind all of that", "", ", ".join(f"{n} {rss[n]:.0f} MiB" for n in columns) + " resident.", ""]
    out += ["## Memory with streams open that get nothing, MiB resident", "", "| streams | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    out += [f"| {n:,} | " + " | ".join("-" if streams[c][n] != streams[c][n] else f"{streams[c][n]:.0f}" for c in columns) + " |" for n in next(iter(streams.values()))]
    out += ["", f"With 100 workers and nothing to do the router takes {idle:.1f} % of a processor.", ""]
    return "\n".join(out)


if __name__ == "__main__":
    main()
