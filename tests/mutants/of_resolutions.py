"""Planted bugs in what a Resolution cuts (R1 to R6) and in the lottery."""

from tests.mutants.mutant import Mutant, prop, story, unit

_CUTS = "core/preemption/victims.py"
_SITE = "core/preemption/site.py"
_URN = "core/ledger/lottery.py"
_OF_SITE = unit("core/test_site")
_OF_URN = unit("core/test_urn")

RESOLUTIONS = (
    Mutant(
        "R1, what is past its deadline counts as gone",
        "core/preemption/resolve.py",
        "return lease.ending is not None and now < lease.ending.deadline\n",
        "return lease.ending is not None\n",
        story("R1-past-its-deadline-a-lease-counts-as-staying"),
    ),
    Mutant(
        "R1, what is ending counts as staying",
        "core/preemption/resolve.py",
        "return lease.ending is not None and now < lease.ending.deadline\n",
        "return lease.ending is not None and now < 0\n",
        story("R1 or O5-what-is-ending"),
    ),
    Mutant(
        "R1, what is ending is a victim",
        _CUTS,
        "        self.leases = [lease for lease in leases if lease.ending is None]\n",
        "        self.leases = list(leases)\n",
        story("R1-past-its-deadline-a-lease-counts-as-staying"),
    ),
    Mutant(
        "R2, a group goes where the loss is greatest",
        _SITE,
        "                    if best is None or (tried[0], domain) < best[:2]:\n",
        "                    if best is None or (tried[0], domain) > best[:2]:\n",
        story("R2-each-group-where-the-loss-is-least"),
    ),
    Mutant(
        "R2, a spare costs as much as a run",
        _SITE,
        "        return missing - spares - shrunk, shrunk, spares\n",
        "        return missing - shrunk, shrunk, 0\n",
        _OF_SITE,
    ),
    Mutant(
        "R2, a protected run is never shrunk",
        _SITE,
        '        if lease.group in self._surplus_of(lease.uid):\n            return "shrink"\n',
        "        if lease.group in self._surplus_of(lease.uid) and not self._is_safe(lease.uid):\n"
        '            return "shrink"\n',
        story("Q5-a-protected-run-is-shrunk-but-not-drawn"),
    ),
    Mutant(
        "R2, what the first group takes is a place for the second",
        _SITE,
        "            self._taken = best[2]\n",
        "            self._taken = self._taken or best[2]\n",
        _OF_SITE,
    ),
    Mutant(
        "R2, the node is any that there is",
        _SITE,
        "            if best is None or (loss, name) < best:\n",
        "            if best is None:\n",
        _OF_SITE,
    ),
    Mutant(
        "R3, the oldest spares go first",
        _CUTS,
        "        held.sort(key=_newest_first, reverse=True)\n",
        "        held.sort(key=_newest_first)\n",
        story("R3-newest-spares-go-first"),
    ),
    Mutant(
        "R3, one run gives up all before another gives up any",
        _CUTS,
        "            self._group_cut(CutKind.SHRINK, uid, max(self._groups_in_scope(uid))) "
        "for uid in order\n",
        "            self._group_cut(CutKind.SHRINK, uid, max(self._groups_in_scope(uid))) "
        "for uid in order[-1:]\n",
        story("R6-early-victims-are-given-back"),
    ),
    Mutant(
        "R4, a sweep at its minimum gives up a group",
        _CUTS,
        "        if run.spec.gang is Gang.GROUP and width_after >= minimum_gpus(run.spec):\n",
        "        if run.spec.gang is Gang.GROUP:\n",
        unit("core/test_cutting"),
    ),
    Mutant(
        "R4, bundles are not counted again after a draw",
        _URN,
        "            if mine and width - sweep.group < sweep.minimum:\n",
        "            if mine and width < 0:\n",
        _OF_URN,
    ),
    Mutant(
        "R4, who is protected is drawn",
        _CUTS,
        "            if run is None or (beneficiary and is_protected(self.world, run, now)):\n",
        "            if run is None:\n",
        prop("resolve"),
    ),
    Mutant(
        "R5, an owner with more runs is drawn more often",
        _URN,
        "        owner = list(choices)[number(seed_hex, self._k, len(choices))]\n",
        "        every = [each for each in choices for _ in choices[each]]\n"
        "        owner = every[number(seed_hex, self._k, len(every))]\n",
        unit("test_lottery"),
    ),
    Mutant(
        "R5, a copy of an urn begins with the first number again",
        _URN,
        "        found._widths, found._k = dict(self._widths), self._k\n",
        "        found._widths = dict(self._widths)\n",
        _OF_URN,
    ),
    Mutant(
        "R5, what is left of a sweep is owned if any of it is",
        _URN,
        "                is_owned = all(each.is_owned for each in mine)\n",
        "                is_owned = any(each.is_owned for each in mine)\n",
        _OF_URN,
    ),
    Mutant(
        "R6, victims without whom it would fit are not given back",
        _CUTS,
        "    returned = _given_back(scope, taken) if scope.fits() else ()\n",
        "    returned = ()\n",
        story("R6-early-victims-are-given-back"),
    ),
)
