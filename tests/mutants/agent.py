"""The planted bugs of the agent and its shim, which is C: the runner compiles it anew for each."""

from tests.mutants.mutant import Mutant

FOLDER = "adapters/agent/shim"
ALONE = ("tests/agent/test_shim.py",)
COMMANDS = ("tests/agent/test_shim_commands.py",)
OUTPUT = ("tests/agent/test_shim_output.py",)
FRAMES = ("tests/agent/test_shim_frames.py",)

MUTANTS = (
    Mutant(
        "a pod that runs is given up",
        "adapters/agent/shim/records.py",
        "    except FileExistsError:\n        return False\n    finally:\n",
        "    except FileExistsError:\n        return True\n    finally:\n",
        ("tests/agent/test_shim.py",),
    ),
    Mutant(
        "a pod may fork for ever",
        "adapters/agent/requests.py",
        "                pids_max=pids_at_most(self.limits.pids_max),\n",
        "",
        ("tests/agent/test_pids.py",),
    ),
    Mutant(
        "a pod may be started twice",
        f"{FOLDER}/records.c",
        "    return error == EEXIST ? CLAIM_LOST : CLAIM_FAILED;\n",
        "    return error == EEXIST ? CLAIM_WON : CLAIM_FAILED;\n",
        ALONE,
    ),
    Mutant(
        "a length by the wall clock",
        f"{FOLDER}/life.c",
        "    return shim.started_at + boot_ms() - shim.since_boot;\n",
        "    return wall_ms();\n",
        ALONE,
    ),
    Mutant(
        "what a job leaves behind lives on",
        f"{FOLDER}/offspring.c",
        "        if (reaped < 0 && errno == ECHILD) {\n",
        "        if (reaped <= 0) {\n",
        ALONE,
    ),
    Mutant(
        "a job outlives its shim",
        f"{FOLDER}/job.c",
        "    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {\n",
        "    if (prctl(PR_SET_PDEATHSIG, 0) != 0) {\n",
        ALONE,
    ),
    Mutant(
        "a job ignores what the zygote ignores",
        f"{FOLDER}/job.c",
        "    for (int number = 1; number < NSIG; number++) {\n",
        "    for (int number = 1; number < SIGPIPE; number++) {\n",
        ALONE,
    ),
    Mutant(
        "a job has the shim's pipes",
        f"{FOLDER}/life.c",
        "    if (pipe2(ends, O_CLOEXEC) != 0) {\n",
        "    if (pipe2(ends, 0) != 0) {\n",
        ALONE,
    ),
    Mutant(
        "any stop kills at once",
        f"{FOLDER}/life.c",
        "    if (grace <= AT_ONCE_MS) {\n",
        "    if (grace >= AT_ONCE_MS) {\n",
        ALONE,
    ),
    Mutant(
        "room for the exit record is left behind",
        f"{FOLDER}/life.c",
        "        record_give_room_back(shim.folder);\n",
        "",
        ALONE,
    ),
    Mutant(
        "the last folder of a path has the last word",
        f"{FOLDER}/job.c",
        "            return first ? first : last;\n",
        "            return last;\n",
        COMMANDS,
    ),
    Mutant(
        "a zero byte in a folder's name ends it",
        f"{FOLDER}/frame.py",
        '    if joined.count("\\0") != len(strings) - 1:\n',
        "    if not strings:\n",
        COMMANDS,
    ),
    Mutant(
        "no JSON of what is no UTF-8",
        f"{FOLDER}/text.c",
        "    if (character < least[more] || character > 0x10ffff ||\n",
        "    if (character < least[0] || character > 0x10ffff ||\n",
        COMMANDS,
    ),
    Mutant(
        "the last of the output is lost",
        f"{FOLDER}/life.c",
        "        while (left > 0) {\n",
        "        while (left < 0) {\n",
        OUTPUT,
    ),
    Mutant(
        "half a line on a full disk",
        f"{FOLDER}/logfile.c",
        "    if (count > 0 && ftruncate(log->fd, log->size) != 0) {\n",
        "    if (count > 0) {\n",
        OUTPUT,
    ),
    Mutant(
        "what was dropped is told while it is being dropped",
        f"{FOLDER}/logfile.c",
        "        log->untold = portion->tells ? 0 : log->untold;\n",
        "        log->untold = 0;\n",
        OUTPUT,
    ),
    Mutant(
        "a line that is long is one piece",
        f"{FOLDER}/logfile.c",
        "    while (size > PIECE_BYTES_MAX) {\n",
        "    while (size > 2 * PIECE_BYTES_MAX) {\n",
        OUTPUT,
    ),
    Mutant(
        "old files of a log stay",
        f"{FOLDER}/logfile.c",
        "    if (oldest > 0) {\n",
        "    if (oldest > 1) {\n",
        OUTPUT,
    ),
    Mutant(
        "a frame may have something behind it",
        f"{FOLDER}/request.c",
        "    if (cursor.is_bad || cursor.at != cursor.end || !is_sound(request)) {\n",
        "    if (cursor.is_bad || !is_sound(request)) {\n",
        FRAMES,
    ),
)
