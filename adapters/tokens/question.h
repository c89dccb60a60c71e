/* SPDX-License-Identifier: Apache-2.0 */
/* adapters/tokens/question.h - what is said to POST /tokenize, and what it says.  Pure functions;
 * no I/O. */
#ifndef WP_ADAPTERS_TOKENS_QUESTION_H
#define WP_ADAPTERS_TOKENS_QUESTION_H

#include "adapters/tokens/tokens.h"

/* Whether /tokenize would give the ids that the engine itself makes of this prompt. */
bool wp_tokens_suited(const struct wp_tokens_prompt *p);
/* Appends the body of the question.  Equal prompts give equal bytes.  Errors: WP_ENOMEM,
 * WP_ETOOBIG. */
int wp_tokens_question(struct wp_buf *b, const struct wp_tokens_prompt *p);
/* Room that an answer to a question of n bytes may take. */
size_t wp_tokens_answer_max(size_t n);
/* The ids in an answer: {"tokens": [..], "count": n}.  Errors: WP_EPROTO (it is none, or has no
 * ids), WP_ENOMEM. */
int wp_tokens_answer(struct wp_str answer, struct wp_blob **out);

#endif
