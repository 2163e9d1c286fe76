"""The configuration file: every key, its default and its bounds.

Called at start by every command that runs the control loop, and by the scenario runner for its
`config:`. A key may be nested (`reservation: {depth: 9}`) or dotted (`reservation.depth: 9`). All
mistakes are reported together. The caller passes the text: this module reads no file or variable.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from msgspec.structs import replace

from leasehold.control.views.news import EVENTS
from leasehold.core.facts import Record
from leasehold.core.objects import readers
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.node import Labels
from leasehold.core.objects.problems import Problem, show, shown
from leasehold.core.policy import CutPolicy, Policy
from leasehold.core.units import SECOND, Millis, format_span
from leasehold.ports.tenure import DRIFT_PERCENT, Margins, margin_problems
from leasehold.shell.config.yamlfile import parse_documents

COUNT_MAX = 1_000_000
IN_FLIGHT_MAX = 1_000
OBJECTS_MAX = 100_000_000
EVERYWHERE = "*"  # a namespace that stands for all namespaces without an entry of their own
PIDS_MAX = 1 << 22  # the kernel's own limit


class Fencing(Record, frozen=True):
    """The times within which a node fences itself. Their sum (with clock drift) is the least value
    that `nodeFailure.after` may have."""

    self_fence: Millis = 10 * SECOND
    poll: Millis = SECOND // 2
    watchdog: Millis = 8 * SECOND
    kill: Millis = 5 * SECOND

    @property
    def total(self) -> Millis:
        return self.self_fence + self.poll + self.watchdog + self.kill

    @property
    def after_min(self) -> Millis:
        return -(-self.total * (100 + DRIFT_PERCENT) // (100 - DRIFT_PERCENT))


class Embedding(Record, frozen=True):
    """Settings of `leasehold up`. The fields for notifications (webhooks, commands, `notify_…`)
    also apply to `leasehold controller`."""

    users: tuple[tuple[str, str], ...] = ()  # namespace -> the Unix user its jobs run as
    pids_max: int = 32_768  # processes and threads of one pod
    webhooks: tuple[tuple[str, str], ...] = ()  # namespace (`*`: others) -> URL
    commands: tuple[tuple[str, tuple[str, ...]], ...] = ()  # namespace (`*`: others) -> argv
    notify_events: tuple[str, ...] = EVENTS
    notify_secret: str = ""  # path of the secret that signs webhooks


class FrontDoor(Record, frozen=True):
    """Settings for an authenticating proxy in front of the dashboard; only `leasehold controller`
    uses them."""

    identity_header: str = ""
    groups_header: str = ""
    client_ca: str = ""  # path of the CA or client certificates that the proxy may present


class QuerySettings(Record, frozen=True):
    """How queries are served."""

    aggregated: bool = True  # on a cluster: through the API server
    hide_tenants: bool = False  # replace other teams' names in answers by pseudonyms


class Connection(Record, frozen=True):
    """The connection to a cluster's API server."""

    in_flight: int = 32  # concurrent requests, apart from those for tenure and head


class Config(Record, frozen=True):
    policy: Policy = Policy()
    labels: Labels = Labels()
    tenure: Margins = Margins()
    fencing: Fencing = Fencing()
    embedding: Embedding = Embedding()
    front_door: FrontDoor = FrontDoor()
    asking: QuerySettings = QuerySettings()
    connection: Connection = Connection()


class BadConfig(Exception):  # noqa: N818 - named for the condition
    """The configuration cannot be used; `problems` lists all reasons."""

    def __init__(self, problems: list[Problem]) -> None:
        assert problems, "a configuration is bad for a reason"
        super().__init__(problems)
        self.problems = problems

    def __str__(self) -> str:
        return "\n".join(show(problem) for problem in self.problems)


@dataclass(frozen=True)
class Key:
    """A setting: its name in the file, the record and field that store its value, and the function
    that reads the value."""

    name: str
    record: str
    field: str
    kind: Callable[[object], object]


def load_config(source: str | Mapping[str, object], base: Config | None = None) -> Config:
    """Return the configuration with all defaults filled in from `base`: the defaults differ between
    a cluster and one machine. Raise `BadConfig`, or `BadFile` if the text is not YAML."""
    raw: object = source
    if isinstance(source, str):
        raw = parse_documents(source, "configuration")[0].data if source.strip() else {}
    problems: list[Problem] = []
    flat = _flat(raw, problems)
    fields = Fields(flat, "", problems)
    values: dict[str, dict[str, object]] = {name: {} for name in Config.__struct_fields__}
    for key in KEYS:
        value = fields.take(key.name, key.kind, _ABSENT)
        if value is not _ABSENT:
            values[key.record][key.field] = value
    fields.finish()
    config = _assembled(values, base or Config())
    if not problems:
        problems += _check_sums(config)
    if problems:
        raise BadConfig([_plain(problem) for problem in problems])
    return config


def effective(config: Config) -> dict[str, object]:
    """Return every key with the value that is in force, in the order of the documentation."""
    shown_values: dict[str, object] = {}
    for key in KEYS:
        value = getattr(getattr(config, key.record), key.field)
        if key.kind is _after:
            spans = {flavor: format_span(after) if after else "off" for flavor, after in value}
            value = spans or "off"
        elif key.kind in (_users, _webhooks):
            value = dict(value)
        elif key.kind is _commands:
            value = {namespace: list(argv) for namespace, argv in value}
        elif key.kind is _events:
            value = list(value)
        elif key.kind is _CUTS:
            value = str(value)
        elif key.kind is _tenure and value is None:
            value = BY_CHECKPOINT
        elif key.kind in (_tenure, readers.span, readers.span_or_none):
            value = format_span(value)
        shown_values[key.name] = value
    return shown_values


def _after(value: object) -> tuple[tuple[str, Millis | None], ...]:
    """Read `nodeFailure.after`: `off`, a duration for every flavor, or a mapping from flavor to
    `off` or a duration. In a mapping, `*` stands for all flavors that it does not name."""
    if value is False or value == "off":
        return ()
    if not isinstance(value, dict):
        return (("*", readers.span(value)),)
    found = []
    for flavor, after in sorted(value.items(), key=lambda pair: str(pair[0])):
        name = "*" if flavor == "*" else readers.word(flavor)
        # Keep an explicit off: it overrides the value of `*`.
        found.append((name, None if after is False or after == "off" else readers.span(after)))
    return tuple(found)


def _users(value: object) -> tuple[tuple[str, str], ...]:
    """Read a mapping from namespace to the Unix user that runs its jobs."""
    if not isinstance(value, dict):
        raise readers.WrongValue(
            "use a mapping of namespaces to Unix users, such as {vision: alice}"
        )
    found = []
    for namespace, user in sorted(value.items(), key=lambda pair: str(pair[0])):
        if not isinstance(user, str) or not user or user == "root":
            raise readers.WrongValue("give each namespace the name of a Unix user other than root")
        found.append((readers.namespace(namespace), user))
    return tuple(found)


def _webhooks(value: object) -> tuple[tuple[str, str], ...]:
    """Read a mapping from namespace to URL. The key `*` stands for all namespaces that have
    none."""
    if not isinstance(value, dict):
        raise readers.WrongValue(
            "use a mapping of namespaces to URLs, such as {vision: https://example.com/hook}"
        )
    found = []
    for namespace, url in sorted(value.items(), key=lambda pair: str(pair[0])):
        is_url = isinstance(url, str) and url.isascii() and url.isprintable() and " " not in url
        parts = urlsplit(url) if is_url else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise readers.WrongValue(
                "give each namespace a URL that begins with https:// (or http://)"
            )
        found.append((_namespace(namespace), str(url)))
    return tuple(found)


def _commands(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read a mapping from namespace to a program with its arguments. The key `*` stands for all
    namespaces that have none."""
    if not isinstance(value, dict):
        raise readers.WrongValue(
            "use a mapping of namespaces to commands, such as {vision: [/usr/local/bin/tell]}"
        )
    found = []
    for namespace, argv in sorted(value.items(), key=lambda pair: str(pair[0])):
        is_argv = isinstance(argv, list) and argv and all(isinstance(each, str) for each in argv)
        if not is_argv or not argv[0].startswith("/") or any("\0" in each for each in argv):
            raise readers.WrongValue(
                "give each namespace a list that begins with the path of a program"
            )
        found.append((_namespace(namespace), tuple(argv)))
    return tuple(found)


def _namespace(value: object) -> str:
    return EVERYWHERE if value == EVERYWHERE else readers.namespace(value)


def _events(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or any(each not in EVENTS for each in value):
        raise readers.WrongValue(f"use a list with any of {', '.join(EVENTS)}")
    return tuple(each for each in EVENTS if each in value)


def _label(value: object) -> str:
    if not isinstance(value, str) or not readers.is_label_key(value):
        raise readers.WrongValue("use the name of a label or resource, such as example.com/region")
    return value


def _header(value: object) -> str:
    """Read the name of an HTTP header. "" means no header; `effective` shows it that way."""
    if value == "":
        return ""
    is_token = isinstance(value, str) and value.isascii() and value.replace("-", "").isalnum()
    if not is_token:
        raise readers.WrongValue("use the name of a header, such as X-Forwarded-User")
    return str(value)


def _tenure(value: object) -> Millis | None:
    """Read `resolver.minTenure`: a duration, or `byCheckpoint`, which is returned as None.
    `byCheckpoint` means 2 h, or twice the run's checkpoint interval, at most 24 h."""
    return None if value == BY_CHECKPOINT else readers.span_or_none(value)


_count = readers.whole(1, COUNT_MAX)
_CUTS = readers.one_of(CutPolicy)
BY_CHECKPOINT = "byCheckpoint"
_ABSENT = object()

KEYS = (
    Key("activationLead", "policy", "activation_lead", readers.span_or_none),
    Key("reservation.maxWait", "policy", "reservation_max_wait", readers.span_or_none),
    Key("reservation.patience", "policy", "patience", readers.span_or_none),
    Key("reservation.depth", "policy", "reservation_depth", _count),
    Key("reservation.depthPerOwner", "policy", "reservation_depth_per_owner", _count),
    Key("reservation.moneyDepth", "policy", "reservation_money_depth", _count),
    Key("reservation.moneyDepthPerOwner", "policy", "reservation_money_depth_per_owner", _count),
    Key("overdraft.grace", "policy", "overdraft_grace", readers.span_or_none),
    Key("accounting.horizon", "policy", "accounting_horizon", readers.span),
    Key("resolver.minTenure", "policy", "min_tenure", _tenure),
    Key("resolver.cuts", "policy", "cuts", _CUTS),
    Key("resolver.ownedLast", "policy", "owned_last", readers.flag),
    Key("bind.timeout", "policy", "bind_timeout", readers.span),
    Key("bind.startTimeout", "policy", "start_timeout", readers.span),
    Key("bind.attempts", "policy", "bind_attempts", readers.whole(1, readers.RETRIES_MAX)),
    Key("bind.backoff", "policy", "bind_backoff", readers.span),
    Key("retry.backoff", "policy", "retry_backoff", readers.span),
    Key("drain.timeout", "policy", "victim_timeout", readers.span),
    Key("gracePeriod.max", "policy", "grace_max", readers.span),
    Key("resize.interval", "policy", "resize_interval", readers.span_or_none),
    Key("swap.settle", "policy", "swap_settle", readers.span_or_none),
    Key("nodeFailure.after", "policy", "node_failure_after", _after),
    Key("nodeFailure.selfFence", "fencing", "self_fence", readers.span),
    Key("nodeFailure.poll", "fencing", "poll", readers.span),
    Key("nodeFailure.watchdog", "fencing", "watchdog", readers.span),
    Key("nodeFailure.kill", "fencing", "kill", readers.span),
    Key("forbidReciprocalLending", "policy", "forbid_reciprocal_lending", readers.flag),
    Key("binder.enabled", "policy", "binder_enabled", readers.flag),
    Key("gpuResource", "policy", "gpu_resource", _label),
    Key("labels.region", "labels", "region", _label),
    Key("labels.cluster", "labels", "cluster", _label),
    Key("labels.fabric", "labels", "fabric", _label),
    Key("labels.flavor", "labels", "flavor", _label),
    Key("labels.rack", "labels", "rack", _label),
    Key("ledger.keepClosed", "policy", "keep_closed", readers.span_or_none),
    Key("ledger.maxObjects", "policy", "max_objects", readers.whole(1, OBJECTS_MAX)),
    Key("ledger.archive", "policy", "archive", readers.text_or_none),
    Key("tenure.take", "tenure", "take", readers.span),
    Key("tenure.hold", "tenure", "hold", readers.span),
    Key("tenure.softStop", "tenure", "soft_stop", readers.span),
    Key("tenure.renew", "tenure", "renew", readers.span),
    Key("tenure.timeout", "tenure", "timeout", readers.span),
    Key("tenure.stall", "tenure", "stall", readers.span),
    Key("agent.users", "embedding", "users", _users),
    Key("agent.pidsMax", "embedding", "pids_max", readers.whole(1, PIDS_MAX)),
    Key("query.hideTenants", "asking", "hide_tenants", readers.flag),
    Key("query.aggregated", "asking", "aggregated", readers.flag),
    Key("kube.inFlight", "connection", "in_flight", readers.whole(1, IN_FLIGHT_MAX)),
    Key("notify.webhooks", "embedding", "webhooks", _webhooks),
    Key("notify.commands", "embedding", "commands", _commands),
    Key("notify.events", "embedding", "notify_events", _events),
    Key("notify.secretFile", "embedding", "notify_secret", readers.text_or_none),
    Key("web.identityHeader", "front_door", "identity_header", _header),
    Key("web.groupsHeader", "front_door", "groups_header", _header),
    Key("web.clientCA", "front_door", "client_ca", readers.text_or_none),
)
_LEAVES = frozenset(key.name for key in KEYS)


def _flat(raw: object, problems: list[Problem]) -> dict[str, object]:
    """Return nested mappings as one mapping with dotted keys. Add a problem if a key is given
    twice, nested and dotted."""
    if not isinstance(raw, Mapping):
        problems.append(
            Problem(path="configuration", value=shown(raw), remedy="use a mapping of keys")
        )
        return {}
    flat: dict[str, object] = {}
    todo: list[tuple[str, object]] = [(str(key), value) for key, value in raw.items()]
    while todo:
        name, value = todo.pop(0)
        inner = isinstance(value, Mapping) and name not in _LEAVES
        if inner and any(leaf.startswith(f"{name}.") for leaf in _LEAVES):
            assert isinstance(value, Mapping), "it was looked at above"
            todo[:0] = [(f"{name}.{key}", member) for key, member in value.items()]
        elif name in flat:
            problems.append(
                Problem(path=name, value=shown(value), remedy="the key is given twice; keep one")
            )
        else:
            flat[name] = value
    return flat


def _assembled(values: dict[str, dict[str, object]], base: Config) -> Config:
    labels = dict(values["labels"])
    if "gpu_resource" in values["policy"]:
        labels["gpu_resource"] = values["policy"]["gpu_resource"]
    # The readers returned values of the right types for the fields named in KEYS.
    return Config(
        policy=replace(base.policy, **values["policy"]),
        labels=replace(base.labels, **labels),
        tenure=replace(base.tenure, **values["tenure"]),
        fencing=replace(base.fencing, **values["fencing"]),
        embedding=replace(base.embedding, **values["embedding"]),
        front_door=replace(base.front_door, **values["front_door"]),
        asking=replace(base.asking, **values["asking"]),
        connection=replace(base.connection, **values["connection"]),
    )


def _check_sums(config: Config) -> list[Problem]:
    found = []
    fencing = config.fencing
    for flavor, after in config.policy.node_failure_after:
        if after is not None and after < fencing.after_min:
            parts = " + ".join(
                format_span(each)
                for each in (fencing.self_fence, fencing.poll, fencing.watchdog, fencing.kill)
            )
            remedy = (
                f"{flavor}: a node may still run its processes for (selfFence + poll + watchdog + "
                f"kill) * (1 + drift) / (1 - drift) = ({parts}) * 1.{DRIFT_PERCENT} / "
                f"0.{100 - DRIFT_PERCENT} = {format_span(fencing.after_min)}; use at least that"
            )
            value = format_span(after)
            found.append(Problem(path="nodeFailure.after", value=value, remedy=remedy))
    for field, margin, remedy in margin_problems(config.tenure):
        found.append(Problem(path=f"tenure.{field}", value=format_span(margin), remedy=remedy))
    return found + _check_door(config.front_door)


def _check_door(door: FrontDoor) -> list[Problem]:
    """Return the problems of the proxy's settings. Identity headers require a client CA, because
    otherwise any client could send such a header."""
    if door.identity_header and not door.client_ca:
        remedy = (
            "set web.clientCA too: it verifies the certificate of the proxy that sets this header"
        )
        return [Problem(path="web.identityHeader", value=door.identity_header, remedy=remedy)]
    if door.groups_header and not door.identity_header:
        remedy = "set web.identityHeader too: groups without a user give no rights"
        return [Problem(path="web.groupsHeader", value=door.groups_header, remedy=remedy)]
    return []


def _plain(problem: Problem) -> Problem:
    """Return the problem with a plain path: `[reservation.depth]` becomes `reservation.depth`."""
    path = problem.path
    if path.startswith("[") and path.endswith("]"):
        path = path[1:-1]
    return Problem(path=path, value=problem.value, remedy=problem.remedy)
