/* SPDX-License-Identifier: Apache-2.0 */
#include "router/record.h"

#include "base/mem.h"
#include "tests/lib/test.h"

#include <jansson.h>
#include <math.h>

static void the_ring_keeps_the_newest(void)
{
    struct wp_records r;
    struct wp_err err = WP_ERR_INIT;
    long live = wp_mem_live();

    EXPECT_INT("init", 0, wp_records_init(&r, &err));
    EXPECT_TRUE("none yet",
                !wp_records_at(&r, 0) && !wp_records_at(&r, 1) && !wp_records_at(&r, WP_RECORDS));
    for (uint64_t i = 1; i <= WP_RECORDS + 10; i++) {
        struct wp_record *rec = wp_records_new(&r);

        EXPECT_UINT("ids rise from 1", i, rec->id);
        EXPECT_TRUE("cleared", rec->tokens == 0 && rec->n == 0 && !rec->chosen[0] &&
                                   isnan(rec->actual_ttft_us));
        rec->tokens = (uint32_t)i;
        rec->n = 3;
        snprintf(rec->chosen, sizeof rec->chosen, "w");
    }
    EXPECT_TRUE("the oldest are gone", !wp_records_at(&r, 1) && !wp_records_at(&r, 10));
    EXPECT_TRUE("the next is there", wp_records_at(&r, 11) && wp_records_at(&r, 11)->tokens == 11);
    EXPECT_TRUE("and the last", wp_records_at(&r, WP_RECORDS + 10) &&
                                    wp_records_at(&r, WP_RECORDS + 10)->tokens == WP_RECORDS + 10);
    EXPECT_TRUE("none that will come", !wp_records_at(&r, WP_RECORDS + 11));
    EXPECT_TRUE("nor one of its slot", !wp_records_at(&r, WP_RECORDS + 11 + WP_RECORDS));
    wp_records_fini(&r);
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

static json_t *json_of(const struct wp_record *r)
{
    struct wp_buf b = {0};
    json_error_t e;
    json_t *v;

    EXPECT_INT("written", 0, wp_record_json(r, &b));
    v = json_loadb(b.p, b.n, JSON_REJECT_DUPLICATES, &e);
    EXPECT_TEXT("valid", "", wp_str_of(v ? "" : e.text));
    wp_buf_fini(&b);
    return v;
}

static void a_record_is_valid_json_with_null_for_what_is_unknown(void)
{
    struct wp_record r = {
        .id = 7, .predicted_ttft_us = NAN, .actual_ttft_us = INFINITY, .draw = UINT64_MAX, .n = 2};
    json_t *v, *c;

    snprintf(r.model, sizeof r.model, "a\"b\\\n\x80");
    snprintf(r.candidate[0].worker, sizeof r.candidate[0].worker, "w\"1");
    for (int t = 0; t < WP_TERMS; t++)
        r.candidate[0].verdict.term[t] = NAN;
    r.candidate[0].verdict.price = NAN;
    r.candidate[0].verdict.ttft_us = -INFINITY;
    r.candidate[1].verdict.term[WP_TERM_WAIT] = 1.5;
    r.candidate[1].verdict.term[WP_TERM_FETCH] = INFINITY;
    r.candidate[1].hit_tier[1] = 5;
    v = json_of(&r);
    EXPECT_TRUE("unknown", json_is_null(json_object_get(v, "predicted_ttft_us")));
    EXPECT_TRUE("infinite", json_is_null(json_object_get(v, "actual_ttft_us")));
    EXPECT_TEXT("model", "a\"b\\\n\xEF\xBF\xBD",
                wp_str_of(json_string_value(json_object_get(v, "model"))));
    EXPECT_UINT("candidates", 2, json_array_size(json_object_get(v, "candidates")));
    c = json_array_get(json_object_get(v, "candidates"), 0);
    EXPECT_TRUE("no price", json_is_null(json_object_get(c, "price_us")));
    EXPECT_UINT("no terms", 0, json_object_size(json_object_get(c, "terms_us")));
    c = json_array_get(json_object_get(v, "candidates"), 1);
    EXPECT_NEAR("a term", 1.5,
                json_number_value(json_object_get(json_object_get(c, "terms_us"), "wait")), 0);
    EXPECT_TRUE("one beyond numbers",
                json_is_null(json_object_get(json_object_get(c, "terms_us"), "fetch")));
    EXPECT_INT("a tier", 5,
               json_integer_value(json_object_get(json_object_get(c, "overlap"), "cpu")));
    json_decref(v);
}

static void the_longest_names_fit(void)
{
    struct wp_record r = {
        .id = 1, .predicted_ttft_us = 1, .actual_ttft_us = 2, .n = WP_RECORD_CANDIDATES};
    json_t *v;

    memset(r.model, 'm', sizeof r.model - 1);
    memset(r.chosen, 'c', sizeof r.chosen - 1);
    for (size_t i = 0; i < r.n; i++)
        memset(r.candidate[i].worker, 'w', sizeof r.candidate[i].worker - 1);
    v = json_of(&r);
    EXPECT_UINT("all", WP_RECORD_CANDIDATES, json_array_size(json_object_get(v, "candidates")));
    /* A worker's id is at most 128 letters, or a host name (256) and a port. */
    EXPECT_TRUE("an id is kept whole",
                sizeof r.chosen > 256 + 6 && sizeof r.candidate[0].worker > 256 + 6);
    json_decref(v);
}

static void no_allocation_that_fails_writes_half_a_record_in_silence(void)
{
    struct wp_record r = {.id = 1, .predicted_ttft_us = NAN, .actual_ttft_us = 2, .n = 3};
    bool hit = true;
    long live = wp_mem_live();

    for (long nth = 0; hit; nth++) {
        struct wp_buf b = {0};
        int rc;

        wp_mem_fail_after(nth);
        rc = wp_record_json(&r, &b);
        hit = wp_mem_failed();
        wp_mem_fail_after(-1);
        EXPECT_INT("told", hit ? WP_ENOMEM : 0, rc);
        wp_buf_fini(&b);
    }
    EXPECT_INT("nothing leaks", live, wp_mem_live());
}

const struct wp_suite suite_record = {
    "record",
    (const struct wp_test[]){
        {"the ring keeps the newest", the_ring_keeps_the_newest},
        {"a record is valid JSON, with null for what is unknown",
         a_record_is_valid_json_with_null_for_what_is_unknown},
        {"the longest names fit", the_longest_names_fit},
        {"no allocation that fails writes half a record in silence",
         no_allocation_that_fails_writes_half_a_record_in_silence},
        {NULL, NULL},
    },
};
