// The child that becomes the job: from fork to exec, with nothing left of the shim in it.
//
// Called by `life` right after it forked, and never returns. It waits for the shim's word before
// anything of the user's happens; what goes wrong on the way is written to the `trouble` pipe,
// which exec closes.

#ifndef LEASEHOLD_JOB_H
#define LEASEHOLD_JOB_H

#include "request.h"

#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/types.h>

enum stage { STAGE_PREPARE, STAGE_USER, STAGE_FOLDER, STAGE_EXEC };

// What is written to the pipe: how far it came, and why no further (`reason_of`).
struct trouble {
    int32_t stage, number;
};

struct job_fds {
    int out, err, barrier, trouble;
};

extern const char GO;

noreturn void job_become(const struct request *request, const struct job_fds *fds, pid_t parent);

#endif
