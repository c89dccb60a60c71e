/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/logprobs.h"

#include "sim/text.h"

static void put_token(struct wp_put *o, uint32_t id)
{
    struct wp_buf text = {0};

    if (o->rc == 0)
        o->rc = wp_text_put(&text, id);
    wp_put_json(o, wp_buf_str(&text));
    wp_buf_fini(&text);
}

/* The k-th alternative to a token: another letter. */
static uint32_t alternative(uint32_t id, int k)
{
    uint32_t letter = (uint32_t)('a' + (id + (uint32_t)k * 7) % 26) + WP_TEXT_FIRST;

    return letter == id ? letter - 1 : letter;
}

struct run { /* the tokens that a member speaks of, one array after the other */
    const uint32_t *part[2];
    size_t n[2], prompt;  /* the first `prompt` tokens are the prompt's */
    size_t place, offset; /* of the first one: in the sequence, in the text */
};

static uint32_t at(const struct run *r, size_t i)
{
    return i < r->n[0] ? r->part[0][i] : r->part[1][i - r->n[0]];
}

static size_t width(uint32_t id)
{
    char text[16];
    struct wp_buf b = {text, 0, sizeof text,
                       sizeof text}; /* never grows: an id's text is at most 10 bytes */

    wp_text_put(&b, id);
    return b.n;
}

static void put_offsets(struct wp_put *o, const struct run *r)
{
    size_t offset = r->offset;

    wp_put(o, "{\"text_offset\":[");
    for (size_t i = 0; i < r->n[0] + r->n[1]; i++) {
        wp_put(o, i ? "," : "");
        wp_put_u(o, offset);
        offset += width(at(r, i));
    }
}

static void put_scores(struct wp_put *o, const struct run *r)
{
    wp_put(o, "],\"token_logprobs\":[");
    for (size_t i = 0; i < r->n[0] + r->n[1]; i++) {
        wp_put(o, i ? "," : "");
        if (i == 0 && r->prompt)
            wp_put(o, "null");
        else
            wp_put_f(o, wp_text_logprob(at(r, i), r->place + i));
    }
    wp_put(o, "],\"tokens\":[");
    for (size_t i = 0; i < r->n[0] + r->n[1]; i++) {
        wp_put(o, i ? "," : "");
        put_token(o, at(r, i));
    }
}

static void put_tops(struct wp_put *o, const struct run *r, int k)
{
    wp_put(o, "],\"top_logprobs\":[");
    for (size_t i = 0; i < r->n[0] + r->n[1]; i++) {
        wp_put(o, i ? "," : "");
        if (i == 0 && r->prompt) {
            wp_put(o, "null");
            continue;
        }
        wp_put(o, "{");
        put_token(o, at(r, i));
        wp_put(o, ":");
        wp_put_f(o, wp_text_logprob(at(r, i), r->place + i));
        for (int a = 1; a < k; a++) {
            wp_put(o, ",");
            put_token(o, alternative(at(r, i), a));
            wp_put(o, ":");
            wp_put_f(o, wp_text_logprob(at(r, i), r->place + i) - a);
        }
        wp_put(o, "}");
    }
    wp_put(o, "]}");
}

void wp_logprobs_completion(struct wp_put *o, const struct wp_oai_req *r,
                            const struct wp_answer_seq *s, bool with_prompt)
{
    struct run run = {{s->prompt->token, s->token + s->from},
                      {with_prompt ? s->prompt->n : 0, s->n - s->from},
                      0,
                      s->from,
                      0};

    if (r->logprobs < 0) {
        wp_put(o, "null");
        return;
    }
    run.prompt = run.n[0];
    if (!with_prompt)
        for (size_t i = 0; i < s->from; i++)
            run.offset += width(s->token[i]);
    put_offsets(o, &run);
    put_scores(o, &run);
    put_tops(o, &run, r->logprobs);
}

static void put_chat_token(struct wp_put *o, uint32_t id, double logprob)
{
    struct wp_buf text = {0};

    if (o->rc == 0)
        o->rc = wp_text_put(&text, id);
    wp_put(o, "{\"token\":");
    wp_put_json(o, wp_buf_str(&text));
    wp_put(o, ",\"logprob\":");
    wp_put_f(o, logprob);
    wp_put(o, ",\"bytes\":[");
    for (size_t i = 0; i < text.n; i++) {
        wp_put(o, i ? "," : "");
        wp_put_u(o, (unsigned char)text.p[i]);
    }
    wp_put(o, "]");
    wp_buf_fini(&text);
}

void wp_logprobs_chat(struct wp_put *o, const struct wp_oai_req *r, const struct wp_answer_seq *s)
{
    if (r->logprobs < 0) {
        wp_put(o, "null");
        return;
    }
    wp_put(o, "{\"content\":[");
    for (size_t i = s->from; i < s->n; i++) {
        double score = wp_text_logprob(s->token[i], i);

        wp_put(o, i > s->from ? "," : "");
        put_chat_token(o, s->token[i], score);
        wp_put(o, ",\"top_logprobs\":[");
        for (int a = 0; a < r->logprobs; a++) {
            wp_put(o, a ? "," : "");
            put_chat_token(o, a ? alternative(s->token[i], a) : s->token[i], score - a);
            wp_put(o, "}");
        }
        wp_put(o, "]}");
    }
    wp_put(o, "]}");
}

void wp_logprobs_prompt(struct wp_put *o, const struct wp_oai_req *r, const struct wp_oai_prompt *p)
{
    if (r->prompt_logprobs < 0 || !p->token) {
        wp_put(o, "null");
        return;
    }
    wp_put(o, "[null");
    for (size_t i = 1; i < p->n; i++) {
        wp_put(o, ",{\"");
        wp_put_u(o, p->token[i]);
        wp_put(o, "\":{\"logprob\":");
        wp_put_f(o, wp_text_logprob(p->token[i], i));
        wp_put(o, ",\"rank\":1,\"decoded_token\":");
        put_token(o, p->token[i]);
        wp_put(o, "}}");
    }
    wp_put(o, "]");
}
