# SPDX-License-Identifier: Apache-2.0
"""Writes down what an engine publishes: tap.py OUT LIMIT ENDPOINT...  Run by the engine's own Python, which has ZeroMQ.

One endpoint for each rank.  A line on standard input is answered when nothing has come for a while: "look" by the number of
messages of the rank that has fewest, anything else is written behind what came and answered by "ok", or by "full" once OUT has grown to LIMIT
bytes: from then on nothing is written any more.
"""
import base64
import json
import sys
import time

import zmq

SILENCE_MS = 150
started = time.monotonic()


def main():
    out, limit = open(sys.argv[1], "w"), int(sys.argv[2])
    context, poller, socks = zmq.Context(), zmq.Poller(), []
    for endpoint in sys.argv[3:]:
        s = context.socket(zmq.SUB)
        s.setsockopt(zmq.RCVHWM, 0)
        s.setsockopt(zmq.RECONNECT_IVL, 20)
        s.subscribe(b"")
        s.connect(endpoint)
        poller.register(s, zmq.POLLIN)
        socks.append(s)
    poller.register(sys.stdin, zmq.POLLIN)
    seen, asked, full = [0] * len(socks), None, False
    while True:
        ready = dict(poller.poll(SILENCE_MS))
        for rank, s in enumerate(socks):
            while s in ready and s.poll(0):
                frames = s.recv_multipart()
                seen[rank] += 1
                if not full:
                    line = {"t": round(time.monotonic() - started, 4), "kind": "live",
                            "frames": [base64.b64encode(f).decode() for f in frames]}
                    out.write(json.dumps({**line, "rank": rank} if len(socks) > 1 else line, separators=(",", ":")) + "\n")
        if asked is not None and not any(s in ready for s in socks):
            if asked != "look":
                full = full or out.tell() > limit
                out.write("" if full else asked + "\n")
            out.flush()
            print(min(seen) if asked == "look" else "full" if full else "ok", flush=True)
            asked = None
        if asked is None and sys.stdin.fileno() in ready:
            line = sys.stdin.readline()
            if not line:
                break
            asked = line.strip()
    out.close()


main()
