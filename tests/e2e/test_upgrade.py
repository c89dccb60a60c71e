# SPDX-License-Identifier: Apache-2.0
"""A new process takes over by SIGUSR2, and what the service manager is told."""
import json
import os
import pathlib
import re
import signal
import socket
import tempfile
import threading

from lib import MODEL, Engine, Router, Skip, http, http_client, sanitized, until


def completion(port, **more):
    return http(port, "POST", "/v1/completions", {"model": MODEL, "prompt": "hello", "max_tokens": 4, **more})


def successor(r):
    """The pid of the process that took over: it writes into the log of the one that started it."""
    return int(r.wait_log(r"upgrade: pid=(\d+) serves", 30)[1])


def gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "Z"
    except FileNotFoundError:
        return True


class Successor:
    """A process that nobody here started: ended by its pid."""

    def __init__(self, pid):
        self.pid = pid

    def end(self):
        os.kill(self.pid, signal.SIGTERM)
        until(lambda: gone(self.pid), 15, "the successor's end")


def take_over(threads):
    e = Engine("--speed", 100)
    r = Router([e], "--threads", threads, "--set", "limits.keepalive_s=3")
    failures, count, stop = [], [0], threading.Event()

    def client(fresh):
        c = None
        while not stop.is_set():
            try:
                c = c or http_client(r.port, 30)
                c.request("POST", "/v1/completions", json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 4}),
                          {"Content-Type": "application/json"})
                answer = c.getresponse()
                body = answer.read()
                if answer.status != 200:
                    failures.append((answer.status, body))
                count[0] += 1
                if fresh or answer.will_close:
                    c.close()
                    c = None
            except Exception as error:  # told by the test
                failures.append(error)
                c = None
    clients = [threading.Thread(target=client, args=(i % 2 == 0,)) for i in range(8)]
    s = socket.create_connection(("127.0.0.1", r.port))
    body = json.dumps({"model": MODEL, "prompt": "hello", "max_tokens": 600, "ignore_eos": True, "stream": True}).encode()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    for c in clients:
        c.start()
    until(lambda: count[0] > 50, 20, "traffic")
    r.p.send_signal(signal.SIGUSR2)
    new = Successor(successor(r))
    seen = count[0]
    until(lambda: count[0] > seen + 50, 20, "traffic behind the change")
    s.settimeout(20)
    got = b""
    while b"[DONE]" not in got:
        more = s.recv(65536)
        assert more, "the stream of the old process was cut"
        got += more
    s.close()
    until(lambda: r.p.poll() is not None, 30, "the end of the old process")
    assert r.p.returncode == 0
    seen = count[0]
    until(lambda: count[0] > seen + 50, 20, "traffic at the new process alone")
    stop.set()
    for c in clients:
        c.join()
    assert not failures, failures[:3]
    assert json.loads(http(r.admin, "GET", "/workers")[2])["workers"][0]["ready"]
    new.end()


def test_a_new_process_takes_over():
    """SIGUSR2 under load: a new process takes the ports, a stream of the old one ends in peace, and not one request fails"""
    take_over(1)


def test_a_new_process_takes_over_all_loops():
    """the same with three loops, each with a listener of its own"""
    take_over(3)


def test_the_snapshot_is_the_successors():
    """a process that handed over writes no last snapshot over its successor's; the successor writes its own at its end"""
    with tempfile.TemporaryDirectory() as d:
        file = pathlib.Path(d) / "index"
        r = Router([Engine("--speed", 50)], "--set", f"index.snapshot={file}", "--set", "index.snapshot_s=0")
        r.p.send_signal(signal.SIGUSR2)
        new = Successor(successor(r))
        until(lambda: r.p.poll() is not None, 30, "the end of the old process")
        assert r.p.returncode == 0 and not file.exists()
        new.end()
        assert file.exists()


def test_a_successor_that_cannot_start():
    """a configuration that is wrong by now, or a second SIGUSR2, leaves the old process serving, with the reason in the log"""
    f = tempfile.NamedTemporaryFile("w", suffix=".yaml")
    f.write("{}")
    f.flush()
    r = Router([Engine("--speed", 50)], "-c", f.name)
    f.write("no: such key")
    f.flush()
    r.p.send_signal(signal.SIGUSR2)
    r.wait_log(r"ended before it was ready, status=2")
    assert completion(r.port)[0] == 200
    f.seek(0)
    f.truncate()
    f.write("{}")
    f.flush()
    r.p.send_signal(signal.SIGUSR2)
    new = Successor(successor(r))
    until(lambda: r.p.poll() is not None, 30, "the end of the old process")
    assert completion(r.port)[0] == 200
    new.end()


def test_what_the_service_manager_is_told():
    """$NOTIFY_SOCKET hears READY=1 with the pid, and STOPPING=1"""
    with tempfile.TemporaryDirectory() as d, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.bind(f"{d}/notify")
        s.settimeout(20)
        r = Router([Engine("--speed", 50)], env={"NOTIFY_SOCKET": f"{d}/notify"})
        assert s.recv(1000).decode() == f"READY=1\nMAINPID={r.p.pid}"
        r.end()
        assert s.recv(1000) == b"STOPPING=1"


def test_last_words():
    """a crash says its signal and where it was, and the process dies of it"""
    if sanitized():
        raise Skip("a sanitizer has words of its own")
    r = Router([Engine("--speed", 50)])
    r.kill(signal.SIGSEGV)
    assert r.p.wait(20) == -signal.SIGSEGV
    r.wait_log(r"crash: signal 11")
    assert len([line for line in r.log if re.search(r"\(\+0x[0-9a-f]+\)", line)]) > 2, r.log[-10:]
