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

#endif
