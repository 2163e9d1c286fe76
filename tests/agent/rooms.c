// Other answers to who asks for room on a disk. `test_journals.py` compiles the shim with one of
// them, by the name that `fallocate` has there.

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

// Holds a shim back between its first look at the journal and its claim, until the test lets all
// that have it open go on: by a right that nobody needs.
int room_held_back(int file, int mode, off_t begin, off_t size)
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    struct stat found;
    while (fstat(file, &found) == 0 && !(found.st_mode & S_IXUSR)) {
        nanosleep(&pause, NULL);
    }
    return (int)syscall(SYS_fallocate, file, mode, begin, size);
}

static int fail(int number)
{
    errno = number;
    return -1;
}

// Of a file system that cannot keep any.
int room_unknown(int file, int mode, off_t begin, off_t size)
{
    (void)file, (void)mode, (void)begin, (void)size;
    return fail(EOPNOTSUPP);
}

// Of a disk that has none.
int room_gone(int file, int mode, off_t begin, off_t size)
{
    (void)file, (void)mode, (void)begin, (void)size;
    return fail(ENOSPC);
}
