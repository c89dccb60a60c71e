/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index/index.h - which holders hold which prefix blocks, in which tier.
 *
 * A *space* is (model, block size, hash domain, kind): hashes of different spaces never meet.  A *holder* is a small
 * number: one worker rank, one node, or one pool that many nodes reach.  A worker rank may have a node: what the node
 * holds counts as held by the rank.  A *location* is {holder, tier}; one block's entry holds all its locations.
 *
 * KV events name blocks by *engine hashes*, opaque and per publisher; stores bring the tokens' local hashes as well.
 * Copies are counted per (holder, group, engine hash, tier): a store adds one, a removal takes one off, never below 0;
 * held while above 0.  Only the first and the last copy change what overlap() sees.
 * A store whose parent is unknown floats: it is kept, bounded, and joins the tree when graft() learns its place, or when
 * the holder stores that parent.
 *
 * What the words above leave open, decided: an engine hash names one block of its holder, space and group.  Stored again
 * at another place, the last word wins: the hash leaves its old place, copies and all, and has one copy at the new one;
 * what hung below the old place stays there.  A store that would hang a block below itself is refused.  Any main group
 * that holds a block will do.  Doubt is a location's: a store sets right the tier that it names; a block counts as
 * doubtful when the tier it is counted in is.  A store of what is in doubt there counts anew: the copies of before, whoever's name they have, may be
 * the ones that were lost, and are void (a copy too few for a while rather than one too many).  A store may say that a block's identity is *vague* (other content could have
 * the same): such a block is in doubt whoever confirms it, for as long as that holder holds it.
 *
 * Groups that are not main may restrict: wp_index_window() says which and how.  Their blocks have no places of their own: an
 * engine gives a block one hash in all its groups, so what a restricting group holds is a count per hash, and the main
 * group's name for a block places it, whichever of the two was stored first.  What it held when all was put in doubt counts anew
 * when it is stored again, as above.
 *
 * Exact: equal to the oracle of tests/lib/oracle.h after any sequence of calls.  It may under-claim for a moment, never over-claim.
 * Threads: overlap() takes no lock and waits for nobody, whoever changes the index meanwhile, even a writer that was stopped in the
 * middle: of each block it says what the holder had at some moment of the call.  It does not allocate.  All other calls take their turn at one mutex; whoever
 * changes the index publishes run by run (up to 128 blocks), so a long event becomes visible in parts.
 * How it is built: index/inside.h.  Layout and figures: docs/bench-index.md.
 */
#ifndef WP_INDEX_INDEX_H
#define WP_INDEX_INDEX_H

#include "base/err.h"
#include "base/str.h"

struct wp_index;

enum { WP_TIER_MAX = 8 }; /* 0 is the fastest: gpu cpu disk remote, then what the configuration describes */
enum { WP_TIER_GPU, WP_TIER_CPU, WP_TIER_DISK, WP_TIER_REMOTE };
#define WP_NO_HOLDER 0xFFFFFFFFu
enum wp_holder_kind { WP_HOLDER_RANK, WP_HOLDER_NODE, WP_HOLDER_POOL };
enum wp_space_kind { WP_SPACE_TOKENS, WP_SPACE_BYTES, WP_SPACE_BIGRAM };

struct wp_index_conf {
    uint64_t cap_bytes;      /* never more memory than this: tails of the holder with the most make room; 0: no cap */
    uint32_t floating_max;   /* floating blocks kept per holder, the oldest tails make room; 0: 65536 */
    uint64_t secret;         /* mixed into bucket choice */
};

int wp_index_create(struct wp_index **out, const struct wp_index_conf *conf, struct wp_err *err);
void wp_index_destroy(struct wp_index *ix);

/* The space's number, made when new.  Strings are copied.  Errors: WP_ENOMEM, WP_ETOOBIG (65,535 spaces). */
int wp_index_space(struct wp_index *ix, struct wp_str model, uint32_t block_size, struct wp_str domain,
                   enum wp_space_kind kind, uint32_t *space, struct wp_err *err);

/*
 * A new holder.  Numbers are small and are given again after a drop, with a new incarnation: what the old one held is never the new one's.
 * node: of a rank, the holder of its node, or WP_NO_HOLDER.  Errors: WP_ENOMEM, WP_EINVAL (node is no node).
 */
int wp_index_holder(struct wp_index *ix, enum wp_holder_kind kind, uint32_t node, uint32_t *holder, struct wp_err *err);
/*
 * How many blocks the holder can have, over all its tiers, as far as that is known: room for their hashes is made with its first event
 * instead of bit by bit.  No limit; 0: not known.
 */
void wp_index_expect(struct wp_index *ix, uint32_t holder, size_t blocks);
void wp_index_drop(struct wp_index *ix, uint32_t holder);  /* gone at once; its number is free */
void wp_index_clear(struct wp_index *ix, uint32_t holder); /* all it holds is gone at once; it stays */
void wp_index_doubt(struct wp_index *ix, uint32_t holder); /* all it holds counts as doubtful until stored again */
size_t wp_index_holders(const struct wp_index *ix);        /* one more than the highest number in use */

enum { WP_GROUPS = 0x8000 };
enum { WP_WINDOWS_MAX = 16 };          /* groups of one holder that restrict */
enum { WP_WINDOW_TRIAL = 16 };         /* see below */
#define WP_WINDOW_ALL 0xFFFFFFFFu      /* blocks: the whole prefix, as for a second main group */

/*
 * A group of the holder's restricts what its main group `main` has: of a prompt, the holder can use k blocks only when it
 * has the blocks k - blocks .. k - 1 (from 0 on when k is smaller) in that group too, in any tier.  The largest such k
 * counts.  Of a sliding window of W tokens, blocks is (W - 1) / block size, rounded up.  Said again it changes, and 0 ends it: what
 * the group held is forgotten.  A group of which WP_WINDOW_TRIAL hashes were stored, none of them one that the main group
 * had at the time, is named otherwise: its places cannot be told, and it restricts nothing until one is.
 * Errors: WP_EINVAL (no such holder, no such group, the same group), WP_ETOOBIG.
 * Source: vLLM's own search, as measured (spec: "what a window costs").
 */
int wp_index_window(struct wp_index *ix, uint32_t holder, uint16_t group, uint16_t main, uint32_t blocks);

enum wp_kv_kind { WP_KV_STORED, WP_KV_REMOVED, WP_KV_CLEARED };

struct wp_kv_event {
    enum wp_kv_kind kind;
    uint32_t holder, space;
    uint16_t group; /* below WP_GROUPS */
    bool main_group; /* of a store; other groups are ignored unless they restrict.  One that restricts is never main */
    uint8_t tier;    /* below WP_TIER_MAX */
    bool has_parent; /* false: the first block of a prompt.  0 is a hash like any other */
    uint64_t parent;
    size_t n;
    const uint64_t *engine; /* n engine hashes, first block first */
    const uint64_t *local;  /* n local hashes; NULL in a store: a tier of blocks that are known already */
    const bool *vague;      /* of a store with local hashes: n, which of the blocks are vague; NULL: none */
};

struct wp_kv_result {
    size_t applied;  /* memberships that changed or were counted; of a clear: blocks that were held */
    size_t unknown;  /* removals and tier-only stores of hashes that are not known */
    size_t floating; /* of the applied: blocks that float */
    size_t ignored;  /* neither of a main group nor of one that restricts */
    size_t refused;  /* over a cap, out of memory, below itself, no such holder, space or tier, 65,535 copies already */
};

/* Applies one event, whole.  Never fails beyond what the result (NULL: not wanted) counts. */
void wp_index_apply(struct wp_index *ix, const struct wp_kv_event *ev, struct wp_kv_result *res);

/*
 * The same for n events, in order: res[n], or NULL.  What the next ones will touch is called for while one is applied, which
 * makes short events two or three times as fast.  Others may have their turn between any two events.
 */
void wp_index_apply_all(struct wp_index *ix, const struct wp_kv_event ev[], size_t n, struct wp_kv_result res[]);

/*
 * The router dispatched the prompt local[n] to holder: floating chains of that holder whose local hashes line up with
 * blocks k.. of the prompt are hung there, and the prompt's blocks before them count as held too (same tier, doubtful).  Returns
 * how many blocks stopped floating.
 * A chain goes where most of its held blocks lie on the prompt; two such places, or none, and it floats on.  What was not
 * stored but counts as held ends with a store of it, a removal by the hash that the chain hung from, or with the last
 * block that the holder has below it: engines evict tails first.
 */
size_t wp_index_graft(struct wp_index *ix, uint32_t holder, uint32_t space, const uint64_t local[], size_t n);

/*
 * The engine's own word (cached_tokens of an answer): of the prompt local[n], all blocks that it could have used, it had the first `blocks` and
 * not the next.  Those that the holder has are sure from now on, each in its fastest tier, also what graft() concluded; vague ones
 * stay in doubt.  From the next on, what is in doubt is dropped, unless groups restrict the holder: then a window may have ended the run.
 * What was not said must not be passed as 0.  Returns how many blocks changed.
 */
size_t wp_index_confirm(struct wp_index *ix, uint32_t holder, uint32_t space, const uint64_t local[], size_t n,
                        size_t blocks);

/* The answer of a look-up: rows of holders that have the same answer, longest first; holders in no row have 0. */
struct wp_overlap_row {
    uint32_t blocks;              /* leading blocks that the holder can use, any interleaving of tiers */
    uint32_t tier[WP_TIER_MAX];   /* how many of them lie where: each counted once, in its fastest tier */
    uint32_t doubtful;            /* how many of them are in doubt */
    uint64_t *set;                /* bit h: holder h */
};
struct wp_overlap {
    size_t n;         /* rows in use */
    size_t words;     /* 64-bit words of a set */
    size_t cap;       /* rows there is room for */
    struct wp_overlap_row *row;
    uint64_t *bits; /* the sets' memory */
    struct wp_overlap_window *window; /* the walk's own, for holders with groups that restrict */
    struct wp_overlap_row *spare;     /* rows on their way to their places */
    uint32_t *before;
    bool deep; /* the last answer was longer than a segment: the next one is expected to be */
};
/* Room for the answers of an index with up to that many holders.  Errors: WP_ENOMEM. */
int wp_overlap_init(struct wp_overlap *o, size_t holders);
void wp_overlap_fini(struct wp_overlap *o);
const struct wp_overlap_row *wp_overlap_of(const struct wp_overlap *o, uint32_t holder); /* NULL: nothing */

/*
 * Leading blocks of the prompt local[n] that each holder has.  n: the blocks that an engine can use (wp_usable_blocks());
 * where groups restrict, an answer to more blocks cannot be cut to fewer.  Never fails, blocks or allocates.  Holders beyond o's room are left out.
 * Returns the largest row's blocks.  Cost: the walk ends at the first block that nobody holds.
 * Source: longest prefix match (RadixAttention, arXiv:2312.07104) over hash chains.
 */
size_t wp_index_overlap(const struct wp_index *ix, uint32_t space, const uint64_t local[], size_t n,
                        struct wp_overlap *o);

/* Where the first n blocks of a prompt lie, for one holder: for answers to people, beside the walk that decisions take. */
struct wp_reach {
    uint32_t upto[WP_TIER_MAX]; /* leading blocks that lie in that tier or a faster one; never falls with the tier */
    uint32_t on[WP_TIER_MAX];   /* blocks of the leading ones that lie in that tier, whatever other tiers have them */
};
/* n: what wp_index_overlap() said for the holder; groups that restrict are not asked again.  Cost: O(n). */
void wp_index_reach(const struct wp_index *ix, uint32_t holder, uint32_t space, const uint64_t local[], size_t n,
                    struct wp_reach *r);

/*
 * From block hashes (index/identity.h) back to local ones: local[i] of the leading chain[n] that the index knows, whoever has them.  Returns
 * how many.  Cost: all children of each block on the way are hashed, so ask it for people, not for decisions.
 */
size_t wp_index_unchain(const struct wp_index *ix, uint32_t space, const uint64_t chain[], size_t n, uint64_t local[]);

/*
 * What leaves, as its events tell: fn is told of blocks that a holder had and removed from the last of its tiers, under the index's lock,
 * so it must be quick and must not call the index.  It is a sample, one block in 512 tokens: of a prompt's blocks 0, 1, ... those whose number
 * is stride - 1 modulo wp_index_stride(); a power of two.  Clears, drops and what goes for want of room in the index do not count.  fn NULL: nobody watches.
 */
struct wp_index_left {
    uint32_t space, at; /* at: blocks of the prompt before it */
    uint64_t local;     /* its local hash */
    bool last;          /* nobody has it any more */
};
typedef void (*wp_index_left_fn)(void *arg, const struct wp_index_left *l);
void wp_index_watch(struct wp_index *ix, wp_index_left_fn fn, void *arg);
uint32_t wp_index_stride(uint32_t block_size);

struct wp_index_stats {
    uint64_t blocks;    /* that somebody holds; like the next two, without what floats */
    uint64_t locations; /* (block, holder, tier) */
    uint64_t doubtful;  /* of the locations */
    uint64_t floating;  /* blocks, of each holder */
    uint64_t bytes;     /* taken from the allocator */
    uint64_t cap_bytes, evicted;
};
void wp_index_stats(const struct wp_index *ix, struct wp_index_stats *s);
/* The holder's locations by tier, and how many of them are in doubt. */
void wp_index_holder_stats(const struct wp_index *ix, uint32_t holder, uint64_t tier_blocks[WP_TIER_MAX], uint64_t *doubtful);

uint64_t wp_index_holder_floating(const struct wp_index *ix, uint32_t holder); /* its blocks that float */

/*
 * What a holder has, in figures that an engine's own list of blocks can be held against.  A *name* is (engine hash, group) and is in a tier while it has
 * copies there; names of groups that restrict count too.  sum is the wrapping sum of wp_index_mix() over the names of a tier.  What floats is counted apart,
 * since the engine has it as well: its names and the others are never the same.  What graft() concluded has no name, and is in neither.
 */
struct wp_index_digest {
    uint64_t names[WP_TIER_MAX], sum[WP_TIER_MAX];
    uint64_t floating[WP_TIER_MAX], floating_sum[WP_TIER_MAX];
};
/* Public, so that anybody can reckon a digest: the output after group + 1 steps of SplitMix64 (Steele et al., OOPSLA 2014) from the engine hash. */
static inline uint64_t wp_index_mix(uint64_t engine, uint16_t group)
{
    uint64_t x = engine + 0x9E3779B97F4A7C15u * (group + 1ull);

    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}
/* Cost: none, as it is kept; after a run out of memory, or doubt about several names of one block, a walk over the holder's names. */
void wp_index_digest(const struct wp_index *ix, uint32_t holder, struct wp_index_digest *d);

/*
 * All names of a holder, some at a time: *at is 0 at first, and again at the end, when false is returned.  fn must not call the index.
 * A name that comes, goes or moves meanwhile may be missed or met twice: the digest of what was met says whether it was.
 * Cost: some thousand names a call, under the lock.
 */
typedef void (*wp_index_name_fn)(void *arg, uint64_t engine, uint16_t group, uint8_t tiers, bool floats);
bool wp_index_names(const struct wp_index *ix, uint32_t holder, uint64_t *at, wp_index_name_fn fn, void *arg);

/* blocks: placed ones, each once; bytes: of its names, for the rest is shared by all. */
void wp_index_holder_size(const struct wp_index *ix, uint32_t holder, uint64_t *blocks, uint64_t *bytes);
/* What a space is of: the model is appended.  False: no such space, or no memory. */
bool wp_index_space_is(const struct wp_index *ix, uint32_t space, struct wp_buf *model, uint32_t *block_size, enum wp_space_kind *kind);

/*
 * The longest shared prefixes: by blocks times holders, two holders at least, and none that is only the beginning of another
 * one with as many.  A holder counts at a block that it has, whatever it has of those before; what a node has counts as the node's.
 * Walks all runs in slices of a millisecond at most, each under the lock for itself: between them the index goes on.
 */
enum { WP_TOP_MAX = 100, WP_TOP_HOLDERS = 16 };
struct wp_index_prefix {
    uint32_t space, blocks, holders;
    uint64_t chain; /* its last block's hash (index/identity.h) */
    uint32_t holder[WP_TOP_HOLDERS]; /* the first of them */
};
struct wp_index_top;
int wp_index_top_start(struct wp_index_top **out, size_t n); /* n: up to WP_TOP_MAX.  Errors: WP_ENOMEM */
bool wp_index_top_step(const struct wp_index *ix, struct wp_index_top *t); /* one slice; true: that was the last one */
size_t wp_index_top_take(const struct wp_index *ix, struct wp_index_top *t, struct wp_index_prefix out[]); /* the best n, first one first */
void wp_index_top_free(struct wp_index_top *t);

/* For tests: walks everything and says what does not agree.  True when all does. */
bool wp_index_verify(const struct wp_index *ix, struct wp_err *err);

#endif
