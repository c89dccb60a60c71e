/* SPDX-License-Identifier: Apache-2.0 */
/* The models of the fleet: names and aliases, what serves them, and how many bytes their tokens have. */
#include "router/fleet_inner.h"

enum { RATIOS_MAX = 256 };

/* The configured name that an alias stands for, or the name itself. */
static struct wp_str unalias(const struct wp_config *conf, struct wp_str name)
{
    for (size_t i = 0; i < conf->n_models; i++)
        for (char **a = conf->models[i].aliases; *a; a++)
            if (wp_str_is(name, *a))
                return wp_str_of(conf->models[i].name);
    return name;
}

static const struct wp_config_model *configured(const struct wp_config *conf, struct wp_str name)
{
    for (size_t i = 0; i < conf->n_models; i++)
        if (wp_str_is(name, conf->models[i].name))
            return &conf->models[i];
    return NULL;
}

/* The one base model that the fleet serves; absent when there are several or none. */
static struct wp_str only_model(struct wp_fleet *f)
{
    struct wp_str one = {0};

    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);

        for (size_t i = 0; i < w->n_models; i++) {
            if (w->model[i].parent)
                continue;
            if (one.p && !wp_str_is(one, w->model[i].name))
                return (struct wp_str){0};
            one = wp_str_of(w->model[i].name);
        }
    }
    return one;
}

static void add_size(struct wp_model_info *info, uint32_t size)
{
    for (size_t i = 0; i < info->n_sizes; i++)
        if (info->block_size[i] == size)
            return;
    if (info->n_sizes < WP_BLOCK_SIZES_MAX)
        info->block_size[info->n_sizes++] = size;
}

static double ratio_of(struct wp_fleet *f, struct wp_str model)
{
    WP_LIST_EACH(&f->ratios, at)
    {
        struct wp_model_ratio *r = WP_CONTAINER(at, struct wp_model_ratio, link);

        if (wp_str_is(model, r->name))
            return r->bytes_per_token;
    }
    return 4; /* English text in today's vocabularies, until usage says better */
}

static void look_for(struct wp_fleet *f, struct wp_str name, struct wp_model_info *info, const char **parent)
{
    bool any = false;

    WP_LIST_EACH(&f->workers, at)
    {
        struct wp_worker *w = WP_CONTAINER(at, struct wp_worker, link);
        const struct wp_engine_model *m = wp_worker_serves(w, name);

        any |= w->n_models > 0;
        if (!m)
            continue;
        info->known = true;
        *parent = m->parent ? m->parent : *parent;
        add_size(info, w->block_size);
        if (m->max_len > info->max_len)
            info->max_len = m->max_len;
    }
    /* Nobody has said what it serves yet: 503, not 404. */
    info->listed = info->known || configured(f->conf, name) != NULL;
    info->known = info->listed || !any;
}

int wp_fleet_model(struct wp_fleet *f, struct wp_str name, struct wp_arena *arena, struct wp_model_info *out)
{
    const struct wp_config_model *m;
    const char *parent = NULL;
    char *copy;

    *out = (struct wp_model_info){0};
    pthread_mutex_lock(&f->lock);
    name = name.p ? unalias(f->conf, name) : only_model(f);
    if (!name.p) {
        pthread_mutex_unlock(&f->lock);
        return 0;
    }
    look_for(f, name, out, &parent);
    out->bytes_per_token = ratio_of(f, parent ? wp_str_of(parent) : name); /* an adapter has its base's tokenizer */
    copy = wp_arena_strndup(arena, name.p, name.n);
    out->name = (struct wp_str){copy, name.n};
    out->base = out->name;
    if (copy && parent) {
        out->lora = out->name;
        copy = wp_arena_strndup(arena, parent, strlen(parent));
        out->base = (struct wp_str){copy, strlen(parent)};
    }
    m = copy ? configured(f->conf, out->base) : NULL;
    out->confirm = m ? m->confirm : WP_CONFIRM_PASSIVE;
    pthread_mutex_unlock(&f->lock);
    return copy ? 0 : WP_ENOMEM;
}

void wp_fleet_learn_tokens(struct wp_fleet *f, struct wp_str base, uint64_t bytes, uint64_t tokens)
{
    struct wp_model_ratio *found = NULL;
    double seen = tokens ? (double)bytes / (double)tokens : 0;

    if (tokens < 16 || seen < 0.1 || seen > 100)
        return; /* too short to tell, or nonsense */
    pthread_mutex_lock(&f->lock);
    WP_LIST_EACH(&f->ratios, at)
    if (wp_str_is(base, WP_CONTAINER(at, struct wp_model_ratio, link)->name))
        found = WP_CONTAINER(at, struct wp_model_ratio, link);
    if (!found && f->n_ratios < RATIOS_MAX) {
        found = wp_calloc(1, sizeof *found);
        if (found && !(found->name = wp_strndup(base.p, base.n))) {
            wp_free(found);
            found = NULL;
        }
        if (found) {
            found->bytes_per_token = seen;
            wp_list_push(&f->ratios, &found->link);
            f->n_ratios++;
        }
    }
    if (found)
        found->bytes_per_token += 0.05 * (seen - found->bytes_per_token);
    pthread_mutex_unlock(&f->lock);
}
