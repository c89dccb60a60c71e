/* SPDX-License-Identifier: Apache-2.0 */
#include "router/record.h"

#include "base/mem.h"
#include "policies/decision.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

int wp_records_init(struct wp_records *r, struct wp_err *err)
{
    r->next = 1;
    r->ring = wp_calloc(WP_RECORDS, sizeof *r->ring);
    return r->ring ? 0 : wp_fail(err, WP_ENOMEM, "decision records: out of memory");
}

void wp_records_fini(struct wp_records *r)
{
    wp_free(r->ring);
    r->ring = NULL;
}

struct wp_record *wp_records_new(struct wp_records *r)
{
    struct wp_record *rec = &r->ring[r->next % WP_RECORDS];

    /* of candidates there are none: what lies there is not looked at */
    memset(rec, 0, offsetof(struct wp_record, candidate));
    memset((char *)rec + offsetof(struct wp_record, predicted_ttft_us), 0, sizeof *rec - offsetof(struct wp_record, predicted_ttft_us));
    rec->id = r->next++;
    rec->predicted_ttft_us = rec->actual_ttft_us = rec->low_us = rec->high_us = NAN;
    return rec;
}

struct wp_record *wp_records_at(struct wp_records *r, uint64_t id)
{
    struct wp_record *rec = &r->ring[id % WP_RECORDS];

    return id != 0 && rec->id == id ? rec : NULL;
}

/* JSON has no NaN: what is unknown is null. */
static int number(struct wp_buf *b, const char *key, double x)
{
    return isfinite(x) ? wp_buf_printf(b, "\"%s\":%.17g", key, x) : wp_buf_printf(b, "\"%s\":null", key);
}

static int tiers(struct wp_buf *b, const uint32_t tier[WP_TIERS])
{
    static const char *const names[WP_TIERS] = {"gpu", "cpu", "disk", "remote", "tier4", "tier5", "tier6", "tier7"};
    int rc = 0;

    for (int t = 0; rc == 0 && t < WP_TIERS; t++)
        if (tier[t] || t == 0)
            rc = wp_buf_printf(b, ",\"%s\":%u", names[t], tier[t]);
    return rc;
}

void wp_seen_of(struct wp_seen *s, const struct wp_worker_view *v)
{
    *s = (struct wp_seen){.costs = v->profile ? *v->profile : *wp_profile_default(),
                          .wait_us = v->wait_us,
                          .pinned = v->pinned,
                          .correction = v->correction,
                          .error = v->error,
                          .kv_tokens = v->kv_tokens,
                          .decoding = v->decoding,
                          .fresh_blocks = v->fresh_blocks,
                          .block_size = v->block_size};
}

static int numbers(struct wp_buf *b, const char *const key[], const double x[], size_t n)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = i ? wp_buf_adds(b, ",") : 0;
        rc = rc ? rc : number(b, key[i], x[i]);
    }
    return rc;
}

static int seen_json(const struct wp_seen *c, struct wp_buf *b)
{
    static const char *const seen[] = {"wait_us", "decoding", "kv_tokens", "pinned", "fresh_blocks", "block_size", "correction", "error"};
    static const char *const costs[] = {"speed", "a_us", "b_us", "t_c_us", "tw_us", "tov_us", "e_us", "d_us", "budget", "kv_bytes_per_token",
                                        "cpu_bytes_per_s", "disk_bytes_per_s", "remote_bytes_per_s"};
    const struct wp_profile *p = &c->costs;
    const double x[] = {c->wait_us, c->decoding, (double)c->kv_tokens, c->pinned, c->fresh_blocks, c->block_size, c->correction, c->error};
    const double y[] = {p->speed, p->a_us, p->b_us, p->t_c_us, p->tw_us, p->tov_us, p->e_us, p->d_us, p->budget, (double)p->kv_bytes_per_token,
                        p->cpu_bytes_per_s, p->disk_bytes_per_s, p->remote_bytes_per_s};
    int rc = wp_buf_adds(b, ",\"seen\":{");

    rc = rc ? rc : numbers(b, seen, x, sizeof x / sizeof x[0]);
    rc = rc ? rc : wp_buf_adds(b, "},\"costs\":{");
    rc = rc ? rc : numbers(b, costs, y, sizeof y / sizeof y[0]);
    return rc ? rc : wp_buf_adds(b, "}");
}

int wp_settings_json(const struct wp_policy_conf *c, const struct wp_room_price *room, bool queued, struct wp_buf *b)
{
    struct wp_decision_setting s[WP_DECISION_SETTINGS];
    size_t n = wp_decision_settings(c, s);
    int rc = wp_buf_adds(b, ",\"settings\":{");

    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = i ? wp_buf_adds(b, ",") : 0;
        rc = rc ? rc : number(b, s[i].name, s[i].value);
    }
    rc = rc ? rc : wp_buf_printf(b, "},\"room\":{\"tuned\":%s,", room->tuned ? "true" : "false");
    rc = rc ? rc : number(b, "block_us", room->block_us);
    rc = rc ? rc : wp_buf_adds(b, ",");
    rc = rc ? rc : number(b, "delays", room->delays);
    return rc ? rc : wp_buf_printf(b, "},\"queued\":%s", queued ? "true" : "false");
}

int wp_candidate_json(const struct wp_candidate *c, const struct wp_seen *s, struct wp_buf *b)
{
    bool any = false;
    int rc = wp_buf_adds(b, "{\"worker\":");

    rc = rc ? rc : wp_buf_json(b, wp_str_of(c->worker));
    rc = rc ? rc : wp_buf_printf(b, ",\"rank\":%u,\"overlap\":{\"total\":%u", c->rank, c->hit_tokens);
    rc = rc ? rc : tiers(b, c->hit_tier);
    rc = rc ? rc
            : wp_buf_printf(b, ",\"doubtful\":%u,\"index\":%u,\"history\":%u,\"in_flight\":%u},\"in_flight\":%u,\"terms_us\":{", c->doubtful,
                            c->index_tokens, c->history_tokens, c->in_flight_tokens, c->in_flight);
    for (int t = 0; rc == 0 && t < WP_TERMS; t++) {
        if (isnan(c->verdict.term[t]))
            continue;
        if (any)
            rc = wp_buf_adds(b, ",");
        rc = rc ? rc : number(b, wp_term_names[t], c->verdict.term[t]);
        any = true;
    }
    rc = rc ? rc : wp_buf_adds(b, "},");
    rc = rc ? rc : number(b, "price_us", c->verdict.price);
    rc = rc ? rc : wp_buf_adds(b, ",");
    rc = rc ? rc : number(b, "step_us", c->verdict.step_us);
    rc = rc ? rc : wp_buf_adds(b, ",");
    rc = rc ? rc : number(b, "ttft_us", c->verdict.ttft_us);
    rc = rc ? rc : seen_json(s, b);
    return rc ? rc : wp_buf_adds(b, "}");
}

int wp_record_json(const struct wp_record *r, struct wp_buf *b)
{
    int rc = wp_buf_printf(b, "{\"id\":%llu,\"time_us\":%llu,\"model\":", (unsigned long long)r->id,
                           (unsigned long long)r->wall_us);

    rc = rc ? rc : wp_buf_json(b, wp_str_of(r->model));
    rc = rc ? rc : wp_buf_adds(b, ",\"request_id\":");
    rc = rc ? rc : wp_buf_json(b, wp_str_of(r->request_id));
    rc = rc ? rc : wp_buf_printf(b, ",\"policy\":\"%s\",\"draw\":\"%llu\",\"tokens\":%u,\"exact\":%s,\"max_tokens\":%u,\"chosen\":",
                                 r->policy, (unsigned long long)r->draw, r->tokens, r->exact ? "true" : "false", r->max_tokens);
    rc = rc ? rc : wp_buf_json(b, wp_str_of(r->chosen));
    rc = rc ? rc : wp_buf_printf(b, ",\"chosen_rank\":%u,\"workers\":%zu,\"candidates\":[", r->chosen_rank, r->n_workers);
    for (size_t i = 0; rc == 0 && i < r->n; i++) {
        if (i)
            rc = wp_buf_adds(b, ",");
        rc = rc ? rc : wp_candidate_json(&r->candidate[i], &r->seen[i], b);
    }
    rc = rc ? rc : wp_buf_adds(b, "]");
    rc = rc ? rc : wp_settings_json(&r->settings, &r->room, r->queued, b);
    rc = rc ? rc : wp_buf_adds(b, ",\"tenant\":");
    rc = rc ? rc : wp_buf_json(b, wp_str_of(r->tenant));
    rc = rc ? rc : wp_buf_printf(b, ",\"priority\":%d,\"held_us\":%.0f,\"target_us\":%llu,", r->priority, r->held_us,
                                 (unsigned long long)r->target_us);
    rc = rc ? rc : number(b, "predicted_low_us", r->low_us);
    rc = rc ? rc : wp_buf_adds(b, ",");
    rc = rc ? rc : number(b, "predicted_high_us", r->high_us);
    rc = rc ? rc : wp_buf_adds(b, ",");
    rc = rc ? rc : number(b, "predicted_ttft_us", r->predicted_ttft_us);
    rc = rc ? rc : wp_buf_adds(b, ",");
    rc = rc ? rc : number(b, "actual_ttft_us", r->actual_ttft_us);
    return rc ? rc : wp_buf_printf(b, ",\"outcome\":\"%s\"}", r->outcome);
}
