// A job's output in numbered files `log.1`, `log.2`, … of which the oldest are deleted.
//
// Called by `life`; read by `adapters.agent.logs`. Files and their folder are created at the first
// output. Lines have the format of Kubernetes' container runtimes, `<timestamp> <stream> <F or P>
// <text>`: P marks a piece without its newline. A job never waits for a full disk: output that
// cannot be written is dropped, counted, and reported in the log once there is space.

#ifndef LEASEHOLD_LOGFILE_H
#define LEASEHOLD_LOGFILE_H

#include "request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum stream { STREAM_OUT, STREAM_ERR, STREAMS };

enum {
    READ_BYTES = 64 * 1024,
    PIECE_BYTES_MAX = 16 * 1024, // a longer line is split
    PORTION_BYTES = 32 * 1024,   // written at once; also the unit of dropping
    HEAD_BYTES = 64,
};

// An incomplete line, followed by space for the next read.
struct begun {
    size_t length;
    char bytes[PIECE_BYTES_MAX + READ_BYTES];
};

// Lines that are written together.
struct portion {
    size_t size;
    int64_t lines;
    bool tells; // includes the report of dropped bytes
    char bytes[PORTION_BYTES + HEAD_BYTES + PIECE_BYTES_MAX];
};

struct logfile {
    int above;        // folder to which `path` is relative
    const char *path; // folder of the files
    int folder, fd;
    int64_t bytes_max, files_max; // of one file; number of files kept
    int64_t number, size;         // of the current file
    int64_t dropped_bytes, dropped_lines;
    int64_t untold; // dropped bytes not reported yet
    enum stream latest;
    struct begun begun[STREAMS];
    struct portion portion;
};

// Creates nothing yet.
void log_open(struct logfile *log, int above, const struct request *request);

// Returns where to put up to READ_BYTES of a stream's output before `log_add`.
char *log_room(struct logfile *log, enum stream stream);

// Writes all complete lines; keeps the rest until it is completed or `log_flush`.
void log_add(struct logfile *log, enum stream stream, size_t count);

// Writes incomplete lines.
void log_flush(struct logfile *log);

// Returns whether a line is incomplete.
bool log_has_begun(const struct logfile *log);

void log_close(struct logfile *log);

#endif
