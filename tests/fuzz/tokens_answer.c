/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine says to POST /tokenize: ids, or nothing; never more than the text can hold. */
#include "adapters/tokens/question.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wp_blob *tokens = NULL;
    int rc = wp_tokens_answer((struct wp_str){(const char *)data, n}, &tokens);

    if ((rc == 0) != (tokens != NULL))
        abort();
    if (tokens && (tokens->n == 0 || tokens->n % 4 || tokens->n / 4 > n / 2))
        abort();
    wp_blob_unref(tokens);
    return 0;
}
