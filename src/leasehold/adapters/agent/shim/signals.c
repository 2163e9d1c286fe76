#include "signals.h"

#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

// Signals of a terminal, and of failing writes: a file size limit is treated like a full disk.
static const int IGNORED[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGXFSZ};

enum { COUNT = sizeof IGNORED / sizeof IGNORED[0] };
enum { FIRST_OF_LIBC = 32, KERNELS_SET_BYTES = 8 };
static const unsigned char KERNELS_USUAL[64]; // the kernel's struct sigaction

static void set(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    sigaction(number, &action, NULL); // some cannot be changed and need not be
}

void signals_begin(void)
{
    for (int number = 1; number < NSIG; number++) {
        set(number, SIG_DFL);
    }
    // libc reserves some signals and does not change them, but the server's parent may have ignored
    // them. All zeros is the kernel's default action.
    for (int number = FIRST_OF_LIBC; number < SIGRTMIN; number++) {
        syscall(SYS_rt_sigaction, number, KERNELS_USUAL, NULL, KERNELS_SET_BYTES);
    }
    for (int index = 0; index < COUNT; index++) {
        set(IGNORED[index], SIG_IGN);
    }
    set(SIGCHLD, SIG_IGN);
}

void signals_of_shim(void)
{
    set(SIGCHLD, SIG_DFL);
}

bool signals_of_job(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int index = 0; index < COUNT; index++) {
        set(IGNORED[index], SIG_DFL);
    }
    return sigprocmask(SIG_SETMASK, &none, NULL) == 0;
}
