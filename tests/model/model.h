/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/model/model.h - all interleavings of short scenarios over the index's own code: one writer, and one or two
 * readers. Each is a coroutine, and each atomic operation (tests/model/shim.h) a point at which another may go on.
 * The tree of choices is walked depth first: a run repeats a sequence of choices from the scenario's beginning, and
 * goes on with the first choice.  A scenario's bound is how often a coroutine may be interrupted that could go on;
 * WP_MODEL_ALL: any number, which makes it all interleavings.
 *
 * An operation that commutes with all that the others do is no point: a load of what no other coroutine ever writes,
 * a store of what no other ever looks at.  Which places are shared is learned: when a run shows a place to be shared
 * that was not known to be, the walk begins again.  Plain accesses belong to the operation before them, so they are
 * seen in any order, but not interrupted; only between the load of a pointer and its use there is a point, too.
 *
 * All memory comes from one piece that is put back before each run, so a run sees the same addresses.  What was
 * freed is poisoned and not given again, and an atomic operation there is a failure.  Held in every scenario, by
 * watch.c: nothing that was retired is given back while a reader is inside that came before; all is given back once
 * nobody is inside; a reader writes to nothing but the epoch; and no reader takes more than WP_MODEL_STEPS steps a
 * look, wherever the writer stands.
 */
#ifndef WP_TESTS_MODEL_MODEL_H
#define WP_TESTS_MODEL_MODEL_H

#include "index/epoch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WP_MODEL_WRITER, WP_MODEL_READER, WP_MODEL_READER_2, WP_MODEL_THREADS };
enum { WP_MODEL_ALL = 1000, WP_MODEL_STEPS = 2000 };

struct wp_model {
    const char *name; /* a sentence */
    unsigned readers; /* 1 or 2 */
    unsigned bound;
    void *(*begin)(void); /* once: makes the state in the model's memory */
    void (*write)(void *state);
    void (*read)(void *state, unsigned reader); /* reader: 0 or 1 */
    void (*end)(void *state);                   /* after each run, outside the scheduler; may be NULL */
};

/* Prints what it did, and adds the interleavings to *runs.  False: something failed, and how is printed. */
bool wp_model_run(const struct wp_model *m, unsigned long *runs);
/* Ends the run and the scenario. */
void wp_model_fail(const char *file, int line, const char *what) __attribute__((noreturn));
#define WP_MODEL_WANT(what, ok) ((ok) ? (void)0 : wp_model_fail(__FILE__, __LINE__, (what)))
void wp_model_crashed(int signal); /* a handler: the same, for a pointer that led nowhere */
void wp_model_pause(void); /* somebody else's turn, if anybody can go on */
int wp_model_who(void);    /* the coroutine that runs; -1: none */

/* watch.c, for the scheduler */
void wp_watch_begin(void);
void wp_watch_step(const volatile void *at, bool load); /* the coroutine is about to do it */
void wp_watch_end(void);                                /* nobody is inside */

extern const struct wp_model wp_models_parts[], wp_models_whole[]; /* end with a NULL name */

#endif
