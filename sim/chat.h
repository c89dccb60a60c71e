/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim/chat.h - conversations as one text: a plain ChatML template.
 *     <|im_start|>ROLE\nCONTENT<|im_end|>\n ...   and <|im_start|>assistant\n where the answer goes
 * Tools come first, as JSON in a system turn of their own, so that requests with the same tools
 * share a prefix. Threads: plain functions over plain data.
 */
#ifndef WP_SIM_CHAT_H
#define WP_SIM_CHAT_H

#include "sim/schema.h"

/* Is messages a list of messages?  What is not goes into s as faults. */
void wp_chat_check(struct wp_schema *s, struct wp_json messages);

struct wp_chat {
    struct wp_json messages, tools; /* checked */
    bool generation, unfinished;    /* add_generation_prompt; continue_final_message */
};
/* Appends the text.  Returns 0, a status with its body in answer (nothing to say, a picture), or
 * WP_ENOMEM. */
int wp_chat_render(const struct wp_chat *c, struct wp_buf *text, struct wp_buf *answer);

#endif
