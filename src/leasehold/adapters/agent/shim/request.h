// What a shim must do: the decoded frame from the agent.
//
// A frame consists of NUL-terminated strings; numbers are in decimal. In this order:
// - the version
// - the folder of the journals; the uid, which is the journal's name in it; the size of the request
//   in the journal, and its seal
// - the folder of the logs, relative to the folder of the journals; created at the first output
// - notify, cwd, user and group (both empty: unchanged)
// - log_bytes_max, log_files_max, heartbeat_ms, grace_ms
// - the number of words, and the words
// - the number of variables, and name and value of each
// - the number of cgroups; of each its path, its number of settings, and file and value of each
// - the number of supplementary groups (0 without a user), and the groups
//
// Nothing may follow. `shim/frame.py` is the sender. Any other frame is refused as a whole.

#ifndef LEASEHOLD_REQUEST_H
#define LEASEHOLD_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CGROUPS_MAX = 8, SETTINGS_MAX = 16, UID_BYTES_MAX = 128, SEAL_BYTES_MAX = 64 };
enum { GROUPS_MAX = 65536 };                 // the kernel's NGROUPS_MAX
enum { FRAME_BYTES_MAX = 32 * 1024 * 1024 }; // twice the agent's limit for words and variables

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
    int64_t request_bytes; // offset where the records begin
    bool has_user;
    uid_t user;
    gid_t group;
    int64_t log_bytes_max, log_files_max, heartbeat_ms, grace_ms;
    char **argv, **env; // each NULL-terminated; in `words`
    bool has_illegal_variable;
    size_t cgroup_count;
    struct cgroup cgroups[CGROUPS_MAX];
    size_t group_count;
    gid_t *groups;
    char **words;
};

// False if the frame is malformed or there is no memory. The strings stay in the frame, which is
// modified: names and values of variables are joined there.
bool request_read(struct request *request, char *frame, size_t size);

void request_free(struct request *request);

#endif
