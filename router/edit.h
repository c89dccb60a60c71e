/* SPDX-License-Identifier: Apache-2.0 */
/*
 * router/edit.h - what we change in a request's body on its way: docs/rewrites.md is the closed
 * list.  All other bytes stay.
 */
#ifndef WP_ROUTER_EDIT_H
#define WP_ROUTER_EDIT_H

#include "router/request_inner.h"

/*
 * Makes the edits that the body needs; what it was stays in r->unedited, because what was read of
 * it points there. form: a multipart form, else JSON.  Errors: WP_ENOMEM, WP_ETOOBIG; then nothing
 * has changed.
 */
int wp_request_edit(struct wp_request *r, bool form);
/* For a further attempt: its ids are new, because the engine may still be at work on the one before.  Errors: as above. */
int wp_request_edit_again(struct wp_request *r);

#endif
