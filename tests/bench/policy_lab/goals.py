# SPDX-License-Identifier: Apache-2.0
"""The laboratory's goals for the price policy: what is run for each, and how it is judged."""
from runs import BEST, FULL

CHAT = ("conversation", "toolagent_like")
SHORT = {"conversation": "conv", "toolagent_like": "tool", "agentcode": "agent"}


class Row:
    """One line of the table: a figure a column, what it must be and should be, what a reference has."""

    def __init__(self, number, text, must, stretch, reference=""):
        self.number, self.text, self.must, self.stretch, self.reference = number, text, must, stretch, reference
        self.figures = []  # (label, value, must, stretch, less is better)

    def add(self, label, value, must, stretch, less=True):
        self.figures.append((label, value, must, stretch, less))

    def met(self, which):
        """which: 2 must, 3 stretch; None: no bound."""
        ok = [v <= f[which] if f[4] else v >= f[which] for f in self.figures for v in [f[1]] if f[which] is not None]
        return all(ok) if ok else None


def mean(runs, key="ttft_mean"):
    return sum(r[key] for r in runs) / len(runs)


def ratio(ours, theirs, key="ttft_mean"):
    """Paired: the mean over seeds of the ratio."""
    return sum(a[key] / b[key] for a, b in zip(ours, theirs)) / len(ours)


def best_of(lab, trace, load, seeds, key="ttft_mean", **more):
    """The published policy with the lowest mean there, and its runs."""
    runs = {p: lab.paired(p, trace, load, seeds, **more) for p in BEST}
    name = min(runs, key=lambda p: mean(runs[p], "ttft_mean"))
    return name, runs[name]


def g3(lab, seeds, n=16, slack=1.0):
    row = Row("3", "mean TTFT at 0.75 / dynamo w1", "0.60, 0.47", "0.50, 0.38", "0.53, 0.41")
    for trace, must, stretch in (("conversation", 0.60, 0.50), ("toolagent_like", 0.47, 0.38)):
        x = ratio(lab.paired("price", trace, 0.75, seeds, n=n), lab.paired("dynamo_w1", trace, 0.75, seeds, n=n))
        row.add(SHORT[trace], x, must * slack, stretch * slack)
    return row


def g4(lab, seeds):
    row = Row("4", "mean TTFT at 0.75 / round robin", "0.07", "0.045, 0.02", "0.045, 0.021")
    for trace, stretch in (("conversation", 0.045), ("toolagent_like", 0.02)):
        row.add(SHORT[trace], ratio(lab.paired("price", trace, 0.75, seeds), lab.paired("round_robin", trace, 0.75, seeds)), 0.07, stretch)
    return row


def g5(lab, seeds, n=16, slack=1.0):
    row = Row("5", "mean TTFT at 0.9 / dynamo w1", "0.26, 0.18", "0.19, 0.13", "0.19, 0.14")
    for trace, must, stretch in (("conversation", 0.26, 0.19), ("toolagent_like", 0.18, 0.13)):
        x = ratio(lab.paired("price", trace, 0.9, seeds, n=n), lab.paired("dynamo_w1", trace, 0.9, seeds, n=n))
        row.add(SHORT[trace], x, must * slack, stretch * slack)
    return row


def g6(lab, seeds, n=16, slack=1.0):
    row = Row("6", "mean TTFT / best published at 0.5, 0.75; 0.9", "1.06; 1.00", "0.98; 0.85", "1.02..1.07; 0.86..0.96")
    for trace in CHAT:
        for load, must, stretch in ((0.5, 1.06, 0.98), (0.75, 1.06, 0.98), (0.9, 1.00, 0.85)):
            _, theirs = best_of(lab, trace, load, seeds, n=n)
            row.add(f"{SHORT[trace]} {load}", ratio(lab.paired("price", trace, load, seeds, n=n), theirs), must * slack, stretch * slack)
    return row


def g7(lab, seeds):
    row = Row("7", "mean TTFT at 1.0 / best published", "0.55", "0.40", "0.32..0.45")
    for trace in CHAT:
        row.add(SHORT[trace], ratio(lab.paired("price", trace, 1.0, seeds), best_of(lab, trace, 1.0, seeds)[1]), 0.55, 0.40)
    return row


def g8(lab, seeds):
    row = Row("8", "p99 TTFT at 1.0 / best published", "0.80", "0.60", "0.61..0.69")
    for trace in CHAT:
        row.add(SHORT[trace], ratio(lab.paired("price", trace, 1.0, seeds), best_of(lab, trace, 1.0, seeds)[1], "ttft_p99"), 0.80, 0.60)
    return row


def g9(lab, seeds):
    row = Row("9", "p99 TTFT at 0.75, s", "7.2, 3.6", "6.4, 3.0", "6.5, 3.2")
    for trace, must, stretch in (("conversation", 7.2, 6.4), ("toolagent_like", 3.6, 3.0)):
        row.add(SHORT[trace], mean(lab.paired("price", trace, 0.75, seeds), "ttft_p99"), must, stretch)
    return row


def g10(lab, seeds):
    row = Row("10", "hit / infinite-cache bound, 0.75..1.0", "0.86, 0.96", "0.89, 0.98", "0.89, 0.98")
    for trace, must, stretch in (("conversation", 0.86, 0.89), ("toolagent_like", 0.96, 0.98)):
        for load in (0.75, 0.9, 1.0):
            runs = lab.paired("price", trace, load, seeds)
            row.add(f"{SHORT[trace]} {load}", mean(runs, "hit") / mean(runs, "ub_hit"), must, stretch, less=False)
    return row


def g11(lab, seeds):
    row = Row("11", "bytes fetched / conductor's, 0.75", "0.5", "0.25", "0.08..0.34")
    for trace in CHAT:
        row.add(SHORT[trace], ratio(lab.paired("price", trace, 0.75, seeds), lab.paired("conductor", trace, 0.75, seeds), "gb_fetched"),
                0.5, 0.25)
    return row


def g12(lab, seeds):
    row = Row("12", "mean TTFT at stale 500 ms / 0; 5 s / 0", "1.08; 1.25", "1.02; 1.05", "1.02; 1.04")
    for trace in CHAT:
        for load in (0.75, 1.0):
            now = lab.paired("price", trace, load, seeds, stale=0)
            for stale, must, stretch in ((500, 1.08, 1.02), (5000, 1.25, 1.05)):
                row.add(f"{SHORT[trace]} {load} {stale / 1000:g} s", ratio(lab.paired("price", trace, load, seeds, stale=stale), now), must,
                        stretch)
    return row


def g13(lab, seeds):
    row = Row("13", "links of 5, 2, 0.5 GB/s: mean TTFT / at 25; fetched share at 2", "1.10; 0.005", "1.05; 0.002", "1.05; 0.001")
    for trace in CHAT:
        base = lab.paired("price", trace, 0.75, seeds)
        for nic in (5, 2, 0.5):
            runs = lab.paired("price", trace, 0.75, seeds, nic=nic)
            row.add(f"{SHORT[trace]} {nic:g}", ratio(runs, base), 1.10, 1.05)
            if nic == 2:
                row.add(f"{SHORT[trace]} fetched", mean(runs, "fetched"), 0.005, 0.002)
    return row


def g14(lab, seeds):
    row = Row("14", "half of the nodes at 1 GB/s, told / not told: mean TTFT / own", "1.08; 1.25", "1.03; 1.08", "1.03; 1.17")
    for trace in CHAT:
        base = lab.paired("price", trace, 0.75, seeds)
        slow = {"congest": 0.04, "cfrac": 0.5}
        row.add(f"{SHORT[trace]} told", ratio(lab.paired("price", trace, 0.75, seeds, set="--nic 0-7=1e9", **slow), base), 1.08, 1.03)
        row.add(f"{SHORT[trace]} not told", ratio(lab.paired("price", trace, 0.75, seeds, **slow), base), 1.25, 1.08)
    return row


def g15(lab, seeds):
    row = Row("15", "prefix chain broken in half of the long prompts / best published, 0.75", "1.00", "0.90", "1.00; 0.89 with queue")
    more = {"brk": 0.5, "brkmin": 16}
    for trace in CHAT:
        row.add(SHORT[trace], ratio(lab.paired("price", trace, 0.75, seeds, **more), best_of(lab, trace, 0.75, seeds, **more)[1]), 1.0, 0.9)
    return row


def g16(lab, seeds):
    row = Row("16", "CV of computed tokens per worker, >= 0.75", "0.06", "0.02", "0.013..0.043")
    for trace in CHAT:
        for load in (0.75, 0.9, 1.0):
            row.add(f"{SHORT[trace]} {load}", mean(lab.paired("price", trace, load, seeds), "imb_cv"), 0.06, 0.02)
    return row


def g17(lab, seeds):
    row = Row("17", "longest single TTFT at 1.0, s", "75", "30", "16..29; 29..72 with queue")
    for trace in CHAT:
        row.add(SHORT[trace], max(r["ttft_max"] for r in lab.paired("price", trace, 1.0, seeds)), 75, 30)
    return row


def g18(lab, seeds, fleets):
    out = []
    for n in fleets:
        for row in (g3(lab, seeds, n, 1.1), g5(lab, seeds, n, 1.1), g6(lab, seeds, n, 1.1)):
            row.number, row.text = "18", f"{n} workers: {row.text}"
            out.append(row)
    return out


def capacity(lab, seeds):
    """SLO capacity of the policies on each trace: the mean over seeds, in units of load 1.0."""
    row1 = Row("1", "SLO capacity / best published", "1.00", "1.03", "1.01..1.04")
    row2 = Row("2", "SLO capacity / dynamo w1; / round robin", "1.10; 1.9", "1.18; 2.1", "1.14..1.18; 2.1")
    rowa = Row("A1", "SLO capacity / llmd_2_1_1", "1.03", "1.10", "1.05..1.06")
    find = lambda p, t, lo, hi: sum(lab.capacity(p, t, s, lo, hi) for s in seeds) / len(seeds)
    for trace in CHAT:
        ours = find("price", trace, 0.95, 1.2)
        best = max(find(p, trace, 0.85, 1.1) for p in ("conductor", "llmd_2_1_1"))
        row1.add(SHORT[trace], ours / best, 1.00, 1.03, less=False)
        row2.add(f"{SHORT[trace]} dynamo w1", ours / find("dynamo_w1", trace, 0.7, 1.0), 1.10, 1.18, less=False)
        row2.add(f"{SHORT[trace]} round robin", ours / find("round_robin", trace, 0.35, 0.6), 1.9, 2.1, less=False)
    rowa.add("agent", find("price", "agentcode", 0.95, 1.25) / find("llmd_2_1_1", "agentcode", 0.85, 1.15), 1.03, 1.10, less=False)
    return [row1, row2, rowa]


def agent(lab, seeds):
    a2 = Row("A2", "mean TTFT / llmd_2_1_1 at 0.75; 1.0", "0.80; 0.95", "0.60; 0.65", "0.60; 0.55")
    a3 = Row("A3", "p99 TTFT / llmd_2_1_1 at 0.75; 1.0", "0.95; 1.10", "0.75; 0.80", "0.72; 0.51")
    a4 = Row("A4", "hit / infinite-cache bound, 0.75..1.0", "0.98", "0.99", "0.99")
    for load, m2, s2, m3, s3 in ((0.75, 0.80, 0.60, 0.95, 0.75), (1.0, 0.95, 0.65, 1.10, 0.80)):
        ours, theirs = lab.paired("price", "agentcode", load, seeds), lab.paired("llmd_2_1_1", "agentcode", load, seeds)
        a2.add(f"{load}", ratio(ours, theirs), m2, s2)
        a3.add(f"{load}", ratio(ours, theirs, "ttft_p99"), m3, s3)
        a4.add(f"{load}", mean(ours, "hit") / mean(ours, "ub_hit"), 0.98, 0.99, less=False)
    return [a2, a3, a4]


FIXED = [(us, share) for us in (0, 10000, 50000) for share in (0, 0.03, 0.1)]  # price.room_us, price.room_wait_share


def a5(lab, seeds):
    """One configuration everywhere: the tuned price of room against the best of fixed ones, of each trace, load and cache.  Which one is the best is found on the
    first seed; then both play all of them."""
    row = Row("A5", "mean TTFT / the best of 9 fixed prices of room, each trace, load and cache (dram: of 6000 blocks, and of 1500)", "1.05 each", "1.00 on average", "1.04 worst, 0.98 on average")
    all_of_them = []
    for trace in ("conversation", "toolagent_like", "agentcode"):
        for load in (0.75, 1.0):
            for dram in (6000, 1500):
                given = lambda us, share: f"--set price.room_tuned=0 --set price.room_us={us} --set price.room_wait_share={share}"
                first = lab.all([("price", trace, load, seeds[0], {"dram": dram, "set": given(*f)}) for f in FIXED])
                best = FIXED[min(range(len(FIXED)), key=lambda i: first[i]["ttft_mean"])]
                ours = lab.paired("price", trace, load, seeds, dram=dram)
                if mean(ours, "slo") < 0.5 and min(r["slo"] for r in first) < 0.5:
                    continue  # nobody lives there
                x = ratio(ours, lab.paired("price", trace, load, seeds, dram=dram, set=given(*best)))
                all_of_them.append(x)
                row.add(f"{SHORT[trace]} {load} {dram}", x, 1.05, None)
    row.add("mean", sum(all_of_them) / len(all_of_them), 1.05, 1.00)
    return row


CHAT_GOALS = (g3, g4, g5, g6, g7, g8, g9, g10, g11, g16, g17)
ADVERSE_GOALS = (g14, g12, g13, g15)
