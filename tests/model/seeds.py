"""One seed, asked of both: what several processes are handed, and the tests too."""

from tests.model.compare import Difference, compare
from tests.model.product import Invalid
from tests.model.stories import PROFILES, story_of, text_of

Job = tuple[int, str, bool]  # seed, profile, whether plans are compared as well


def profile_of(seed: int) -> str:
    return PROFILES[seed % len(PROFILES)]


def ask(job: Job) -> tuple[Job, Difference | str | None]:
    """A text says that the product refused the story."""
    seed, profile, plans = job
    try:
        return job, compare(text_of(story_of(seed, profile)), with_plans=plans)
    except Invalid as invalid:
        return job, str(invalid)
