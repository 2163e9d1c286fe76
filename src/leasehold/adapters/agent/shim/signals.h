// The signals that zygote and shims ignore, and their reset for a job.
//
// The zygote sets all dispositions once, whatever it inherited. A job then has to reset only the
// few that are ignored; exec itself removes handlers.

#ifndef LEASEHOLD_SIGNALS_H
#define LEASEHOLD_SIGNALS_H

#include <stdbool.h>

// For the zygote, before any fork. Its children are reaped by the kernel.
void signals_begin(void);

// For a shim, which waits for its children.
void signals_of_shim(void);

// For a job: default dispositions, nothing blocked. A signal sent meanwhile takes effect here.
bool signals_of_job(void);

#endif
