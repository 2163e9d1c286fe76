"""Planted bugs of the standby: what it hands over differs from the ledger."""

from tests.mutants.mutant import Mutant, unit

STANDBY = (
    Mutant(
        "who stands by hands nothing over",
        "shell/leadership/standby.py",
        "        return known if known is not None and known.is_at(head) else None\n",
        "        return None\n",
        unit("shell/test_standby"),
    ),
    Mutant(
        "who stands by hands over what does not lead to the head",
        "shell/leadership/standby.py",
        "        return known if known is not None and known.is_at(head) else None\n",
        "        return known\n",
        unit("shell/test_standby"),
    ),
    Mutant(
        "whoever was deposed does not stand by",
        "shell/plane.py",
        "            self._standby.begin()\n",
        "            pass\n",
        unit("shell/test_standby"),
    ),
    Mutant(
        "who stands by keeps what was archived",
        "shell/ledger/known_ledger.py",
        "        for name in dropped:\n            del self.leases[name]\n",
        "",
        unit("shell/test_standby"),
    ),
    Mutant(
        "a compaction that was cut off is not completed by who stood by",
        "shell/loop/recover.py",
        '    ledger.leftovers.update((("Lease", name), None) for name in known.dropped)\n',
        "",
        unit("shell/test_standby"),
    ),
    Mutant(
        "a batch that was never committed stays for ever",
        "shell/loop/recover.py",
        '    ledger.leftovers.update((("LedgerBatch", name), None) for name in known.strays())\n',
        "",
        unit("shell/test_standby"),
    ),
)
