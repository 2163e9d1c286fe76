"""Draws are a fair shuffle that depends only on the seed and the set; odds predict the draws."""

import hashlib
from collections import Counter
from functools import partial
from random import Random

from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from tests.properties.independent_verifier import draw_number
from tests.properties.test_resolve import Rows, a_full_world, fleets, run_rows
from tests.properties.worlds import NOW, a_run, a_site, a_wish
from tests.unit.test_lottery import draw_order

from leasehold.core.calendar.entries import Calendar
from leasehold.core.ledger import lottery
from leasehold.core.preemption.odds import preview
from leasehold.core.preemption.resolve import Resolved, resolve
from leasehold.core.preemption.victims import CutKind
from leasehold.core.resolutions import Bundle

SEEDS = 150
PERCENT_OFF_MAX = 16  # four standard deviations of a frequency over so many seeds

seeds = st.integers(0, 1 << 64).map(lambda number: f"{number:064x}")
bundles = st.builds(
    Bundle,
    namespace=st.sampled_from("ab"),
    run=st.sampled_from("xyz"),
    uid=st.just(""),
    group=st.none() | st.integers(0, 12),
    gpus=st.integers(1, 16),
)
conflicts = st.dictionaries(
    st.sampled_from(("o", "o:a", "p")),
    st.lists(bundles, max_size=5, unique_by=lambda bundle: bundle.name),
)


@given(seed=seeds, k=st.integers(0, 50), n=st.integers(1, 1 << 64) | st.just((1 << 63) + 1))
def test_draw_number_equals_that_of_the_independent_verifier(seed: str, k: int, n: int) -> None:
    number = lottery.number(seed, k, n)
    assert number == draw_number(seed, k, n)
    assert 0 <= number < n


@given(seed=seeds, conflict=conflicts, shuffle=st.randoms(use_true_random=False))
def test_every_bundle_is_drawn_once_regardless_of_input_order(
    seed: str, conflict: dict[str, list[Bundle]], shuffle: Random
) -> None:
    drawn = list(draw_order(seed, conflict))
    everything = [(owner, each.name) for owner, mine in conflict.items() for each in mine]
    assert sorted((owner, each.name) for owner, each in drawn) == sorted(everything)
    owners = list(conflict)
    shuffle.shuffle(owners)
    turned = {owner: shuffle.sample(conflict[owner], len(conflict[owner])) for owner in owners}
    assert list(draw_order(seed, turned)) == drawn


@given(fabrics=fleets, rows=run_rows, gpus=st.sampled_from((4, 8)), groups=st.integers(1, 2))
@settings(max_examples=12, phases=(Phase.generate,))  # shrinking would take minutes
def test_exact_odds_match_the_frequencies_of_real_draws(
    fabrics: list[str], rows: Rows, gpus: int, groups: int
) -> None:
    world = a_full_world(fabrics, rows)
    run = a_run("new", "z", groups=groups, group_gpus=gpus, pod_gpus=gpus)
    world.put_run(run)
    request = a_wish(world, run)
    site = a_site(world, request)
    assume(site is not None)
    assert site is not None
    seen = preview(world, request, Calendar(), site, at=NOW, now=NOW, may_sample=lambda: False)
    assume(bool(seen.odds))
    assert seen.odds is not None
    ended: Counter[str] = Counter()
    for index in range(SEEDS):
        seed = hashlib.sha256(f"{index}".encode()).hexdigest()
        answer = resolve(world, request, Calendar(), site, now=NOW, seeder=partial(str, seed))
        assert isinstance(answer, Resolved)
        ended.update({cut.run for cut in answer.cuts.kept if cut.kind is CutKind.DRAW})
    for name, percent in seen.odds:
        assert abs(percent - 100 * ended[name] / SEEDS) <= PERCENT_OFF_MAX, name
