"""Writes docs/query-api.md from the questions themselves: `python tools/query_docs.py [--check]`.

`make docs` and a test call it with --check, which writes nothing and fails when the file is not
what is answered. The examples are answers about a story on virtual time, so that they are the same
whenever and wherever they are made; of each list the first row is shown.
"""

import asyncio
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.questions.played import ADMIN, Played  # noqa: E402 - the checkout's own stories
from tests.questions.test_the_past import STORY  # noqa: E402

from leasehold.control.questions.answers import ANSWERS  # noqa: E402
from leasehold.control.questions.asked import PARAMETERS  # noqa: E402
from leasehold.shell.query import QUESTIONS  # noqa: E402

PAGE = ROOT / "docs" / "query-api.md"
_RUN = {"namespace": "vision", "run": "train"}
ASKED: dict[str, tuple[str, dict[str, str]]] = {
    "attention": ("What will not mend itself, with what to do about it.", {}),
    "audit": ("Whether leases, pods and balances agree.", {}),
    "budgets": ("What envelopes are used for: `form` is `usage`, `balance` or `tree`.", {}),
    "burn": ("What each envelope with a limit had spent, since its window opened.", {}),
    "cover": ("Who was asked to pay, in order; with a manifest as body, who would be.", _RUN),
    "drain": ("What becomes of the runs on a node while it is emptied.", {"node": "a-00"}),
    "explain": ("Why a run stands where it stands.", {"namespace": "speech", "run": "rescore"}),
    "fleet": ("Every node with who holds each of its slots, now or `at` an instant.", {}),
    "leases": ("Who used what, when, who paid, why it ended.", {"since": "12h", "limit": "1"}),
    "ledger-head": ("Where the ledger stands.", {}),
    "plan": ("What would happen if a run were submitted now, as body or by name.", _RUN),
    "pods": ("The pods of a run.", _RUN),
    "report": ("GPU-hours of a period: the bill.", {"by": "owner"}),
    "reservations": ("Starts that are planned.", {"past": "true"}),
    "resolutions": ("What was cut, and for whom; one by name, with its record.", {"limit": "1"}),
    "runs": ("What is there, in what state, how wide, who pays.", {}),
    "sponsors": ("Who may sponsor a run.", _RUN),
    "who-pays": ("Owned, shared and borrowed, by envelope.", _RUN),
    "widths": ("How many GPUs a run has held, from its first lease on.", _RUN),
}
_BEGINNING = """\
# The query API

<!-- Made by tools/query_docs.py from the questions; edit them instead, and run it again. -->

`kubectl runs` and [the dashboard](user-guide/dashboard.md) ask the control plane questions, and so
can any client: with GET at `/query/v1/QUESTION`, and a bearer token whose rights decide what is
told. On a cluster the path is `/apis/query.rq.davidlangworthy.io/v1/questions/QUESTION`, at the
API server; `leasehold up` answers there too. An answer is JSON with `question` and `now` beside its
own fields. Fields are added, never renamed or given another meaning. GPU-time is exact in `gpuMs`
and in words in `gpuHours`; instants are RFC 3339 in UTC, null for what has not happened. The schema
of each answer is in the OpenAPI document `/openapi/v3/query/v1`.

Of each list the first row is shown.
"""


def page() -> str:
    """The whole text."""
    played = Played(STORY)
    questions = played.questions()
    parts = [_BEGINNING]
    for question in QUESTIONS:
        says, params = ASKED[question]
        answer = asyncio.run(questions.ask(ADMIN, question, params, None))
        query = "&".join(f"{key}={value}" for key, value in params.items())
        legal = ", ".join(f"`{each}`" for each in PARAMETERS[question]) or "none"
        records = " or ".join(f"`{each.__name__}`" for each in ANSWERS[question])
        shown = json.dumps(_first(answer), indent=1, ensure_ascii=False)
        parts.append(
            f"## {question}\n\n{says}\n\nParameters: {legal}. Record: {records}.\n\n"
            f"```text\nGET /query/v1/{question}{'?' if query else ''}{query}\n```\n\n"
            f"```json\n{shown}\n```\n"
        )
    return "\n".join(parts)


def _first(value: object) -> object:
    """Lists of objects cut after the first; lists of words are short."""
    if isinstance(value, dict):
        return {key: _first(each) for key, each in value.items()}
    if isinstance(value, list):
        rows = value[:1] if value and isinstance(value[0], dict) else value
        return [_first(each) for each in rows]
    return value


def main() -> None:
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
    elif not PAGE.is_file() or PAGE.read_text() != text:
        sys.exit(
            f"{PAGE.relative_to(ROOT)} is not what is answered; run python tools/query_docs.py"
        )


if __name__ == "__main__":
    main()
