// The child that becomes the job: from fork to exec, without leaving anything of the shim in it.
//
// Called by `life` right after the fork; never returns. It waits for the shim's permission before
// it does anything for the user. Errors are written to the `trouble` pipe, which exec closes.

#ifndef LEASEHOLD_JOB_H
#define LEASEHOLD_JOB_H

#include "request.h"

#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/types.h>

enum stage { STAGE_PREPARE, STAGE_USER, STAGE_FOLDER, STAGE_EXEC };

// Written to the pipe: the failed stage, and why it failed (`reason_of`).
struct trouble {
    int32_t stage, number;
};

struct job_fds {
    int out, err, barrier, trouble;
};

extern const char GO;

noreturn void job_become(const struct request *request, const struct job_fds *fds, pid_t parent);

#endif
