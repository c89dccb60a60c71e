/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/lib/event_json.h - a payload of KV events as JSON, in the form of
 * tests/data/spec/expected.json.
 */
#ifndef WP_TESTS_LIB_EVENT_JSON_H
#define WP_TESTS_LIB_EVENT_JSON_H

#include "base/str.h"

#include <jansson.h>

/*
 * {"ts", "dp_rank", "events", "skipped"}, or {"reject": code} when it was refused.  raw: extra_keys
 * and mm_keys as the hex of their bytes, for a reader with a MessagePack parser of its own.  NULL
 * only when out of memory, or when something cannot be true.
 */
json_t *wp_event_json(struct wp_str payload, bool raw);

#endif
