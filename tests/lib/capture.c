/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/capture.h"

#include "tests/lib/test.h"

#include <jansson.h>

const char *const cap_names[] = {
    "cap_bad_frames",
    "cap_bad_payload",
    "cap_bad_replies",
    "cap_cold_start_merge",
    "cap_duplicates",
    "cap_gap_no_replay",
    "cap_gap_replay_new",
    "cap_gap_replay_old",
    "cap_large_sequence",
    "cap_live_basic",
    "cap_live_empty_topic",
    "cap_reconnect_overtaken",
    "cap_reconnect_restarted",
    "cap_reconnect_same",
    "cap_replay_hole",
    "cap_replay_inner_hole",
    "cap_replay_only_end",
    "cap_replay_timeout",
    "cap_restart",
    "cap_restart_clock_back",
    "cap_restart_clock_back_bound",
    "cap_restart_missed_start",
    "cap_starts_at_one",
    NULL,
};

static int digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static struct wp_str unhex(struct wp_arena *a, const char *hex)
{
    size_t n = strlen(hex) / 2;
    char *p = wp_arena_alloc(a, n + 1);

    for (size_t i = 0; i < n; i++)
        p[i] = (char)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
    return (struct wp_str){p, n};
}

static uint64_t decimal(json_t *text)
{
    uint64_t v = 0;

    EXPECT_TRUE("a number as text", wp_str_u64(wp_str_of(json_string_value(text)), &v));
    return v;
}

static enum cap_kind kind_of(const char *event)
{
    static const char *const names[] = {"connected", "live", "reply", "timeout"};

    for (int i = 0; i < 4; i++)
        if (strcmp(event, names[i]) == 0)
            return (enum cap_kind)i;
    EXPECT_TRUE(event, 0);
    return CAP_TIMEOUT;
}

static void load_step(struct cap *c, struct cap_step *s, json_t *j)
{
    json_t *it, *request = json_object_get(j, "expect_request");
    size_t i;

    s->kind = kind_of(json_string_value(json_object_get(j, "event")));
    json_array_foreach(json_object_get(j, "frames"), i, it) if (s->frames < CAP_FRAMES)
        s->frame[s->frames++] = unhex(&c->arena, json_string_value(it));
    json_array_foreach(json_object_get(j, "expect"), i, it)
    {
        struct cap_expect *e = &s->expect[s->expects++];
        json_t *seq = json_object_get(it, "seq");

        snprintf(e->action, sizeof e->action, "%s",
                 json_string_value(json_object_get(it, "action")));
        e->numbered = json_is_string(seq);
        e->seq = e->numbered ? decimal(seq) : 0;
    }
    s->asks = request != NULL;
    s->start = request ? decimal(json_object_get(request, "start")) : 0;
}

bool cap_load(struct cap *c, const char *name)
{
    char path[128];
    size_t n, i;
    char *text;
    json_t *root, *steps, *final, *it;

    memset(c, 0, sizeof *c);
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(path, sizeof path, "spec/%s.json", name);
    text = wp_test_data(path, &n);
    root = text ? json_loadb(text, n, 0, NULL) : NULL;
    wp_free(text);
    EXPECT_TRUE(name, root != NULL);
    if (!root)
        return false;
    c->replay = json_is_true(json_object_get(root, "replay_socket"));
    steps = json_object_get(root, "steps");
    c->steps = json_array_size(steps);
    c->step = wp_arena_alloc(&c->arena, c->steps * sizeof *c->step);
    memset(c->step, 0, c->steps * sizeof *c->step);
    json_array_foreach(steps, i, it) load_step(c, &c->step[i], it);
    final = json_object_get(root, "final");
    c->next = decimal(json_object_get(final, "next"));
    c->replaying = json_is_true(json_object_get(final, "replaying"));
    json_decref(root);
    return true;
}

void cap_fini(struct cap *c)
{
    wp_arena_fini(&c->arena);
}

bool cap_head(void *arg, struct wp_str payload, struct wp_batch_head *out)
{
    const unsigned char *p = (const unsigned char *)payload.p;
    uint64_t bits = 0;

    (void)arg;
    if (payload.n < 11 || (p[0] != 0x92 && p[0] != 0x93) || p[1] != 0xcb)
        return false;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | p[2 + i];
    memcpy(&out->ts, &bits, sizeof bits);
    out->ranked = payload.n == 12 && p[0] == 0x93 && p[10] == 0x90 && p[11] < 0x80;
    out->rank = out->ranked ? p[11] : 0;
    return true;
}

size_t cap_payload(char *out, double ts, int rank)
{
    uint64_t bits;

    memcpy(&bits, &ts, sizeof bits);
    out[0] = (char)0x93;
    out[1] = (char)0xcb;
    cap_number(out + 2, bits);
    out[10] = (char)0x90;
    out[11] = (char)(rank < 0 ? 0xc0 : rank);
    return 12;
}

struct wp_str cap_number(char out[8], uint64_t seq)
{
    for (int i = 0; i < 8; i++)
        out[i] = (char)(seq >> (56 - 8 * i));
    return (struct wp_str){out, 8};
}
