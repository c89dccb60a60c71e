/* SPDX-License-Identifier: Apache-2.0 */
/* router/request_inner.h - a request from inside: for request.c (life), attempt.c and relay.c (the answer) alone. */
#ifndef WP_ROUTER_REQUEST_INNER_H
#define WP_ROUTER_REQUEST_INNER_H

#include "net/sse.h"
#include "router/ask.h"
#include "router/hold.h"
#include "router/request.h"
#include "router/tokens.h"

enum wp_request_state { REQ_READ, REQ_TOKENS, REQ_PLACE, REQ_CONNECT, REQ_PREFILL, REQ_STREAM, REQ_DONE };
enum { WP_ATTEMPTS_MAX = 8, WP_ANSWER_KEPT = 1 << 20 };

struct wp_usage { /* as the engine reported it; negative: unknown */
    int64_t prompt, cached, output;
};

struct wp_held_head { /* of an event stream, until a byte of it has come: all of it in the request's arena */
    struct wp_str reason;
    struct wp_field *field;
    size_t n;
    int64_t length;
};

struct wp_request {
    struct wp_gate *gate;
    struct wp_list link; /* of the gate's requests */
    struct wp_settings *settings;
    const struct wp_key *key; /* the settings'; NULL: no keys here */
    struct wp_key_turn turn;
    struct wp_tenant *tenant; /* the router's, until it ends */
    int priority;
    uint64_t target_us; /* its first token is due so long after its body; 0: it says nothing */
    struct wp_exchange *x;
    enum wp_route_kind kind;
    enum wp_request_state state;
    struct wp_arena arena;
    struct wp_buf in;         /* the body as it comes */
    struct wp_blob *body;     /* the whole of it, edits made */
    struct wp_blob *unedited; /* as it came, when edits were made: what was read points into it */
    uint64_t body_counted;    /* of router->body_bytes */
    struct wp_asked ask;
    struct wp_tokens_wait wait; /* for the prompt's ids */
    bool tokens_told;           /* the ids are an engine's word */
    struct wp_worker *pinned; /* a reference: nobody else has the stored response that this is about */
    char id[129];             /* the client's request id, or ours */
    uint64_t read_us, ready_us, placed_us; /* the body, and what it takes to place it; the attempt at hand */

    /* Attempts. */
    struct wp_want want; /* of the first placement, which may be held */
    struct wp_hold waits;
    struct wp_letter placed; /* the held one has its place */
    bool waiting; /* until that letter has come, or it is let go */
    struct wp_placement slot[2], *place; /* two: the next one is found before this one is let go */
    struct wp_worker *failed[WP_ATTEMPTS_MAX]; /* references */
    size_t n_failed;
    struct wp_worker *tried;    /* a reference: of the last attempt, also when it has ended */
    unsigned attempts;          /* begun */
    unsigned lost;              /* workers that died under it before an answer */
    unsigned races;             /* repeats of a reuse race: attempts, but no other workers */
    struct wp_call *call;
    unsigned calls_open; /* cancelled ones too: the request outlives them all */
    uint64_t rest_us;  /* the pause the engine asked for with the answer that was passed on */
    bool race_repeat;  /* the next attempt repeats a reuse race: same worker, fresh connection */

    /* The answer. */
    struct wp_held_head held;
    struct wp_timer hold; /* for so long at most */
    bool holds;
    bool head_sent, is_sse, over, aborted, ended;
    int status;
    struct wp_sse sse;
    bool sse_ready, first_seen, error_first, done_seen;
    uint64_t events, last_event_us;
    uint32_t tokens_counted;
    struct wp_buf kept; /* a JSON answer, for its usage */
    bool unkept;        /* it was too long for that */
    bool unasked;            /* usage was asked for that the client did not ask for (router/unasked.h) */
    bool unasked_came;       /* the event at hand is the one that brings it */
    struct wp_buf back;      /* kept back: whole events up to back_event, then what has come of the next */
    size_t back_event;
    bool back_long, back_cr; /* the event at hand passes, for it is long; a line end that was taken out may go on */
    struct wp_usage usage;

    /* For the line that the log gets at its end. */
    enum wp_outcome outcome; /* of the last attempt */
    uint64_t first_us;       /* the first token; 0: none */
    bool client_gone;
    char why[200]; /* the client did not get a good answer; "": it did, or that is its own doing */
};

void wp_request_move(struct wp_request *r, enum wp_request_state next);
/* attempt.c: finds a worker and puts the request on it, into p; sends it to the one that it is on. */
/* hold: it may be held. */
bool wp_request_place(struct wp_request *r, struct wp_placement *p, struct wp_hold *hold, enum wp_place_result *result, const char **why,
                      uint64_t *retry_us);
void wp_request_dispatch(struct wp_request *r);
void wp_request_no_memory(struct wp_request *r); /* answers that */
/*
 * The attempt at hand failed before anything went to the client.  Starts another on another worker and returns true, or returns
 * false when there is none or no more are allowed.  counts: it is paid from the retry budget.
 */
bool wp_request_retry(struct wp_request *r, const char *reason, enum wp_outcome o, uint64_t rest_us, bool counts);
/* The error that remains when no attempt is left.  unreached: the last one did not even connect. */
void wp_request_fail(struct wp_request *r, int rc, const char *what, bool unreached);
/* Ends the placement. */
void wp_request_settle(struct wp_request *r, enum wp_outcome o, uint64_t rest_us);
void wp_request_unless_used(struct wp_request *r); /* frees it when nobody will call it again */

extern const struct wp_call_ops wp_relay_ops;
void wp_relay_init(struct wp_request *r);
void wp_relay_let_go(struct wp_request *r); /* of a head that is held: its attempt has ended */
void wp_relay_drained(struct wp_request *r);
/* Ends an answer whose head is out, so that the client sees that it is not whole: an event stream by an error event. */
void wp_relay_cut(struct wp_request *r, int status, const char *code, const char *param, const char *text);
void wp_relay_fini(struct wp_request *r);

#endif
