// `leasehold-shim`: a small process that forks shims on request, with a stream socket as stdin.
//
// Started by the agent (`forks.py`). A request is its size in four bytes, little-endian, and a
// frame (`request.h`). The answer is a line with the pid of the shim and the uid of its pod. A
// refused frame is answered with pid 0. After an impossible size the stream is unusable, and the
// process ends. It has little memory, one thread and no secrets, so a fork is cheap and safe,
// unlike a fork of the server. It ends with the agent; its shims do not.

#include "life.h"
#include "reasons.h"
#include "records.h"
#include "request.h"
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <stdnoreturn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { USUAL_BYTES = 64 * 1024, SIZE_BYTES = 4 };

static int null; // opened once for all shims

static int complain(const char *what)
{
    dprintf(STDERR_FILENO, "leasehold-shim: %s: %s\n", what, reason_of(errno));
    return EXIT_FAILURE;
}

// Returns false at the end of input, even in the middle of a message.
static bool read_fully(void *to, size_t size)
{
    char *at = to;
    while (size > 0) {
        ssize_t count = read(STDIN_FILENO, at, size);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return false;
        }
        at += count;
        size -= (size_t)count;
    }
    return true;
}

static bool answer(pid_t pid, const char *uid)
{
    char line[UID_BYTES_MAX + 32];
    int size = snprintf(line, sizeof line, "%d %s\n", (int)pid, uid);
    return write(STDIN_FILENO, line, (size_t)size) == size;
}

static noreturn void be_a_shim(const struct request *request, int64_t asked_ns)
{
    signals_of_shim();
    if (dup2(null, STDIN_FILENO) < 0) { // otherwise the agent's socket would stay open
        complain("it cannot let go of the agent");
        _exit(EXIT_FAILURE);
    }
    live(request, asked_ns);
    _exit(EXIT_SUCCESS);
}

// Returns false if the agent is gone or a fork fails: the agent then asks a new zygote.
static bool serve(char *frame, size_t size)
{
    static struct request request;
    if (!request_read(&request, frame, size)) {
        dprintf(STDERR_FILENO, "leasehold-shim: a request of %zu bytes is malformed\n", size);
        return answer(0, "");
    }
    int64_t asked_ns = boot_ns();
    pid_t pid = fork();
    if (pid == 0) {
        be_a_shim(&request, asked_ns);
    }
    if (pid < 0) {
        complain("it cannot fork");
        return false;
    }
    bool is_heard = answer(pid, request.uid);
    request_free(&request);
    return is_heard;
}

// Serves requests until the agent is gone.
static int serve_all(void)
{
    static char usual[USUAL_BYTES];
    unsigned char bytes[SIZE_BYTES];
    bool goes_on = true;
    while (goes_on && read_fully(bytes, sizeof bytes)) {
        size_t size =
            bytes[0] | (size_t)bytes[1] << 8 | (size_t)bytes[2] << 16 | (size_t)bytes[3] << 24;
        if (size > FRAME_BYTES_MAX) {
            dprintf(STDERR_FILENO, "leasehold-shim: a request of %zu bytes is too large\n", size);
            return EXIT_FAILURE;
        }
        char *frame = usual;
        if (size > sizeof usual) {
            frame = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (frame == MAP_FAILED) {
                return complain("it has no memory for a request");
            }
        }
        goes_on = read_fully(frame, size) && serve(frame, size);
        if (frame != usual) {
            munmap(frame, size);
        }
    }
    return EXIT_SUCCESS;
}

// Keeps only the socket and stderr.
static bool tidy_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) {
            return false;
        }
    }
    syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0); // none is expected; older kernels lack it
    null = open("/dev/null", O_RDWR | O_CLOEXEC);
    return null >= 0 && dup2(null, STDOUT_FILENO) >= 0;
}

int main(void)
{
    if (!tidy_files()) {
        return complain("/dev/null cannot be opened");
    }
    prctl(PR_SET_NAME, "leasehold-shim");
    if (!boot_id_read()) {
        return complain("the boot id cannot be read");
    }
    signals_begin();
    return serve_all();
}
