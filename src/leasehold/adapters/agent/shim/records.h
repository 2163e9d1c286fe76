// The records that a shim writes and reads in its pod's folder, and the clocks they speak of.
//
// They are there wholly or not at all. `claim` is how a pod is started at most once: of all who try
// to write the record of the start, the file system lets one win. How a pod ended is synced with
// its folder before anybody acts on it; the rest need not outlive the boot. `shim/records.py` is
// the agent's side. Nothing here decides anything.

#ifndef LEASEHOLD_RECORDS_H
#define LEASEHOLD_RECORDS_H

#include "text.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

extern const char STARTED[];

enum claim { CLAIM_FAILED = -1, CLAIM_LOST, CLAIM_WON };

struct stop {
    int64_t grace_ms, due_boot_ms;
};

int64_t wall_ms(void);

// Milliseconds since boot, also while suspended; never goes back.
int64_t boot_ms(void);

// Read once, by the zygote: no process outlives its boot. False, with errno, when it cannot be.
bool boot_id_read(void);
const char *boot_id(void);

// When a process started, in clock ticks since boot; -1 when it is gone or a zombie.
int64_t ticks_of(pid_t pid);

enum claim record_claim(int folder, const struct text *record);

// Takes the disk space of the exit record while there is some. False, with errno, if there is none.
bool record_keep_room(int folder);
void record_give_room_back(int folder);

// Writes it into the room that was kept; tries for ever, since nothing else knows it.
void record_exit(int folder, const struct text *record);

// False when the agent wrote none.
bool record_stop(int folder, struct stop *stop);

#endif
