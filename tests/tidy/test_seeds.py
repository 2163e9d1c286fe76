"""A budget of seeds is counted in CPU seconds, and never empty."""

from tests.seeds import Budget


def test_seeds_are_played_until_the_budget_is_used_and_the_others_are_counted() -> None:
    used = 0.0
    budget = Budget(is_limited=True, cpu_s=lambda: used)
    played = []
    for seed in budget.of(2.0, range(100, 110)):
        played.append(seed)
        used += 1.0
    assert played == [100, 101]
    assert (budget.played, budget.left_out) == (2, 8)


def test_one_seed_is_always_played() -> None:
    used = iter(range(0, 1000, 100))
    budget = Budget(is_limited=True, cpu_s=lambda: float(next(used)))
    assert list(budget.of(1.0, "ab")) == ["a"]


def test_without_a_limit_all_are_played() -> None:
    used = iter(range(0, 1000, 100))
    budget = Budget(is_limited=False, cpu_s=lambda: float(next(used)))
    assert list(budget.of(1.0, "abc")) == ["a", "b", "c"]
    assert (budget.played, budget.left_out) == (3, 0)
