"""The baselines that replays are compared with, on jobs whose waits are computed by hand."""

from bench.philly import by_team, scaled
from bench.philly_baselines import BaselineJob, waits_in_a_pool, waits_in_partitions

JOBS = [
    BaselineJob(0, 100, 12, "a"),
    BaselineJob(10, 50, 8, "a"),
    BaselineJob(20, 30, 4, "a"),
    BaselineJob(30, 10, 8, "b"),
]


def test_job_in_partitions_waits_only_for_its_own_team() -> None:
    # Two nodes: the second job needs a whole one; the third starts first, beside the first job.
    assert waits_in_partitions(JOBS, {"a": 2, "b": 1}) == [0, 90, 0, 0]


def test_job_in_a_pool_uses_any_free_node() -> None:
    # The second job runs on the third node, and the fourth job waits for it.
    assert waits_in_a_pool(JOBS, 3) == [0, 0, 0, 30]


def test_load_decides_the_number_of_nodes_per_team() -> None:
    own = {"ee9e8c": 64, "7f04ca": 32, "0e4a51": 32, "2869ce": 16}

    assert scaled(own, 0.935) == {"ee9e8c": 48, "7f04ca": 24, "0e4a51": 24, "2869ce": 12}
    assert scaled(own, 0.70) == own


def test_mean_waits_are_reported_by_team() -> None:
    jobs = [BaselineJob(0, 1, 1, team) for team in ("ee9e8c", "7f04ca", "0e4a51", "2869ce")]

    assert by_team([*jobs, jobs[0]], [1, 2, 3, 4, 10]) == {
        "mean": 4, "ee9e8c": 5.5, "7f04ca": 2, "0e4a51": 3, "2869ce": 4
    }  # fmt: skip
