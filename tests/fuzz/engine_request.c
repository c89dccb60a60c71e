/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whatever the body, the simulated engine takes it within its limits or refuses it with a JSON
 * error of vLLM's shape. The first byte chooses the route, the rest is the body.
 */
#include "sim/openai.h"

#include "sim/text.h"

#include <jansson.h>
#include <stdlib.h>

#define MUST(x)      \
    do {             \
        if (!(x))    \
            abort(); \
    } while (0)

static const struct wp_oai_limits limits = {.model = "tiny", .max_model_len = 2048};

static void must_be_refusal(int status, const struct wp_buf *answer)
{
    json_t *v = json_loadb(answer->p ? answer->p : "", answer->n, JSON_ALLOW_NUL, NULL);
    const json_t *e = json_object_get(v, "error");

    MUST(status == 400 || status == 404);
    MUST(json_is_string(json_object_get(e, "message")) &&
         json_is_string(json_object_get(e, "type")));
    MUST(json_integer_value(json_object_get(e, "code")) == status);
    json_decref(v);
}

static void must_be_answer(const struct wp_buf *answer)
{
    json_t *v = json_loadb(answer->p, answer->n, JSON_ALLOW_NUL, NULL);

    MUST(json_is_object(v));
    json_decref(v);
}

static void must_be_within_limits(const struct wp_oai_req *r)
{
    MUST(r->n >= 1 && r->n_prompts >= 1 && (uint64_t)r->n * r->n_prompts <= WP_OAI_SEQUENCES);
    for (size_t i = 0; i < r->n_prompts; i++) {
        const struct wp_oai_prompt *p = &r->prompt[i];

        MUST(p->n >= 1 && p->output >= 1 && p->n + p->output <= limits.max_model_len);
        for (size_t k = 0; k < p->n; k++)
            MUST(p->token[k] < WP_TEXT_VOCABULARY);
    }
    MUST(r->logprobs <= WP_OAI_LOGPROBS && r->prompt_logprobs <= WP_OAI_LOGPROBS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_str type = WP_STR("application/json"), body = {(const char *)data + 1, n - 1};
    struct wp_buf answer = {0};
    struct wp_oai_req r = {0};
    int rc;

    if (n == 0)
        return 0;
    switch (data[0] % 4) {
    case 0:
        rc = wp_oai_completion(&r, &limits, type, body, &answer);
        break;
    case 1:
        rc = wp_oai_chat(&r, &limits, type, body, &answer);
        break;
    case 2:
        rc = wp_oai_tokenize(&limits, type, body, &answer);
        break;
    default:
        rc = wp_oai_detokenize(&limits, type, body, &answer);
    }
    MUST(rc >= 0);
    if (rc == 200)
        must_be_answer(&answer);
    else if (rc)
        must_be_refusal(rc, &answer);
    else
        must_be_within_limits(&r);
    wp_oai_fini(&r);
    wp_buf_fini(&answer);
    return 0;
}
