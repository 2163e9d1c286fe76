#include "job.h"
#include "reasons.h"
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

const char GO = 'g';

static const char PATH[] = "PATH=";
static const char DEFAULT_PATH[] = "/bin:/usr/bin";
enum { NEVER_RAN = 127 };

static noreturn void fail(const struct job_fds *fds, enum stage stage, int number)
{
    const struct trouble trouble = {.stage = stage, .number = number};
    ssize_t told = write(fds->trouble, &trouble, sizeof trouble);
    (void)told; // if this fails, the shim is gone, and this process ends with it
    _exit(NEVER_RAN);
}

static bool stand_alone(const struct job_fds *fds)
{
    setsid();
    int null = openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
    return null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(fds->out, STDOUT_FILENO) >= 0 &&
           dup2(fds->err, STDERR_FILENO) >= 0;
}

static bool forget_the_shim(void)
{
    umask(022);
    // Without this, the server's limits would apply.
    struct rlimit core;
    if (getrlimit(RLIMIT_CORE, &core) != 0) {
        return false;
    }
    core.rlim_cur = 0;
    return setrlimit(RLIMIT_CORE, &core) == 0 && signals_of_job();
}

static bool become_user(const struct request *request)
{
    if (!request->has_user) {
        return true;
    }
    if (request->user == 0) { // no job runs as root on behalf of a user
        errno = EPERM;
        return false;
    }
    uid_t user = request->user;
    gid_t group = request->group;
    return setgroups(request->group_count, request->groups) == 0 &&
           setresgid(group, group, group) == 0 && setresuid(user, user, user) == 0;
}

static const char *path_of(char *const env[])
{
    for (; *env; env++) {
        if (strncmp(*env, PATH, strlen(PATH)) == 0) {
            return *env + strlen(PATH);
        }
    }
    return DEFAULT_PATH;
}

// Executes the program from one folder of the path; returns with errno if that fails.
static void try_in(const char *folder, size_t size, const struct request *request)
{
    char place[PATH_MAX];
    const char *between = size > 0 && folder[size - 1] != '/' ? "/" : "";
    if (size + strlen(between) + strlen(request->argv[0]) >= sizeof place) {
        errno = ENAMETOOLONG;
        return;
    }
    snprintf(place, sizeof place, "%.*s%s%s", (int)size, folder, between, request->argv[0]);
    execve(place, request->argv, request->env);
}

// Like Python's `os.execvpe`: searches the job's own PATH, and returns the first error that says
// more than "no such file".
static int execute(const struct request *request)
{
    const char *name = request->argv[0];
    if (!*name) {
        return EMPTY_NAME;
    }
    if (request->has_illegal_variable) {
        return ILLEGAL_VARIABLE;
    }
    if (strchr(name, '/')) {
        execve(name, request->argv, request->env);
        return errno;
    }
    int first = 0, last = ENOENT;
    for (const char *folder = path_of(request->env);;) {
        size_t size = strcspn(folder, ":");
        try_in(folder, size, request);
        last = errno;
        if (!first && last != ENOENT && last != ENOTDIR) {
            first = last;
        }
        if (!folder[size]) {
            return first ? first : last;
        }
        folder += size + 1;
    }
}

noreturn void job_become(const struct request *request, const struct job_fds *fds, pid_t parent)
{
    char word = 0;
    if (!stand_alone(fds)) {
        fail(fds, STAGE_PREPARE, errno);
    }
    if (read(fds->barrier, &word, 1) != 1 || word != GO) {
        _exit(0); // another shim won the start, or ours is gone
    }
    if (!forget_the_shim()) {
        fail(fds, STAGE_PREPARE, errno);
    }
    if (!become_user(request)) {
        fail(fds, STAGE_USER, errno);
    }
    // After the change of user, which resets it.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        fail(fds, STAGE_PREPARE, errno);
    }
    if (getppid() != parent) {
        _exit(0);
    }
    if (chdir(request->cwd) != 0) {
        fail(fds, STAGE_FOLDER, errno);
    }
    fail(fds, STAGE_EXEC, execute(request));
}
