/* SPDX-License-Identifier: Apache-2.0 */
#include "router/edit.h"

#include "net/json.h"
#include "router/unasked.h"

#include <stdio.h>

/* Takes ownership of b.  rc: of the edits so far. */
static int take_edited(struct wp_request *r, struct wp_buf *b, int rc)
{
    struct wp_blob *edited = NULL;
    size_t n;

    if (rc == 0) {
        char *p = wp_buf_take(b, &n);

        edited = wp_blob_adopt(p, n);
        rc = edited ? 0 : WP_ENOMEM;
    }
    if (edited) {
        /* What was read of the old text is not read again but for its kinds and lengths: it stays
         * until the arena goes. */
        if (r->unedited)
            wp_blob_unref(r->body); /* of the attempt before */
        else
            r->unedited = r->body;
        r->body = edited;
    }
    wp_buf_fini(b);
    return rc;
}

/*
 * vllm_xargs without kv_cache_report_mode: an engine that reports its whole cache again makes the counts of copies drift.  Appends what is left.
 */
static int strip_report_mode(struct wp_json xargs, struct wp_buf *out)
{
    static const struct wp_json_edit gone = {"kv_cache_report_mode", {0}};

    return wp_json_splice(out, (struct wp_str){xargs.p, xargs.n}, &gone, 1);
}

/* The body as it came, with these edits; a mark before it stays. */
static int splice_body(struct wp_request *r, struct wp_buf *b, const struct wp_json_edit edit[], size_t n)
{
    const struct wp_blob *came = r->unedited ? r->unedited : r->body;
    struct wp_str body = {came->p, came->n}, text = wp_body_text(body);
    int rc = wp_buf_add(b, body.p, body.n - text.n);

    return rc ? rc : wp_json_splice(b, text, edit, n);
}

/* JSON: the model behind an alias, request ids, what would make the index drift. */
static int edit_json(struct wp_request *r)
{
    struct wp_json_edit edit[5];
    struct wp_buf b = {.max = r->settings->conf->limits.body_bytes + 4096}, name = {0}, xargs = {0}, options = {0};
    char unique[192];
    size_t n = 0;
    int rc = 0;

    if (r->ask.model_name.p && !wp_str_eq(r->ask.model_name, r->ask.model.name)) {
        rc = wp_buf_json(&name, r->ask.model.name);
        edit[n++] = (struct wp_json_edit){"model", wp_buf_str(&name)};
    }
    snprintf(unique, sizeof unique, "\"%s-%llx\"", r->id,
             (unsigned long long)(atomic_fetch_add(&r->gate->router->ids, 1) ^
                                  r->gate->router->id_salt));
    if (r->ask.json.request_id.kind == WP_JSON_STRING)
        edit[n++] = (struct wp_json_edit){"request_id", wp_str_of(unique)};
    if (r->ask.json.rid.kind == WP_JSON_STRING)
        edit[n++] = (struct wp_json_edit){"rid", wp_str_of(unique)};
    if (wp_json_get(r->ask.json.vllm_xargs, "kv_cache_report_mode").kind != WP_JSON_ABSENT) {
        rc = rc ? rc : strip_report_mode(r->ask.json.vllm_xargs, &xargs);
        edit[n++] = (struct wp_json_edit){"vllm_xargs", wp_buf_str(&xargs)};
    }
    r->unasked = wp_unasked_wanted(r);
    if (r->unasked)
        rc = rc ? rc : wp_unasked_options(r, &options);
    if (r->unasked)
        edit[n++] = (struct wp_json_edit){"stream_options", wp_buf_str(&options)};
    if (n == 0)
        return 0;
    rc = rc ? rc : splice_body(r, &b, edit, n);
    wp_buf_fini(&name);
    wp_buf_fini(&xargs);
    wp_buf_fini(&options);
    return take_edited(r, &b, rc);
}

/* The same for the form of an audio or image request: its field model lies in the body. */
static int edit_form(struct wp_request *r)
{
    struct wp_str was = r->ask.model_name, body = {r->body->p, r->body->n};
    struct wp_buf b = {0};
    size_t at;
    int rc;

    if (!was.p || wp_str_eq(was, r->ask.model.name))
        return 0;
    at = (size_t)(was.p - body.p);
    rc = wp_buf_add(&b, body.p, at);
    rc = rc ? rc : wp_buf_add(&b, r->ask.model.name.p, r->ask.model.name.n);
    rc = rc ? rc : wp_buf_add(&b, was.p + was.n, body.n - at - was.n);
    return take_edited(r, &b, rc);
}

int wp_request_edit(struct wp_request *r, bool form)
{
    return form ? edit_form(r) : edit_json(r);
}

int wp_request_edit_again(struct wp_request *r)
{
    bool named = r->ask.json.request_id.kind == WP_JSON_STRING || r->ask.json.rid.kind == WP_JSON_STRING;

    return named ? edit_json(r) : 0;
}
