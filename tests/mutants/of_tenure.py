"""Planted bugs of tenure: mistakes that let two processes decide, or none."""

from tests.mutants.mutant import Mutant

_SUITE = ("tests/conformance/test_tenure.py", "-k", "memory and not faults")
_HISTORIES = ("tests/conformance/test_tenure_histories.py", "-k", "memory and not faults")
_OUTCOMES = ("tests/unit/shell/test_tenure_outcomes.py",)
_KEEPER = ("tests/unit/shell/test_keeper.py",)

TENURE = (
    Mutant(
        "a ledger of a later format is sealed",
        "core/ledger/head.py",
        "        raise UnknownFormat(found)\n",
        "        return\n",
        ("tests/unit/shell/test_ledger.py",),
    ),
    Mutant(
        "whoever does not know the format contends",
        "shell/leadership/keeper.py",
        "            return Unanswered(why=self.trouble)\n        self.trouble",
        "            above = 0\n        self.trouble",
        _KEEPER,
    ),
    Mutant(
        "tenure counted from the answer",
        "shell/leadership/tenure.py",
        "version=record.version, since=sent",
        "version=record.version, since=self._clock.monotonic()",
        _OUTCOMES,
    ),
    Mutant(
        "tenure taken after hold instead of take",
        "shell/leadership/tenure.py",
        "        if stood > self._margins.take:\n",
        "        if stood > self._margins.hold:\n",
        _SUITE,
    ),
    Mutant(
        "tenure taken a millisecond early",
        "shell/leadership/tenure.py",
        "        if stood > self._margins.take:\n",
        "        if stood >= self._margins.take:\n",
        _SUITE,
    ),
    Mutant(
        "tenure waited for by the record's own instant",
        "shell/leadership/tenure.py",
        "        stood = self._clock.monotonic() - self._observed[key].since\n",
        "        stood = self._clock.now() - (record.renewed if record else 0)\n",
        _SUITE,
    ),
    Mutant(
        "tenure believed too long by one",
        "shell/leadership/tenure.py",
        "        return age is not None and age < self._margins.hold\n",
        "        return age is not None and age <= self._margins.hold\n",
        _SUITE,
    ),
    Mutant(
        "tenure renewed after its time",
        "shell/leadership/tenure.py",
        "                if age is None or age >= self._margins.hold:\n",
        "                if age is None:\n",
        _SUITE,
    ),
    Mutant(
        "tenure revived after the hard stop",
        "shell/leadership/tenure.py",
        "        if age is None or age >= self._margins.hold:\n"
        "            return self._stopped(tenure, age)\n        return self._granted(",
        "        if age is None:\n"
        "            return self._stopped(tenure, age)\n        return self._granted(",
        _OUTCOMES,
    ),
    Mutant(
        "tenure's epoch kept over a release",
        "shell/leadership/tenure.py",
        "            epoch=max(before.epoch, above, self._highest.get(key, 0)) + 1,\n",
        "            epoch=max(before.epoch, above) + (not before.is_free),\n",
        _SUITE,
    ),
    Mutant(
        "tenure's epoch below the head's",
        "shell/leadership/tenure.py",
        "max(before.epoch, above, self._highest",
        "max(before.epoch, self._highest",
        _SUITE,
    ),
    Mutant(
        "tenure's epoch raised by a renewal",
        "shell/leadership/tenure.py",
        "            known.record, write=self._new_write(tenure.holder),",
        "            known.record, epoch=known.record.epoch + 1,"
        " write=self._new_write(tenure.holder),",
        _HISTORIES,
    ),
    Mutant(
        "tenure released by a stranger",
        "shell/leadership/tenure.py",
        "    return (record.holder, record.epoch) == (tenure.holder.identity, tenure.epoch)\n",
        "    return record.epoch == tenure.epoch\n",
        _SUITE,
    ),
    Mutant(
        "tenure of an older start of ours",
        "core/objects/tenure.py",
        '        return f"{self.name}_{self.nonce}"\n',
        "        return self.name\n",
        _SUITE,
    ),
    Mutant(
        "tenure believed until the release is answered",
        "shell/leadership/tenure.py",
        "        if believed is not None and _is_same(believed, tenure):\n            del",
        "        if believed is not None and not _is_same(believed, tenure):\n            del",
        _OUTCOMES,
    ),
    Mutant(
        "tenure's lost answer taken for a no",
        "shell/leadership/tenure.py",
        "        if there is not None and there.record.write == wanted.write:\n"
        "            return self._granted(there, holder, sent)\n"
        "        return Unanswered(why=why)\n",
        "        return Unanswered(why=why)\n",
        _OUTCOMES,
    ),
    Mutant(
        "tenure's lost answer taken for a yes",
        "shell/leadership/tenure.py",
        "        if there.record.write == wanted.write:\n",
        "        if there.record.holder == wanted.holder:\n",
        _OUTCOMES,
    ),
    Mutant(
        "tenure of a deleted record is free",
        "shell/leadership/tenure.py",
        "        if self._is_alone or (record is None and not is_used):\n",
        "        if self._is_alone or record is None:\n",
        _SUITE,
    ),
    Mutant(
        "tenure's waiting disturbed by annotations",
        "shell/leadership/tenure.py",
        "        self._observe(key, (record.holder, record.epoch, record.write))\n",
        "        self._observe(key, (record.holder, record.epoch, str(record.version)))\n",
        _SUITE,
    ),
    Mutant(
        "keeper's hard stop waits for an answer",
        "shell/leadership/keeper.py",
        "            if age >= self._margins.hold:\n",
        "            if age >= self._margins.take:\n",
        _KEEPER,
    ),
    Mutant(
        "keeper without a soft stop",
        "shell/leadership/keeper.py",
        "            if (age >= self._margins.soft_stop) != self._is_unsure:\n",
        "            if (age >= self._margins.hold) != self._is_unsure:\n",
        _KEEPER,
    ),
    Mutant(
        "keeper that keeps what it could give back",
        "shell/leadership/keeper.py",
        "        await self._give_back(tenure)\n",
        "",
        _KEEPER,
    ),
    Mutant(
        "keeper that gives back once, heard or not",
        "shell/leadership/keeper.py",
        "            if is_over or not self._is_stopping:\n",
        "            if is_over or self._is_stopping:\n",
        _KEEPER,
    ),
    Mutant(
        "keeper that waits out a free record",
        "shell/leadership/keeper.py",
        "                await self._maybe_free.wait(self._pause(outcome))\n",
        "                await self._clock.sleep(self._pause(outcome))\n",
        _KEEPER,
    ),
)
