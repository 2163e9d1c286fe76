"""Planted bugs of what GPU-time was for, and of its course."""

from tests.mutants.mutant import Mutant

_SLOW_STARTS = ("tests/unit/control/test_slow_starts.py",)
_LOST_WORK = ("tests/questions/test_lost_work.py",)

REPORTS = (
    Mutant(
        "what a start took is not on the closure",
        "control/turn.py",
        "        began = None if began is None or end <= lease.start else min(began, end)\n",
        "        began = None\n",
        _SLOW_STARTS,
    ),
    Mutant(
        "a pod that is gone is not remembered",
        "core/world/pods.py",
        "        del self.by_key[key]\n",
        "        del self.by_key[key]\n        self.began_at.pop(key, None)\n",
        _SLOW_STARTS,
    ),
    Mutant(
        "time before a pod ran is work",
        "control/questions/report.py",
        "        self._count(Use.STARTING, gpus * (begins - part.start))\n",
        "        self._count(part.use, gpus * (begins - part.start))\n",
        _SLOW_STARTS,
    ),
    Mutant(
        "any begin is verified",
        "core/ledger/verify.py",
        "not lease.start < closing.began <= closing.end:\n",
        "closing.began > self.instant:\n",
        ("tests/unit/test_verify.py",),
    ),
    Mutant(
        "what was saved counts as lost",
        "control/questions/report.py",
        "        self._count(Use.WORK, gpus * (saved - begins))\n",
        "        self._count(part.use, gpus * (saved - begins))\n",
        _LOST_WORK,
    ),
    Mutant(
        "what is saved is said of every end",
        "core/world/use_of_time.py",
        " or why not in _LOSSES or not lease.pod:\n",
        " or not lease.pod:\n",
        _LOST_WORK,
    ),
    Mutant(
        "a ledger of the first format is refused",
        "core/ledger/head.py",
        "_KNOWN = (None, 1, FORMAT)",
        "_KNOWN = (None, FORMAT)",
        ("tests/unit/shell/test_ledger.py",),
    ),
    Mutant(
        "what archived leases cost has no course",
        "control/questions/burn.py",
        "spent - archived.used_since(at)[0])",
        "spent)",
        ("tests/questions/test_burn.py",),
    ),
)
