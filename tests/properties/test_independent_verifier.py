"""The core and a verifier that knows only `docs/ledger-format.md` agree, on the page and off it."""

import json
import re
from itertools import islice
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.properties import independent_verifier as independent
from tests.unit.records import lines_of
from tests.unit.test_batch import FULL
from tests.unit.test_verify import HONEST

from leasehold.core.ledger import lottery
from leasehold.core.ledger.chain import GENESIS, digest_of, next_digest
from leasehold.core.ledger.verify import verify_lines, verify_objects
from leasehold.core.resolutions import Bundle
from leasehold.core.units import format_instant

PAGE = Path(__file__).parents[2] / "docs" / "ledger-format.md"


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, language
    return found.group(1)


def page_lines() -> list[dict[str, object]]:
    return [json.loads(line) for line in block("jsonl").splitlines()]


def page_resolution() -> dict[str, object]:
    return {"metadata": {"name": "train-16-1-3"}, "spec": json.loads(block("json"))}


def test_the_pages_example_is_recomputed_by_both() -> None:
    lines, resolution = page_lines(), page_resolution()
    assert independent.check_chain(lines) == lines[-1]["digest"]
    assert independent.check_lottery(resolution["spec"])
    assert verify_lines(lines) is None
    assert verify_objects(lines, [], [resolution], materialised=0) is None
    assert independent.canonical(lines[-1]["batch"]).decode() == block("text").strip()
    published = lines[2]["batch"]
    assert isinstance(published, dict)
    assert published["resolutions"][0]["digest"] == digest_of(resolution["spec"])


def test_the_pages_table_of_numbers_is_right() -> None:
    spec = json.loads(block("json"))
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 2 * len(spec["lottery"]["draws"])
    for k, n, drawn in rows:
        assert independent.draw_number(spec["lottery"]["seed"], int(k), int(n)) == int(drawn)


def test_both_find_the_same_broken_link() -> None:
    lines = lines_of(*HONEST)
    assert independent.check_chain(lines) == lines[-1]["digest"]
    lines[3] = {**lines[3], "digest": "00" * 32}
    assert independent.check_chain(lines) == 4
    problem = verify_lines(lines)
    assert problem is not None
    assert problem.seq == 4


def test_both_link_a_batch_that_has_every_part() -> None:
    assert isinstance(independent.check_chain(lines_of(FULL)), str)


names = st.text("ab-é\U00010000\uffff", min_size=1, max_size=3)
groups = st.none() | st.integers(0, 30)
bundles = st.builds(
    Bundle, namespace=names, run=names, uid=st.just(""), group=groups, gpus=st.just(8)
)


@given(
    conflict=st.dictionaries(
        names, st.lists(bundles, max_size=5, unique_by=lambda bundle: bundle.name), max_size=4
    ),
    nonce=st.binary(min_size=32, max_size=32).map(bytes.hex),
    instant=st.integers(0, 4_000_000_000_000),
    stop=st.integers(0, 8),
)
def test_both_draw_alike(
    conflict: dict[str, list[Bundle]], nonce: str, instant: int, stop: int
) -> None:
    seed = lottery.seed("a/b", instant, GENESIS, nonce)
    drawn = islice(lottery.draw_order(seed, conflict), stop)
    spec = {
        "lottery": {
            "seed": seed,
            "derivedFrom": {
                "subject": "a/b",
                "instant": format_instant(instant),
                "ledgerDigest": GENESIS,
                "nonce": nonce,
            },
            "commitment": lottery.commitment(nonce),
            "conflictSet": {
                owner: [{"bundle": each.name, "gpus": each.gpus} for each in mine]
                for owner, mine in conflict.items()
            },
            "draws": [
                {"owner": owner, "bundle": each.name, "gpus": each.gpus} for owner, each in drawn
            ],
        }
    }
    assert independent.check_lottery(spec)


@given(st.dictionaries(names, st.integers() | names))
def test_both_hash_alike(value: dict[str, object]) -> None:
    text = independent.canonical(value)
    assert next_digest(GENESIS, text) == independent.sha(GENESIS.encode() + b"\n" + text)
    assert independent.sha(text) == digest_of(value)
