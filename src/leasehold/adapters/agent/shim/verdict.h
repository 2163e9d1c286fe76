// How a pod ended, as in its exit record: code, signal, and why it could not run.
//
// Called by `life`, which writes the record.

#ifndef LEASEHOLD_VERDICT_H
#define LEASEHOLD_VERDICT_H

#include "job.h"
#include "request.h"
#include "text.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    NAME_QUOTED_MAX = 3000, // limit of a name in a message, so that the record fits
    SENTENCE_BYTES = 3200,
};

// Why a job could not run.
struct failure {
    bool is_one;
    int code;
    char sentence[SENTENCE_BYTES];
};

struct verdict {
    int status; // of the main process, from waitpid
    const struct failure *failure;
    bool is_oom, is_killed;
    int64_t started_ms, main_ended_ms, finished_ms;
    int64_t dropped_bytes, dropped_lines;
};

// Explains a failure between fork and exec.
void failure_explain(struct failure *failure, const struct trouble *trouble,
                     const struct request *request);

// Explains that the cgroup could not be set up: errno, and the path or "".
void failure_unconfined(struct failure *failure, int number, const char *place);

// Returns the exit code as a shell does; a job that could not run has a code of its own.
int verdict_code(const struct verdict *verdict);

void verdict_record(const struct verdict *verdict, struct text *record);

#endif
