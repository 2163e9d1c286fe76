"""The configuration: every key dotted and nested, every mistake by its path, computed bounds."""

import pytest

from leasehold.core.policy import CutPolicy, Policy
from leasehold.core.units import HOUR, MINUTE, SECOND
from leasehold.shell.config.config import (
    KEYS,
    BadConfig,
    Config,
    QuerySettings,
    effective,
    load_config,
)
from leasehold.shell.config.yamlfile import BadFile

SET: tuple[tuple[str, object, object], ...] = (
    ("activationLead", "5m", 5 * MINUTE),
    ("reservation.maxWait", "1h", HOUR),
    ("reservation.patience", "2h", 2 * HOUR),
    ("reservation.depth", 9, 9),
    ("reservation.depthPerOwner", 2, 2),
    ("reservation.moneyDepth", 3, 3),
    ("reservation.moneyDepthPerOwner", 4, 4),
    ("overdraft.grace", "0s", 0),
    ("accounting.horizon", "2h", 2 * HOUR),
    ("resolver.minTenure", "3h", 3 * HOUR),
    ("resolver.cuts", "Reclaim", CutPolicy.RECLAIM),
    ("resolver.ownedLast", True, True),
    ("bind.timeout", "1m", MINUTE),
    ("bind.startTimeout", "5m", 5 * MINUTE),
    ("bind.attempts", 7, 7),
    ("bind.backoff", "1s", SECOND),
    ("retry.backoff", "2s", 2 * SECOND),
    ("drain.timeout", "1m", MINUTE),
    ("gracePeriod.max", "1m", MINUTE),
    ("resize.interval", "1m", MINUTE),
    ("swap.settle", "1m", MINUTE),
    ("nodeFailure.after", "1m", (("*", MINUTE),)),
    ("nodeFailure.selfFence", "1s", SECOND),
    ("nodeFailure.poll", "1s", SECOND),
    ("nodeFailure.watchdog", "1s", SECOND),
    ("nodeFailure.kill", "1s", SECOND),
    ("forbidReciprocalLending", True, True),
    ("binder.enabled", False, False),
    ("gpuResource", "amd.com/gpu", "amd.com/gpu"),
    ("labels.region", "x.io/region", "x.io/region"),
    ("labels.cluster", "c", "c"),
    ("labels.fabric", "f", "f"),
    ("labels.flavor", "g", "g"),
    ("labels.rack", "r", "r"),
    ("ledger.keepClosed", "1d", 24 * HOUR),
    ("ledger.maxObjects", 10, 10),
    ("ledger.archive", "out", "out"),
    ("tenure.take", "30s", 30 * SECOND),
    ("tenure.hold", "9s", 9 * SECOND),
    ("tenure.softStop", "8s", 8 * SECOND),
    ("tenure.renew", "1s", SECOND),
    ("tenure.timeout", "1s", SECOND),
    ("tenure.stall", "20s", 20 * SECOND),
    ("agent.users", {"vision": "ann"}, (("vision", "ann"),)),
    ("agent.pidsMax", 100, 100),
    ("query.hideTenants", True, True),
    ("query.aggregated", False, False),
    ("kube.inFlight", 8, 8),
    ("notify.webhooks", {"*": "https://h/x"}, (("*", "https://h/x"),)),
    ("notify.commands", {"team": ["/bin/tell", "x"]}, (("team", ("/bin/tell", "x")),)),
    ("notify.events", ["end", "start"], ("start", "end")),
    ("notify.secretFile", "/etc/secret", "/etc/secret"),
    ("web.identityHeader", "X-User", "X-User"),
    ("web.groupsHeader", "X-Groups", "X-Groups"),
    ("web.clientCA", "/etc/ca", "/etc/ca"),
)
# The other keys that a key requires.
NEEDS: dict[str, dict[str, object]] = {
    "web.identityHeader": {"web.clientCA": "/etc/ca"},
    "web.groupsHeader": {"web.clientCA": "/etc/ca", "web.identityHeader": "X-User"},
}


def value_of(config: Config, name: str) -> object:
    [key] = [key for key in KEYS if key.name == name]
    return getattr(getattr(config, key.record), key.field)


@pytest.mark.parametrize(("name", "written", "expected"), SET)
def test_a_key_may_be_dotted_or_nested(name: str, written: object, expected: object) -> None:
    nested: object = written
    needed = NEEDS.get(name, {})
    for part in reversed(name.split(".")):
        nested = {part: nested}
    assert isinstance(nested, dict)

    assert value_of(load_config({name: written, **needed}), name) == expected
    assert load_config({**nested, **needed}) == load_config({name: written, **needed})
    assert value_of(Config(), name) != expected


def test_every_configuration_key_is_covered_by_these_tests() -> None:
    assert [name for name, _, _ in SET] == [key.name for key in KEYS]


def test_empty_configuration_has_every_default() -> None:
    assert load_config("") == load_config({}) == Config()
    assert load_config("").policy == Policy()


def test_yaml_text_with_dotted_and_nested_keys_is_read() -> None:
    config = load_config(
        "reservation: {depth: 9}\nreservation.maxWait: 1h\nnodeFailure: {after: off}"
    )

    assert config.policy.reservation_depth == 9
    assert config.policy.reservation_max_wait == HOUR
    assert config.policy.node_failure_after == ()


def test_gpu_resource_is_passed_to_the_node_labels() -> None:
    assert load_config({"gpuResource": "amd.com/gpu"}).labels.gpu_resource == "amd.com/gpu"


BAD: tuple[tuple[str, dict[str, object], list[str]], ...] = (
    ("unknown", {"activationlead": "5m"}, ["activationlead"]),
    ("unknown inside", {"reservation": {"deep": 9}}, ["reservation.deep"]),
    ("unknown and nested", {"tenants": {"a": {"b": 1}}}, ["tenants"]),
    ("a group that is no mapping", {"reservation": 5}, ["reservation"]),
    ("a bad span", {"activationLead": 5}, ["activationLead"]),
    ("a zero count", {"reservation.depth": 0}, ["reservation.depth"]),
    ("a bad flag", {"binder.enabled": "no"}, ["binder.enabled"]),
    ("a bad label", {"labels.region": "a b"}, ["labels.region"]),
    ("given twice", {"bind": {"attempts": 3}, "bind.attempts": 3}, ["bind.attempts"]),
    ("an unknown resolver.cuts", {"resolver.cuts": "lottery"}, ["resolver.cuts"]),
    ("a minTenure that is off", {"resolver.minTenure": "off"}, ["resolver.minTenure"]),
    ("two at once", {"bind.attempts": 0, "swap.settle": "x"}, ["bind.attempts", "swap.settle"]),
    ("a bad after", {"nodeFailure.after": "soon"}, ["nodeFailure.after"]),
    ("a bad flavor", {"nodeFailure.after": {"-": "1h"}}, ["nodeFailure.after"]),
    ("after too soon", {"nodeFailure.after": "22s"}, ["nodeFailure.after"]),
    (
        "one flavor too soon",
        {"nodeFailure.after": {"H100": "1s", "*": "1h"}},
        ["nodeFailure.after"],
    ),
    ("users in a list", {"agent.users": ["ann"]}, ["agent.users"]),
    ("jobs as root", {"agent.users": {"vision": "root"}}, ["agent.users"]),
    ("no namespace", {"agent.users": {"Vision!": "ann"}}, ["agent.users"]),
    ("held too long", {"tenure.hold": "11s"}, ["tenure.hold"]),
    ("stopped too late", {"tenure.softStop": "10s"}, ["tenure.softStop"]),
    ("renewed too late", {"tenure.renew": "7s"}, ["tenure.renew"]),
)


@pytest.mark.parametrize(("written", "expected"), [row[1:] for row in BAD], ids=[r[0] for r in BAD])
def test_configuration_mistake_is_reported_by_path(
    written: dict[str, object], expected: list[str]
) -> None:
    with pytest.raises(BadConfig) as caught:
        load_config(written)

    assert [problem.path for problem in caught.value.problems] == expected
    assert str(caught.value).startswith(f"{expected[0]}: ")


@pytest.mark.parametrize("text", ["[1]", "5"])
def test_configuration_that_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(BadConfig, match="use a mapping of keys"):
        load_config(text)


def test_configuration_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(BadFile):
        load_config("a: [")


def test_node_failure_after_below_its_computed_bound_is_refused() -> None:
    # (10s + 500ms + 8s + 5s) * 1.2 / 0.8
    with pytest.raises(BadConfig) as caught:
        load_config({"nodeFailure.after": "35249ms"})

    assert "(10s + 500ms + 8s + 5s) * 1.20 / 0.80 = 35s250ms" in caught.value.problems[0].remedy
    assert load_config({"nodeFailure.after": "35250ms"}).policy.node_failure_after == (
        ("*", 35_250),
    )


def test_node_failure_after_may_differ_by_flavor() -> None:
    after = {"H100": "1m", "A100": "off", "*": "2m", "B200": False}

    assert load_config({"nodeFailure": {"after": after}}).policy.node_failure_after == (
        ("*", 2 * MINUTE),
        ("A100", None),
        ("B200", None),
        ("H100", MINUTE),
    )
    assert effective(load_config({"nodeFailure": {"after": after}}))["nodeFailure.after"] == {
        "*": "2m", "A100": "off", "B200": "off", "H100": "1m",
    }  # fmt: skip


def test_the_effective_configuration_reads_back() -> None:
    config = load_config({"nodeFailure.after": {"H100": "1m"}, "ledger.archive": "out"})

    shown = effective(config)

    assert list(shown) == [key.name for key in KEYS]
    assert load_config(shown) == config
    assert load_config(effective(Config())) == Config()
    assert effective(Config())["nodeFailure.after"] == "off"


def test_min_tenure_may_follow_the_checkpoint_interval() -> None:
    assert load_config({"resolver.minTenure": "byCheckpoint"}) == Config()
    assert effective(Config())["resolver.minTenure"] == "byCheckpoint"
    short = Config(policy=Policy(min_tenure=0))
    assert load_config({"resolver.minTenure": "byCheckpoint"}, short) == Config()
    assert load_config({"resolver.minTenure": "0s"}).policy.min_tenure == 0


def test_configuration_file_overrides_given_defaults_key_by_key() -> None:
    place = Config(policy=Policy(max_objects=50_000), asking=QuerySettings(hide_tenants=True))
    assert load_config("", place) == place
    assert load_config("reservation.depth: 9", place).policy.max_objects == 50_000
    assert load_config("reservation.depth: 9", place).asking == place.asking
    assert load_config("ledger.maxObjects: 500000", place).policy.max_objects == 500_000
    assert not load_config("query.hideTenants: false", place).asking.hide_tenants
    assert load_config("query.hideTenants: false", place).asking.aggregated
