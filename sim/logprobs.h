/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/logprobs.h - the members `logprobs` and `prompt_logprobs`, with numbers that mean nothing
 * (sim/text.h). Threads: plain functions over plain data.
 */
#ifndef WP_SIM_LOGPROBS_H
#define WP_SIM_LOGPROBS_H

#include "sim/answer.h"

/* The value of a completion's member for the tokens from s->from on, after the prompt's if echoed;
 * "null" when not asked for. */
void wp_logprobs_completion(struct wp_put *o, const struct wp_oai_req *r,
                            const struct wp_answer_seq *s, bool with_prompt);
void wp_logprobs_chat(struct wp_put *o, const struct wp_oai_req *r, const struct wp_answer_seq *s);
void wp_logprobs_prompt(struct wp_put *o, const struct wp_oai_req *r,
                        const struct wp_oai_prompt *p);

#endif
