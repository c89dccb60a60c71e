# SPDX-License-Identifier: Apache-2.0
"""Runs of the laboratory's simulator, each kept in a file so that an interrupted benchmark goes on where it was."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess

TRACES = ("conversation", "toolagent_like", "agentcode")
FULL = {"conversation": 1.746, "toolagent_like": 2.314, "agentcode": 1.3746}  # load 1.0: scale of the trace
PUBLISHED = {
    "round_robin": "policy=rr",
    "dynamo_w1": "policy=dynamo ow=1 uniq=1",
    "llmd_2_1_1": "policy=llmd wp=2 wq=1 wk=1",
    "conductor": "policy=conductor",
}
BEST = ("conductor", "llmd_2_1_1")  # the better one is the best published policy on these traces, at every load
REFERENCE = {
    "REF_LB": "policy=ttft kappa=.05 eta=.03 pend=1 hold=.25 age=.1 dr=1",
    "ROOM_LB": "policy=ttft pend=1 room=1 hold=.25 age=.1 dr=1",
}


class Lab:
    def __init__(self, folder, command, keep, jobs):
        self.folder = pathlib.Path(folder).resolve()
        self.command = command
        self.keep = pathlib.Path(keep)
        self.keep.mkdir(parents=True, exist_ok=True)
        self.jobs = jobs
        self.stamp = self._stamp()
        self.done = {}

    def _stamp(self):
        """Results of the product are those of one binary."""
        binary = self.command.split()[0]
        return hashlib.sha256(pathlib.Path(binary).read_bytes()).hexdigest()[:12]

    def args(self, policy, trace, load, seed, **more):
        given = {"n": 16, "stale": 50, **more}
        scale = given.pop("scale", round(FULL[trace] * load, 4))
        args = [f"trace={self.folder}/traces/{trace}.jsonl", f"scale={scale}", f"copies={given['n'] // 4}", "jitter=3", f"seed={seed}"]
        args += [f"{k}={v}" for k, v in sorted(given.items()) if k != "set"]
        if policy == "price":
            return args + ["policy=ext", f"cmd={self.command} decide --stdio {given.get('set', '')}".rstrip()]
        return args + (PUBLISHED.get(policy) or REFERENCE[policy]).split()

    def run(self, policy, trace, load, seed, **more):
        args = self.args(policy, trace, load, seed, **more)
        name = json.dumps([a for a in args if not a.startswith("trace=")] + [trace, self.stamp if policy == "price" else ""])
        path = self.keep / (hashlib.sha256(name.encode()).hexdigest()[:24] + ".json")
        if path.exists():
            return json.loads(path.read_text())
        out = subprocess.run([str(self.folder / "kvsim"), *args], capture_output=True, text=True, cwd=self.folder, check=False)
        if out.returncode:
            raise SystemExit(f"kvsim {' '.join(args)}: {out.stderr.strip()}")
        path.write_text(out.stdout)
        return json.loads(out.stdout)

    def all(self, jobs):
        """A list of (policy, trace, load, seed, more) played with as many processes as there are jobs."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(lambda j: self.run(*j[:4], **j[4]), jobs))

    def paired(self, policy, trace, load, seeds, **more):
        return self.all([(policy, trace, load, s, more) for s in seeds])

    def capacity(self, policy, trace, seed, low, high):
        """The highest load, to 1 %, with 90 % of the requests within the objective."""
        good = lambda load: self.run(policy, trace, load, seed)["slo"] >= 0.9
        steps = round((high - low) / 0.01)
        at, end = 0, steps
        if not good(low):
            return low
        while end - at > 1:
            middle = (at + end) // 2
            if good(low + 0.01 * middle):
                at = middle
            else:
                end = middle
        return round(low + 0.01 * at, 4)


def default_jobs():
    return max(1, (os.cpu_count() or 2) // 2)
