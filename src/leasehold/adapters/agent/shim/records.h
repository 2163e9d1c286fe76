// A pod's journal: the records that a shim writes and reads there, and the clocks they speak of.
//
// A journal is a file of lines that is only ever appended to. The first is the agent's request, of
// which a shim reads the seal alone; each other is a JSON object: whose the start is, stops, how it
// ended. A record is written at once, with a newline before it and one after it, so that a write
// that was cut short spoils only itself: a record counts once its object is closed. `record_claim`
// is how a pod is started at most once: appends to a file do not mix, and of all records of a start
// the first whole one has it. How a pod ended is synced before the agent is told; the rest need not
// outlive the boot. `shim/records.py` is the agent's side. Nothing here decides anything.

#ifndef LEASEHOLD_RECORDS_H
#define LEASEHOLD_RECORDS_H

#include "request.h"
#include "text.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum claim { CLAIM_FAILED = -1, CLAIM_LOST, CLAIM_WON };

struct journal {
    int folder, file; // the folder goes along when it is moved while the pod runs
    const struct request *request;
};

struct stop {
    int64_t grace_ms, due_boot_ms;
};

int64_t wall_ms(void);

// Milliseconds since boot, also while suspended; never goes back.
int64_t boot_ms(void);

// Read once, by the zygote: no process outlives its boot. False, with errno, when it cannot be.
bool boot_id_read(void);
const char *boot_id(void);

int64_t boot_ns(void);

// When a process started, in clock ticks since boot, as /proc/PID/stat has it: of one that was
// forked between these two moments. It is looked up only if a tick ended just then; -1 when it is
// gone by then.
int64_t ticks_between(int64_t before_ns, int64_t after_ns, pid_t pid);

// False, with errno, when there is none that can be written.
bool journal_open(struct journal *journal, const struct request *request);

// Whether it is the one that this request is in, and not a later one of the same pod, and nobody
// has the start.
bool journal_is_free(const struct journal *journal);

// Takes the disk space of the exit record while there is some. False, with errno, if there is none.
bool journal_keep_room(const struct journal *journal);

// Appends the record of a start. What is won in a journal that an agent has moved away is void.
enum claim record_claim(const struct journal *journal, const struct text *record);

// Tries for ever, since nothing else knows it, unless nobody could ever read it.
void record_exit(const struct journal *journal, const struct text *record);

// The last that the agent wrote; false when there is none.
bool record_stop(const struct journal *journal, struct stop *stop);

// For whoever wants to know how long it surely ran.
void journal_touch(const struct journal *journal);

#endif
