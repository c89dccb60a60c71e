/* SPDX-License-Identifier: Apache-2.0 */
#include "base/crash.h"

#include <execinfo.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif

#ifdef HAS_SANITIZER

void wp_crash_setup(void)
{
}

#else

enum { FRAMES = 64, STACK = 65536 };

/* Only what may be called in a signal handler; backtrace() has been called before, so that it loads nothing now. */
static void on_crash(int number)
{
    char line[] = "crash: signal 00\n";
    void *frame[FRAMES];
    int n;

    line[14] = (char)('0' + number / 10 % 10);
    line[15] = (char)('0' + number % 10);
    if (write(STDERR_FILENO, line, sizeof line - 1) >= 0) {
        n = backtrace(frame, FRAMES);
        backtrace_symbols_fd(frame, n, STDERR_FILENO);
    }
    raise(number); /* as it would have been: SA_RESETHAND */
}

void wp_crash_setup(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    static char stack[STACK]; /* for a thread whose own has overflowed: the first one's */
    const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction sa = {.sa_handler = on_crash};
    void *frame[2];

    backtrace(frame, 2);
    sigaltstack(&own, NULL);
    sigemptyset(&sa.sa_mask);
    sa.sa_flags = (int)(SA_RESETHAND | SA_ONSTACK);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &sa, NULL);
}

#endif
