/* SPDX-License-Identifier: Apache-2.0 */
/* Replays files through a fuzz target: what a fuzzer once found stays found.  Linked to each of tests/fuzz/. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        uint8_t *p;
        long n;

        if (!f || fseek(f, 0, SEEK_END) != 0 || (n = ftell(f)) < 0) {
            perror(argv[i]);
            return 1;
        }
        rewind(f);
        p = malloc((size_t)n + 1); /* exact, so that a sanitizer sees one byte too far */
        p = p ? realloc(p, n ? (size_t)n : 1) : NULL;
        if (!p || fread(p, 1, (size_t)n, f) != (size_t)n)
            return 1;
        fclose(f);
        LLVMFuzzerTestOneInput(p, (size_t)n);
        free(p);
    }
    printf("%d passed, 0 failed\n", argc - 1);
    return argc < 2;
}
