#include "logfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *const NAMES[STREAMS] = {"stdout", "stderr"};

void log_open(struct logfile *log, int above, const struct request *request)
{
    log->above = above;
    log->path = request->logs;
    log->folder = log->fd = -1;
    log->bytes_max = request->log_bytes_max;
    log->files_max = request->log_files_max;
}

static bool open_folder(struct logfile *log)
{
    if (log->folder < 0 && (mkdirat(log->above, log->path, 0700) == 0 || errno == EEXIST)) {
        log->folder = openat(log->above, log->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    return log->folder >= 0;
}

static bool open_next(struct logfile *log)
{
    char name[32];
    if (!open_folder(log)) {
        return false;
    }
    snprintf(name, sizeof name, "log.%lld", (long long)log->number + 1);
    int fd = openat(log->folder, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        return false;
    }
    if (log->fd >= 0) {
        close(log->fd);
    }
    log->fd = fd;
    log->size = 0;
    log->number++;
    int64_t oldest = log->number - log->files_max;
    if (oldest > 0) {
        snprintf(name, sizeof name, "log.%lld", (long long)oldest);
        unlinkat(log->folder, name, 0);
    }
    return true;
}

static bool is_written(struct logfile *log)
{
    if ((log->fd < 0 || log->size >= log->bytes_max) && !open_next(log)) {
        return false;
    }
    ssize_t count = write(log->fd, log->portion.bytes, log->portion.size);
    if (count == (ssize_t)log->portion.size) {
        return true;
    }
    if (count > 0 && ftruncate(log->fd, log->size) != 0) {
        log->size += count; // a partial line remains
    }
    return false;
}

static void put(struct logfile *log)
{
    struct portion *portion = &log->portion;
    if (portion->lines == 0) {
        return;
    }
    if (is_written(log)) {
        log->size += (int64_t)portion->size;
        log->untold = portion->tells ? 0 : log->untold;
    } else {
        log->dropped_lines += portion->lines;
        log->dropped_bytes += (int64_t)portion->size;
        log->untold += (int64_t)portion->size;
    }
    portion->size = 0;
    portion->lines = 0;
    portion->tells = false;
}

static size_t make_head(char *head, enum stream stream)
{
    static time_t second = -1; // second of the last stamp
    static char stamp[32];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (now.tv_sec != second) {
        struct tm date;
        gmtime_r(&now.tv_sec, &date);
        strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &date);
        second = now.tv_sec;
    }
    return (size_t)snprintf(head, HEAD_BYTES, "%s.%09ldZ %s ", stamp, now.tv_nsec, NAMES[stream]);
}

// Collects lines into portions, so that a file hardly exceeds its limit and writes are large.
static void add_piece(struct logfile *log, const char *head, char flag, const char *text,
                      size_t size)
{
    struct portion *portion = &log->portion;
    size_t head_size = strlen(head);
    char *at = portion->bytes + portion->size;
    memcpy(at, head, head_size);
    at += head_size;
    *at++ = flag;
    *at++ = ' ';
    memcpy(at, text, size);
    at[size] = '\n';
    portion->size = (size_t)(at + size + 1 - portion->bytes);
    portion->lines++;
    if (portion->size >= PORTION_BYTES || log->size + (int64_t)portion->size >= log->bytes_max) {
        put(log);
    }
}

static void add_line(struct logfile *log, const char *head, char last, const char *text,
                     size_t size)
{
    while (size > PIECE_BYTES_MAX) {
        add_piece(log, head, 'P', text, PIECE_BYTES_MAX);
        text += PIECE_BYTES_MAX;
        size -= PIECE_BYTES_MAX;
    }
    add_piece(log, head, last, text, size);
}

static void tell_dropped(struct logfile *log)
{
    if (log->untold == 0) {
        return;
    }
    char head[HEAD_BYTES], said[128];
    make_head(head, STREAM_ERR);
    snprintf(said, sizeof said, "leasehold: %lld bytes of output were dropped, the disk was full",
             (long long)log->untold);
    log->portion.tells = true;
    add_line(log, head, 'F', said, strlen(said));
}

char *log_room(struct logfile *log, enum stream stream)
{
    return log->begun[stream].bytes + log->begun[stream].length;
}

void log_add(struct logfile *log, enum stream stream, size_t count)
{
    struct begun *begun = &log->begun[stream];
    char head[HEAD_BYTES];
    const char *start = begun->bytes, *end = begun->bytes + begun->length + count;
    const char *unseen = begun->bytes + begun->length; // the part before has no newline
    make_head(head, stream);
    tell_dropped(log);
    for (;;) {
        const char *newline = memchr(unseen, '\n', (size_t)(end - unseen));
        if (!newline) {
            break;
        }
        add_line(log, head, 'F', start, (size_t)(newline - start));
        start = unseen = newline + 1;
    }
    size_t rest = (size_t)(end - start);
    if (rest > PIECE_BYTES_MAX) {
        size_t cut = rest - rest % PIECE_BYTES_MAX;
        add_line(log, head, 'P', start, cut);
        start += cut;
        rest -= cut;
    }
    memmove(begun->bytes, start, rest);
    begun->length = rest;
    log->latest = stream;
    put(log);
}

static void flush(struct logfile *log, enum stream stream)
{
    struct begun *begun = &log->begun[stream];
    char head[HEAD_BYTES];
    if (begun->length == 0) {
        return;
    }
    make_head(head, stream);
    tell_dropped(log);
    add_line(log, head, 'P', begun->bytes, begun->length);
    begun->length = 0;
    put(log);
}

void log_flush(struct logfile *log)
{
    flush(log, log->latest == STREAM_OUT ? STREAM_ERR : STREAM_OUT);
    flush(log, log->latest);
}

bool log_has_begun(const struct logfile *log)
{
    return log->begun[STREAM_OUT].length > 0 || log->begun[STREAM_ERR].length > 0;
}

void log_close(struct logfile *log)
{
    log_flush(log);
    tell_dropped(log);
    put(log);
    if (log->fd >= 0) {
        close(log->fd);
        log->fd = -1;
    }
}
