/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/text.h"

static const char *const words[] = {
    "warm",   "path",   "block", "cache",  "token",   "prefix", "the",   "of",
    "and",    "to",     "in",    "is",     "that",    "for",    "as",    "with",
    "by",     "on",     "it",    "a",      "an",      "be",     "this",  "from",
    "at",     "or",     "which", "one",    "all",     "their",  "has",   "not",
    "more",   "other",  "some",  "time",   "each",    "when",   "where", "large",
    "small",  "long",   "short", "early",  "late",    "fast",   "slow",  "river",
    "stone",  "field",  "light", "winter", "morning", "road",   "house", "paper",
    "letter", "engine", "water", "bridge", "garden",  "signal", "north", "answer",
};

enum { WORDS = sizeof words / sizeof words[0] };

void wp_text_tokens(struct wp_str text, uint32_t out[])
{
    for (size_t i = 0; i < text.n; i++)
        out[i] = (unsigned char)text.p[i] + (uint32_t)WP_TEXT_FIRST;
}

int wp_text_put(struct wp_buf *b, uint32_t id)
{
    if (id >= WP_TEXT_FIRST && id < WP_TEXT_FIRST + 256) {
        unsigned char byte = (unsigned char)(id - WP_TEXT_FIRST);

        return wp_buf_add(b, &byte, 1);
    }
    return id < WP_TEXT_VOCABULARY ? wp_buf_printf(b, "<|%u|>", id) : 0;
}

int wp_text_put_all(struct wp_buf *b, const uint32_t token[], size_t n)
{
    int rc = wp_buf_reserve(b, n);

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = wp_text_put(b, token[i]);
    return rc;
}

void wp_words_init(struct wp_words *w, uint64_t seed, uint64_t prompt_hash, uint64_t choice)
{
    struct wp_rng mix = {seed};

    mix.state = wp_rng_next(&mix) ^ prompt_hash;
    mix.state = wp_rng_next(&mix) ^ choice;
    w->rng.state = wp_rng_next(&mix);
    w->rest = words[wp_rng_below(&w->rng, WORDS)];
}

uint32_t wp_words_next(struct wp_words *w)
{
    unsigned char c = ' ';

    if (!w->rest) {
        w->rest = words[wp_rng_below(&w->rng, WORDS)];
    } else {
        c = (unsigned char)*w->rest++;
        if (!*w->rest)
            w->rest = NULL;
    }
    return c + (uint32_t)WP_TEXT_FIRST;
}

double wp_text_logprob(uint32_t id, uint64_t place)
{
    struct wp_rng r = {id * UINT64_C(0x9e3779b97f4a7c15) ^ place};

    return -0.001 * (double)(1 + wp_rng_below(&r, 12000));
}
