#include "records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const char START[] = "{\"by\": "; // start of every start record
static const char SEALED[] = "\"}";      // end of the request line, after the seal

enum { NAME_BYTES = 64, START_FIELD = 20 };
enum { LINE_BYTES = 2 * TEXT_BYTES }; // no record is longer
enum { ROOM_BYTES = 8192 };           // for the exit record and earlier stop records
enum { PAUSE_NS = 500 * 1000 * 1000 };
enum { TICK_NS = 10 * 1000 * 1000 };  // a user-space clock tick on x86-64 and ARM
enum { TICK_MARGIN_NS = 100 * 1000 }; // the kernel may round differently

static char boot[64];

static int64_t ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t wall_ms(void)
{
    return ns(CLOCK_REALTIME) / 1000000;
}

int64_t boot_ms(void)
{
    return boot_ns() / 1000000;
}

int64_t boot_ns(void)
{
    return ns(CLOCK_BOOTTIME);
}

// Reads a whole small file, NUL-terminated; -1 with errno.
static ssize_t read_small(const char *path, char *to, size_t room)
{
    int fd = openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
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
    if (read_small("/proc/sys/kernel/random/boot_id", boot, sizeof boot) < 0) {
        return false;
    }
    boot[strcspn(boot, "\n")] = '\0';
    return true;
}

const char *boot_id(void)
{
    return boot;
}

// Same as in `records.py`.
static int64_t ticks_of(pid_t pid)
{
    char path[NAME_BYTES], stat[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (read_small(path, stat, sizeof stat) < 0) {
        return -1;
    }
    char *at = strrchr(stat, ')'); // the name may contain anything
    if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X') {
        return -1;
    }
    for (int field = 0; field < START_FIELD && at; field++) {
        at = strchr(at + 1, ' ');
    }
    return at ? strtoll(at, NULL, 10) : -1;
}

int64_t ticks_between(int64_t before_ns, int64_t after_ns, pid_t pid)
{
    int64_t first = (before_ns - TICK_MARGIN_NS) / TICK_NS;
    int64_t last = (after_ns + TICK_MARGIN_NS) / TICK_NS;
    return first == last ? first : ticks_of(pid);
}

bool journal_open(struct journal *journal, const struct request *request)
{
    const int folder = O_RDONLY | O_DIRECTORY | O_CLOEXEC, file = O_RDWR | O_APPEND | O_CLOEXEC;
    journal->request = request;
    journal->file = -1;
    journal->folder = openat(AT_FDCWD, request->folder, folder);
    if (journal->folder >= 0) {
        journal->file = openat(journal->folder, request->uid, file);
    }
    return journal->file >= 0;
}

// Reads the lines from the seal on.
struct lines {
    int file;
    off_t at;          // offset of the next read
    size_t begin, end; // of what was read but not returned yet
    char bytes[LINE_BYTES + 1];
};

// Returns the next line; NULL at the end. The last one may lack its newline.
static char *next_line(struct lines *lines)
{
    for (;;) {
        char *line = lines->bytes + lines->begin;
        size_t left = lines->end - lines->begin;
        char *newline = memchr(line, '\n', left);
        if (newline) {
            *newline = '\0';
            lines->begin += (size_t)(newline - line) + 1;
            return line;
        }
        memmove(lines->bytes, line, left);
        lines->begin = 0;
        lines->end = left;
        ssize_t count = pread(lines->file, lines->bytes + left, LINE_BYTES - left, lines->at);
        if (count <= 0) {
            lines->bytes[left] = '\0';
            lines->end = 0;
            return left > 0 ? lines->bytes : NULL;
        }
        lines->at += count;
        lines->end += (size_t)count;
    }
}

// Returns false if the journal's request is not the one that this shim was forked for.
static bool lines_begin(struct lines *lines, const struct journal *journal)
{
    const char *seal = journal->request->seal;
    lines->file = journal->file;
    lines->at = (off_t)journal->request->request_bytes - (off_t)(strlen(seal) + strlen(SEALED) + 1);
    lines->begin = lines->end = 0;
    const char *line = lines->at > 0 ? next_line(lines) : NULL;
    return line && strncmp(line, seal, strlen(seal)) == 0 &&
           strcmp(line + strlen(seal), SEALED) == 0;
}

// A torn record does not end with its brace, the only one in it.
static bool is_start(const char *line)
{
    size_t size = strlen(line);
    return size > strlen(START) && strncmp(line, START, strlen(START)) == 0 &&
           line[size - 1] == '}';
}

// Returns who has the start: CLAIM_WON for `mine`, CLAIM_LOST for another, CLAIM_FAILED for none.
static enum claim first_start(const struct journal *journal, const struct text *mine)
{
    struct lines lines;
    const char *line;
    if (!lines_begin(&lines, journal)) {
        return CLAIM_LOST;
    }
    while ((line = next_line(&lines))) {
        if (is_start(line)) {
            bool is_mine =
                strlen(line) == mine->length && memcmp(line, mine->bytes, mine->length) == 0;
            return is_mine ? CLAIM_WON : CLAIM_LOST;
        }
    }
    return CLAIM_FAILED;
}

bool journal_is_free(const struct journal *journal)
{
    static const struct text nobodys;
    return first_start(journal, &nobodys) == CLAIM_FAILED;
}

bool journal_keep_room(const struct journal *journal)
{
    struct stat here;
    return fstat(journal->file, &here) == 0 &&
           (fallocate(journal->file, FALLOC_FL_KEEP_SIZE, here.st_size, ROOM_BYTES) == 0 ||
            errno == EOPNOTSUPP || errno == EINVAL || errno == ENOSYS);
}

static bool append(const struct journal *journal, const struct text *record)
{
    char newline[] = "\n", *bytes = (char *)record->bytes;
    const struct iovec parts[] = {{newline, 1}, {bytes, record->length}, {newline, 1}};
    ssize_t written = writev(journal->file, parts, 3);
    if (written >= 0 && (size_t)written != record->length + 2) {
        errno = ENOSPC;
    }
    return written == (ssize_t)record->length + 2;
}

static bool is_in_place(const struct journal *journal)
{
    struct stat there, here;
    return fstatat(journal->folder, journal->request->uid, &there, 0) == 0 &&
           fstat(journal->file, &here) == 0 && there.st_dev == here.st_dev &&
           there.st_ino == here.st_ino;
}

enum claim record_claim(const struct journal *journal, const struct text *record)
{
    int error = append(journal, record) ? EIO : errno;
    enum claim found = first_start(journal, record); // also if only the newline was not written
    if (found == CLAIM_WON && !is_in_place(journal)) {
        found = CLAIM_LOST;
    }
    errno = error;
    return found;
}

static bool is_linked(const struct journal *journal)
{
    struct stat here;
    return fstat(journal->file, &here) == 0 && here.st_nlink > 0;
}

void record_exit(const struct journal *journal, const struct text *record)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    // After a failed sync the disk's content is unknown: write it again.
    while (!append(journal, record) || fsync(journal->file) != 0) {
        if (!is_linked(journal)) {
            return;
        }
        nanosleep(&pause, NULL);
    }
    while (fsync(journal->folder) != 0 && is_linked(journal)) {
        nanosleep(&pause, NULL);
    }
}

void journal_touch(const struct journal *journal)
{
    futimens(journal->file, NULL);
}

static const char *past_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

// Parses one `"name": number`; returns NULL if there is something else.
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

static bool is_stop(const char *line, struct stop *stop)
{
    stop->grace_ms = stop->due_boot_ms = -1;
    const char *at = past_space(line);
    if (*at != '{') {
        return false;
    }
    do {
        at = scan_member(past_space(at + 1), stop);
    } while (at && *at == ',');
    return at && *at == '}' && *past_space(at + 1) == '\0' && stop->grace_ms >= 0 &&
           stop->due_boot_ms >= 0;
}

bool record_stop(const struct journal *journal, struct stop *stop)
{
    struct lines lines;
    struct stop found;
    const char *line;
    bool has_one = false;
    if (!lines_begin(&lines, journal)) {
        return false;
    }
    while ((line = next_line(&lines))) {
        if (is_stop(line, &found)) {
            *stop = found;
            has_one = true;
        }
    }
    return has_one;
}
