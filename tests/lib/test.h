/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/test.h - what unit tests share: suites, and expectations that print the case and both values.
 * A suite is tests/unit/NAME.c with `const struct wp_suite suite_NAME = {...}`.  Test names are sentences.
 * Run all: build/unit.  One suite or more: build/unit NAME...
 */
#ifndef WP_TESTS_LIB_TEST_H
#define WP_TESTS_LIB_TEST_H

#include "base/str.h"

#include <CUnit/CUnit.h>
#include <stdint.h>
#include <stdio.h>

struct wp_test {
    const char *name;
    void (*run)(void);
};
struct wp_suite {
    const char *name;
    const struct wp_test *tests; /* ends with a NULL name */
};

void wp_expect_int(const char *file, int line, const char *label, long long want, long long got);
void wp_expect_uint(const char *file, int line, const char *label, unsigned long long want, unsigned long long got);
void wp_expect_text(const char *file, int line, const char *label, const char *want, struct wp_str got);
void wp_expect_near(const char *file, int line, const char *label, double want, double got, double within);
void wp_expect_true(const char *file, int line, const char *label, int ok);
/* The test cannot run here: says why, counts as skipped, loudly. */
void wp_skip(const char *why);

#define EXPECT_INT(label, want, got) wp_expect_int(__FILE__, __LINE__, (label), (want), (got))
#define EXPECT_UINT(label, want, got) wp_expect_uint(__FILE__, __LINE__, (label), (want), (got))
#define EXPECT_TEXT(label, want, got) wp_expect_text(__FILE__, __LINE__, (label), (want), (got))
#define EXPECT_NEAR(label, want, got, within) wp_expect_near(__FILE__, __LINE__, (label), (want), (got), (within))
#define EXPECT_TRUE(label, ok) wp_expect_true(__FILE__, __LINE__, (label), (ok) ? 1 : 0)

/* A whole file of tests/data, NULL (and a failed expectation) when it cannot be read; wp_free() it. */
char *wp_test_data(const char *path, size_t *n);

#endif
