#include "life.h"

#include "job.h"
#include "logfile.h"
#include "offspring.h"
#include "reasons.h"
#include "records.h"
#include "text.h"
#include "verdict.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LINE_PATIENCE_MS = 100, // an incomplete line is shown after so long
    AT_ONCE_MS = 1,         // a grace that means at once
};

enum { AT_SIGNALS, AT_OUT, AT_ERR, AT_TROUBLE, POLLS };

struct shim {
    const struct request *request;
    struct journal journal;
    int64_t ticks; // start time of the shim itself
    pid_t pid;
    int64_t pid_ticks;
    int64_t started_at; // wall clock
    int64_t since_boot; // the same moment, since boot
    bool is_stopping;
    int64_t deadline; // of a stop, since boot
    bool is_signalled, is_killed;
    struct failure failure;
    bool has_ended;
    int status; // of the main process
    int64_t main_ended_at;
    struct pollfd polls[POLLS];
    struct logfile log;
};

static struct shim shim; // one per process; large, but mostly untouched

static void complain(const char *what)
{
    dprintf(STDERR_FILENO, "leasehold-shim: %s/%s: %s: %s\n", shim.request->folder,
            shim.request->uid, what, reason_of(errno));
}

// The message may be lost if the agent is absent or slow: the records contain the same.
static void tell(const char *what, const char *detail)
{
    struct text line = {0};
    text_plain(&line, "{\"what\": ");
    text_quoted(&line, what);
    text_plain(&line, ", \"uid\": ");
    text_quoted(&line, shim.request->uid);
    text_plain(&line, ", \"detail\": ");
    text_quoted(&line, detail);
    text_plain(&line, "}\n");
    int fd = openat(AT_FDCWD, shim.request->notify, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t told = write(fd, line.bytes, line.length);
        (void)told;
        close(fd);
    }
}

static int64_t now(void)
{
    return shim.started_at + boot_ms() - shim.since_boot;
}

// Starting.

static bool listen_for_signals(void)
{
    sigset_t heard;
    sigemptyset(&heard);
    sigaddset(&heard, SIGCHLD);
    sigaddset(&heard, SIGTERM);
    if (sigprocmask(SIG_BLOCK, &heard, NULL) != 0) {
        return false;
    }
    shim.polls[AT_SIGNALS].fd = signalfd(-1, &heard, SFD_NONBLOCK | SFD_CLOEXEC);
    return shim.polls[AT_SIGNALS].fd >= 0;
}

static void add_ticks(struct text *record, int64_t ticks)
{
    if (ticks < 0) {
        text_plain(record, "null");
    } else {
        text_whole(record, ticks);
    }
}

// Returns whether this shim may start the job; CLAIM_FAILED with errno.
static enum claim claim(void)
{
    int64_t at = wall_ms(), since = boot_ms();
    struct text record = {0};
    text_plain(&record, "{\"by\": \"shim\", \"boot\": ");
    text_quoted(&record, boot_id());
    text_plain(&record, ", \"shim\": ");
    text_whole(&record, getpid());
    text_plain(&record, ", \"shim_ticks\": ");
    add_ticks(&record, shim.ticks);
    text_plain(&record, ", \"pid\": ");
    text_whole(&record, shim.pid);
    text_plain(&record, ", \"pid_ticks\": ");
    add_ticks(&record, shim.pid_ticks);
    text_plain(&record, ", \"started_ms\": ");
    text_whole(&record, at);
    text_plain(&record, ", \"started_boot_ms\": ");
    text_whole(&record, since);
    text_plain(&record, "}");
    if (!journal_keep_room(&shim.journal)) {
        return CLAIM_FAILED;
    }
    shim.started_at = at;
    shim.since_boot = since;
    return record_claim(&shim.journal, &record);
}

// If memory runs out, the kernel should kill the job and not its shim.
static void protect(void)
{
    int fd = openat(AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t written = write(fd, "-900", 4); // may be forbidden
        (void)written;
        close(fd);
    }
}

static void release(int barrier)
{
    char place[PLACE_BYTES] = "";
    if (!offspring_confine(shim.request, shim.pid, place) || write(barrier, &GO, 1) != 1) {
        failure_unconfined(&shim.failure, errno, place);
    }
    close(barrier);
}

static bool make_pipe(int *reader, int *writer, bool waits)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    *reader = ends[0];
    *writer = ends[1];
    return waits || fcntl(*reader, F_SETFL, O_NONBLOCK) == 0;
}

static bool make_pipes(struct job_fds *theirs, int *barrier)
{
    const struct request *request = shim.request;
    struct pollfd *polls = shim.polls;
    if (!make_pipe(&polls[AT_OUT].fd, &theirs->out, false) ||
        !make_pipe(&polls[AT_ERR].fd, &theirs->err, false) ||
        !make_pipe(&theirs->barrier, barrier, true) ||
        !make_pipe(&polls[AT_TROUBLE].fd, &theirs->trouble, false)) {
        return false;
    }
    // Lets the job open /dev/stdout.
    return !request->has_user || (fchown(theirs->out, request->user, request->group) == 0 &&
                                  fchown(theirs->err, request->user, request->group) == 0);
}

// Forks the job, and releases it if this shim wins the claim. CLAIM_FAILED with errno.
static enum claim start(void)
{
    struct job_fds theirs;
    int barrier;
    pid_t me = getpid();
    if (!make_pipes(&theirs, &barrier) || !listen_for_signals()) {
        return CLAIM_FAILED;
    }
    int64_t before = boot_ns();
    shim.pid = fork();
    if (shim.pid < 0) {
        return CLAIM_FAILED;
    }
    if (shim.pid == 0) {
        close(barrier);
        job_become(shim.request, &theirs, me);
    }
    shim.pid_ticks = ticks_between(before, boot_ns(), shim.pid);
    close(theirs.out);
    close(theirs.err);
    close(theirs.barrier);
    close(theirs.trouble);
    enum claim found = claim();
    if (found == CLAIM_WON) {
        protect();
        release(barrier);
    } else {
        int error = errno;
        kill(shim.pid, SIGKILL);
        errno = error;
    }
    return found;
}

// While it runs.

// Returns the poll timeout: until an incomplete line is shown, a stop is due, or the heartbeat.
static int patience(void)
{
    int64_t wait = shim.request->heartbeat_ms;
    if (log_has_begun(&shim.log) && wait > LINE_PATIENCE_MS) {
        wait = LINE_PATIENCE_MS;
    }
    if (shim.is_stopping && !shim.is_killed) {
        int64_t left = shim.deadline - boot_ms();
        wait = left < wait ? left : wait;
    }
    if (wait < 0) {
        return 0;
    }
    return wait > INT_MAX ? INT_MAX : (int)wait;
}

// Reads at most `max` bytes of available output; 0 if there is none now or the stream has ended.
static size_t read_output(enum stream stream, size_t max)
{
    struct pollfd *poll = &shim.polls[AT_OUT + (int)stream];
    ssize_t count =
        read(poll->fd, log_room(&shim.log, stream), max < READ_BYTES ? max : READ_BYTES);
    if (count > 0) {
        log_add(&shim.log, stream, (size_t)count);
        return (size_t)count;
    }
    if (count == 0 || errno != EAGAIN) {
        close(poll->fd);
        poll->fd = -1;
    }
    return 0;
}

static bool hear_trouble(void)
{
    struct trouble trouble;
    struct pollfd *poll = &shim.polls[AT_TROUBLE];
    ssize_t size = read(poll->fd, &trouble, sizeof trouble);
    if (size == (ssize_t)sizeof trouble) {
        failure_explain(&shim.failure, &trouble, shim.request);
    } else if (size < 0 && errno == EAGAIN) {
        return false;
    }
    close(poll->fd);
    poll->fd = -1;
    return true;
}

static void signal_job(int number)
{
    // It may not lead its own group yet.
    if (killpg(shim.pid, number) != 0 && errno == ESRCH) {
        kill(shim.pid, number);
    }
}

static void stop(void)
{
    struct stop asked;
    int64_t due, grace = shim.request->grace_ms;
    if (record_stop(&shim.journal, &asked)) {
        due = asked.due_boot_ms;
        grace = asked.grace_ms;
    } else { // not the agent's signal
        due = boot_ms() + grace;
    }
    if (grace <= AT_ONCE_MS) {
        due = 0;
    }
    if (!shim.is_stopping || due < shim.deadline) {
        shim.deadline = due;
    }
    shim.is_stopping = true;
    if (due && !shim.is_signalled) {
        shim.is_signalled = true;
        signal_job(SIGTERM);
        signal_job(SIGCONT);
    }
}

static void hear_signals(void)
{
    struct signalfd_siginfo heard;
    bool has_term = false;
    while (read(shim.polls[AT_SIGNALS].fd, &heard, sizeof heard) == (ssize_t)sizeof heard) {
        has_term = has_term || heard.ssi_signo == SIGTERM;
    }
    if (has_term) {
        stop();
    }
}

static void hear(void)
{
    int count = poll(shim.polls, POLLS, patience());
    if (count == 0) {
        log_flush(&shim.log);
        journal_touch(&shim.journal);
    }
    if (count <= 0) {
        return;
    }
    if (shim.polls[AT_SIGNALS].revents) {
        hear_signals();
    }
    for (enum stream stream = STREAM_OUT; stream < STREAMS; stream++) {
        if (shim.polls[AT_OUT + (int)stream].revents) {
            read_output(stream, READ_BYTES);
        }
    }
    if (shim.polls[AT_TROUBLE].revents && hear_trouble() && !shim.failure.is_one) {
        tell("started", "");
    }
}

static void reap(void)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == shim.pid) {
            shim.has_ended = true;
            shim.status = status;
            shim.main_ended_at = now();
        }
    }
}

static void end_in_time(void)
{
    if (!shim.is_stopping || shim.has_ended || shim.is_killed || boot_ms() < shim.deadline) {
        return;
    }
    shim.is_killed = true;
    kill(shim.pid, SIGKILL); // the others follow once it is reaped
}

// After the end.

// Reads what the job's processes left in the pipes. They are gone; later output of other processes
// that hold a pipe is ignored.
static void drain(void)
{
    for (enum stream stream = STREAM_OUT; stream < STREAMS; stream++) {
        int fd = shim.polls[AT_OUT + (int)stream].fd, left = 0;
        if (fd < 0 || ioctl(fd, FIONREAD, &left) != 0) {
            continue;
        }
        while (left > 0) {
            size_t count = read_output(stream, (size_t)left);
            if (count == 0) {
                break;
            }
            left -= (int)count;
        }
    }
    if (!shim.failure.is_one && shim.polls[AT_TROUBLE].fd >= 0) {
        hear_trouble(); // it may not have been read yet
    }
    log_close(&shim.log);
}

static void write_record(int64_t finished_at)
{
    struct verdict verdict = {
        .status = shim.status,
        .failure = &shim.failure,
        .is_killed = shim.is_killed,
        .started_ms = shim.started_at,
        .main_ended_ms = shim.main_ended_at,
        .finished_ms = finished_at,
        .dropped_bytes = shim.log.dropped_bytes,
        .dropped_lines = shim.log.dropped_lines,
    };
    verdict.is_oom =
        verdict_code(&verdict) != 0 && !shim.is_killed && offspring_oom_kills(shim.request) > 0;
    struct text record = {0};
    verdict_record(&verdict, &record);
    record_exit(&shim.journal, &record);
}

// Runs until nothing of the job is left, then writes the exit record.
static void attend(void)
{
    while (!shim.has_ended) {
        hear();
        reap();
        end_in_time();
    }
    offspring_kill_all(shim.request);
    int64_t finished_at = now();
    drain();
    write_record(finished_at);
    offspring_remove(shim.request);
    tell("ended", "");
}

static void refuse(int number)
{
    const char *folder = shim.request->folder;
    char detail[SENTENCE_BYTES];
    snprintf(detail, sizeof detail, "%s: %.*s/%s", reason_of(number),
             (int)text_fitting(folder, NAME_QUOTED_MAX), folder, shim.request->uid);
    tell("refused", detail);
}

void live(const struct request *request, int64_t asked_ns)
{
    shim.ticks = ticks_between(asked_ns, boot_ns(), getpid());
    shim.request = request;
    for (int index = 0; index < POLLS; index++) {
        shim.polls[index] = (struct pollfd){.fd = -1, .events = POLLIN};
    }
    setsid();
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
        complain("it cannot adopt what its job leaves");
        return;
    }
    enum claim found = CLAIM_FAILED;
    if (journal_open(&shim.journal, request)) {
        log_open(&shim.log, shim.journal.folder, request);
        found = journal_is_free(&shim.journal) ? start() : CLAIM_LOST;
    } else if (errno == ENOENT) { // the agent has discarded it meanwhile
        complain("its journal cannot be opened");
        return;
    }
    if (found == CLAIM_WON) {
        attend();
    } else if (found == CLAIM_FAILED) {
        refuse(errno);
    }
}
