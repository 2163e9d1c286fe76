"""The core agrees with a verifier that knows only `docs/ledger-format.md`, also on its examples."""

import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.properties import independent_verifier as independent
from tests.unit.records import lines_of
from tests.unit.test_batch import FULL
from tests.unit.test_verify import HONEST

from leasehold.core.ledger import lottery
from leasehold.core.ledger.chain import GENESIS, digest_of, next_digest
from leasehold.core.ledger.verify import verify_lines, verify_objects
from leasehold.core.objects.resolution import lottery_to_wire
from leasehold.core.resolutions import Bundle, Draw, Lottery, SweepWidth

PAGE = Path(__file__).parents[2] / "docs" / "ledger-format.md"


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, language
    return found.group(1)


def page_lines() -> list[dict[str, object]]:
    return [json.loads(line) for line in block("jsonl").splitlines()]


def page_resolution() -> dict[str, object]:
    return {"metadata": {"name": "train-16-1-3"}, "spec": json.loads(block("json"))}


def test_documented_example_is_accepted_by_both_verifiers() -> None:
    lines, resolution = page_lines(), page_resolution()
    assert independent.check_chain(lines) == lines[-1]["digest"]
    assert independent.check_lottery(resolution["spec"])
    assert verify_lines(lines) is None
    assert verify_objects(lines, [], [resolution], materialised=0) is None
    assert independent.canonical(lines[-1]["batch"]).decode() == block("text").strip()
    published = lines[2]["batch"]
    assert isinstance(published, dict)
    assert published["resolutions"][0]["digest"] == digest_of(resolution["spec"])


def test_documented_table_of_draw_numbers_is_right() -> None:
    spec = json.loads(block("json"))
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 2 * len(spec["lottery"]["draws"])
    for k, n, drawn in rows:
        assert independent.draw_number(spec["lottery"]["seed"], int(k), int(n)) == int(drawn)


def test_both_verifiers_find_the_same_broken_link() -> None:
    lines = lines_of(*HONEST)
    assert independent.check_chain(lines) == lines[-1]["digest"]
    lines[3] = {**lines[3], "digest": "00" * 32}
    assert independent.check_chain(lines) == 4
    problem = verify_lines(lines)
    assert problem is not None
    assert problem.seq == 4


def test_both_verifiers_compute_the_same_digest_of_a_batch_with_every_part() -> None:
    assert isinstance(independent.check_chain(lines_of(FULL)), str)


names = st.text("ab-é\U00010000\uffff", min_size=1, max_size=3)
# A run: namespace, name, groups in the scope, whether its owner pays, groups elsewhere, and
# whether it is a sweep whose bundles are recounted.
runs = st.tuples(
    names,
    names,
    st.none() | st.sets(st.integers(0, 12), min_size=1, max_size=5),
    st.booleans(),
    st.integers(0, 2),
    st.booleans(),
)
owners = st.dictionaries(
    names, st.lists(runs, max_size=4, unique_by=lambda run: run[:2]), max_size=4
)
Runs = dict[str, list[tuple[str, str, set[int] | None, bool, int, bool]]]


def a_lottery(of: Runs, nonce: str, instant: int, *, owned_last: bool, stop: int) -> Lottery:
    """Return a lottery that draws from these runs; each group has eight GPUs."""
    conflict: dict[str, list[Bundle]] = {}
    sweeps: dict[str, SweepWidth] = {}
    for owner, mine in of.items():
        for namespace, name, scope, is_owned, elsewhere, is_counted in mine:
            whole = Bundle(
                namespace=namespace, run=name, uid="", group=None, gpus=8, is_owned=is_owned
            )
            groups = sorted(scope) if scope is not None else [None]
            conflict.setdefault(owner, []).extend(replace(whole, group=each) for each in groups)
            if scope is not None and is_counted:
                width = 8 * (len(scope) + elsewhere)
                sweeps.setdefault(
                    whole.run_key, SweepWidth(run=whole.run_key, width=width, minimum=16, group=8)
                )
    seed = lottery.seed("a/b", instant, GENESIS, nonce)
    urn = lottery.Urn(conflict, tuple(sweeps.values()), owned_last=owned_last)
    drawn = [found for _ in range(stop) if (found := urn.draw(seed)) is not None]
    return Lottery(
        seed=seed, subject="a/b", instant=instant, ledger_digest=GENESIS, nonce=nonce,
        commitment=lottery.commitment(nonce), announced_in=1,
        conflict_set=tuple((owner, tuple(mine)) for owner, mine in conflict.items()),
        draws=tuple(Draw(owner=o, bundle=each.name, gpus=each.gpus) for o, each in drawn),
        sweeps=tuple(sweeps.values()), owned_last=owned_last,
    )  # fmt: skip


@given(
    of=owners,
    nonce=st.binary(min_size=32, max_size=32).map(bytes.hex),
    instant=st.integers(0, 4_000_000_000_000),
    owned_last=st.booleans(),
    stop=st.integers(0, 8),
)
def test_independent_verifier_accepts_every_lottery_of_the_core(
    of: Runs, nonce: str, instant: int, *, owned_last: bool, stop: int
) -> None:
    made = a_lottery(of, nonce, instant, owned_last=owned_last, stop=stop)
    spec = {"lottery": lottery_to_wire(made)}
    assert independent.check_lottery(json.loads(json.dumps(spec)))


@given(st.dictionaries(names, st.integers() | names))
def test_core_and_independent_verifier_compute_the_same_hashes(value: dict[str, object]) -> None:
    text = independent.canonical(value)
    assert next_digest(GENESIS, text) == independent.sha(GENESIS.encode() + b"\n" + text)
    assert independent.sha(text) == digest_of(value)
