/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/bench/decode.c - what it costs to judge and to visit a batch of KV events.
 *     make build/bench/decode && build/bench/decode
 * A batch of one store of 600 blocks of 16 tokens, ids as wide as a vocabulary of 150,000 has them;
 * then the same blocks as 600 stores of one block, and as one removal.  Best of five rounds.
 */
#include "adapters/events/decode.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <time.h>

enum { BLOCKS = 600, BLOCK_SIZE = 16, ROUNDS = 5, CALLS = 1000 };

static void big(struct wp_buf *b, uint8_t mark, uint64_t v, unsigned bytes)
{
    char c = (char)mark;

    wp_buf_add(b, &c, 1);
    for (unsigned i = bytes; i-- > 0;) {
        c = (char)(v >> (8 * i));
        wp_buf_add(b, &c, 1);
    }
}

static void text(struct wp_buf *b, const char *s)
{
    big(b, (uint8_t)(0xA0 + strlen(s)), 0, 0);
    wp_buf_adds(b, s);
}

static void token(struct wp_buf *b, uint32_t v)
{
    if (v < 128)
        big(b, (uint8_t)v, 0, 0);
    else if (v < 65536)
        big(b, 0xCD, v, 2);
    else
        big(b, 0xCE, v, 4);
}

static void hashes(struct wp_buf *b, struct wp_rng *r, size_t n)
{
    text(b, "block_hashes");
    big(b, 0xDC, n, 2);
    for (size_t i = 0; i < n; i++)
        big(b, 0xCF, wp_rng_next(r), 8);
}

static void store(struct wp_buf *b, struct wp_rng *r, size_t blocks)
{
    big(b, 0x87, 0, 0);
    text(b, "type");
    text(b, "BlockStored");
    hashes(b, r, blocks);
    text(b, "parent_block_hash");
    big(b, 0xCF, 7, 8);
    text(b, "token_ids");
    big(b, 0xDC, blocks * BLOCK_SIZE, 2);
    for (size_t i = 0; i < blocks * BLOCK_SIZE; i++)
        token(b, (uint32_t)wp_rng_below(r, 150000));
    text(b, "block_size");
    big(b, BLOCK_SIZE, 0, 0);
    text(b, "lora_id");
    big(b, 0xC0, 0, 0);
    text(b, "medium");
    text(b, "GPU");
}

static void removal(struct wp_buf *b, struct wp_rng *r)
{
    big(b, 0x83, 0, 0);
    text(b, "type");
    text(b, "BlockRemoved");
    hashes(b, r, BLOCKS);
    text(b, "medium");
    text(b, "GPU");
}

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void measure(const char *label, struct wp_str payload)
{
    struct wp_event_scratch s = {0};
    struct wp_err err = WP_ERR_INIT;
    struct wp_event_batch b;
    struct wp_event e;
    double judge = 1e18, visit = 1e18;
    volatile uint64_t sink = 0;

    for (int k = 0; k < ROUNDS; k++) {
        double t = now_us(), open, all;

        for (int i = 0; i < CALLS; i++)
            sink += (uint64_t)wp_event_open(&b, payload, &err);
        open = now_us();
        for (int i = 0; i < CALLS; i++) {
            struct wp_event_batch copy = b;

            while (wp_event_next(&copy, &s, &e) > 0)
                sink += e.n;
        }
        all = now_us();
        judge = open - t < judge ? open - t : judge;
        visit = all - open < visit ? all - open : visit;
    }
    (void)sink;
    wp_event_scratch_fini(&s);
    printf("%-28s %7zu bytes  judge %6.1f us  visit %6.1f us  %6.2f million blocks/s\n", label,
           payload.n, judge / CALLS, visit / CALLS, (double)BLOCKS * CALLS / (judge + visit));
}

int main(void)
{
    struct wp_rng r = {.state = 1};

    for (int form = 0; form < 3; form++) {
        struct wp_buf b = {0};

        big(&b, 0x92, 0, 0);
        big(&b, 0xCB, 0, 8);
        big(&b, 0xDC, form == 1 ? BLOCKS : 1, 2);
        for (int i = 0; i < (form == 1 ? BLOCKS : 1); i++)
            if (form == 2)
                removal(&b, &r);
            else
                store(&b, &r, form == 1 ? 1 : BLOCKS);
        measure(form == 0   ? "one store of 600 blocks"
                : form == 1 ? "600 stores of one block"
                            : "one removal of 600",
                wp_buf_str(&b));
        wp_buf_fini(&b);
    }
    return 0;
}
