/* SPDX-License-Identifier: Apache-2.0 */
#include "router/form.h"

#include "base/err.h"
#include "base/mem.h"
#include "tests/lib/test.h"

#define PART(head, text) "--b\r\nContent-Disposition: form-data; " head "\r\n\r\n" text "\r\n"
#define FORM             "multipart/form-data; boundary=b"

static const struct {
    const char *label, *type, *body;
    int rc;
    const char *model; /* NULL: absent */
} cases[] = {
    {"one field", FORM, PART("name=\"model\"", "m") "--b--\r\n", 0, "m"},
    {"no line end at the end", FORM, PART("name=\"model\"", "m") "--b--", 0, "m"},
    {"text before and behind", FORM, "hello\r\n" PART("name=model", "m") "--b--\r\nbye --b", 0,
     "m"},
    {"behind another", FORM,
     PART("name=\"file\"; filename=\"a\"", "model") PART("name=\"model\"", "m") "--b--", 0, "m"},
    {"the last one counts", FORM, PART("name=\"model\"", "1") PART("name=\"model\"", "2") "--b--",
     0, "2"},
    {"a file of that name is no field", FORM, PART("name=\"model\"; filename=\"m\"", "x") "--b--",
     0, NULL},
    {"none", FORM, PART("name=\"prompt\"", "m") "--b--", 0, NULL},
    {"empty", FORM, PART("name=\"model\"", "") "--b--", 0, ""},
    {"another's name is in a value", FORM, PART("name=\"x\"", "name=\"model\"") "--b--", 0, NULL},
    {"a look-alike is data", FORM, PART("name=\"model\"", "m\r\n--bx\r\n--b-\r\n --b") "--b--", 0,
     "m\r\n--bx\r\n--b-\r\n --b"},
    {"blanks behind a boundary", FORM,
     "--b \t\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--b-- ", 0, "m"},
    {"field names in any case", FORM,
     "--b\r\ncontent-DISPOSITION:form-data;NAME=\"model\"\r\n\r\nm\r\n--b--", 0, "m"},
    {"other fields of the part", FORM,
     "--b\r\nX: y\r\nContent-Disposition: form-data; name=model\r\nZ: z\r\n\r\nm\r\n--b--", 0, "m"},
    {"a part without fields", FORM, "--b\r\n\r\nm\r\n--b--", 0, NULL},
    {"an empty part", FORM, "--b\r\n--b\r\n--b--", 0, NULL},
    {"a quoted boundary", "multipart/form-data; boundary=\"b\"",
     PART("name=\"model\"", "m") "--b--", 0, "m"},
    {"a boundary behind others", "Multipart/Form-Data;charset=\"a;b\" ; Boundary=b",
     PART("name=\"model\"", "m") "--b--", 0, "m"},
    {"no boundary", "multipart/form-data", PART("name=\"model\"", "m") "--b--", WP_EPROTO, NULL},
    {"an empty boundary", "multipart/form-data; boundary=", PART("name=\"model\"", "m") "--b--",
     WP_EPROTO, NULL},
    {"another boundary", "multipart/form-data; boundary=c", PART("name=\"model\"", "m") "--b--",
     WP_EPROTO, NULL},
    {"no closing boundary", FORM, PART("name=\"model\"", "m"), WP_EPROTO, NULL},
    {"a closing boundary alone", FORM, "--b--", WP_EPROTO, NULL},
    {"nothing", FORM, "", WP_EPROTO, NULL},
};

static void fields_are_found_where_they_lie(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct wp_str model, body = wp_str_of(cases[i].body);
        const char *why;
        int rc = wp_form_field(wp_str_of(cases[i].type), body, "model", &model, &why);

        EXPECT_INT(cases[i].label, cases[i].rc, rc);
        if (rc < 0) {
            EXPECT_TRUE(cases[i].label, why && why[0]);
            continue;
        }
        EXPECT_TRUE(cases[i].label, !model.p == !cases[i].model);
        if (model.p && cases[i].model)
            EXPECT_TEXT(cases[i].label, cases[i].model, model);
        EXPECT_TRUE(cases[i].label,
                    !model.p || (model.p >= body.p && model.p + model.n <= body.p + body.n));
    }
}

/* Every beginning of a body, in memory of just that size: nothing is read behind it. */
static void a_cut_body_is_never_read_past_its_end(void)
{
    const char *body = cases[9].body;
    struct wp_str model;
    const char *why;

    for (size_t n = 1; n < strlen(body); n++) {
        char *cut = wp_malloc(n);

        memcpy(cut, body, n);
        EXPECT_INT("cut", WP_EPROTO,
                   wp_form_field(WP_STR(FORM), (struct wp_str){cut, n}, "model", &model, &why));
        wp_free(cut);
    }
}

static const struct wp_test tests[] = {
    {"fields are found where they lie", fields_are_found_where_they_lie},
    {"a cut body is never read past its end", a_cut_body_is_never_read_past_its_end},
    {NULL, NULL},
};
const struct wp_suite suite_form = {"form", tests};
