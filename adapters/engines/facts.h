/* SPDX-License-Identifier: Apache-2.0 */
/* adapters/engines/facts.h - what an engine's pages say, as facts.  Pure functions over texts from outside; no I/O. */
#ifndef WP_ADAPTERS_ENGINES_FACTS_H
#define WP_ADAPTERS_ENGINES_FACTS_H

#include "adapters/adapter.h"

void wp_facts_init(struct wp_engine_facts *f); /* everything unknown */
/* GET /v1/models.  Errors: WP_EPROTO (not a model list), WP_ENOMEM; then nothing was taken. */
int wp_facts_models(struct wp_engine_facts *f, struct wp_str page);
/* GET /metrics of vLLM, running and waiting summed over ranks; what is not there stays unknown. */
void wp_facts_vllm_metrics(struct wp_engine_facts *f, struct wp_str page);
/*
 * GET /kv_event_sources of vLLM (from 0.32): an object with a source for each data-parallel rank.  host: the worker's, which stands in where the
 * engine names every interface.  An engine binds an endpoint with a star or :: and ipc, and connects to any other.
 * Errors: WP_EPROTO (no such object); then nothing was taken.
 */
int wp_facts_vllm_sources(struct wp_engine_facts *f, struct wp_str page, struct wp_str host);

#endif
