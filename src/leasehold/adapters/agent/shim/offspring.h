// Ends every process of a pod: all descendants of its job, and everything in its cgroups.
//
// Called by `life`, whose process is the subreaper of everything it started: an orphan becomes its
// child. When it has no child left, none of the job's processes is left, whatever their session or
// group.

#ifndef LEASEHOLD_OFFSPRING_H
#define LEASEHOLD_OFFSPRING_H

#include "request.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { PLACE_BYTES = 4096 };

// Creates the cgroups, sets their limits, and moves the process into them. On failure returns false
// with errno; `place` is then the path that could not be created or opened, or "".
bool offspring_confine(const struct request *request, pid_t pid, char place[PLACE_BYTES]);

// Returns when the caller has no children left. Waits for a child that cannot be killed.
void offspring_kill_all(const struct request *request);

// Returns how many processes the kernel killed in the cgroups because of memory.
int64_t offspring_oom_kills(const struct request *request);

void offspring_remove(const struct request *request);

#endif
