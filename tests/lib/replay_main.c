/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays files, and all files of folders, through a fuzz target: what a fuzzer once found stays
 * found. Linked to each of tests/fuzz/.
 */
#include <dirent.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static int replay_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *p;
    long n;

    if (!f || fseek(f, 0, SEEK_END) != 0 || (n = ftell(f)) < 0) {
        perror(path);
        return -1;
    }
    rewind(f);
    p = malloc(n ? (size_t)n : 1); /* exact, so that a sanitizer sees one byte too far */
    if (!p || fread(p, 1, (size_t)n, f) != (size_t)n) {
        perror(path);
        return -1;
    }
    fclose(f);
    LLVMFuzzerTestOneInput(p, (size_t)n);
    free(p);
    return 1;
}

/* Returns how many files were replayed, or -1. */
static int replay(const char *path)
{
    struct dirent **entry;
    int n = scandir(path, &entry, NULL, alphasort), done = 0;

    if (n < 0)
        return replay_file(path);
    for (int i = 0; i < n; i++) {
        char full[1024];
        int one = 0;

        snprintf(full, sizeof full, "%s/%s", path, entry[i]->d_name);
        if (entry[i]->d_name[0] != '.' && done >= 0)
            one = replay(full);
        done = one < 0 || done < 0 ? -1 : done + one;
        free(entry[i]);
    }
    free(entry);
    return done;
}

int main(int argc, char **argv)
{
    int done = 0;

    signal(SIGPIPE, SIG_IGN);
    for (int i = 1; i < argc; i++) {
        int n = replay(argv[i]);

        if (n < 0)
            return 1;
        done += n;
    }
    printf("%d passed, 0 failed\n", done);
    return done == 0;
}
