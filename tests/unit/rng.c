/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rng.h"
#include "tests/lib/test.h"

#include <math.h>

static void a_seed_gives_the_published_numbers(void)
{
    /* splitmix64 from seed 1234567, as its authors' reference code prints them */
    static const uint64_t want[] = {6457827717110365317u, 3203168211198807973u,
                                    9817491932198370423u, 4593380528125082431u,
                                    16408922859458223821u};
    struct wp_rng r = {1234567};

    for (size_t i = 0; i < 5; i++)
        EXPECT_UINT("number", want[i], wp_rng_next(&r));
}

static void draws_stay_below_and_are_even(void)
{
    struct wp_rng r = {1};
    unsigned hits[6] = {0};

    for (int i = 0; i < 60000; i++)
        hits[wp_rng_below(&r, 6)]++;
    for (int i = 0; i < 6; i++)
        EXPECT_NEAR("one in six", 10000, hits[i], 500);
    for (int i = 0; i < 100; i++)
        EXPECT_UINT("one", 0, wp_rng_below(&r, 1));
    for (int i = 0; i < 100; i++) /* half of all draws are refused here */
        EXPECT_TRUE("large", wp_rng_below(&r, ((uint64_t)1 << 63) + 1) <= (uint64_t)1 << 63);
}

static void shapes_have_their_means(void)
{
    struct wp_rng r = {2};
    double unit = 0, exp = 0, normal = 0, square = 0;
    int odd = 0;
    enum { N = 100000 };

    for (int i = 0; i < N; i++) {
        double u = wp_rng_unit(&r), e = wp_rng_exp(&r, 3), x = wp_rng_normal(&r);

        odd += !(u >= 0 && u < 1) || !(e >= 0) || !isfinite(e) || !isfinite(x);
        unit += u / N;
        exp += e / N;
        normal += x / N;
        square += x * x / N;
    }
    EXPECT_INT("out of range", 0, odd);
    EXPECT_NEAR("unit", 0.5, unit, 0.01);
    EXPECT_NEAR("exp", 3, exp, 0.05);
    EXPECT_NEAR("normal", 0, normal, 0.02);
    EXPECT_NEAR("deviation", 1, square, 0.03);
}

static void secrets_differ(void)
{
    EXPECT_TRUE("two of 2^64", wp_rng_secret() != wp_rng_secret());
}

const struct wp_suite suite_rng = {
    "rng",
    (const struct wp_test[]){
        {"a seed gives the published numbers", a_seed_gives_the_published_numbers},
        {"draws stay below and are even", draws_stay_below_and_are_even},
        {"shapes have their means", shapes_have_their_means},
        {"secrets differ", secrets_differ},
        {NULL, NULL},
    },
};
