"""Planted bugs in what is told under stress: lost files, full disks, records that are no good."""

from tests.mutants.mutant import Mutant, unit

MALFORMED = ("tests/archive/test_malformed.py",)
DISK = ("tests/up/test_full_disk.py",)
HIDING = ("tests/rest/test_hiding.py",)

STRESS = (
    Mutant(
        "a cut that nobody can prove",
        "control/preemption/publish.py",
        "    announce_anew(turn)\n\n\n_RETURNED",
        "\n\n_RETURNED",
        unit("shell/test_lost_key"),
    ),
    Mutant(
        "everything is announced anew at every start",
        "control/reannounce.py",
        "        if not is_provable(turn, reservation.subject,",
        "        if is_provable(turn, reservation.subject,",
        unit("shell/test_lost_key"),
    ),
    Mutant(
        "a heartbeat is a change of a node",
        "core/world/world.py",
        "        if known is None or replace(known, version=node.version) != node:\n",
        "        if known != node:\n",
        unit("shell/test_blocked_binds"),
    ),
    Mutant(
        "the owner of a Run can be edited",
        "core/objects/edits.py",
        "EDITABLE_IN_A_RUN = (\n",
        'EDITABLE_IN_A_RUN = (\n    "spec.owner",\n',
        unit("objects/test_edits"),
    ),
    Mutant(
        "leases of others are listed",
        "adapters/rest/reads.py",
        "    return lambda obj: seen(obj) and asked(obj)\n",
        "    return asked\n",
        HIDING,
    ),
    Mutant(
        "a lease of somebody else can be had by its name",
        "adapters/rest/reads.py",
        "    if is_visible is not None and not is_visible(decode(body)):\n",
        "    if is_visible is not None and not body:\n",
        HIDING,
    ),
    Mutant(
        "the ledger tells who everybody is",
        "adapters/rest/hiding.py",
        "    if resource.kind in _OF_ALL and _hides(",
        "    if resource.kind in _COMMON and _hides(",
        HIDING,
    ),
    Mutant(
        "a full disk is no trouble",
        "adapters/sqlite/storage.py",
        "        self._refused = trouble.why\n",
        '        self._refused = ""\n',
        DISK,
    ),
    Mutant(
        "nobody hears of a full disk who does not ask",
        "app/embedded.py",
        '        self.plane.keep_up("health", self._health_watch.run)\n',
        "",
        DISK,
    ),
    Mutant(
        "a start on a full disk waits for ever",
        "app/embedded.py",
        "            refused_for = refused_for + LOOK_MS if self.store.trouble else 0\n",
        "            refused_for = 0\n",
        DISK,
    ),
    Mutant(
        "a warning that could not be stored is lost",
        "shell/observe/events.py",
        "                    self._keep_for_later(story, *when)\n",
        "",
        unit("shell/test_events"),
    ),
    Mutant(
        "a watch ends with the server",
        "cli/runs/watch.py",
        "    answer = _answer(session, params) if again else session",
        "    answer = session",
        ("tests/up/test_watch.py",),
    ),
    Mutant(
        "a watch looks for the next server where the last one was",
        "cli/runs/options.py",
        "            self.server = server\n",
        "",
        ("tests/up/test_watch.py",),
    ),
    Mutant(
        "a malformed lease has no name",
        "core/ledger/verify.py",
        '        raise WrongRecord(f"{kind} object {name}", f"is not',
        '        raise WrongRecord(f"{kind} object", f"is not',
        unit("test_verify"),
    ),
    Mutant(
        "a malformed reservation has no name",
        "shell/loop/stored.py",
        'Malformed(f"{kind} {key_of(obj)} cannot be read',
        'Malformed(f"{kind} cannot be read',
        MALFORMED,
    ),
    Mutant(
        "a malformed run is no finding",
        "cli/audit.py",
        "[*map(str, found.unreadable), *audit(",
        "[*audit(",
        MALFORMED,
    ),
    Mutant(
        "a store of nonsense is a traceback",
        "cli/ledger_source.py",
        "    except msgspec.DecodeError as error:\n",
        "    except BadArchive as error:\n",
        MALFORMED,
    ),
)
