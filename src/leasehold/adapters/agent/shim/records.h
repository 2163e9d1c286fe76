// A pod's journal: the records that a shim writes and reads, and their clocks.
//
// A journal is an append-only file of lines. The first is the agent's request, of which a shim
// reads only the seal. Each other line is a JSON object: a start, a stop, or the end. A record is
// one write with a newline before and after it, so that a torn write damages only itself: a record
// counts once its object is complete. `record_claim` ensures that a pod is started at most once:
// appends do not mix, and the first complete start record wins. A pod's end is synced before the
// agent is told; other records need not survive a reboot. `shim/records.py` is the agent's side.

#ifndef LEASEHOLD_RECORDS_H
#define LEASEHOLD_RECORDS_H

#include "request.h"
#include "text.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum claim { CLAIM_FAILED = -1, CLAIM_LOST, CLAIM_WON };

struct journal {
    int folder, file; // the folder stays valid if it is moved
    const struct request *request;
};

struct stop {
    int64_t grace_ms, due_boot_ms;
};

int64_t wall_ms(void);

// Milliseconds since boot, including suspend; never goes back.
int64_t boot_ms(void);

// Read once, by the zygote, because it is constant. False with errno on failure.
bool boot_id_read(void);
const char *boot_id(void);

int64_t boot_ns(void);

// Returns the start time of a process in clock ticks since boot, as in /proc/PID/stat, for a
// process forked between the two moments. Reads it only if a tick ended in between; -1 if the
// process is gone by then.
int64_t ticks_between(int64_t before_ns, int64_t after_ns, pid_t pid);

// False with errno if it cannot be opened for writing.
bool journal_open(struct journal *journal, const struct request *request);

// Returns whether the journal is this request's, and not of a later one of the same pod, and has no
// start record.
bool journal_is_free(const struct journal *journal);

// Reserves disk space for the exit record. False with errno if there is none.
bool journal_keep_room(const struct journal *journal);

// Appends a start record. A start won in a journal that the agent has moved away is void.
enum claim record_claim(const struct journal *journal, const struct text *record);

// Retries for ever, because nothing else knows the exit, unless the file was removed.
void record_exit(const struct journal *journal, const struct text *record);

// Reads the agent's last stop record; false if there is none.
bool record_stop(const struct journal *journal, struct stop *stop);

// Updates the mtime, which shows how long the shim surely ran.
void journal_touch(const struct journal *journal);

#endif
