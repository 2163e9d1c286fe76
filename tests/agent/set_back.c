// A wall clock that is an hour behind from its second reading on. `test_shim.py` compiles the shim
// with it, by the name that all readings of a clock have there.

#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_set_back(clockid_t clock, struct timespec *now)
{
    static bool is_set_back;
    int answer = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME) {
        now->tv_sec -= is_set_back ? 3600 : 0;
        is_set_back = true;
    }
    return answer;
}
