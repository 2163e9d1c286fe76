"""The baselines that replays are compared with, on jobs whose waits are computed by hand."""

from bench.philly import by_team, scaled
from bench.philly_baselines import BaselineJob, waits_in_a_pool, waits_in_partitions

JOBS = [
    BaselineJob(0, 100, 12, "a"),
    BaselineJob(10, 50, 8, "a"),
    BaselineJob(20, 30, 4, "a"),
    BaselineJob(30, 10, 8, "b"),
]


def test_in_partitions_a_job_waits_for_its_own_team_alone() -> None:
    # Two nodes: the second job needs a whole one, the third passes it beside the first.
    assert waits_in_partitions(JOBS, {"a": 2, "b": 1}) == [0, 90, 0, 0]


def test_in_a_pool_any_free_node_will_do() -> None:
    # The third node takes the second job, the fourth waits for that.
    assert waits_in_a_pool(JOBS, 3) == [0, 0, 0, 30]


def test_a_load_decides_how_many_nodes_there_are() -> None:
    own = {"ee9e8c": 64, "7f04ca": 32, "0e4a51": 32, "2869ce": 16}

    assert scaled(own, 0.935) == {"ee9e8c": 48, "7f04ca": 24, "0e4a51": 24, "2869ce": 12}
    assert scaled(own, 0.70) == own


def test_means_are_told_by_team() -> None:
    jobs = [BaselineJob(0, 1, 1, team) for team in ("ee9e8c", "7f04ca", "0e4a51", "2869ce")]

    assert by_team([*jobs, jobs[0]], [1, 2, 3, 4, 10]) == {
        "mean": 4, "ee9e8c": 5.5, "7f04ca": 2, "0e4a51": 3, "2869ce": 4
    }  # fmt: skip
