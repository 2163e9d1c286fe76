// What a shim is asked to do: one frame of the agent's, taken apart.
//
// A frame is strings, each ended by a NUL, numbers in decimal: the version; the folder of the
// journals, the uid, which is the journal's name there, the size of the request in it and its seal;
// the folder of the logs, which is made when there is something to log and is named from the folder
// of the journals; notify, cwd, user and group (both empty: whoever we are), log_bytes_max,
// log_files_max, heartbeat_ms, grace_ms; the count of words and the words; the count of variables
// and name and value of each; the count of cgroups, and of each its path, the count of its
// settings, and file and value of each; the count of supplementary groups and the groups, of which
// there are none without a user. Nothing comes after. `shim/frame.py` is the other end. A frame
// that is anything else is refused as a whole.

#ifndef LEASEHOLD_REQUEST_H
#define LEASEHOLD_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CGROUPS_MAX = 8, SETTINGS_MAX = 16, UID_BYTES_MAX = 128, SEAL_BYTES_MAX = 64 };
enum { GROUPS_MAX = 65536 };                 // the kernel's NGROUPS_MAX
enum { FRAME_BYTES_MAX = 32 * 1024 * 1024 }; // twice what the agent lets words and variables be

struct setting {
    const char *file, *value;
};

struct cgroup {
    const char *path;
    size_t setting_count;
    struct setting settings[SETTINGS_MAX];
};

struct request {
    const char *folder, *uid, *seal, *logs, *notify, *cwd;
    int64_t request_bytes; // after these come the records
    bool has_user;
    uid_t user;
    gid_t group;
    int64_t log_bytes_max, log_files_max, heartbeat_ms, grace_ms;
    char **argv, **env; // each ends with a NULL; in `words`
    bool has_illegal_variable;
    size_t cgroup_count;
    struct cgroup cgroups[CGROUPS_MAX];
    size_t group_count;
    gid_t *groups;
    char **words;
};

// False when it is malformed, or there is no memory for it. The strings stay in the frame, which is
// written to: a variable's name and value are joined there.
bool request_read(struct request *request, char *frame, size_t size);

void request_free(struct request *request);

#endif
