/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/text.h - text and tokens of an engine that has no tokenizer.
 * One token a byte of UTF-8: id = byte + 3, as in byte-level models with three special tokens, and
 * no token is put before a prompt.  So text -> ids -> text is the identity, and a generated text
 * counts as many tokens when it comes back inside a longer prompt: multi-turn chats find their
 * blocks again. Ids that are no byte are legal in prompts (a trace's are made up) and print as
 * "<|id|>". Threads: pure functions.
 */
#ifndef WP_SIM_TEXT_H
#define WP_SIM_TEXT_H

#include "base/rng.h"
#include "base/str.h"

enum { WP_TEXT_FIRST = 3, WP_TEXT_VOCABULARY = 151936 };

void wp_text_tokens(struct wp_str text, uint32_t out[]); /* writes text.n ids */

/* Appends what one id, or n of them, stand for; "" for ids outside of the vocabulary.  Errors:
 * WP_ENOMEM, WP_ETOOBIG. */
int wp_text_put(struct wp_buf *b, uint32_t id);
int wp_text_put_all(struct wp_buf *b, const uint32_t token[], size_t n);

/* What the engine says: plain words, one byte a token, always the same for the same seed, prompt
 * and choice. */
struct wp_words {
    struct wp_rng rng;
    const char *rest; /* of the word at hand; NULL: a blank comes next */
};
void wp_words_init(struct wp_words *w, uint64_t seed, uint64_t prompt_hash, uint64_t choice);
uint32_t wp_words_next(struct wp_words *w); /* a token id */

/*
 * A made-up log probability for a token at a place: negative, the same every time.  Clients that
 * ask for the shape get numbers; nothing is in them.
 */
double wp_text_logprob(uint32_t id, uint64_t place);

#endif
