/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/prompts.h - the four kinds of `prompt`: a text, texts, token ids (one prompt), lists of token
 * ids. Threads: plain functions over plain data.
 */
#ifndef WP_SIM_PROMPTS_H
#define WP_SIM_PROMPTS_H

#include "sim/openai.h"
#include "sim/schema.h"

bool wp_prompt_ok(struct wp_json p);                         /* it is of one of the four kinds */
void wp_prompt_blame(struct wp_schema *s, struct wp_json p); /* it is of none: says why */

/* Into r->prompt[].  Returns 0, a status with its body in answer (none, too long, an id past 2^32),
 * or WP_ENOMEM. */
int wp_prompts_read(struct wp_oai_req *r, const struct wp_oai_limits *lim, struct wp_json p,
                    struct wp_buf *answer);
int wp_prompts_text(struct wp_oai_req *r, const struct wp_oai_limits *lim, struct wp_str text,
                    struct wp_buf *answer);

#endif
