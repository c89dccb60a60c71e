/* SPDX-License-Identifier: Apache-2.0 */
/* adapters/tokens/kinds.h - the tokenizers that have a file of their own: for the list in tokens.c
 * alone. */
#ifndef WP_ADAPTERS_TOKENS_KINDS_H
#define WP_ADAPTERS_TOKENS_KINDS_H

#include "adapters/tokens/tokens.h"

extern const struct wp_tokens_ops wp_tokens_engine_ops;

#endif
