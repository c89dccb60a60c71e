/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine that does nothing, for what stands in front of it to be measured: null_engine PORT... answers every POST with a short
 * completion, or, when it carries "x-stream: N", with an event stream of N events, which with "x-hold: 1" never ends; GET as an OpenAI
 * endpoint with the model "null".
 * One thread, one listener a port.
 */
#include "base/mem.h"
#include "net/server.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static const char completion[] =
    "{\"id\":\"c\",\"object\":\"text_completion\",\"created\":1,\"model\":\"null\",\"choices\":[{\"index\":0,\"text\":\" ok\",\"logprobs\":null,"
    "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1,\"total_tokens\":2}}";
static const char event[] =
    "data: {\"id\":\"c\",\"object\":\"text_completion\",\"created\":1,\"model\":\"null\",\"choices\":[{\"index\":0,\"text\":\" ok\",\"logprobs\":null,"
    "\"finish_reason\":null}],\"usage\":null}\n\n";
static const char models[] = "{\"object\":\"list\",\"data\":[{\"id\":\"null\",\"object\":\"model\",\"max_model_len\":1000000}]}";

static void answer(struct wp_exchange *x)
{
    struct wp_field type = {WP_STR("content-type"), WP_STR("text/event-stream")};
    struct wp_str path = wp_target_path(x->head->target);
    uint64_t events = 0;

    if (wp_str_is(x->head->method, "GET")) {
        if (wp_str_is(path, "/v1/models"))
            wp_reply(x, 200, "application/json", NULL, 0, wp_str_of(models));
        else
            wp_reply(x, wp_str_is(path, "/health") ? 200 : 404, "text/plain", NULL, 0, WP_STR("ok"));
        return;
    }
    if (!wp_str_u64(wp_head_get(x->head, "x-stream"), &events) || events == 0) {
        wp_reply(x, 200, "application/json", NULL, 0, wp_str_of(completion));
        return;
    }
    wp_reply_head(x, 200, WP_STR("OK"), &type, 1, -1);
    while (events--)
        wp_reply_body(x, event, sizeof event - 1);
    if (wp_str_is(wp_head_get(x->head, "x-hold"), "1"))
        return;
    wp_reply_body(x, "data: [DONE]\n\n", 14);
    wp_reply_end(x);
}

static void on_over(struct wp_exchange *x, int rc)
{
    (void)x;
    (void)rc;
}

static const struct wp_exchange_ops ops = {.on_body_end = answer, .on_over = on_over};

static void on_request(struct wp_exchange *x, void *arg)
{
    (void)arg;
    x->ops = &ops;
    wp_exchange_resume(x);
}

int main(int argc, char **argv)
{
    struct wp_loop l;
    struct wp_err err = WP_ERR_INIT;

    signal(SIGPIPE, SIG_IGN);
    if (argc < 2 || wp_loop_init(&l, &err) < 0) {
        fprintf(stderr, "null_engine PORT... %s\n", err.text);
        return 2;
    }
    for (int i = 1; i < argc; i++) {
        struct wp_server_conf conf = {.on_request = on_request};
        struct wp_server *s;
        char address[64];

        snprintf(address, sizeof address, "127.0.0.1:%d", atoi(argv[i]));
        conf.address = wp_str_of(address);
        if (wp_server_create(&s, &l, &conf, &err) < 0) {
            fprintf(stderr, "null_engine: %s\n", err.text);
            return 1;
        }
    }
    return wp_loop_run(&l) == 0 ? 0 : 1;
}
