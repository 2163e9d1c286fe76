"""Settings that every test shares."""

from hypothesis import Phase, settings

# A slow shared machine must not turn a passing property into a flaky one, and a failure in CI
# must be the same failure at a desk.
settings.register_profile("leasehold", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("leasehold")
# For planted bugs the first failure is enough: making it small would take minutes.
settings.register_profile(
    "planted", settings.get_profile("leasehold"), phases=(Phase.explicit, Phase.generate)
)
