/* SPDX-License-Identifier: Apache-2.0 */
/*
 * policies/rows.h - the settings of struct wp_policy_conf as rows of a configuration (base/conf.h), for each program that has
 * them: `serve` in its file, `replay` and `decide` on their command lines.  AT(member) is the member's offset in the reader's struct.
 */
#ifndef WP_POLICIES_ROWS_H
#define WP_POLICIES_ROWS_H

#include "base/conf.h"

#define WP_POLICY_ROW(key, kind, d, low, high, offset, about) \
    {.name = key, .type = WP_CONF_##kind, .def = d, .min = (low), .max = (high), .at = (offset), .meaning = about}
#define WP_POLICY_TABLE(key, sub) {.name = key, .type = WP_CONF_TABLE, .rows = sub}

/* clang-format off */
#define WP_PRICE_ROWS(AT) \
    WP_POLICY_ROW("room_us", DOUBLE, "20000", 0, 1e9, AT(room_us), "price of the room that a block of 512 tokens takes, in microseconds"), \
    WP_POLICY_ROW("room_cap_blocks", DOUBLE, "20", 0, 1e9, AT(room_cap_blocks), "for at most so many blocks of one request; 0 is for all"), \
    WP_POLICY_ROW("room_wait_share", DOUBLE, "0.1", 0, 100, AT(room_wait_share), "and this share of the median wait of all workers, per block"), \
    WP_POLICY_ROW("room_tuned", DOUBLE, "1", 0, 1, AT(room_tuned), "1: where the price of room tunes itself (decide, replay, serve with feeds) that is taken instead; 0: never"), \
    WP_POLICY_ROW("move_us", DOUBLE, "20000", 0, 1e9, AT(move_us), "beside the tuned price: per block newly placed, in microseconds"), \
    WP_POLICY_ROW("move_blocks", DOUBLE, "10", 0, 1e9, AT(move_blocks), "for at most so many blocks of one request"), \
    WP_POLICY_ROW("pin_us", DOUBLE, "40000", 0, 1e9, AT(pin_us), "per new block that stays pinned, at a full fastest tier and one request delayed, in microseconds"), \
    WP_POLICY_ROW("fetch", DOUBLE, "1", 0, 1, AT(fetch), "1: blocks are fetched from others where something can; 0: never"), \
    WP_POLICY_ROW("fetch_margin_us", DOUBLE, "1000", 0, 1e9, AT(fetch_margin_us), "what a fetch must gain, in microseconds"), \
    WP_POLICY_ROW("link_share", DOUBLE, "1.5", 0, 100, AT(link_share), "what of the time that a fetch keeps links busy counts as lost to others"), \
    WP_POLICY_ROW("hold_us", DOUBLE, "225000", 0, 1e12, AT(hold_us), "a request is held in the router while every worker has more predicted wait, in microseconds"), \
    WP_POLICY_ROW("hold_max", DOUBLE, "4096", 0, 1048576, AT(hold_max), "requests held at most; 0: none ever"), \
    WP_POLICY_ROW("hold_most_us", DOUBLE, "40000000", 0, 1e12, AT(hold_most_us), "the longest hold, in microseconds"), \
    WP_POLICY_ROW("age", DOUBLE, "0.1", 1e-6, 1e6, AT(age), "seconds of compute that a second of being held is worth, in the order of release"), \
    WP_POLICY_ROW("near_us", DOUBLE, "1000", 0, 1e9, AT(near_us), "prices within this of the best are a tie, in microseconds"), \
    WP_POLICY_ROW("near_share", DOUBLE, "0.01", 0, 1, AT(near_share), "and those within this share of the best"), \
    WP_POLICY_ROW("doubt", DOUBLE, "0.5", 0, 1, AT(doubt), "share of a doubtful hit that counts"), \
    WP_POLICY_ROW("calibrate", BOOL, "true", 0, 0, AT(calibrate), "learn what engines really cost from when their answers begin")
#define WP_DYNAMO_ROWS(AT) \
    WP_POLICY_ROW("prefill_weight", DOUBLE, "1", 0, 1e6, AT(dynamo_prefill_weight), "what a block to be prefilled counts beside an active block")
#define WP_LLMD_ROWS(AT) \
    WP_POLICY_ROW("prefix", DOUBLE, "2", 0, 1e6, AT(llmd_prefix), "weight of the share of the prompt that is cached"), \
    WP_POLICY_ROW("queue", DOUBLE, "1", 0, 1e6, AT(llmd_queue), "weight of the normalised queue"), \
    WP_POLICY_ROW("kv", DOUBLE, "1", 0, 1e6, AT(llmd_kv), "weight of the free share of the KV cache")
#define WP_SGLANG_ROWS(AT) \
    WP_POLICY_ROW("match", DOUBLE, "0.3", 0, 1, AT(sglang_match), "share of the prompt above which the longest match decides"), \
    WP_POLICY_ROW("balance_abs", DOUBLE, "64", 0, 1e6, AT(sglang_balance_abs), "requests between the most and the least loaded, and"), \
    WP_POLICY_ROW("balance_rel", DOUBLE, "1.5", 1, 1e6, AT(sglang_balance_rel), "their ratio, above which the least loaded is taken"), \
    WP_POLICY_ROW("blocks", DOUBLE, "32768", 1, 1048576, AT(sglang_blocks), "blocks remembered a worker")
#define WP_PREBLE_ROWS(AT) \
    WP_POLICY_ROW("window_s", DOUBLE, "180", 1, 86400, AT(preble_window_s), "how long what was sent counts as load"), \
    WP_POLICY_ROW("overload", DOUBLE, "1.3", 1, 1000, AT(preble_overload), "load against the least at which a match is given up")
#define WP_CONDUCTOR_ROWS(AT) \
    WP_POLICY_ROW("ratio", DOUBLE, "1.5", 1, 1e6, AT(conductor_ratio), "best match against the own above which blocks are transferred")

/* Those of `policy:` itself that are beside its name and tables. */
#define WP_POLICY_ROWS(AT) \
    WP_POLICY_ROW("bound", DOUBLE, "1.25", 1, 1e9, AT(bound), "prefix_hash and session: at most so many times the mean number in flight"), \
    WP_POLICY_ROW("prefix_blocks", U32, "4", 1, 4096, AT(prefix_blocks), "prefix_hash: leading blocks of the prompt that choose"), \
    WP_POLICY_ROW("seed", U64, "0", 0, 999999999999999.0, AT(seed), "where round_robin starts; of the hash of sglang"), \
    WP_POLICY_ROW("pull", BOOL, "false", 0, 0, AT(pull), "fetch all that any peer has of the prompt, whichever worker was chosen")

/* The whole of `policy:` but for its name; the tables are static ones of the reader's file. */
#define WP_POLICY_TABLES(AT) \
    static const struct wp_conf_key price_rows[] = {WP_PRICE_ROWS(AT), {0}}; \
    static const struct wp_conf_key dynamo_rows[] = {WP_DYNAMO_ROWS(AT), {0}}; \
    static const struct wp_conf_key llmd_rows[] = {WP_LLMD_ROWS(AT), {0}}; \
    static const struct wp_conf_key sglang_rows[] = {WP_SGLANG_ROWS(AT), {0}}; \
    static const struct wp_conf_key preble_rows[] = {WP_PREBLE_ROWS(AT), {0}}; \
    static const struct wp_conf_key conductor_rows[] = {WP_CONDUCTOR_ROWS(AT), {0}}
#define WP_POLICY_ALL_ROWS(AT) \
    WP_POLICY_TABLE("price", price_rows), WP_POLICY_TABLE("dynamo", dynamo_rows), WP_POLICY_TABLE("llmd", llmd_rows), \
    WP_POLICY_TABLE("sglang", sglang_rows), WP_POLICY_TABLE("preble", preble_rows), WP_POLICY_TABLE("conductor", conductor_rows), \
    WP_POLICY_ROWS(AT)
/* clang-format on */

#endif
