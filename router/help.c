/* SPDX-License-Identifier: Apache-2.0 */
#include "router/help.h"

#include "base/flags.h"
#include "router/config.h"

#include <ares.h>
#include <jansson.h>
#include <llhttp.h>
#include <uv.h>
#include <xxhash.h>
#include <yaml.h>
#include <zlib.h>

static const struct wp_command *find(const struct wp_command table[], const char *name)
{
    for (const struct wp_command *c = table; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static int unknown(const struct wp_command table[], const char *name)
{
    const char *names[32], *near;
    size_t n = 0;

    for (; n < 32 && table[n].name; n++)
        names[n] = table[n].name;
    near = wp_str_nearest(wp_str_of(name), names, n);
    if (near)
        fprintf(stderr, "warmpath: unknown command \"%.64s\"; did you mean \"%s\"?\n", name, near);
    else
        fprintf(stderr, "warmpath: unknown command \"%.64s\"; see warmpath help\n", name);
    return 2;
}

void wp_command_list(const struct wp_command table[], FILE *f)
{
    fprintf(f, "usage: warmpath COMMAND [FLAG]...\n\n");
    for (const struct wp_command *c = table; c->name; c++)
        fprintf(f, "  %-9s %s\n", c->name, c->about);
    fprintf(f, "\nwarmpath help COMMAND has its flags, warmpath help config every setting.\n");
}

int wp_command_run(const struct wp_command table[], int argc, char **argv)
{
    const struct wp_command *c;
    const char *name;

    if (argc < 2) {
        wp_command_list(table, stderr);
        return 2;
    }
    name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (strcmp(name, "--version") == 0)
        name = "version";
    c = find(table, name);
    return c ? c->run(argc - 1, argv + 1) : unknown(table, name);
}

static int help_config(void)
{
    struct wp_buf text = {0};
    int rc = wp_config_help(&text);

    if (rc < 0)
        fprintf(stderr, "warmpath help: %s\n", wp_strerror(rc));
    else
        fwrite(text.p, 1, text.n, stdout);
    wp_buf_fini(&text);
    return rc < 0;
}

int wp_help_run(const struct wp_command table[], int argc, char **argv)
{
    static char flag[] = "--help";
    const struct wp_command *c;

    if (argc > 2) {
        fprintf(stderr, "warmpath help: want one COMMAND or config\n");
        return 2;
    }
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        wp_command_list(table, stdout);
        return 0;
    }
    if (strcmp(argv[1], "config") == 0)
        return help_config();
    c = find(table, argv[1]);
    return c ? c->run(2, (char *[]){argv[1], flag, NULL}) : unknown(table, argv[1]);
}

static const struct wp_flag no_flags[] = {{NULL, NULL, NULL}};

/* 0: go on.  1: the help was asked for.  2: wrong usage, said. */
static int nothing_taken(int argc, char **argv, const char *usage, const char *about)
{
    struct wp_err err = WP_ERR_INIT;
    int rc = wp_flags(argc, argv, no_flags, NULL, NULL, NULL, &err);

    if (rc == 1)
        wp_flags_help(stdout, usage, about, no_flags);
    if (rc < 0)
        fprintf(stderr, "warmpath %s: %s\n", usage, err.text);
    return rc < 0 ? 2 : rc;
}

int wp_version_main(int argc, char **argv)
{
    int rc =
        nothing_taken(argc, argv, "version", "Prints the version, and the libraries it runs with.");

    if (rc)
        return rc == 2 ? 2 : 0;
    printf("warmpath %s\n", WP_VERSION);
    printf(
        "libuv %s, c-ares %s, llhttp %d.%d.%d, jansson %s, libyaml %s, xxHash %u.%u.%u, zlib %s\n",
        uv_version_string(), ares_version(NULL), LLHTTP_VERSION_MAJOR, LLHTTP_VERSION_MINOR,
        LLHTTP_VERSION_PATCH, jansson_version_str(), yaml_get_version_string(),
        XXH_versionNumber() / 10000, XXH_versionNumber() / 100 % 100, XXH_versionNumber() % 100,
        zlibVersion());
    return 0;
}

int wp_policies_main(int argc, char **argv)
{
    int rc = nothing_taken(argc, argv, "policies",
                           "Lists what can choose a worker; the first is the default.");

    if (rc)
        return rc == 2 ? 2 : 0;
    for (size_t i = 0; wp_policies[i]; i++)
        printf("%-16s %s\n", wp_policies[i]->name, wp_policies[i]->summary);
    return 0;
}
