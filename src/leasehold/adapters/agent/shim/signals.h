// Which signals the zygote and the shims ignore, and how a job is rid of that.
//
// The zygote puts all of them in order once, whatever it was started with, so that a job has only
// to change the few that are ignored since: exec itself leaves no handler behind.

#ifndef LEASEHOLD_SIGNALS_H
#define LEASEHOLD_SIGNALS_H

#include <stdbool.h>

// For the zygote, before anything is forked. It does not hear of its children: the kernel reaps
// them.
void signals_begin(void);

// For a shim: it hears of its children.
void signals_of_shim(void);

// For a job: as they usually are, none ignored and none blocked. What was sent meanwhile ends it
// here.
bool signals_of_job(void);

#endif
