"""Small workloads on the product's core, with every figure computed by hand."""

import pytest

from leasehold.core.facts import Node
from leasehold.core.ledger.verify import fold_lines
from leasehold.core.objects.budget import budget_from_wire
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, MINUTE, SECOND, Millis
from leasehold.sim.replay.figures import ALL, Figures, TeamFigures, figures_of
from leasehold.sim.replay.jobs import Job, all_known, limits_known
from leasehold.sim.replay.player import JobBehaviour, Played, Setting, play
from leasehold.sim.scenario.ledger import ledger_lines

START = 1_500_000_000_000
LEAD = 15 * MINUTE  # the notice an owner gives before it takes its own envelope back


def job(line: int, owner: str, gpus: int, at: Millis, lasts: Millis, **more: int) -> Job:
    return Job(
        line=line,
        name=f"job-{line}",
        owner=f"org:{owner}",
        gpus=gpus,
        submit=START + at,
        duration=lasts,
        **more,
    )


def setting(nodes: int, **concurrency: int) -> Setting:
    """Return nodes of eight GPUs, and a Budget for each owner below `org`."""
    return Setting(
        name="a small fleet",
        nodes=tuple(
            Node(name=f"n{i}", flavor="V100", region="r", cluster="c", fabric="d", gpus=8)
            for i in range(nodes)
        ),
        budgets=tuple(
            budget_from_wire(
                {
                    "metadata": {"namespace": owner, "name": owner},
                    "spec": {
                        "owner": f"org:{owner}",
                        "envelopes": [{"name": "own", "flavor": "V100", "concurrency": gpus}],
                    },
                }
            )
            for owner, gpus in concurrency.items()
        ),
        policy=Policy(min_tenure=0),
    )


def team(figures: Figures, owner: str) -> TeamFigures:
    (found,) = [each for each in (figures.total, *figures.teams) if each.owner == owner]
    return found


def waits(played: Played) -> list[Millis]:
    return [course.waited for course in played.courses]


# Both use one node in turn: b waits for the end of a, c for the end of b.
QUEUE = [
    job(1, "a", 8, 0, HOUR),
    job(2, "a", 8, 10 * MINUTE, HOUR),
    job(3, "a", 8, 20 * MINUTE, 30 * MINUTE),
]


def test_jobs_on_one_node_wait_for_each_other() -> None:
    played = play(setting(1, a=8), QUEUE, JobBehaviour(known=all_known()))
    figures = figures_of(played)

    assert waits(played) == [0, 50 * MINUTE, 100 * MINUTE]
    total = team(figures, ALL)
    assert (total.jobs, total.completed, total.failed, total.never_started) == (3, 3, 0, 0)
    assert total.waits is not None
    assert (total.waits.mean, total.waits.median) == (50 * 60, 50 * 60)
    assert (total.waits.p95, total.waits.longest) == (100 * 60, 100 * 60)
    assert (total.curve[0], total.curve[33], total.curve[34]) == (0, 0, 50 * 60)
    assert (total.gpu_hours, total.lost_gpu_hours, total.preemptions) == (20, 0, 0)
    assert figures.busy_percent == 100
    assert figures.end == "2017-07-14T05:10:00.000Z"  # two and a half hours after the start


def test_gpus_in_use_are_averages_over_equal_steps() -> None:
    jobs = [job(1, "a", 4, 0, MINUTE), job(2, "a", 2, 30 * SECOND + 500, 59 * SECOND + 500)]

    use = figures_of(play(setting(1, a=8), jobs, JobBehaviour())).use

    assert (use.owners, use.step_seconds, len(use.gpus[0])) == (("org:a",), 1, 90)
    assert [use.gpus[0][step] for step in (0, 29, 30, 31, 59, 60, 89)] == [4, 4, 5, 6, 6, 2, 2]


# a uses the whole fleet, half of it paid by b's envelope. b then needs its own half, and gets it
# when the notice is over. After that the run of a that b paid for waits until b's job ends.
TAKEN_BACK = [
    job(1, "a", 8, 0, 2 * HOUR),
    job(2, "a", 8, 1, 2 * HOUR),
    job(3, "b", 8, 5 * MINUTE, HOUR),
]
TAKEN_AT = 5 * MINUTE + LEAD


def test_owner_that_reclaims_its_envelope_costs_the_victims_unsaved_work() -> None:
    played = play(setting(2, a=8, b=8), TAKEN_BACK, JobBehaviour(checkpoint=6 * MINUTE))
    figures = figures_of(played)

    assert [course.preemptions for course in played.courses] == [0, 1, 0]
    # Twenty minutes less a millisecond had been worked, of which three checkpoints were saved.
    lost = TAKEN_AT - 1 - 18 * MINUTE
    assert played.courses[1].lost == 8 * lost
    assert played.courses[1].waited == HOUR
    assert played.courses[1].ended_at == START + 1 + 3 * HOUR + lost
    assert team(figures, "org:b").waits.mean == LEAD // SECOND
    assert team(figures, "org:a").preempted == 1
    assert (team(figures, "org:a").lost_gpu_hours, team(figures, "org:b").lost_gpu_hours) == (
        pytest.approx(8 * lost / HOUR, abs=0.001),
        0,
    )


def test_wait_of_a_job_includes_the_wait_after_a_preemption() -> None:
    before = job(0, "a", 16, 0, MINUTE)

    played = play(setting(2, a=8, b=8), [before, *TAKEN_BACK], JobBehaviour(checkpoint=HOUR))

    assert [course.preemptions for course in played.courses] == [0, 0, 1, 0]
    assert waits(played) == [0, MINUTE, MINUTE - 1 + HOUR, LEAD]
    assert played.courses[2].first_start == START + MINUTE


def test_job_that_saves_on_stop_loses_only_the_time_to_load() -> None:
    played = play(
        setting(2, a=8, b=8), TAKEN_BACK, JobBehaviour(saves_on_stop=True, resume=10 * MINUTE)
    )

    course = played.courses[1]
    assert (course.preemptions, course.lost) == (1, 0)
    assert course.ended_at == START + 1 + 3 * HOUR + 10 * MINUTE
    assert course.ran == 8 * (2 * HOUR + 10 * MINUTE)


def test_declared_duration_includes_the_time_to_load_a_checkpoint() -> None:
    played = play(setting(1, a=8), QUEUE, JobBehaviour(known=all_known(resume=MINUTE)))

    declared = [run.spec.max_duration for run in played.world.runs.values()]
    assert declared == [HOUR + MINUTE, HOUR + MINUTE, 31 * MINUTE]


def test_job_without_checkpoints_fails_when_it_is_preempted() -> None:
    played = play(setting(2, a=8, b=8), TAKEN_BACK, JobBehaviour())
    figures = figures_of(played)

    assert [course.ending for course in played.courses] == [
        "Completed", "Overdrawn", "Completed"
    ]  # fmt: skip
    of_a = team(figures, "org:a")
    assert (of_a.completed, of_a.failed) == (1, 1)
    assert played.courses[1].lost == played.courses[1].ran == 8 * (TAKEN_AT - 1)


def test_job_is_ended_at_the_limit_of_its_row() -> None:
    jobs = [
        job(1, "a", 4, 0, HOUR, limit=30 * MINUTE),
        job(2, "a", 4, 0, HOUR, limit=HOUR),
        job(3, "a", 8, 1, MINUTE),
    ]

    played = play(setting(1, a=8), jobs, JobBehaviour(known=limits_known, checkpoint=10 * MINUTE))

    assert [course.ending for course in played.courses] == ["TimeLimit", "Completed", "Completed"]
    assert [course.preemptions for course in played.courses] == [0, 0, 0]
    assert waits(played)[2] == HOUR - 1
    # Its saved work is lost, too.
    assert played.courses[0].lost == played.courses[0].ran == 4 * 30 * MINUTE


def test_job_too_large_or_without_budget_never_starts_and_the_replay_ends() -> None:
    jobs = [job(1, "a", 8, 0, HOUR), job(2, "a", 64, 1, HOUR), job(3, "nobody", 1, 2, HOUR)]

    figures = figures_of(play(setting(1, a=8), jobs, JobBehaviour()))

    assert (figures.total.completed, figures.total.never_started) == (1, 2)
    assert team(figures, "org:nobody").waits is None
    assert team(figures, "org:nobody").curve == ()


def test_job_wider_than_a_domain_is_split_into_groups() -> None:
    base = setting(3, a=24)
    nodes = tuple(
        Node(name=f"n{i}", flavor="V100", region="r", cluster="c", fabric=f"d{i}", gpus=8)
        for i in range(3)
    )
    wide = Setting(base.name, nodes, base.budgets, base.policy)

    played = play(wide, [job(1, "a", 24, 0, HOUR), job(2, "a", 12, 0, HOUR)], JobBehaviour())

    assert [course.ending for course in played.courses] == ["Completed", "Completed"]
    assert waits(played) == [0, HOUR]


def test_ledger_of_a_replay_verifies_and_has_the_gpu_time_that_its_jobs_used() -> None:
    played = play(setting(2, a=8, b=8), TAKEN_BACK, JobBehaviour(checkpoint=6 * MINUTE))

    lines = ledger_lines(played.store)

    assert len(lines) > 4
    fold, wrong = fold_lines(lines)
    assert wrong is None
    paid = sum(lease.gpu_ms(0) for lease in fold.leases.values())
    assert paid == sum(course.ran for course in played.courses)
    assert paid == -sum((at - START) * gpus for at, _, gpus in played.use)


def test_same_seed_gives_the_same_ledger() -> None:
    lines = [
        ledger_lines(play(setting(2, a=8, b=8), TAKEN_BACK, JobBehaviour(), seed=seed).store)[-1]
        for seed in (1, 1, 2)
    ]

    assert lines[0] == lines[1]
    assert lines[0]["digest"] != lines[2]["digest"]


def test_progress_counts_the_jobs_that_have_ended() -> None:
    told: list[int] = []

    play(setting(1, a=8), QUEUE, JobBehaviour(known=all_known()), progress=told.append)

    assert told == [1, 2, 3]
