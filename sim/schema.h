/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/schema.h - checks a request body's members as vLLM's schema does, and says what is wrong as
 * vLLM says it. Types are lax there: "5" and 5.0 are the integer 5, "true" and 1 are true.  Faults
 * are gathered, the first ten are told: 2 validation errors:\n  {'type': 'missing', 'loc':
 * 'body.prompt', ...}\n  {...} Wire fact: tests/data/spec/real/vllm_0.32.0_http.json. Threads:
 * plain functions over plain data.
 */
#ifndef WP_SIM_SCHEMA_H
#define WP_SIM_SCHEMA_H

#include "net/json.h"

struct wp_schema {
    struct wp_buf lines;
    unsigned n;      /* faults so far */
    char param[128]; /* where the first one is */
    int rc;          /* WP_ENOMEM when a line could not be kept */
};
/* {0} is a fresh one. */
void wp_schema_fini(struct wp_schema *s);

/*
 * Content type and JSON: v[n] gets the members called name[n], *whole the body.  Faults go into s:
 * look at s->n before v. Returns 0 or a negative code.
 */
int wp_schema_members(struct wp_schema *s, struct wp_str content_type, struct wp_str body,
                      const char *const name[], size_t n, struct wp_json v[],
                      struct wp_json *whole);

/* loc: "body.messages".  v is what stood there, as the input that is quoted. */
void wp_schema_fault(struct wp_schema *s, const char *type, const char *loc, const char *msg,
                     struct wp_json v);
void wp_schema_line(struct wp_schema *s, const char *param, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Each: absent and null leave *out alone and return false; a value of another kind is a fault and
 * returns false. */
bool wp_schema_int(struct wp_schema *s, struct wp_json v, const char *loc, int64_t *out);
bool wp_schema_float(struct wp_schema *s, struct wp_json v, const char *loc, double *out);
bool wp_schema_bool(struct wp_schema *s, struct wp_json v, const char *loc, bool *out);
bool wp_schema_string(struct wp_schema *s, struct wp_json v,
                      const char *loc); /* true when it is one */

/* The answer's body when there were faults.  Returns 0: none; 400; or WP_ENOMEM. */
int wp_schema_answer(struct wp_schema *s, struct wp_buf *out);

/* {"error": {message, type, param, code}} with the status as a number, as vLLM writes it.  Returns
 * status or WP_ENOMEM. */
int wp_oai_error(struct wp_buf *out, int status, const char *type, const char *param,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Appends a decoded string; one with lone surrogates, which have no UTF-8 form, as its escapes
 * stand. */
int wp_json_put_text(struct wp_buf *b, struct wp_json v);

#endif
