/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adapters/events/repeats.h - whether a list of numbers has one twice.
 *
 * Linear whatever the numbers are: they come from a publisher who may have chosen them against us,
 * so there is no hash table and no comparison of all with all beyond a few.
 *
 * Source: radix sort from one digit to the next, ended early.  The lowest byte is the first digit:
 * it differs most.
 */
#ifndef WP_ADAPTERS_EVENTS_REPEATS_H
#define WP_ADAPTERS_EVENTS_REPEATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many numbers of room wp_repeats() needs for a list of n. */
size_t wp_repeats_room(size_t n);

bool wp_repeats(const uint64_t v[], size_t n, uint64_t room[]);

#endif
