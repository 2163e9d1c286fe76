// How a pod ended, in the words of its exit record: code, signal, and why it did not run at all.
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
    NAME_QUOTED_MAX = 3000, // of a path or command in a sentence, so that the exit record has room
    SENTENCE_BYTES = 3200,
};

// Why a job did not run.
struct failure {
    bool is_one;
    int code;
    char sentence[SENTENCE_BYTES];
};

struct verdict {
    int status; // of the main process, as waitpid says it
    const struct failure *failure;
    bool is_oom, is_killed;
    int64_t started_ms, main_ended_ms, finished_ms;
    int64_t dropped_bytes, dropped_lines;
};

// Between fork and exec.
void failure_explain(struct failure *failure, const struct trouble *trouble,
                     const struct request *request);

// Its cgroup could not be set up: an errno, and the place or nothing.
void failure_unconfined(struct failure *failure, int number, const char *place);

// As a shell has it; what did not run has a code of its own.
int verdict_code(const struct verdict *verdict);

void verdict_record(const struct verdict *verdict, struct text *record);

#endif
