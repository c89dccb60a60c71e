/* SPDX-License-Identifier: Apache-2.0 */
#include "policies/profile.h"

#include "base/mem.h"
#include "tests/lib/test.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static struct wp_profile found(const char *name)
{
    struct wp_profile p = {0};
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT(name, 0, wp_profile_find(name, &p, &err));
    return p;
}

static void the_default_is_the_laboratory_s(void)
{
    struct wp_profile p = found("llama-3-70b-8xh100");

    EXPECT_TEXT("first", "llama-3-70b-8xh100", wp_str_of(wp_profile_name(0)));
    EXPECT_TEXT("default", "llama-3-70b-8xh100", wp_str_of(wp_profile_default()->name));
    EXPECT_NEAR("12k cold, s", 0.66, wp_prefill_us(&p, 0, 12000) / 1e6, 0.005);
    EXPECT_NEAR("126k cold, s", 12.9, wp_prefill_us(&p, 0, 126000) / 1e6, 0.05);
    EXPECT_NEAR("one block of 512 cold, ms", 25.6, wp_prefill_us(&p, 0, 512) / 1e3, 0.2);
    EXPECT_UINT("160 MiB a block of 512", 160u << 20, p.kv_bytes_per_token * 512);
    /* a prefill-saturated step: "0.11..0.13 s at this token budget" */
    EXPECT_NEAR("saturated step, s", 0.12,
                wp_step_us(&p, 2048, 2048.0 * 2048 / 2 + 2048.0 * 2000, 50, 200000) / 1e6, 0.012);
}

/* What the comments in profile.c say, computed again from the same facts. */
static const struct {
    const char *name;
    double active, weight_bytes, flops, mfu, attention, bandwidth, memory, use;
    int gpus, copies; /* of the KV cache */
    double c32k_s;    /* published with the arithmetic: 32,768 tokens cold */
} derived[] = {
    {"llama-3-8b-1xh100", 8.03e9, 16.06e9, 989e12, .48, 32. * 32 * 256, 3.35e12, 80e9, .90, 1, 1,
     1.70},
    {"llama-3.1-405b-fp8-8xh100", 405.9e9, 405.9e9, 1979e12, .48, 126. * 128 * 256, 3.35e12, 80e9,
     .90, 8, 1, 4.08},
    {"qwen3-235b-a22b-8xh100", 22e9, 470e9, 989e12, .30, 94. * 64 * 256, 3.35e12, 80e9, .90, 8, 1,
     1.30},
    {"deepseek-v3-8xh200", 37e9, 671e9, 1979e12, .30, 61. * 128 * 320, 4.8e12, 141e9, .90, 8, 8,
     1.08},
    {"gpt-oss-120b-1xh100", 5.1e9, 65.3e9, 989e12, .30, 18. * 64 * 128, 3.35e12, 80e9, .95, 1, 1,
     1.66},
};

static void the_others_follow_from_their_stated_arithmetic(void)
{
    for (size_t i = 0; i < sizeof derived / sizeof derived[0]; i++) {
        struct wp_profile p = found(derived[i].name);
        const char *name = derived[i].name;
        double rate = derived[i].flops * derived[i].mfu * derived[i].gpus;
        double bandwidth = derived[i].bandwidth * derived[i].gpus;
        double kv = (double)p.kv_bytes_per_token, gpu;

        EXPECT_NEAR(name, 2e6 * derived[i].active / rate, p.a_us, p.a_us * 1e-3);
        EXPECT_NEAR(name, 2e6 * derived[i].attention / rate, p.b_us, p.b_us * 1e-3);
        EXPECT_NEAR(name, 1e6 * derived[i].weight_bytes / (bandwidth * .70), p.tw_us,
                    p.tw_us * 1e-3);
        EXPECT_NEAR(name, 1e6 * kv * derived[i].copies / (bandwidth * .61), p.d_us, p.d_us * 1e-2);
        EXPECT_NEAR(name, p.a_us, p.e_us, 0);
        gpu = derived[i].use * derived[i].memory * derived[i].gpus - derived[i].weight_bytes -
              4e9 * derived[i].gpus;
        EXPECT_UINT(name, (unsigned long long)(gpu / derived[i].copies / kv / 512) * 512,
                    p.gpu_tokens);
        EXPECT_UINT(
            name, (unsigned long long)(6000. * 512 * 327680 / 8 * derived[i].gpus / kv / 512) * 512,
            p.cpu_tokens);
        EXPECT_NEAR(name, derived[i].c32k_s, wp_prefill_us(&p, 0, 32768) / 1e6, 0.006);
    }
    EXPECT_TRUE("all rows are here",
                wp_profile_name(1 + sizeof derived / sizeof derived[0]) == NULL);
}

static void prefill_follows_its_formula(void)
{
    struct wp_profile p = {.a_us = 10, .b_us = 0.5, .t_c_us = 3, .speed = 1};

    EXPECT_NEAR("t_c + a n + b/2 n^2", 3 + 10 * 4 + 0.25 * 16, wp_prefill_us(&p, 0, 4), 1e-9);
    EXPECT_NEAR("t_c + a (n-p) + b/2 (n^2-p^2)", 3 + 10 * 2 + 0.25 * (36 - 16),
                wp_prefill_us(&p, 4, 6), 1e-9);
    EXPECT_NEAR("parts make the whole, but for t_c", wp_prefill_us(&p, 0, 6),
                wp_prefill_us(&p, 0, 4) + wp_prefill_us(&p, 4, 6) - 3, 1e-9);
    EXPECT_NEAR("nothing costs nothing", 0, wp_prefill_us(&p, 5, 5), 0);
    EXPECT_NEAR("backwards is nothing", 0, wp_prefill_us(&p, 6, 5), 0);
    p.speed = 6;
    EXPECT_NEAR("six times as fast", (3 + 10 * 4 + 0.25 * 16) / 6.0, wp_prefill_us(&p, 0, 4), 1e-9);
}

static void a_step_and_its_slow_down_follow_their_formulas(void)
{
    struct wp_profile p = {.a_us = 10,
                           .b_us = 0.5,
                           .tw_us = 70,
                           .tov_us = 20,
                           .e_us = 4,
                           .d_us = 0.1,
                           .budget = 8,
                           .speed = 2};

    EXPECT_NEAR("weights bound", (20 + 70 + 0.5 * 3 + 4 * 2 + 0.1 * 50) / 2,
                wp_step_us(&p, 5, 3, 2, 50), 1e-9);
    EXPECT_NEAR("compute bound", (20 + 80 + 0.5 * 3 + 4 * 2 + 0.1 * 50) / 2,
                wp_step_us(&p, 8, 3, 2, 50), 1e-9);
    EXPECT_NEAR("slow-down has no speed", 1 + (20 + 4 * 2 + 0.1 * 50) / 80, wp_slow_down(&p, 2, 50),
                1e-9);
    EXPECT_NEAR("overhead alone", 1.25, wp_slow_down(&p, 0, 0), 1e-9);
}

/* Prefills of one to three steps, alone: C slowed and the last step's rest are what the steps take
 * one by one. */
static void a_prefill_and_its_last_step_are_whole_steps(void)
{
    struct wp_profile p = {
        .a_us = 10, .tw_us = 70, .tov_us = 20, .e_us = 4, .d_us = 0.1, .budget = 8, .speed = 2};

    for (uint64_t n = 1; n <= 24; n++) {
        double steps = 0;

        for (uint64_t left = n; left; left -= left < 8 ? left : 8)
            steps += wp_step_us(&p, left < 8 ? (double)left : 8, 0, 2, 50);
        EXPECT_NEAR("as the engine does it", steps,
                    wp_prefill_us(&p, 0, n) * wp_slow_down(&p, 2, 50) +
                        wp_last_step_us(&p, n, 2, 50),
                    1e-9);
    }
    EXPECT_NEAR("nothing to prefill is a step, too", (20 + 70) / 2.0, wp_last_step_us(&p, 0, 0, 0),
                1e-9);
}

static void a_fetch_is_bytes_over_the_tier_s_bandwidth(void)
{
    struct wp_profile p = {.kv_bytes_per_token = 1000,
                           .cpu_bytes_per_s = 1e9,
                           .disk_bytes_per_s = 1e8,
                           .remote_bytes_per_s = 1e7,
                           .speed = 1};

    EXPECT_NEAR("gpu is there", 0, wp_fetch_us(&p, (const uint32_t[]){500}, 1), 0);
    EXPECT_NEAR("cpu", 100, wp_fetch_us(&p, (const uint32_t[]){500, 100}, 2), 1e-9);
    EXPECT_NEAR("all", 100 + 10 + 100 + 200,
                wp_fetch_us(&p, (const uint32_t[]){0, 100, 1, 1, 2}, 5), 1e-9);
    p.cpu_bytes_per_s = 0;
    EXPECT_TRUE("no bandwidth: very long, finite",
                isfinite(wp_fetch_us(&p, (const uint32_t[]){0, 1}, 2)) &&
                    wp_fetch_us(&p, (const uint32_t[]){0, 1}, 2) > 1e12);
    EXPECT_NEAR("no bandwidth and nothing to fetch", 0,
                wp_fetch_us(&p, (const uint32_t[]){0, 0, 0, 0}, 4), 0);
}

static void absurd_profiles_cost_something_defined(void)
{
    static const double odd[] = {0, -1, NAN, INFINITY, -INFINITY, 1e308};

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        for (size_t j = 0; j < sizeof odd / sizeof odd[0]; j++) {
            struct wp_profile p = {.a_us = odd[i],
                                   .b_us = odd[j],
                                   .t_c_us = odd[i],
                                   .tw_us = odd[j],
                                   .tov_us = odd[i],
                                   .e_us = odd[j],
                                   .d_us = odd[i],
                                   .budget = (uint32_t)i,
                                   .kv_bytes_per_token = UINT64_MAX,
                                   .cpu_bytes_per_s = odd[j],
                                   .speed = odd[j]};
            double c = wp_prefill_us(&p, 0, UINT64_MAX),
                   s = wp_step_us(&p, odd[i], odd[j], odd[i], odd[j]),
                   m = wp_slow_down(&p, odd[i], odd[j]), l = wp_last_step_us(&p, 5, odd[i], odd[j]),
                   f = wp_fetch_us(&p, (const uint32_t[]){1, UINT32_MAX}, 2);

            EXPECT_TRUE("prefill", isfinite(c) && c >= 0);
            EXPECT_TRUE("step", isfinite(s) && s >= 0);
            EXPECT_TRUE("last step", isfinite(l) && l >= 0);
            EXPECT_TRUE("slow-down", isfinite(m) && m >= 1);
            EXPECT_TRUE("fetch", isfinite(f) && f >= 0);
        }
}

static const struct {
    const char *label, *text, *error; /* error: how it ends; NULL when it is read */
    double a_us, e_us;
    uint64_t gpu_tokens;
} files[] = {
    {"like another, twice as fast", "like: llama-3-8b-1xh100\nspeed: 2\n", NULL, 33.83, 33.83,
     773 * 512},
    {"like another, but for a", "a_us: 7\nlike: llama-3-8b-1xh100\n", NULL, 7, 33.83, 773 * 512},
    {"all of its own",
     "name: mine\na_us: 2\nb_us: 1e-4\ntw_us: 900\ne_us: 3\nd_us: 0.01\nkv_bytes_per_token: "
     "4096\ngpu_tokens: 8192\n",
     NULL, 2, 3, 8192},
    {"JSON", "{\"like\": \"llama-3-70b-8xh100\", \"gpu_tokens\": 512}", NULL, 50, 50, 512},
    {"too little", "a_us: 2\nb_us: 1e-4\n", "want a number, or like: and a built-in profile", 0, 0,
     0},
    {"empty", "", "want a number, or like: and a built-in profile", 0, 0, 0},
    {"no time per token", "like: llama-3-8b-1xh100\na_us: 0\n", "got 0", 0, 0, 0},
    {"a wrong key", "like: llama-3-8b-1xh100\nb_uss: 1\n", NULL, 0, 0, 0},
    {"like nothing known", "like: llama\n", NULL, 0, 0, 0},
    {"no YAML", "a_us: [\n", NULL, 0, 0, 0},
};

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    EXPECT_TRUE(path, f && fputs(text, f) >= 0);
    if (f)
        fclose(f);
}

static void a_file_can_say_it(void)
{
    char path[] = "/tmp/warmpath-profile-XXXXXX";
    int fd = mkstemp(path);

    EXPECT_TRUE("a file", fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct wp_profile p = {.a_us = -1};
        struct wp_err err = WP_ERR_INIT;
        int rc;

        put(path, files[i].text);
        rc = wp_profile_find(path, &p, &err);
        if (files[i].a_us > 0) {
            EXPECT_INT(files[i].label, 0, rc);
            EXPECT_NEAR(files[i].label, files[i].a_us, p.a_us, 0);
            EXPECT_NEAR(files[i].label, files[i].e_us, p.e_us, 0);
            EXPECT_UINT(files[i].label, files[i].gpu_tokens, p.gpu_tokens);
            EXPECT_TEXT(files[i].label, strstr(files[i].text, "mine") ? "mine" : path + 5,
                        wp_str_of(p.name));
        } else {
            EXPECT_INT(files[i].label, WP_EINVAL, rc);
            EXPECT_NEAR("untouched", -1, p.a_us, 0);
            EXPECT_TRUE("says where", strstr(err.text, path) != NULL);
            EXPECT_TRUE(err.text, !files[i].error || strstr(err.text, files[i].error));
        }
    }
    for (long nth = 0; nth < 10000; nth++) {
        struct wp_profile p;
        struct wp_err err = WP_ERR_INIT;
        int rc;

        put(path, files[0].text);
        wp_mem_fail_after(nth);
        rc = wp_profile_find(path, &p, &err);
        if (!wp_mem_failed())
            break;
        EXPECT_INT("out of memory", WP_ENOMEM, rc);
        EXPECT_INT("nothing leaks", 0, wp_mem_live());
    }
    wp_mem_fail_after(-1);
    unlink(path);
    EXPECT_INT("gone", WP_EINVAL,
               wp_profile_find(path, &(struct wp_profile){0}, &(struct wp_err){0}));
    EXPECT_INT("nothing leaks", 0, wp_mem_live());
}

static void an_unknown_name_is_told_what_is_known(void)
{
    struct wp_profile p;
    struct wp_err err = WP_ERR_INIT;

    EXPECT_INT("code", WP_EINVAL, wp_profile_find("lama-3-70b-8xh100", &p, &err));
    EXPECT_TRUE("nearest", strstr(err.text, "did you mean \"llama-3-70b-8xh100\"?") != NULL);
    EXPECT_TRUE("all", strstr(err.text, "gpt-oss-120b-1xh100") != NULL);
    EXPECT_INT("nothing near", WP_EINVAL, wp_profile_find("", &p, &err));
    EXPECT_TRUE("known", strstr(err.text, "known: llama-3-70b-8xh100") != NULL);
    EXPECT_INT("without memory too", WP_EINVAL,
               (wp_mem_fail_after(0), wp_profile_find("x", &p, &err)));
    wp_mem_fail_after(-1);
    EXPECT_UINT("nothing leaks", 0, wp_mem_live());
}

const struct wp_suite suite_profile = {
    "profile",
    (const struct wp_test[]){
        {"the default is the laboratory's", the_default_is_the_laboratory_s},
        {"the others follow from their stated arithmetic",
         the_others_follow_from_their_stated_arithmetic},
        {"prefill follows its formula", prefill_follows_its_formula},
        {"a prefill and its last step are whole steps",
         a_prefill_and_its_last_step_are_whole_steps},
        {"a step and its slow-down follow their formulas",
         a_step_and_its_slow_down_follow_their_formulas},
        {"a fetch is bytes over the tier's bandwidth", a_fetch_is_bytes_over_the_tier_s_bandwidth},
        {"absurd profiles cost something defined", absurd_profiles_cost_something_defined},
        {"a file can say it", a_file_can_say_it},
        {"an unknown name is told what is known", an_unknown_name_is_told_what_is_known},
        {NULL, NULL},
    },
};
