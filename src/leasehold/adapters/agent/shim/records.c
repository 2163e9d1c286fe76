#include "records.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const char STARTED[] = "started.json";
static const char EXIT[] = "exit.json";
static const char STOP[] = "stop.json";

enum { EXIT_BYTES = TEXT_BYTES, NAME_BYTES = 64, START_FIELD = 20 };
enum { PAUSE_NS = 500 * 1000 * 1000 };

static char boot[64];

static int64_t ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t wall_ms(void)
{
    return ms(CLOCK_REALTIME);
}

int64_t boot_ms(void)
{
    return ms(CLOCK_BOOTTIME);
}

// The whole of a small file, ended by a NUL; -1 with errno.
static ssize_t read_small(int folder, const char *name, char *to, size_t room)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t size = read(fd, to, room - 1);
    close(fd);
    if (size >= 0) {
        to[size] = '\0';
    }
    return size;
}

bool boot_id_read(void)
{
    if (read_small(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot, sizeof boot) < 0) {
        return false;
    }
    boot[strcspn(boot, "\n")] = '\0';
    return true;
}

const char *boot_id(void)
{
    return boot;
}

int64_t ticks_of(pid_t pid)
{
    char path[NAME_BYTES], stat[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_small(AT_FDCWD, path, stat, sizeof stat) < 0) {
        return -1;
    }
    char *at = strrchr(stat, ')'); // its name may have anything in it
    if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X') {
        return -1;
    }
    for (int field = 0; field < START_FIELD && at; field++) {
        at = strchr(at + 1, ' ');
    }
    return at ? strtoll(at, NULL, 10) : -1;
}

static bool write_fully(int fd, const char *bytes, size_t size)
{
    ssize_t written = pwrite(fd, bytes, size, 0);
    if (written >= 0 && (size_t)written != size) {
        errno = ENOSPC;
    }
    return written == (ssize_t)size;
}

static bool write_spare(int folder, const char *spare, const struct text *record)
{
    int fd = openat(folder, spare, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0) {
        return false;
    }
    bool is_written = write_fully(fd, record->bytes, record->length);
    int error = errno;
    close(fd);
    if (!is_written) {
        unlinkat(folder, spare, 0);
        errno = error;
    }
    return is_written;
}

enum claim record_claim(int folder, const struct text *record)
{
    char spare[NAME_BYTES];
    snprintf(spare, sizeof spare, "%s.%d", STARTED, (int)getpid());
    if (!write_spare(folder, spare, record)) {
        return CLAIM_FAILED;
    }
    bool is_linked = linkat(folder, spare, folder, STARTED, 0) == 0;
    int error = errno;
    unlinkat(folder, spare, 0);
    if (is_linked) {
        return CLAIM_WON;
    }
    errno = error;
    return error == EEXIST ? CLAIM_LOST : CLAIM_FAILED;
}

// Each shim has its own: one that has lost the start must not touch the winner's.
static const char *exit_spare(char *name)
{
    snprintf(name, NAME_BYTES, "exit.%d", (int)getpid());
    return name;
}

static bool write_room(int folder, const struct text *record, bool is_synced)
{
    char spare[NAME_BYTES], body[EXIT_BYTES];
    memset(body, ' ', sizeof body);
    memcpy(body, record->bytes, record->length);
    int fd = openat(folder, exit_spare(spare), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return false;
    }
    bool is_written = write_fully(fd, body, sizeof body) && (!is_synced || fsync(fd) == 0);
    int error = errno;
    close(fd);
    errno = error;
    return is_written;
}

bool record_keep_room(int folder)
{
    static const struct text nothing;
    return write_room(folder, &nothing, false);
}

void record_give_room_back(int folder)
{
    char spare[NAME_BYTES];
    unlinkat(folder, exit_spare(spare), 0);
}

// Whether anybody could ever read a record there: a removed folder has no links.
static bool is_still_there(int folder)
{
    struct stat there;
    return fstat(folder, &there) == 0 && there.st_nlink > 0;
}

void record_exit(int folder, const struct text *record)
{
    char spare[NAME_BYTES];
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    exit_spare(spare);
    while (!write_room(folder, record, true) || renameat(folder, spare, folder, EXIT) != 0 ||
           fsync(folder) != 0) {
        if (!is_still_there(folder)) {
            return;
        }
        nanosleep(&pause, NULL);
    }
}

static const char *past_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

// One `"name": number` of an object. NULL when that is not what is there.
static const char *scan_member(const char *at, struct stop *stop)
{
    if (*at != '"') {
        return NULL;
    }
    const char *name = at + 1;
    size_t size = strcspn(name, "\"\\");
    if (name[size] != '"') {
        return NULL;
    }
    at = past_space(name + size + 1);
    if (*at != ':') {
        return NULL;
    }
    at = past_space(at + 1);
    if (*at < '0' || *at > '9') {
        return NULL;
    }
    errno = 0;
    char *end;
    long long number = strtoll(at, &end, 10);
    if (errno) {
        return NULL;
    }
    if (size == strlen("grace_ms") && memcmp(name, "grace_ms", size) == 0) {
        stop->grace_ms = number;
    }
    if (size == strlen("due_boot_ms") && memcmp(name, "due_boot_ms", size) == 0) {
        stop->due_boot_ms = number;
    }
    return past_space(end);
}

bool record_stop(int folder, struct stop *stop)
{
    char body[1024];
    if (read_small(folder, STOP, body, sizeof body) < 0) {
        return false;
    }
    stop->grace_ms = stop->due_boot_ms = -1;
    const char *at = past_space(body);
    if (*at != '{') {
        return false;
    }
    do {
        at = scan_member(past_space(at + 1), stop);
    } while (at && *at == ',');
    return at && *at == '}' && *past_space(at + 1) == '\0' && stop->grace_ms >= 0 &&
           stop->due_boot_ms >= 0;
}
