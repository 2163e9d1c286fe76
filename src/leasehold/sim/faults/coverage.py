"""Counts rare events (marks) that a set of simulated seeds must reach.

If no seed reaches a mark, the faults do not test what they should.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from leasehold.adapters.objects.storage import Change, decode
from leasehold.core.objects.wire import part, text_at
from leasehold.sim.faults.checks import LeaderChange

EXPECTED = (
    "taken over after expiry",
    "handed over",
    "taken over from a standby",
    "taken over by reading all",
    "soft stop",
    "sure again after a soft stop",
    "hard stop while cut off",
    "deposed by the head",
    "status of somebody deposed",
    "status came late",
    "request arrived twice",
    "answer lost after a write",
    "write lost",
    "watch began anew",
    "killed in a write",
    "stopped at a point",
    "stopped in recovery",
    "leader killed at a point",
    "two of one name",
    "clock jumped",
    "read from a replica that lags",
    "run cancelled at a bad moment",
    "node cut off alone",
    "node heard and hears nothing",
    "node missed",
    "node fenced itself",
    "silence counted as death",
    "taken over with other settings",
    "outdated program left it alone",
    "GPU broke",
    "GPU broke in use",
    "lease opened by Start",
    "lease opened by Grow",
    "lease opened by Swap",
    "lease opened by Refinance",
    "closed NodeFailure",
    "closed Shrink",
    "closed RandomPreempt",
    "closed TimeLimit",
    "closed Canceled",
    "second attempt",
)

_EFFECTS = {
    "net-copy": "request arrived twice",
    "lose-answer": "answer lost after a write",
    "lose-request": "write lost",
    "watch-break": "watch began anew",
    "kill-before": "killed in a write",
    "kill-after": "killed in a write",
    "pause at a point": "stopped at a point",
    "pause in recovery": "stopped in recovery",
    "crash at a point": "leader killed at a point",
    "twin": "two of one name",
    "jump": "clock jumped",
    "late-status": "status came late",
    "stale-read": "read from a replica that lags",
    "meddle": "run cancelled at a bad moment",
    "cut of a node": "node cut off alone",
    "cut-answers of a node": "node heard and hears nothing",
    "node missed": "node missed",
    "self-fenced": "node fenced itself",
    "head of a later format": "outdated program left it alone",
    "gpu-break": "GPU broke",
    "gpu-break in use": "GPU broke in use",
}


class Coverage:
    def __init__(self, is_silent: Callable[[str], bool]) -> None:
        self._is_silent = is_silent
        self.seen: Counter[str] = Counter()
        self._was_older: bool | None = None  # whether the last leader had older settings

    def on_word(self, who: str, words: str) -> None:
        if who in ("user", "nemesis", "check"):
            return
        if words == "unsure":
            self.seen["soft stop"] += 1
        elif words.startswith("gained"):
            is_older = words.endswith("older settings")
            self.seen["taken over with other settings"] += self._was_older not in (is_older, None)
            self._was_older = is_older
        elif words == "sure again":
            self.seen["sure again after a soft stop"] += 1
        elif words.startswith("lost: no renewal"):
            self.seen["hard stop while cut off"] += 1
        elif words.startswith("lost: another process moved"):
            self.seen["deposed by the head"] += 1

    def on_change(self, change: Change) -> None:
        if change.key[0] != "Lease" or change.event == "DELETED":
            return
        obj = decode(change.body)
        spec, status = part(obj, "spec"), part(obj, "status")
        if change.event == "ADDED":
            self.seen[f"lease opened by {text_at(spec, 'reason')}"] += 1
            attempt = part(spec, "runRef").get("attempt")
            self.seen["second attempt"] += isinstance(attempt, int) and attempt > 1
        elif status.get("closed"):
            reason = text_at(status, "closureReason").partition("[")[0].partition("(")[0]
            self.seen[f"closed {reason}"] += 1
            node = text_at(part(spec, "slice"), "node")
            is_silence = reason == "NodeFailure" and self._is_silent(node)
            self.seen["silence counted as death"] += is_silence

    def count_effects(self, effects: Counter[str], take_overs: Iterable[LeaderChange]) -> None:
        for kind, mark in _EFFECTS.items():
            self.seen[mark] += effects[kind]
        for each in take_overs:
            self.seen["handed over" if each.handed_over else "taken over after expiry"] += 1
