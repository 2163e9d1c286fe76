#include "request.h"

#include <stdlib.h>
#include <string.h>

static const char VERSION[] = "leasehold-shim 2";
static const int64_t WHOLE_MAX = INT64_C(1) << 53;

// The rest of a frame. Its last byte is NUL, so that every string in it is terminated.
struct cursor {
    char *at, *end;
    bool is_bad;
};

static char *next(struct cursor *cursor)
{
    static char nothing[1];
    if (cursor->is_bad || cursor->at == cursor->end) {
        cursor->is_bad = true;
        nothing[0] = '\0';
        return nothing;
    }
    char *found = cursor->at;
    cursor->at += strlen(found) + 1;
    return found;
}

static int64_t whole(struct cursor *cursor, int64_t max)
{
    const char *digits = next(cursor);
    int64_t found = 0;
    if (!*digits) {
        cursor->is_bad = true;
    }
    for (; *digits; digits++) {
        if (*digits < '0' || *digits > '9') {
            cursor->is_bad = true;
            return 0;
        }
        found = found * 10 + (*digits - '0');
        if (found > max) {
            cursor->is_bad = true;
            return 0;
        }
    }
    return found;
}

// Reads a number of strings. Each takes at least one byte, so it cannot exceed what is left.
static size_t count(struct cursor *cursor)
{
    size_t found = (size_t)whole(cursor, FRAME_BYTES_MAX);
    if (found > (size_t)(cursor->end - cursor->at)) {
        cursor->is_bad = true;
    }
    return cursor->is_bad ? 0 : found;
}

static void read_user(struct request *request, struct cursor *cursor)
{
    request->has_user = cursor->at < cursor->end && *cursor->at;
    if (request->has_user) {
        request->user = (uid_t)whole(cursor, UINT32_MAX - 1);
        request->group = (gid_t)whole(cursor, UINT32_MAX - 1);
    } else if (*next(cursor) || *next(cursor)) {
        cursor->is_bad = true;
    }
}

static void read_words(char **words, size_t number, struct cursor *cursor)
{
    for (size_t index = 0; index < number; index++) {
        words[index] = next(cursor);
    }
    words[number] = NULL;
}

// Changes `NAME`, NUL, `VALUE` to `NAME=VALUE`, in place.
static void read_variables(struct request *request, size_t number, struct cursor *cursor)
{
    for (size_t index = 0; index < number; index++) {
        char *name = next(cursor);
        char *value = next(cursor);
        if (cursor->is_bad) {
            return;
        }
        if (!*name || strchr(name + 1, '=')) {
            request->has_illegal_variable = true;
        }
        value[-1] = '=';
        request->env[index] = name;
    }
    request->env[number] = NULL;
}

static void read_command(struct request *request, struct cursor *cursor)
{
    size_t words = count(cursor);
    struct cursor ahead = *cursor;
    for (size_t index = 0; index < words; index++) {
        next(&ahead);
    }
    size_t variables = count(&ahead);
    if (ahead.is_bad || words == 0) {
        cursor->is_bad = true;
        return;
    }
    request->words = calloc(words + variables + 2, sizeof *request->words);
    if (!request->words) {
        cursor->is_bad = true;
        return;
    }
    request->argv = request->words;
    request->env = request->words + words + 1;
    read_words(request->argv, words, cursor);
    read_variables(request, count(cursor), cursor);
}

static void read_cgroups(struct request *request, struct cursor *cursor)
{
    request->cgroup_count = (size_t)whole(cursor, CGROUPS_MAX);
    for (size_t index = 0; index < request->cgroup_count && !cursor->is_bad; index++) {
        struct cgroup *cgroup = &request->cgroups[index];
        cgroup->path = next(cursor);
        cgroup->setting_count = (size_t)whole(cursor, SETTINGS_MAX);
        for (size_t each = 0; each < cgroup->setting_count; each++) {
            cgroup->settings[each].file = next(cursor);
            cgroup->settings[each].value = next(cursor);
        }
        if (cgroup->path[0] != '/') {
            cursor->is_bad = true;
        }
    }
}

static void read_groups(struct request *request, struct cursor *cursor)
{
    request->group_count = (size_t)whole(cursor, GROUPS_MAX);
    if (request->group_count == 0 || cursor->is_bad) {
        return;
    }
    request->groups = calloc(request->group_count, sizeof *request->groups);
    if (!request->groups || !request->has_user) {
        cursor->is_bad = true;
        return;
    }
    for (size_t index = 0; index < request->group_count; index++) {
        request->groups[index] = (gid_t)whole(cursor, UINT32_MAX - 1);
    }
}

static bool is_sound(const struct request *request)
{
    size_t uid = strlen(request->uid), seal = strlen(request->seal);
    return request->folder[0] == '/' && uid > 0 && uid <= UID_BYTES_MAX &&
           !strpbrk(request->uid, "\n/") && request->uid[0] != '.' && seal > 0 &&
           seal <= SEAL_BYTES_MAX && request->logs[0];
}

bool request_read(struct request *request, char *frame, size_t size)
{
    memset(request, 0, sizeof *request);
    if (size == 0 || frame[size - 1] != '\0') {
        return false;
    }
    struct cursor cursor = {.at = frame, .end = frame + size};
    if (strcmp(next(&cursor), VERSION) != 0) {
        return false;
    }
    request->folder = next(&cursor);
    request->uid = next(&cursor);
    request->request_bytes = whole(&cursor, WHOLE_MAX);
    request->seal = next(&cursor);
    request->logs = next(&cursor);
    request->notify = next(&cursor);
    request->cwd = next(&cursor);
    read_user(request, &cursor);
    request->log_bytes_max = whole(&cursor, WHOLE_MAX);
    request->log_files_max = whole(&cursor, WHOLE_MAX);
    request->heartbeat_ms = whole(&cursor, WHOLE_MAX);
    request->grace_ms = whole(&cursor, WHOLE_MAX);
    read_command(request, &cursor);
    read_cgroups(request, &cursor);
    read_groups(request, &cursor);
    if (cursor.is_bad || cursor.at != cursor.end || !is_sound(request)) {
        request_free(request);
        return false;
    }
    return true;
}

void request_free(struct request *request)
{
    free(request->words);
    free(request->groups);
    request->words = NULL;
    request->groups = NULL;
}
