#include "verdict.h"

#include "reasons.h"

#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>

// Exit codes, as in shells and container runtimes.
enum { NOT_FOUND = 127, NOT_EXECUTABLE = 126, CANNOT_RUN = 128, BY_SIGNAL = 128 };

static void say(struct failure *failure, int code, const char *before, const char *name,
                const char *after)
{
    size_t size = text_fitting(name, NAME_QUOTED_MAX);
    const char *cut = name[size] ? "…" : "";
    failure->is_one = true;
    failure->code = code;
    snprintf(failure->sentence, sizeof failure->sentence, "%s%.*s%s%s", before, (int)size, name,
             cut, after);
}

void failure_explain(struct failure *failure, const struct trouble *trouble,
                     const struct request *request)
{
    const char *reason = reason_of(trouble->number);
    char before[128], after[128];
    switch (trouble->stage) {
    case STAGE_FOLDER:
        snprintf(after, sizeof after, " cannot be entered: %s", reason);
        say(failure, CANNOT_RUN, "its working directory ", request->cwd, after);
        return;
    case STAGE_USER:
        snprintf(before, sizeof before, "it cannot become user [%u, %u]: ", (unsigned)request->user,
                 (unsigned)request->group);
        say(failure, CANNOT_RUN, before, reason, "");
        return;
    case STAGE_EXEC:
        if (trouble->number == ENOENT) {
            say(failure, NOT_FOUND, "command not found: ", request->argv[0], "");
            return;
        }
        snprintf(after, sizeof after, " cannot be run: %s", reason);
        say(failure, NOT_EXECUTABLE, "", request->argv[0], after);
        return;
    default:
        say(failure, CANNOT_RUN, "it cannot be started: ", reason, "");
    }
}

void failure_unconfined(struct failure *failure, int number, const char *place)
{
    char before[128];
    snprintf(before, sizeof before, "its cgroup cannot be set up: %s%s", reason_of(number),
             place[0] ? " " : "");
    say(failure, CANNOT_RUN, before, place, "");
}

static int signal_of(const struct verdict *verdict)
{
    bool has_one = !verdict->failure->is_one && WIFSIGNALED(verdict->status);
    return has_one ? WTERMSIG(verdict->status) : 0;
}

int verdict_code(const struct verdict *verdict)
{
    if (verdict->failure->is_one) {
        return verdict->failure->code;
    }
    int number = signal_of(verdict);
    return number ? BY_SIGNAL + number : WEXITSTATUS(verdict->status);
}

static void add_whole(struct text *record, const char *name, int64_t value)
{
    text_plain(record, name);
    text_whole(record, value);
}

static void add_bool(struct text *record, const char *name, bool value)
{
    text_plain(record, name);
    text_plain(record, value ? "true" : "false");
}

void verdict_record(const struct verdict *verdict, struct text *record)
{
    int number = signal_of(verdict);
    add_whole(record, "{\"code\": ", verdict_code(verdict));
    if (number) {
        add_whole(record, ", \"signal\": ", number);
    } else {
        text_plain(record, ", \"signal\": null");
    }
    text_plain(record, ", \"error\": ");
    text_quoted(record, verdict->failure->is_one ? verdict->failure->sentence : "");
    add_bool(record, ", \"oom\": ", verdict->is_oom);
    add_bool(record, ", \"killed\": ", verdict->is_killed);
    add_whole(record, ", \"started_ms\": ", verdict->started_ms);
    add_whole(record, ", \"main_ended_ms\": ", verdict->main_ended_ms);
    add_whole(record, ", \"finished_ms\": ", verdict->finished_ms);
    add_whole(record, ", \"dropped_bytes\": ", verdict->dropped_bytes);
    add_whole(record, ", \"dropped_lines\": ", verdict->dropped_lines);
    text_plain(record, "}");
}
