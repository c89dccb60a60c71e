/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request of a load: out, its head, its stream event by event, its end.  Good is: status 200,
 * every event that it should have, the usage and [DONE].  Anything else is an error of a kind that
 * the report names.
 */
#include "sim/load_impl.h"

#include "base/clock.h"
#include "net/json.h"
#include "sim/put.h"

#include <stdio.h>

enum { EVENT_MAX = 65536, WHOLE_MAX = 16 << 20 };

struct shot {
    struct wp_list link;
    struct wp_load *load;
    struct wp_call *call;
    size_t i;
    uint64_t due_us, first_us, last_us;
    uint32_t events; /* with text */
    uint64_t prompt, output, cached;
    int status;
    bool finished, error_event, cut;
    char worker[128];
    struct wp_sse sse;
    struct wp_buf whole; /* an answer that is no stream */
};

int wp_load_body(struct wp_buf *out, const char *model, const uint32_t token[], size_t n,
                 uint32_t output, bool stream)
{
    struct wp_put o = {out, wp_buf_reserve(out, n * 7 + 256)};

    wp_put(&o, "{\"model\":");
    wp_put_json(&o, wp_str_of(model));
    wp_put(&o, ",\"prompt\":");
    wp_put_tokens(&o, token, n);
    wp_put(&o, ",\"max_tokens\":");
    wp_put_u(&o, output);
    wp_put(&o, ",\"temperature\":0,\"ignore_eos\":true");
    wp_put(&o, stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}" : "}");
    return o.rc;
}

static double engine_s(const struct shot *s, uint64_t from_us, uint64_t to_us)
{
    return to_us > from_us ? (double)(to_us - from_us) * 1e-6 * s->load->conf.speed : 0;
}

static bool measured(const struct shot *s)
{
    return s->i >= s->load->conf.warmup;
}

static void read_usage(struct shot *s, struct wp_json usage)
{
    static const char *const names[] = {"prompt_tokens", "completion_tokens",
                                        "prompt_tokens_details"};
    struct wp_json v[3];

    if (!wp_json_find(usage, names, 3, v))
        return;
    wp_json_u64(v[0], &s->prompt);
    wp_json_u64(v[1], &s->output);
    wp_json_u64(wp_json_get(v[2], "cached_tokens"), &s->cached);
}

static bool has_text(struct wp_json choices)
{
    struct wp_json choice = {0};

    while (wp_json_each(choices, &choice)) {
        struct wp_json text = wp_json_get(choice, "text");

        if (text.kind == WP_JSON_STRING && text.n > 2)
            return true;
    }
    return false;
}

static void on_event(void *arg, const struct wp_sse_event *ev)
{
    static const char *const names[] = {"choices", "usage", "error"};
    struct shot *s = arg;
    struct wp_json v[3];
    struct wp_err err;
    uint64_t now;

    if (wp_str_is(ev->data, "[DONE]")) {
        s->finished = true;
        return;
    }
    if (ev->cut || wp_json_members(ev->data, names, 3, v, &err) < 0 ||
        v[2].kind == WP_JSON_OBJECT) {
        s->error_event = true;
        return;
    }
    read_usage(s, v[1]);
    if (!has_text(v[0]))
        return;
    now = wp_now_us();
    if (s->events++ == 0)
        s->first_us = now;
    else if (measured(s))
        wp_report_gap(s->load->report, engine_s(s, s->last_us, now));
    s->last_us = now;
}

static void on_head(struct wp_call *c, const struct wp_head *h)
{
    struct shot *s = c->user;
    struct wp_str worker = wp_head_get(h, "x-warmpath-worker");

    s->status = h->status;
    snprintf(s->worker, sizeof s->worker, WP_STR_FMT, WP_STR_ARG(worker));
}

static void on_body(struct wp_call *c, const char *p, size_t n)
{
    struct shot *s = c->user;
    int rc = 0;

    if (s->status == 200 && !s->load->conf.whole)
        rc = wp_sse_feed(&s->sse, p, n);
    else if (s->status == 200)
        rc = wp_buf_add(&s->whole, p, n);
    if (rc < 0)
        s->error_event = true;
}

static void read_whole(struct shot *s)
{
    static const char *const names[] = {"choices", "usage"};
    struct wp_json v[2];
    struct wp_err err;

    if (s->status != 200 || wp_json_members(wp_buf_str(&s->whole), names, 2, v, &err) < 0)
        return;
    read_usage(s, v[1]);
    s->finished = has_text(v[0]);
    s->first_us = s->last_us = wp_now_us();
    s->events = s->finished;
}

/* What went wrong, in a word or two; NULL: nothing. */
static const char *verdict(const struct shot *s, const struct wp_call *c, int rc, char text[32])
{
    if (rc == WP_ETIMEDOUT)
        return c->phase == WP_CALL_CONNECT ? "connect timed out" : "timed out";
    if (rc < 0 && c->phase == WP_CALL_CONNECT)
        return "connect failed";
    if (rc < 0)
        return c->phase == WP_CALL_SENT ? "closed before an answer" : "cut off in the answer";
    if (s->status != 200) {
        snprintf(text, 32, "status %d", s->status);
        return text;
    }
    if (s->error_event)
        return "error in the stream";
    if (!s->finished)
        return s->load->conf.whole ? "not an answer" : "stream without an end";
    return s->events ? NULL : "no text";
}

static void report(struct shot *s, bool failed)
{
    struct wp_load *load = s->load;
    const struct wp_trace_req *r = &load->trace->req[s->i];
    uint64_t prompt = s->prompt ? s->prompt : r->input, output = s->output ? s->output : s->events;
    struct wp_sample sample = {
        .worker = s->worker[0] ? s->worker : NULL,
        .prompt = (uint32_t)prompt,
        .output = (uint32_t)output,
        .failed = failed,
    };

    if (!failed) {
        sample.hit[WP_HIT_CACHED] = (uint32_t)(s->cached < prompt ? s->cached : prompt);
        sample.ttft_s = engine_s(s, s->due_us, s->first_us);
        sample.e2e_s = engine_s(s, s->due_us, s->last_us);
        sample.itl_s = output > 1 ? engine_s(s, s->first_us, s->last_us) / (double)(output - 1) : 0;
        load->ttft_sum_s += sample.ttft_s;
        load->ttft_n++;
    }
    if (load->conf.profile)
        sample.cold_s = wp_prefill_us(load->conf.profile, 0, prompt) * 1e-6;
    wp_report_add(load->report, &sample);
}

static void on_over(struct wp_call *c, int rc)
{
    struct shot *s = c->user;
    struct wp_load *load = s->load;
    const char *why;
    char text[32];

    if (rc == 0 && load->conf.whole)
        read_whole(s);
    why = verdict(s, c, rc, text);
    if (s->cut) {
        load->cut_off++;
    } else {
        load->ended++;
        load->failed += why != NULL;
        if (why)
            wp_load_error(load, s->i, why);
        if (measured(s))
            report(s, why != NULL);
    }
    load->last_us = wp_now_us();
    wp_list_del(&s->link);
    wp_sse_fini(&s->sse);
    wp_buf_fini(&s->whole);
    wp_free(s);
    wp_load_shot_over(load);
}

static const struct wp_call_ops call_ops = {
    .on_head = on_head, .on_body = on_body, .on_over = on_over};

static int call(struct shot *s, struct wp_blob *body)
{
    static const struct wp_field type = {{"Content-Type", 12}, {"application/json", 16}};
    struct wp_load *load = s->load;
    struct wp_call_spec spec = {
        .host = load->conf.target.host,
        .port = load->conf.target.port,
        .tls = load->conf.tls,
        .method = WP_STR("POST"),
        .target = wp_buf_str(&load->target),
        .field = &type,
        .n_fields = 1,
        .body = body,
        .connect_us = 10000000,
        .total_us = load->conf.timeout_us,
        .ops = &call_ops,
        .user = s,
    };

    s->call = wp_call(load->client, &spec);
    return s->call ? 0 : WP_ENOMEM;
}

int wp_shot_fire(struct wp_load *load, size_t i, uint64_t due_us)
{
    const struct wp_trace_req *r = &load->trace->req[i];
    struct shot *s = wp_calloc(1, sizeof *s);
    struct wp_blob *body = NULL;
    struct wp_buf text = {0};
    int rc = s ? 0 : WP_ENOMEM;

    if (rc == 0) {
        wp_trace_tokens(r, load->conf.vocabulary, load->token);
        rc = wp_load_body(&text, load->conf.model, load->token, r->input, r->output ? r->output : 1,
                          !load->conf.whole);
    }
    if (rc == 0) {
        size_t n;
        char *p = wp_buf_take(&text, &n);

        body = wp_blob_adopt(p, n);
        rc = body ? 0 : WP_ENOMEM;
    }
    if (rc == 0) {
        s->load = load;
        s->i = i;
        s->due_us = due_us;
        s->whole.max = WHOLE_MAX;
        wp_sse_init(&s->sse, EVENT_MAX, on_event, s);
        wp_list_init(&s->link);
        rc = call(s, body);
    }
    wp_blob_unref(body);
    wp_buf_fini(&text);
    if (rc < 0) {
        wp_free(s);
        return rc;
    }
    wp_list_push(&load->shots, &s->link);
    return 0;
}

void wp_shot_cut(struct wp_list *link)
{
    struct shot *s = WP_CONTAINER(link, struct shot, link);

    if (!s->cut)
        wp_call_cancel(s->call);
    s->cut = true;
}
