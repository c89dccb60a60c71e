/* SPDX-License-Identifier: Apache-2.0 */
/* The peers are a library of another language (tests/bench/peers) that exports a struct subject for
 * each. */
#include "tests/bench/index/bench.h"

#include <dlfcn.h>
#include <stdio.h>

const struct subject *subject_peer(const char *library, const char *symbol)
{
    void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const struct subject *s = lib ? dlsym(lib, symbol) : NULL;

    if (!s)
        fprintf(stderr, "%s\n", dlerror());
    return s;
}
