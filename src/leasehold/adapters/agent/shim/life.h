// The life of one pod: starts its job once, keeps its output, ends all of it, records its end.
//
// Runs in one process per pod, forked by `zygote`, in a session of its own, so that it survives a
// restart of the control plane. It handles one signal, SIGTERM, which means "read the stop record".
// It reports by records in the pod's journal; the pipe to the agent only says that there is
// something to read.
//
// Times: the start is by the wall clock; later times are the start plus elapsed boot time, so that
// a job cannot end before it began when the clock is set back.

#ifndef LEASEHOLD_LIFE_H
#define LEASEHOLD_LIFE_H

#include "request.h"

#include <stdint.h>

// Called in a fresh process, which was forked after `asked_ns` since boot. Returns when the pod is
// over, or if another shim has the start.
void live(const struct request *request, int64_t asked_ns);

#endif
