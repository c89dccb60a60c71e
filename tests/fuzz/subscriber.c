/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any sequence of inputs with any frames: never a crash, never more held than the bounds, clears
 * and payloads only where an action's name says so, and a replay asked for only while one runs. The
 * first byte is the configuration.  Then inputs: a byte for the kind and the number of frames, and
 * for each frame a byte for its length (or for a number near the one expected).
 */
#include "adapters/events/subscriber.h"

#include <stdlib.h>

enum { FRAMES = 6, HELD = 8, BYTES = 600 };

struct reader {
    const uint8_t *p;
    size_t n;
};

static unsigned byte(struct reader *r)
{
    if (r->n == 0)
        return 0;
    r->n--;
    return *r->p++;
}

static bool head(void *arg, struct wp_str payload, struct wp_batch_head *out)
{
    (void)arg;
    if (payload.n == 0 || payload.p[0] == 0)
        return false;
    out->ts = payload.p[0];
    return true;
}

static void step(void *arg, const struct wp_sub_step *s)
{
    bool clears = strstr(wp_sub_action_name(s->action), "clear") != NULL;
    bool applies = strstr(wp_sub_action_name(s->action), "apply") != NULL;

    (void)arg;
    if (s->apply != applies || (clears && s->clear == WP_CLEAR_NONE) ||
        (!clears && s->clear != WP_CLEAR_NONE && s->action != WP_SUB_REPLAY_TIMEOUT))
        abort();
}

/* Short frames are bytes of the input; 8-byte ones may be numbers near what is expected. */
static struct wp_str frame(struct reader *r, const struct wp_subscriber *s, char number[8])
{
    unsigned kind = byte(r);
    size_t n = kind % 64;
    struct wp_str f;

    if (kind >= 128) {
        uint64_t v = kind == 255 ? UINT64_MAX : s->next + kind % 16 - 8;

        for (int i = 0; i < 8; i++)
            number[i] = (char)(v >> (56 - 8 * i));
        return (struct wp_str){number, 8};
    }
    n = n > r->n ? r->n : n;
    f = (struct wp_str){n ? (const char *)r->p : NULL, n};
    r->p += n;
    r->n -= n;
    return f;
}

static void input(struct wp_subscriber *s, struct reader *r, uint64_t now)
{
    unsigned kind = byte(r);
    size_t n = kind >> 4 & 7;
    struct wp_str f[FRAMES];
    char numbers[FRAMES][8];

    n = n > FRAMES ? FRAMES : n;
    for (size_t i = 0; i < n; i++)
        f[i] = frame(r, s, numbers[i]);
    switch (kind & 15) {
    case 0:
        wp_subscriber_connected(s, now);
        break;
    case 1:
        wp_subscriber_disconnected(s);
        break;
    case 2:
        wp_subscriber_timeout(s, now);
        break;
    case 3:
        wp_subscriber_forget(s);
        break;
    case 4:
        wp_subscriber_release(s, now);
        break;
    case 5:
    case 6:
    case 7:
    case 8:
        wp_subscriber_reply(s, f, n, now);
        break;
    default:
        wp_subscriber_live(s, f, n, now);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct reader r = {data, n};
    unsigned how = byte(&r);
    struct wp_sub_conf conf = {.replay = how & 1,
                               .burst = how >> 1 & 3,
                               .pending_max = HELD,
                               .pending_bytes = BYTES,
                               .reply_us = 1000,
                               .head = head,
                               .step = step};
    struct wp_subscriber s;
    const char *why;

    wp_subscriber_init(&s, &conf);
    for (uint64_t now = 1; r.n > 0; now++) {
        uint64_t start;

        input(&s, &r, now);
        if (s.held > HELD || s.held_bytes > BYTES || s.letting > s.held)
            abort();
        if (wp_subscriber_request(&s, &start) &&
            (!conf.replay || wp_subscriber_deadline(&s) == UINT64_MAX))
            abort();
        if (wp_feed_state_name(wp_subscriber_state(&s, &why)) == NULL || why == NULL)
            abort();
        if (s.held == 0 && s.held_bytes != 0)
            abort();
    }
    wp_subscriber_fini(&s);
    return 0;
}
