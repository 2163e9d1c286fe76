"""The jobs read from an exported ledger are those that were played, as far as a ledger shows."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from leasehold.core.facts import Node
from leasehold.core.objects.budget import budget_from_wire
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, MINUTE
from leasehold.shell.config.yamlfile import BadFile
from leasehold.sim.replay.jobs import UNFINISHED, Job, all_known
from leasehold.sim.replay.past import read_past
from leasehold.sim.replay.player import JobBehaviour, Setting, play
from leasehold.sim.scenario.ledger import write_ledger

START = 1_500_000_000_000


def job(line: int, gpus: int, at: int, lasts: int) -> Job:
    return Job(
        line=line,
        name=f"job-{line}",
        owner="org:a",
        gpus=gpus,
        submit=START + at,
        duration=lasts,
        flavor="V100",
    )


JOBS = [
    job(1, 4, 0, HOUR),
    job(2, 16, 10 * MINUTE, HOUR),  # two nodes: it waits for the first
    job(3, 2, 20 * MINUTE, 30 * MINUTE),
]


def setting() -> Setting:
    envelope = {"name": "own", "flavor": "V100", "concurrency": 16}
    budget = budget_from_wire(
        {
            "metadata": {"namespace": "a", "name": "a"},
            "spec": {"owner": "org:a", "envelopes": [envelope]},
        }
    )
    nodes = tuple(
        Node(name=f"n{i}", flavor="V100", region="r", cluster="c", fabric="d", gpus=8)
        for i in range(2)
    )
    return Setting("small", nodes, (budget,), Policy(min_tenure=0))


def exported(folder: Path, jobs: Sequence[Job] = JOBS) -> Path:
    write_ledger(play(setting(), jobs, JobBehaviour(known=all_known())).store, folder)
    return folder / "ledger.jsonl"


def test_jobs_read_from_a_ledger_are_those_that_ran(tmp_path: Path) -> None:
    past = read_past([exported(tmp_path)])

    found = [(each.gpus, each.submit - START, each.duration) for each in past.workload.jobs]
    assert found == [(each.gpus, each.submit - START, each.duration) for each in JOBS]
    assert {each.owner for each in past.workload.jobs} == {"org:a"}
    assert {each.flavor for each in past.workload.jobs} == {"V100"}
    assert [(node.name, node.gpus, node.domain) for node in past.nodes()] == [
        ("n0", 8, "r/c/d"), ("n1", 8, "r/c/d")
    ]  # fmt: skip
    (budget,) = past.budgets()
    assert (budget.owner, budget.envelopes[0].concurrency) == ("org:a", 16)


def test_replay_of_a_replay_ends_at_the_same_instant(tmp_path: Path) -> None:
    first = exported(tmp_path / "first")
    jobs = read_past([first]).workload.jobs

    second = exported(tmp_path / "second", jobs)

    assert (
        json.loads(second.read_text().splitlines()[-1])["batch"]["instant"]
        == (json.loads(first.read_text().splitlines()[-1])["batch"]["instant"])
    )


def test_work_repeated_after_a_preemption_counts_once(tmp_path: Path) -> None:
    def budget(owner: str) -> object:
        envelope = {"name": "own", "flavor": "V100", "concurrency": 8}
        metadata = {"namespace": owner, "name": owner}
        return {
            "metadata": metadata,
            "spec": {"owner": f"org:{owner}", "envelopes": [envelope]},
        }

    base = setting()
    budgets = tuple(budget_from_wire(budget(owner)) for owner in ("a", "b"))
    shared = Setting("shared", base.nodes, budgets, base.policy)
    jobs = [
        job(1, 8, 0, 2 * HOUR),
        job(2, 8, 1, 2 * HOUR),
        Job(line=3, name="job-3", owner="org:b", gpus=8, submit=START + 5 * MINUTE, duration=HOUR),
    ]
    played = play(shared, jobs, JobBehaviour(checkpoint=HOUR))
    assert [course.preemptions for course in played.courses] == [0, 1, 0]
    write_ledger(played.store, tmp_path)

    past = read_past([tmp_path / "ledger.jsonl"])

    # The first attempt of the second job ended before its first checkpoint.
    assert [each.duration for each in past.workload.jobs] == [2 * HOUR, 2 * HOUR, HOUR]


def test_part_of_a_ledger_needs_fleet_and_budgets_from_files(tmp_path: Path) -> None:
    path = exported(tmp_path)
    later = tmp_path / "later.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    later.write_text("".join(lines[2:4]))  # the start and the end of the third job

    past = read_past([later])

    assert [each.duration for each in past.workload.jobs] == [30 * MINUTE]
    with pytest.raises(BadFile, match=r"1 node that it does not describe, such as n0: .*--fleet"):
        past.nodes()
    with pytest.raises(BadFile, match=r"no Budget is described: .*--budgets"):
        past.budgets()
    assert len(read_past([later], teams=("org:b",)).workload.jobs) == 0


def test_job_still_running_at_the_ledgers_end_lasts_until_then(tmp_path: Path) -> None:
    path = exported(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:4]))  # until the third job ends, after fifty minutes

    workload = read_past([path]).workload

    assert [each.duration for each in workload.jobs] == [50 * MINUTE, 30 * MINUTE]
    assert workload.remarks[UNFINISHED] == 1


def test_wrong_line_of_a_ledger_is_reported_with_its_number(tmp_path: Path) -> None:
    path = exported(tmp_path)
    lines = path.read_text().splitlines(keepends=True)
    told = []
    for name, text in (
        ("gap", lines[0] + "".join(lines[2:])),
        ("edited", lines[0] + lines[1].replace("job-2", "job-9")),
        ("other", '{"a": 1}\n'),
        ("text", "no JSON\n"),
        ("empty", ""),
    ):
        wrong = tmp_path / name
        wrong.write_text(text)
        with pytest.raises(BadFile) as caught:
            read_past([wrong])
        mistake = caught.value.mistakes[0]
        told.append((name, mistake.line, mistake.problem.value.partition(":")[0]))

    assert told == [
        ("gap", 2, "this line does not follow from the line before"),
        ("edited", 2, "this line does not follow from the line before"),
        ("other", 1, "not a line of a ledger"),
        ("text", 1, "not a line of a ledger"),
        ("empty", 1, "no lease starts in this ledger"),
    ]
