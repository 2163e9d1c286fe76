"""A budget of seeds is counted in CPU seconds and always allows one seed."""

from tests.seeds import Budget


def test_limited_budget_stops_after_its_cpu_seconds_and_counts_the_rest() -> None:
    used = 0.0
    budget = Budget(is_limited=True, cpu_s=lambda: used)
    played = []
    for seed in budget.of(2.0, range(100, 110)):
        played.append(seed)
        used += 1.0
    assert played == [100, 101]
    assert (budget.played, budget.left_out) == (2, 8)


def test_limited_budget_plays_one_seed_even_if_its_cpu_seconds_are_used_up() -> None:
    used = iter(range(0, 1000, 100))
    budget = Budget(is_limited=True, cpu_s=lambda: float(next(used)))
    assert list(budget.of(1.0, "ab")) == ["a"]


def test_unlimited_budget_plays_all_seeds() -> None:
    used = iter(range(0, 1000, 100))
    budget = Budget(is_limited=False, cpu_s=lambda: float(next(used)))
    assert list(budget.of(1.0, "abc")) == ["a", "b", "c"]
    assert (budget.played, budget.left_out) == (3, 0)
