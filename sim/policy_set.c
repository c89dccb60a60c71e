/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/policy_set.h"

#include "policies/rows.h"

#include <stddef.h>

/* clang-format off */
#define P(member) offsetof(struct wp_settings, policy.member)
#define F(member) offsetof(struct wp_settings, fleet.member)
#define S(member) offsetof(struct wp_settings, slo.member)
WP_POLICY_TABLES(P);
static const struct wp_conf_key policy_rows[] = {WP_POLICY_ALL_ROWS(P), {0}};
static const struct wp_conf_key fleet_rows[] = {
    WP_POLICY_ROW("link_bytes_per_s", DOUBLE, "25e9", 1, 1e15, F(link_bytes_per_s), "of each worker's link, in and out"),
    WP_POLICY_ROW("link_setup_us", DOUBLE, "2000", 0, 1e12, F(link_setup_us), "of a transfer"),
    WP_POLICY_ROW("store_bytes_per_s", DOUBLE, "20e9", 1, 1e15, F(store_bytes_per_s), "of the store that all share"),
    WP_POLICY_ROW("store_blocks", U64, "0", 0, 268435456, F(store_blocks), "of 512 tokens; 0: no store"),
    WP_POLICY_ROW("gpu_blocks", U64, "0", 0, 268435456, F(gpu_blocks), "of a worker; 0: as the profile says"),
    WP_POLICY_ROW("cpu_blocks", U64, "0", 0, 268435456, F(cpu_blocks), "likewise"),
    WP_POLICY_ROW("no_cpu", BOOL, "false", 0, 0, F(no_cpu), "no cpu tier"),
    {0},
};
static const struct wp_conf_key slo_rows[] = {
    WP_POLICY_ROW("ttft_s", DOUBLE, "5", 1e-3, 1e6, S(ttft_s), "time to the first token, or"),
    WP_POLICY_ROW("ttft_factor", DOUBLE, "2", 0, 1e6, S(ttft_factor), "so many times the request's own cold prefill"),
    WP_POLICY_ROW("itl_ms", DOUBLE, "150", 1e-3, 1e9, S(itl_ms), "mean time between tokens"),
    {0},
};
static const struct wp_conf_key rows[] = {
    WP_POLICY_TABLE("policy", policy_rows), WP_POLICY_TABLE("fleet", fleet_rows), WP_POLICY_TABLE("slo", slo_rows), {0},
};
/* clang-format on */

int wp_settings_read(struct wp_settings *s, const char *const set[], size_t n, struct wp_err *err)
{
    struct wp_buf errors = {.max = 64 << 10};
    struct wp_conf c = {.errors = &errors};
    struct wp_str rest, line;
    int rc = wp_conf_read_text(&c, "settings", WP_STR("{}"));

    for (size_t i = 0; i < n && rc == 0; i++)
        rc = wp_conf_set(&c, rows, set[i]);
    *s = (struct wp_settings){0};
    if (rc == 0)
        rc = wp_conf_bind(&c, rows, s);
    rest = wp_buf_str(&errors);
    if (rc == 0 && c.n_errors == 0)
        rc = 0;
    else if (rc == WP_ENOMEM || !wp_str_split(&rest, '\n', &line))
        rc = wp_fail(err, WP_ENOMEM, "settings: out of memory");
    else
        rc = wp_fail(err, WP_EUSAGE, WP_STR_FMT, WP_STR_ARG(line));
    wp_conf_fini(&c);
    wp_buf_fini(&errors);
    return rc;
}
