/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

unsigned wp_skipped_tests;

static void failed(const char *file, int line, const char *text)
{
    CU_assertImplementation(CU_FALSE, (unsigned)line, text, file, "", CU_FALSE);
}

static void passed(const char *file, int line)
{
    CU_assertImplementation(CU_TRUE, (unsigned)line, "", file, "", CU_FALSE);
}

#define SAY(...)                                                                                   \
    do {                                                                                           \
        char text_[1024];                                                                          \
        snprintf(text_, sizeof text_, __VA_ARGS__);                                                \
        failed(file, line, text_);                                                                 \
    } while (0)

void wp_expect_int(const char *file, int line, const char *label, long long want, long long got)
{
    if (want == got)
        passed(file, line);
    else
        SAY("%s: want %lld, got %lld", label, want, got);
}

void wp_expect_uint(const char *file, int line, const char *label, unsigned long long want, unsigned long long got)
{
    if (want == got)
        passed(file, line);
    else
        SAY("%s: want %llu, got %llu", label, want, got);
}

void wp_expect_text(const char *file, int line, const char *label, const char *want, struct wp_str got)
{
    if (wp_str_is(got, want))
        passed(file, line);
    else
        SAY("%s: want \"%s\", got \"" WP_STR_FMT "\"", label, want, WP_STR_ARG(got));
}

void wp_expect_near(const char *file, int line, const char *label, double want, double got, double within)
{
    if (fabs(want - got) <= within)
        passed(file, line);
    else
        SAY("%s: want %g within %g, got %g", label, want, within, got);
}

void wp_expect_true(const char *file, int line, const char *label, int ok)
{
    if (ok)
        passed(file, line);
    else
        SAY("%s: not so", label);
}

void wp_skip(const char *why)
{
    wp_skipped_tests++;
    fprintf(stderr, "SKIPPED %s: %s\n", CU_get_current_test() ? CU_get_current_test()->pName : "?", why);
}

char *wp_test_data(const char *path, size_t *n)
{
    char full[512];
    struct wp_buf b = {0};
    FILE *f;
    size_t got;

    snprintf(full, sizeof full, "%s/%s", getenv("WP_TEST_DATA") ? getenv("WP_TEST_DATA") : "tests/data", path);
    f = fopen(full, "rb");
    if (!f) {
        wp_expect_true(full, 0, "test data can be read", 0);
        return NULL;
    }
    do {
        if (wp_buf_reserve(&b, 65537) < 0)
            break;
        got = fread(b.p + b.n, 1, 65536, f);
        b.n += got;
    } while (got);
    fclose(f);
    if (b.p)
        b.p[b.n] = 0;
    return wp_buf_take(&b, n);
}
