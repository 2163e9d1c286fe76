// Ends every process of a pod: all that ever came of its job, and what its cgroups hold.
//
// Called by `life`, whose process is the subreaper of everything it started, so that whoever loses
// its parent becomes its child: when it has no child left, none of the job's processes is left,
// whatever session or group they moved to.

#ifndef LEASEHOLD_OFFSPRING_H
#define LEASEHOLD_OFFSPRING_H

#include "request.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { PLACE_BYTES = 4096 };

// Makes the cgroups, sets their limits, and puts the process in. False, with errno, if it cannot;
// `place` is then the path that could not be made or opened, or empty.
bool offspring_confine(const struct request *request, pid_t pid, char place[PLACE_BYTES]);

// Returns when the caller has no child any more. One that cannot be killed is waited for.
void offspring_kill_all(const struct request *request);

// How many processes the kernel killed in the cgroups for want of memory.
int64_t offspring_oom_kills(const struct request *request);

void offspring_remove(const struct request *request);

#endif
