#include "offspring.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Returns the path of a cgroup's file. A path that is too long becomes "", which does not exist.
static const char *file_in(const struct cgroup *cgroup, const char *file, char path[PLACE_BYTES])
{
    int size = snprintf(path, PLACE_BYTES, "%s/%s", cgroup->path, file);
    if (size < 0 || size >= PLACE_BYTES) {
        path[0] = '\0';
    }
    return path;
}

// Writes in a single call, as the kernel requires. If the write fails, `path` becomes "".
static bool put(char path[PLACE_BYTES], const char *value)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool is_written = write(fd, value, strlen(value)) >= 0;
    int error = errno;
    close(fd);
    errno = error;
    if (!is_written) {
        path[0] = '\0';
    }
    return is_written;
}

bool offspring_confine(const struct request *request, pid_t pid, char place[PLACE_BYTES])
{
    char number[16];
    snprintf(number, sizeof number, "%d", (int)pid);
    for (size_t index = 0; index < request->cgroup_count; index++) {
        const struct cgroup *cgroup = &request->cgroups[index];
        if (mkdir(cgroup->path, 0777) != 0 && errno != EEXIST) {
            snprintf(place, PLACE_BYTES, "%s", cgroup->path);
            return false;
        }
        for (size_t each = 0; each < cgroup->setting_count; each++) {
            file_in(cgroup, cgroup->settings[each].file, place);
            if (!put(place, cgroup->settings[each].value)) {
                return false;
            }
        }
        file_in(cgroup, "cgroup.procs", place);
        if (!put(place, number)) {
            return false;
        }
    }
    place[0] = '\0';
    return true;
}

static void kill_in_cgroups(const struct request *request)
{
    char path[PLACE_BYTES];
    for (size_t index = 0; index < request->cgroup_count; index++) {
        file_in(&request->cgroups[index], "cgroup.kill", path);
        put(path, "1"); // version 2 only
    }
}

// Kills the listed children; false if the kernel lacks the list. A process that dies meanwhile may
// hide others, which the next call finds.
static bool kill_listed(void)
{
    char path[64], chunk[4096];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return errno != ENOENT;
    }
    pid_t pid = 0;
    ssize_t size;
    while ((size = read(fd, chunk, sizeof chunk)) > 0) {
        for (ssize_t index = 0; index < size; index++) {
            if (chunk[index] >= '0' && chunk[index] <= '9') {
                pid = pid * 10 + (chunk[index] - '0');
            } else if (pid > 0) { // a space follows each pid
                kill(pid, SIGKILL);
                pid = 0;
            }
        }
    }
    close(fd);
    return true;
}

static bool is_child(const char *pid, pid_t parent)
{
    char path[300], stat[1024];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t size = read(fd, stat, sizeof stat - 1);
    close(fd);
    if (size <= 0) {
        return false;
    }
    stat[size] = '\0';
    const char *after = strrchr(stat, ')');
    return after && strlen(after) > 4 && strtol(after + 4, NULL, 10) == parent;
}

static void kill_found(void)
{
    DIR *all = opendir("/proc");
    if (!all) {
        return;
    }
    struct dirent *entry;
    while ((entry = readdir(all))) {
        long pid = strtol(entry->d_name, NULL, 10);
        if (pid > 0 && is_child(entry->d_name, getpid())) {
            kill((pid_t)pid, SIGKILL);
        }
    }
    closedir(all);
}

void offspring_kill_all(const struct request *request)
{
    for (;;) {
        kill_in_cgroups(request);
        pid_t reaped;
        while ((reaped = waitpid(-1, NULL, WNOHANG)) > 0) {
        }
        if (reaped < 0 && errno == ECHILD) {
            return;
        }
        if (!kill_listed()) {
            kill_found();
        }
        waitpid(-1, NULL, 0);
    }
}

static int64_t oom_kills_in(const char *path)
{
    char counts[4096], *rest, *line;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t size = read(fd, counts, sizeof counts - 1);
    close(fd);
    counts[size < 0 ? 0 : size] = '\0';
    for (line = strtok_r(counts, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "oom_kill ", strlen("oom_kill ")) == 0) {
            return strtoll(line + strlen("oom_kill "), NULL, 10);
        }
    }
    return 0;
}

int64_t offspring_oom_kills(const struct request *request)
{
    char path[PLACE_BYTES];
    int64_t count = 0;
    for (size_t index = 0; index < request->cgroup_count; index++) {
        const struct cgroup *cgroup = &request->cgroups[index];
        count += oom_kills_in(file_in(cgroup, "memory.events", path));      // version 2
        count += oom_kills_in(file_in(cgroup, "memory.oom_control", path)); // version 1
    }
    return count;
}

void offspring_remove(const struct request *request)
{
    for (size_t index = 0; index < request->cgroup_count; index++) {
        rmdir(request->cgroups[index].path);
    }
}
