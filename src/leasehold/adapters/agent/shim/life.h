// The life of one pod: start its job once, keep what it prints, end all of it, record how it ended.
//
// Runs in a process of its own per pod, forked by `zygote`, in a session of its own: the control
// plane may die and come back meanwhile. It listens to one signal, SIGTERM, which says "look at the
// stop record". It reports by records in the pod's journal; the pipe to the agent only says that
// there is something to read.
//
// Times: the start is by the wall clock; everything after it is the start plus time that passed
// since boot, so that a clock that is set back does not make a job end before it began.

#ifndef LEASEHOLD_LIFE_H
#define LEASEHOLD_LIFE_H

#include "request.h"

#include <stdint.h>

// Called in a fresh process, which was forked after `asked_ns` since boot; returns when the pod is
// over, or was never ours to start.
void live(const struct request *request, int64_t asked_ns);

#endif
