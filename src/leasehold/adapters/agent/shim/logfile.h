// What a job prints, kept in numbered files: `log.1`, `log.2`, … of which the oldest are dropped.
//
// Called by `life`; read by `adapters.agent.logs`. Files and their folder are made when there is
// something to write: a silent job has none. A line of a file is what the container runtimes of
// Kubernetes write, `<instant> <stream> <F or P> <text>`: P marks a piece that no newline ends. A
// job never waits for a full disk: what cannot be written is dropped, counted, and told in the
// log once there is room.

#ifndef LEASEHOLD_LOGFILE_H
#define LEASEHOLD_LOGFILE_H

#include "request.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum stream { STREAM_OUT, STREAM_ERR, STREAMS };

enum {
    READ_BYTES = 64 * 1024,
    PIECE_BYTES_MAX = 16 * 1024, // a longer line is written in pieces
    PORTION_BYTES = 32 * 1024,   // written at once; what does not fit is dropped by so much
    HEAD_BYTES = 64,
};

// A line whose end has not come, with room behind it for what is read next.
struct begun {
    size_t length;
    char bytes[PIECE_BYTES_MAX + READ_BYTES];
};

// Lines that are written together.
struct portion {
    size_t size;
    int64_t lines;
    bool tells; // of what was dropped
    char bytes[PORTION_BYTES + HEAD_BYTES + PIECE_BYTES_MAX];
};

struct logfile {
    int above;        // a folder, from which
    const char *path; // names the one of the files
    int folder, fd;
    int64_t bytes_max, files_max; // of one file, of which so many are kept
    int64_t number, size;         // of the file that is written
    int64_t dropped_bytes, dropped_lines;
    int64_t untold; // bytes dropped since the log last said so
    enum stream latest;
    struct begun begun[STREAMS];
    struct portion portion;
};

// Makes nothing yet.
void log_open(struct logfile *log, int above, const struct request *request);

// Where READ_BYTES of a stream's output may be put, for `log_add` to take.
char *log_room(struct logfile *log, enum stream stream);

// Writes all whole lines; keeps the rest until it goes on, or `log_flush`.
void log_add(struct logfile *log, enum stream stream, size_t count);

// Writes lines that have begun as they are.
void log_flush(struct logfile *log);

// Whether a line waits for its end.
bool log_has_begun(const struct logfile *log);

void log_close(struct logfile *log);

#endif
