# SPDX-License-Identifier: Apache-2.0
"""TLS towards clients and towards engines: real sockets, certificates made here by openssl."""
import json
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading

from lib import MODEL, Engine, Process, Router, Skip, http, until


class Authority:
    """A folder with an authority and what it signs."""

    def __init__(self):
        if not shutil.which("openssl"):
            raise Skip("openssl is not here")
        self.folder = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.folder.name)
        self.openssl("req", "-x509", *self.fresh("ca"), "-days", "2", "-subj", "/CN=test authority")
        self.ca = str(self.dir / "ca.pem")

    def openssl(self, *args):
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)

    def fresh(self, name, ends="pem"):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.dir / f"{name}.key",
                "-out", self.dir / f"{name}.{ends}")

    def sign(self, name, alt):
        """(certificate, key); alt: as in DNS:localhost,IP:127.0.0.1"""
        self.openssl("req", *self.fresh(name, "csr"), "-subj", f"/CN={name}")
        (self.dir / "alt").write_text(f"subjectAltName={alt}")
        self.openssl("x509", "-req", "-in", self.dir / f"{name}.csr", "-CA", self.ca, "-CAkey", self.dir / "ca.key", "-CAcreateserial",
                     "-days", 2, "-extfile", self.dir / "alt", "-out", self.dir / f"{name}.pem")
        return str(self.dir / f"{name}.pem"), str(self.dir / f"{name}.key")

    def context(self, pair=None):
        c = ssl.create_default_context(cafile=self.ca)
        if pair:
            c.load_cert_chain(*pair)
        return c


LOCAL = "DNS:localhost,IP:127.0.0.1"


def with_tls(pair, **more):
    return ["--set", f"listen.tls.cert={pair[0]}", "--set", f"listen.tls.key={pair[1]}",
            *[w for k, v in more.items() for w in ("--set", f"listen.tls.{k}={v}")]]


def connect(port, context, name="localhost"):
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), 20), server_hostname=name)


def ask(s, path="/v1/models", body=None, **headers):
    """One request on an open connection: (status, head, body).  The answer has a length or is chunked."""
    data = json.dumps(body).encode() if body is not None else b""
    lines = [f"{'POST' if data else 'GET'} {path} HTTP/1.1", "Host: x", *[f"{k}: {v}" for k, v in headers.items()]]
    if data:
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    s.sendall("\r\n".join([*lines, "", ""]).encode() + data)
    f = s.makefile("rb")
    status = int(f.readline().split()[1])
    head = {}
    while (line := f.readline().strip()):
        k, _, v = line.decode().partition(": ")
        head[k.lower()] = v
    if "content-length" in head:
        return status, head, f.read(int(head["content-length"]))
    got = b""
    while (n := int(f.readline(), 16)):
        got += f.read(n)
        f.readline()
    f.readline()
    return status, head, got


def completion(**more):
    return {"model": MODEL, "prompt": "hello", "max_tokens": 4, **more}


def test_clients_over_tls():
    """over TLS 1.2 and 1.3 requests, streams and a body of 3 MiB pass, many on one connection; older versions and strangers do not"""
    a = Authority()
    pair = a.sign("server", LOCAL)
    r = Router([Engine("--speed", 50)], *with_tls(pair))
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = a.context()
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["http/1.1"])
        with connect(r.port, context) as s:
            assert s.selected_alpn_protocol() == "http/1.1"
            for _ in range(3):
                status, _, body = ask(s)
                assert status == 200 and json.loads(body)["data"][0]["id"] == MODEL
            status, _, body = ask(s, "/v1/completions", completion(stream=True))
            assert status == 200 and body.rstrip().endswith(b"data: [DONE]"), body[-200:]
            status, _, body = ask(s, "/v1/completions", completion(prompt="x" * (3 << 20)))
            assert status in (200, 400), (status, body[:300])
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    try:
        connect(r.port, old)
        raise AssertionError("TLS 1.1 was spoken")
    except (ssl.SSLError, ConnectionError):
        pass
    with socket.create_connection(("127.0.0.1", r.port)) as s:  # no TLS at all
        s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        try:
            got = s.recv(100)
        except ConnectionError:
            got = b""
        assert not got.startswith(b"HTTP"), got
    r.at_rest()


def test_what_is_agreed_on():
    """ALPN: h2 before http/1.1, HTTP/1.1 without it, and a client that offers only something else is told so in the handshake"""
    a = Authority()
    r = Router([Engine("--speed", 50)], *with_tls(a.sign("server", LOCAL)))
    for offer, want in ((["http/1.1", "h2"], "h2"), (["http/1.1"], "http/1.1"), ([], None)):
        context = a.context()
        if offer:
            context.set_alpn_protocols(offer)
        with connect(r.port, context) as s:
            assert s.selected_alpn_protocol() == want, offer
    context = a.context()
    context.set_alpn_protocols(["spdy/3"])
    try:
        connect(r.port, context)
        raise AssertionError("something was agreed on")
    except ssl.SSLError as e:
        assert "no application protocol" in str(e).lower().replace("_", " "), e
    if shutil.which("curl"):
        out = subprocess.run(["curl", "-sS", "--cacert", a.ca, "-w", "\n%{http_version}", f"https://localhost:{r.port}/v1/models"],
                             capture_output=True, text=True, timeout=30)
        assert out.stdout.endswith("\n2") and MODEL in out.stdout, out


def test_client_certificates():
    """with client_ca a client needs a certificate of that authority; the admin port speaks TLS when told to"""
    a, b = Authority(), Authority()
    pair = a.sign("server", LOCAL)
    r = Process("serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *with_tls(pair, client_ca=a.ca, admin="true"))
    m = r.wait_log(r"api=127\.0\.0\.1:(\d+) admin=127\.0\.0\.1:(\d+)")
    for port, path in ((int(m[1]), "/v1/models"), (int(m[2]), "/livez")):
        with connect(port, a.context(a.sign("client", "DNS:client"))) as s:
            assert ask(s, path)[0] in (200, 503)
        for stranger in (None, b.sign("client", "DNS:client")):
            try:
                with connect(port, a.context(stranger)) as s:
                    ask(s, path)
                raise AssertionError("a stranger was served")
            except (ssl.SSLError, ConnectionError, IndexError):
                pass


def test_names_and_reload():
    """the name asked for chooses the certificate; a reload takes new files without dropping a connection, and refuses bad ones"""
    a = Authority()
    pair, other = a.sign("server", LOCAL), a.sign("other", "DNS:other.test")
    f = tempfile.NamedTemporaryFile("w", suffix=".yaml")
    f.write(json.dumps({"listen": {"tls": {"cert": pair[0], "key": pair[1], "more": [{"cert": other[0], "key": other[1]}]}}}))
    f.flush()
    r = Router([Engine("--speed", 50)], "-c", f.name)
    serial = lambda name: (lambda s: (s.getpeercert()["serialNumber"], s.close())[0])(connect(r.port, a.context(), name))
    first = serial("localhost")
    assert serial("other.test") != first
    with connect(r.port, a.context()) as kept:
        assert ask(kept)[0] == 200
        fresh = a.sign("server", LOCAL)  # the same files
        assert http(r.admin, "POST", "/reload")[0] == 200
        assert serial("localhost") != first
        assert ask(kept)[0] == 200
        pathlib.Path(fresh[0]).write_text("no certificate")
        status, _, body = http(r.admin, "POST", "/reload")
        assert status == 400 and b"listen.tls: certificate" in body, (status, body)
        assert serial("localhost") != first  # the last good one
        assert ask(kept)[0] == 200
    assert r.p.poll() is None


def test_engines_over_tls():
    """an https engine is verified, served through, and a wrong or unknown certificate is a worker that is down, with the reason"""
    a, b = Authority(), Authority()
    pair = a.sign("server", LOCAL)
    behind = Router([Engine("--speed", 50)], *with_tls(pair))  # a router is as good an engine as any
    url = f"https://localhost:{behind.port}"
    r = Router([f"{url},ca={a.ca}"])
    for _ in range(3):
        status, _, body = http(r.port, "POST", "/v1/completions", completion())
        assert status == 200, body
    status, _, body = http(r.port, "POST", "/v1/completions", completion(stream=True))
    assert status == 200 and body.rstrip().endswith(b"data: [DONE]")
    r.at_rest()
    for spec, why in ((f"{url},ca={b.ca}", "certificate"), (f"https://127.0.0.2:{behind.port},ca={a.ca}", "")):
        bad = Router([spec], ready=0)
        until(lambda: bad.workers()[0]["trouble"], 10, "a reason")
        assert not bad.workers()[0]["ready"] and why in bad.workers()[0]["trouble"], bad.workers()[0]
        assert http(bad.port, "POST", "/v1/completions", completion())[0] in (404, 503)


def test_a_client_that_leaves_over_tls():
    """a client that goes away over TLS frees the engine, in the prefill and in the stream"""
    a = Authority()
    e = Engine("--speed", 1)
    r = Router([e], *with_tls(a.sign("server", LOCAL)))
    for prompt, wait_for in (([7] * 60000, None), ([9] * 100, b"data: ")):
        s = connect(r.port, a.context())
        data = json.dumps(completion(prompt=prompt, max_tokens=5000, stream=True, ignore_eos=True)).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        if wait_for:
            got = b""
            while wait_for not in got:
                got += s.recv(65536)
        else:
            until(lambda: r.workers()[0]["in_flight"] == 1, 10, "the request at its engine")
        s.close()
        until(lambda: r.workers()[0]["in_flight"] == 0 and (e.metric("vllm:num_requests_running") or 0) == 0, 10, "the engine being free")
    r.at_rest()


def test_many_at_once_over_tls():
    """64 clients at once over TLS, some of whom never finish their handshake; the others are served"""
    a = Authority()
    r = Router([Engine("--speed", 50)], *with_tls(a.sign("server", LOCAL)), "--set", "limits.head_s=1")
    silent = [socket.create_connection(("127.0.0.1", r.port)) for _ in range(16)]
    for s in silent[:8]:
        s.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a ClientHello
    failures = []

    def one():
        try:
            with connect(r.port, a.context()) as s:
                for _ in range(4):
                    status, _, body = ask(s, "/v1/completions", completion())
                    assert status == 200, body
        except Exception as e:  # told by the test
            failures.append(e)
    threads = [threading.Thread(target=one) for _ in range(64)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not failures, failures[:3]
    for s in silent:  # limits.head_s ends them
        s.settimeout(20)
        try:
            assert s.recv(100)[:1] in (b"", b"\x15")
        except ConnectionError:
            pass
        s.close()
    r.p.send_signal(signal.SIGTERM)
    until(lambda: r.p.poll() is not None, 10, "a drain")


def test_ctl_and_load_over_tls():
    """warmpath ctl and load speak https, with the authorities of $SSL_CERT_FILE"""
    a = Authority()
    r = Process("serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--worker", Engine("--speed", 50).url,
                *with_tls(a.sign("server", LOCAL), admin="true"))
    m = r.wait_log(r"api=127\.0\.0\.1:(\d+) admin=127\.0\.0\.1:(\d+)")
    r.wait_log(r"worker=\S+ up")
    trace = pathlib.Path(a.dir / "t.jsonl")
    env = {"SSL_CERT_FILE": a.ca}
    t = Process("trace", "--requests", 8, "--out", trace)
    assert t.p.wait(20) == 0
    for args in (("ctl", "--admin", f"https://localhost:{m[2]}", "workers"),
                 ("load", "--target", f"https://localhost:{m[1]}", "--trace", trace, "--scale", 50, "--speed", 50, "--warmup", 0)):
        p = Process(*args, env=env)
        assert p.p.wait(60) == 0, (p.out, p.log)
    p = Process("ctl", "--admin", f"https://localhost:{m[2]}", "workers", env={"SSL_CERT_FILE": "/dev/null"})
    assert p.p.wait(20) == 1
    p.expect_exit = 1
    until(lambda: p.grep("certificate"), 5, "the reason")
