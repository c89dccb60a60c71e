#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants faults in the index, one at a time, and wants the model to find each: a test that cannot fail proves nothing.

    tests/model/planted.py BUILD COMPILE OBJECTS LINK REST

BUILD is the model's folder; COMPILE compiles the source that follows; LINK links OBJECTS, with the changed file's in its place, and the REST.  A fault is a
piece of text that stands once in a file of index/, and what takes its place; where it no longer stands there, that is a failure, too.
"""
import concurrent.futures
import os
import shlex
import subprocess
import sys

LIMIT_S = 120
# name, file (a header with its ending: all that is built from it is built again), text, what takes its place, the scenarios to run
FAULTS = (
    ("things are given back whoever is inside", "epoch", "min = oldest(e);", "min = UINT64_MAX;", "epoch"),
    ("things of the oldest reader's own time are given back", "epoch", "ring[e->head].at < min", "ring[e->head].at <= min", "epoch"),
    ("things are retired as of long ago", "epoch", ".at = atomic_load_explicit(&e->now, memory_order_relaxed)", ".at = 0", "epoch"),
    ("a reader's slot is not counted among those in use", "epoch", "&slots, i + 1)", "&slots, slots)", "epoch"),
    ("the writer takes the readers' word before it says the time", "epoch",
     "    atomic_fetch_add(&e->now, 1);\n    min = oldest(e);", "    min = oldest(e);\n    atomic_fetch_add(&e->now, 1);\n    min = min == UINT64_MAX ? min : min + 1;",
     "epoch"),
    ("a drain goes once", "epoch", "while (e->n) { /*", "if (e->n) { /*", "epoch: drained"),
    ("without memory nobody is waited for", "epoch", "        wait_for_readers(e);\n        wp_epoch_reclaim(e);\n        e->give",
     "        wp_epoch_reclaim(e);\n        e->give", "epoch: full"),
    ("the older table is told of last", "heads",
     "    atomic_store_explicit(&h->older, t, memory_order_release);\n    atomic_store_explicit(&h->table, wider, memory_order_release);",
     "    atomic_store_explicit(&h->table, wider, memory_order_release);\n    atomic_store_explicit(&h->older, t, memory_order_release);", "heads"),
    ("the older table goes before all has moved", "heads", "    if (h->moved <= from->mask)\n        return;\n",
     "    if (h->moved <= from->mask / 2)\n        return;\n", "heads"),
    ("the older table is freed at once", "heads", "wp_epoch_retire(e, WP_RETIRED_MEMORY, (uintptr_t)from);", "(void)e, wp_free(from);", "heads"),
    ("a deletion forgets the older table", "heads", "if (older_of(h))\n        del(older_of(h), word);", "", "heads"),
    ("a deletion ends the chain of those behind", "heads", "atomic_store_explicit(&t->word[at], GONE,", "atomic_store_explicit(&t->word[at], 0,", "heads"),
    ("a probe waits until a growth has ended", "heads.h", "    p->tag = wp_head_tag(key);\n",
     "    p->tag = wp_head_tag(key);\n    while (atomic_load_explicit(&own->older, memory_order_acquire))\n        ;\n", "heads"),
    ("a probe does not look into the older table", "heads.h", "if (p->then == t)", "", "heads"),
    ("a probe looks up the older table first", "heads.h",
     "    const struct wp_head_table *t = atomic_load_explicit(&own->table, memory_order_acquire);\n\n    p->tag = wp_head_tag(key);\n"
     "    p->then = atomic_load_explicit(&own->older, memory_order_acquire);\n",
     "    const struct wp_head_table *t;\n\n    p->tag = wp_head_tag(key);\n"
     "    p->then = atomic_load_explicit(&own->older, memory_order_acquire);\n"
     "    t = atomic_load_explicit(&own->table, memory_order_acquire);\n", "heads"),
    ("the list of chunks is freed at once", "slab", "wp_epoch_retire(e, WP_RETIRED_MEMORY, (uintptr_t)old);", "(void)e, wp_free(old);", "slab"),
    ("the list of chunks is told of before it is filled", "slab",
     "    if (s->chunks)\n        memcpy(wider, old, s->chunks * sizeof *wider);\n    b->bytes -= s->room * sizeof *old;\n"
     "    atomic_store_explicit(&s->list, wider, memory_order_release);\n",
     "    atomic_store_explicit(&s->list, wider, memory_order_release);\n    atomic_store_explicit(&s->list, wider, memory_order_release);\n"
     "    if (s->chunks)\n        memcpy(wider, old, s->chunks * sizeof *wider);\n    b->bytes -= s->room * sizeof *old;\n", "slab"),
    ("a roster is given back at once", "roster", "wp_epoch_retire(&ix->epoch, WP_RETIRED_ROSTER, old);", "wp_roster_free(ix, old);", "index"),
    ("a roster is retired before another is in its place", "roster",
     "    atomic_store_explicit(&r->who, who, memory_order_release);\n    if (old & WP_WHO_ROSTER && old != who)\n"
     "        wp_epoch_retire(&ix->epoch, WP_RETIRED_ROSTER, old);",
     "    if (old & WP_WHO_ROSTER && old != who)\n        wp_epoch_retire(&ix->epoch, WP_RETIRED_ROSTER, old);\n    wp_epoch_reclaim(&ix->epoch);\n"
     "    atomic_store_explicit(&r->who, who, memory_order_release);", "index"),
    ("a span changed in place is empty for a moment", "roster", "            atomic_store_explicit((word_t *)&r.single[i], put[0]",
     "            set((word_t *)&r.single[i], (uint64_t)holder << 33);\n            atomic_store_explicit((word_t *)&r.single[i], put[0]", "index"),
    ("the cover shrinks before the span", "roster", "            if (wp_span_hi(put[0]) > wp_span_hi(was[0])) {",
     "            set(&w[1], 0);\n            if (1) {", "index"),
    ("a word is empty for a moment", "roster", "    atomic_store_explicit(&it->who, n ? put[0]",
     "    set(&it->who, 0);\n    atomic_store_explicit(&it->who, n ? put[0]", "index"),
    ("a word names a roster before it is filled", "roster", "    fill(r, holder, p, roster_at(ix, *who));\n    head_and_cover(",
     "    if (holder == 1 && ix->n_holders == 4)\n        atomic_store_explicit(&wp_run_at(ix, 1)->who, *who, memory_order_release);\n"
     "    fill(r, holder, p, roster_at(ix, *who));\n    head_and_cover(", "index: span, roster"),
    ("a run is given back at once", "runs", "wp_epoch_retire(&ix->epoch, WP_RETIRED_RUN, run);", "wp_run_free(ix, run);", "index"),
    ("a look-up leaves the epoch before it looks", "overlap", "    slot = wp_epoch_enter(&own->epoch);",
     "    slot = wp_epoch_enter(&own->epoch);\n    wp_epoch_leave(&own->epoch, slot);", "index"),
    ("a look-up reads the word twice", "overlap", "    w = wp_slab_at(&ix->rosters[who >> 32 & 31], (uint32_t)who);",
     "    w = wp_slab_at(&ix->rosters[who >> 32 & 31], (uint32_t)wp_word_get(&run->who));", "index"),
    ("the census is freed at once", "census", "wp_epoch_retire(&ix->epoch, WP_RETIRED_MEMORY, (uintptr_t)old);", "wp_free(old);", "index"),
)


def judge(out, status):
    if status == 1 and "FAILED " in out:
        return ""
    return f"not found: exit status {status}\n{out[-2000:]}"


def name_of(part):
    return part if part.endswith(".h") else part + ".c"


def uses(built, name):
    """Whether an object was built from that file, by what the compiler has written beside it."""
    with open(built[:-2] + ".d", encoding="utf-8") as f:
        return name in f.read().split()


def plant(number, fault, build, compiler, objects, link, rest):
    """An empty text when the fault is found, else what is wrong."""
    _, part, text, instead, scenarios = fault
    name = name_of(part)
    with open(f"index/{name}", encoding="utf-8") as f:
        source = f.read()
    if source.count(text) != 1:
        return f"its text stands {source.count(text)} times in index/{name}"
    folder = f"{build}/planted/{number}"
    os.makedirs(f"{folder}/index", exist_ok=True)
    with open(f"{folder}/index/{name}", "w", encoding="utf-8") as f:
        f.write(source.replace(text, instead))
    changed = [o for o in objects if uses(o, f"index/{name}")]
    mine = [f"{folder}/{os.path.basename(o)}" if o in changed else o for o in objects]
    commands = []
    for o in changed:
        c = o[len(build) + 1:-2] + ".c"
        commands.append([compiler[0], f"-I{folder}", *compiler[1:], "-w", "-o", f"{folder}/{os.path.basename(o)}", f"{folder}/{c}" if c == f"index/{name}" else c])
    for command in (*commands, [*link, "-o", f"{folder}/model", *mine, *rest]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return f"does not build\n{done.stderr[-2000:]}"
    try:
        done = subprocess.run([f"{folder}/model", "--once", scenarios], capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"it went on for {LIMIT_S} s"
    return judge(done.stdout, done.returncode)


def main(build, compiler, objects, link, rest):
    parts = build, shlex.split(compiler), objects.split(), shlex.split(link), shlex.split(rest)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for fault, wrong in zip(FAULTS, pool.map(lambda nf: plant(*nf, *parts), enumerate(FAULTS))):
            print(f"  planted: {name_of(fault[1])}: {fault[0]}: {'found' if not wrong else 'FAILED: ' + wrong}", flush=True)
            failed += bool(wrong)
    print(f"{len(FAULTS) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
