#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the compiler does not: that includes go down the floors, who may know a socket, licence lines, paths.

    tests/lint/lint.py              checks this repository; each rule counts as one test
    tests/lint/lint.py --self-test  plants a fault for each rule in a copy made of a few files, and wants it found
"""
import os
import re
import subprocess
import sys
import tempfile

# Who may include whom: what stands below, never what stands beside.  policies/ could see more than base/ and needs no more.
BELOW = {
    "base": (),
    "net": ("base",),
    "index": ("base",),
    "policies": ("base",),
    "adapters": ("base", "net", "index"),
    "sim": ("base", "net", "index", "policies", "adapters"),
    "router": ("base", "net", "index", "policies", "adapters"),
    "node": ("base", "net", "index", "policies", "adapters"),
}
PROGRAMS = ("sim", "router", "node")
TABLE = "router/main.c"  # the table of commands includes one header of each program
NO_SOCKETS = ("base", "index", "policies")
SOCKETS = re.compile(r"^(sys/(socket|un|epoll)\.h|netinet/.*|arpa/.*|netdb\.h|net/if\.h|poll\.h|uv\.h|ares.*\.h)$")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
GENERATED = ("suites.h",)
LICENSED = re.compile(r"(\.(c|h|py|sh|js|mjs|service|ya?ml)|(^|/)Makefile|^\.ci/run)$")
SPDX = "SPDX-License-Identifier: Apache-2.0"
# Folders of somebody's own machine; written in pieces, or this line would be found.
OWN_PATHS = re.compile(r"(?<![\w.~$}-])/(" + "|".join(("wo" + "rk", "ho" + "me", "ro" + "ot", "Us" + "ers")) + r")/\w")
DATA = "tests/data/"
SUPPRESSIONS = ("tests/tsan.supp", "tests/lsan.supp")
BY_LIBRARY = re.compile(r"^(called_from_lib|race|leak):[\w.+-]*(lib[\w+-]+|\.so[\w.]*)$")


def files(root):
    """Tracked and new files, as git sees them; without git all but build/."""
    try:
        out = subprocess.run(["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard"], check=True,
                             capture_output=True).stdout.decode()
        names = [f for f in out.split("\0") if f]
    except (OSError, subprocess.CalledProcessError):
        names = [os.path.relpath(os.path.join(d, f), root) for d, _, fs in os.walk(root) for f in fs]
        names = [f for f in names if not f.startswith(("build/", ".git/"))]
    return sorted(f for f in set(names) if os.path.isfile(os.path.join(root, f)))


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def includes(root, names):
    """(file, line, '<' or '"', path) of each include of C files."""
    for name in names:
        if name.endswith((".c", ".h")):
            text = read(root, name)
            for m in INCLUDE.finditer(text):
                yield name, text.count("\n", 0, m.start(2)) + 1, m.group(1), m.group(2)


def check_floors(root, names):
    seen = {}
    for name, line, quote, path in includes(root, names):
        floor, target = name.split("/")[0], path.split("/")[0]
        if quote == "<" or path in GENERATED:
            if quote == "<" and target in BELOW and os.path.exists(os.path.join(root, path)):
                yield f"{name}:{line}: our own {path} wants quotes, not angle brackets"
            continue
        if not os.path.exists(os.path.join(root, path)):
            yield f"{name}:{line}: {path} is no path from the top of the repository"
        elif floor not in BELOW or target == floor or target in BELOW[floor]:
            continue
        elif name == TABLE and target in PROGRAMS:
            if seen.setdefault(target, path) != path:
                yield f"{name}:{line}: {path}: one header of {target}/ is enough, and {seen[target]} is there"
        else:
            allowed = ", ".join(BELOW[floor]) or "nothing"
            yield f"{name}:{line}: {floor}/ may not include {path} (below it: {allowed})"


def check_sockets(root, names):
    for name, line, quote, path in includes(root, names):
        if name.split("/")[0] in NO_SOCKETS and quote == "<" and SOCKETS.match(path):
            yield f"{name}:{line}: <{path}>: only net/ and what stands above it knows a socket"


def check_licences(root, names):
    for name in names:
        if LICENSED.search(name) and not name.startswith(DATA):
            if not any(SPDX in line for line in read(root, name).split("\n")[:2]):
                yield f"{name}:1: want a line with {SPDX}"


def check_paths(root, names):
    for name in names:
        if name.startswith(DATA):
            continue
        for i, line in enumerate(read(root, name).split("\n"), 1):
            if OWN_PATHS.search(line):
                yield f"{name}:{i}: the path of some machine: {line.strip()[:100]}"


def check_suppressions(root, names):
    for name in names:
        if name in SUPPRESSIONS:
            for i, line in enumerate(read(root, name).split("\n"), 1):
                if line.strip() and not line.startswith("#") and not BY_LIBRARY.match(line.strip()):
                    yield f"{name}:{i}: {line.strip()}: suppress by library only, as called_from_lib:libNAME"


RULES = (
    ("includes go down the floors", check_floors),
    ("only net/ and above knows a socket", check_sockets),
    ("each file has its licence line", check_licences),
    ("no path of anybody's machine", check_paths),
    ("sanitizers are silenced by library only", check_suppressions),
)

OK = f"/* {SPDX} */\n"
GOOD = {
    "base/a.h": OK,
    "net/n.h": OK + '#include "base/a.h"\n#include <uv.h>\n',
    "index/i.h": OK + '#include "base/a.h"\n#include "index/i.h"\n',
    "policies/p.h": OK,
    "adapters/x.h": OK + '#include "net/n.h"\n#include "index/i.h"\n',
    "sim/s.h": OK + '#include "adapters/x.h"\n#include "policies/p.h"\n',
    "sim/t.h": OK,
    "node/d.h": OK,
    "router/r.h": OK + '#include "index/i.h"\n',
    "router/main.c": OK + '#include "router/r.h"\n#include "sim/s.h"\n#include "node/d.h"\n',
    "tests/unit/t.c": OK + '#include "sim/s.h"\n#include "base/a.h"\n#include "suites.h"\n',
    "tests/tsan.supp": "# why\ncalled_from_lib:libzmq\nrace:libzmq.so.5\n",
    "docs/x.md": "Put it into /etc/warmpath, not into ~/.config or $HOME/work/x.\n",
}
PLANTED = (  # rule, file, what is added to it
    (check_floors, "base/a.h", '#include "net/n.h"\n'),
    (check_floors, "base/a.h", '#  include "router/r.h"\n'),
    (check_floors, "net/n.h", '#include "index/i.h"\n'),
    (check_floors, "index/i.h", '#include "net/n.h"\n'),
    (check_floors, "index/i.h", '#include "adapters/x.h"\n'),
    (check_floors, "policies/p.h", '#include "index/i.h"\n'),
    (check_floors, "policies/p.h", '#include "adapters/x.h"\n'),
    (check_floors, "adapters/x.h", '#include "policies/p.h"\n'),
    (check_floors, "adapters/x.h", '#include "sim/s.h"\n'),
    (check_floors, "sim/s.h", '#include "router/r.h"\n'),
    (check_floors, "sim/s.h", '#include "tests/unit/t.c"\n'),
    (check_floors, "router/r.h", '#include "sim/s.h"\n'),
    (check_floors, "router/main.c", '#include "sim/t.h"\n'),
    (check_floors, "net/n.h", '#include "a.h"\n'),
    (check_floors, "net/n.h", "#include <base/a.h>\n"),
    (check_sockets, "base/a.h", "#include <sys/socket.h>\n"),
    (check_sockets, "index/i.h", "#include <uv.h>\n"),
    (check_sockets, "policies/p.h", "#include <netinet/in.h>\n"),
    (check_licences, "net/new.c", "int x;\n"),
    (check_licences, "tests/e2e/new.py", "x = 1\n"),
    (check_suppressions, "tests/tsan.supp", "race:wp_map_put\n"),
    (check_suppressions, "tests/tsan.supp", "race:base/map.c\n"),
    (check_suppressions, "tests/tsan.supp", "deadlock:libuv.so\n"),
    (check_suppressions, "tests/tsan.supp", "race:*\n"),
    (check_paths, "docs/x.md", "See /" + "work/x.\n"),
    (check_paths, "net/n.h", '#define F "/' + 'home/me/x"\n'),
)


def plant(root, tree):
    for name, text in tree.items():
        os.makedirs(os.path.join(root, os.path.dirname(name)), exist_ok=True)
        with open(os.path.join(root, name), "w", encoding="utf-8") as f:
            f.write(text)


def findings(tree):
    with tempfile.TemporaryDirectory() as root:
        plant(root, tree)
        return {rule: list(rule(root, sorted(tree))) for _, rule in RULES}


def self_test():
    failed = 0
    cases = [("nothing planted", None, GOOD)]
    cases += [(f"{name} += {text.strip()}", rule, {**GOOD, name: GOOD.get(name, "") + text})
              for rule, name, text in PLANTED]
    for label, want, tree in cases:
        got = findings(tree)
        if any(len(found) != (rule is want) for rule, found in got.items()):
            failed += 1
            print(f"FAILED {label}: found {[f for found in got.values() for f in found]}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return failed != 0


def main(args):
    if args == ["--self-test"]:
        return self_test()
    root = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    names, failed = files(root), 0
    for label, rule in RULES:
        found = list(rule(root, names))
        print("\n".join(found + [f"{'FAILED' if found else 'ok'}: {label}"]))
        failed += bool(found)
    print(f"{len(RULES) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
