/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/rawserver.h - a TCP server that plays scripts, inside the test's own loop.  It knows
 * nothing of HTTP: it waits for bytes, sends bytes, and ends connections in any of the ways there
 * are.  The first connection plays the first script, and so on; the last script serves all further
 * ones.  A script that is over leaves its connection open and reading. Its memory is the C
 * library's, so that a test may make every wp_malloc() fail.
 */
#ifndef WP_TESTS_LIB_RAWSERVER_H
#define WP_TESTS_LIB_RAWSERVER_H

#include "base/str.h"

#include <uv.h>

enum raw_op {
    RAW_END,
    RAW_EXPECT, /* read on until text has come */
    RAW_SEND,   /* text, as one write */
    RAW_DRIP,   /* text, a byte a turn */
    RAW_TURN,   /* n turns of the loop */
    RAW_HOLD,   /* until raw_server_go() */
    RAW_DEAF,   /* stop reading */
    RAW_HEAR,   /* and start again */
    RAW_FIN,    /* shut our direction, keep reading */
    RAW_CLOSE,  /* both directions, politely */
    RAW_RESET,
};

struct raw_step {
    enum raw_op op;
    const char *text; /* must live as long as the server */
    size_t n;         /* of text; 0: strlen */
};

struct raw_conn;

struct raw_server {
    uv_loop_t *loop;
    uv_tcp_t tcp;
    const struct raw_step *const *script;
    size_t n_scripts;
    uint16_t port;
    char *got; /* all bytes of all connections, ended by a zero */
    size_t got_n;
    size_t accepted, open, eofs, resets, holding;
    struct raw_conn *first;
    bool closed;
};

/* Listens on 127.0.0.1, or with v6 on [::1], at a port of the system's choice. */
int raw_server_start(struct raw_server *s, uv_loop_t *loop, bool v6,
                     const struct raw_step *const script[], size_t n);
void raw_server_go(struct raw_server *s);      /* connections that hold go on */
void raw_server_hang_up(struct raw_server *s); /* closes every connection, politely */
void raw_server_deafen(struct raw_server *s);  /* stops listening; connections live on */
void raw_server_stop(struct raw_server *s); /* closes all; run the loop, then raw_server_fini() */
void raw_server_fini(struct raw_server *s);

#endif
