/* SPDX-License-Identifier: Apache-2.0 */
#include "router/machine.h"

#include "base/crash.h"
#include "base/log.h"

#include <malloc.h>
#include <sys/resource.h>

void wp_machine_setup(void)
{
    struct rlimit l;

    wp_crash_setup();

    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < l.rlim_max) {
        l.rlim_cur = l.rlim_max;
        setrlimit(RLIMIT_NOFILE, &l);
    }
#ifdef __GLIBC__
    /*
     * Left alone, malloc takes the first large body that is freed as a sign to keep such sizes on
     * its heap, where a small neighbour pins them for good.  Sizes from here on always go back to
     * the system.
     */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

uint64_t wp_machine_connections(uint64_t wanted, size_t gates)
{
    enum { ADMIN_MAX = 16, A_GATE = 8, OTHERS = 8, LEAST = 4, FEW = 1000 };
    struct rlimit l;
    uint64_t reserve = ADMIN_MAX + OTHERS + gates * A_GATE, room;

    if (getrlimit(RLIMIT_NOFILE, &l) < 0 || l.rlim_cur == RLIM_INFINITY)
        return wanted;
    room = l.rlim_cur > reserve + 2 * LEAST ? (l.rlim_cur - reserve) / 2 : LEAST;
    if (wanted && wanted <= room)
        return wanted;
    if (room >= FEW && (!wanted || room >= wanted / 10 * 9))
        return room; /* too near to what is wanted to be worth a line */
    wp_log(room < FEW ? WP_WARN : WP_INFO, "serve",
           "descriptors=%llu allow for connections=%llu of %llu; raise the limit (ulimit -n, "
           "LimitNOFILE)",
           (unsigned long long)l.rlim_cur, (unsigned long long)room, (unsigned long long)wanted);
    return room;
}
