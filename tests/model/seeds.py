"""Compares model and product on one seed; used by the command's processes and by the tests."""

from tests.model.compare import Difference, compare
from tests.model.product import Invalid
from tests.model.stories import PROFILES, story_of, text_of

Job = tuple[int, str, bool]  # seed, profile, whether plans are compared as well


def profile_of(seed: int) -> str:
    return PROFILES[seed % len(PROFILES)]


def ask(job: Job) -> tuple[Job, Difference | str | None]:
    """Compare on one seed; the result is a text if the product refused the story."""
    seed, profile, plans = job
    try:
        return job, compare(text_of(story_of(seed, profile)), with_plans=plans)
    except Invalid as invalid:
        return job, str(invalid)
