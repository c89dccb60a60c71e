/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the suites named on the command line, or all.  The last line is the totals, one test a function. */
#include "base/log.h"
#include "tests/lib/test.h"

#include <CUnit/Basic.h>
#include <signal.h>
#include <stdlib.h>

extern unsigned wp_skipped_tests;

#define SUITE(n) extern const struct wp_suite suite_##n;
#include "suites.h"
#undef SUITE
static const struct wp_suite *const suites[] = {
#define SUITE(n) &suite_##n,
#include "suites.h"
#undef SUITE
};

static int wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (wp_str_is(wp_str_of(name), argv[i]))
            return 1;
    return argc == 1;
}

int main(int argc, char **argv)
{
    unsigned failed, run, n = 0;

    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!getenv("WP_TEST_LOG"))
        wp_log_setup(WP_ERROR, WP_LOG_TEXT);
    if (CU_initialize_registry() != CUE_SUCCESS)
        return 1;
    for (size_t i = 0; i < sizeof suites / sizeof suites[0]; i++) {
        CU_pSuite s;

        if (!wanted(suites[i]->name, argc, argv))
            continue;
        s = CU_add_suite(suites[i]->name, NULL, NULL);
        for (const struct wp_test *t = suites[i]->tests; s && t->name; t++, n++)
            CU_add_test(s, t->name, t->run);
    }
    if (n == 0) {
        fprintf(stderr, "no such suite\n");
        return 2;
    }
    CU_basic_set_mode(getenv("WP_TEST_QUIET") ? CU_BRM_SILENT : CU_BRM_VERBOSE);
    CU_basic_run_tests();
    failed = CU_get_number_of_tests_failed();
    run = CU_get_number_of_tests_run();
    printf("%u passed, %u failed, %u skipped\n", run - failed - wp_skipped_tests, failed, wp_skipped_tests);
    CU_cleanup_registry();
    return failed || run == 0;
}
