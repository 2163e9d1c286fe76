"""Answers about leases, about pods, and about how runs leave a node: `leases`, `pods`, `drain`."""

from leasehold.control.questions.answers.shape import Answer


class LeaseEnding(Answer):
    reason: str
    deadline: str | None


class LeaseRow(Answer):
    lease: str
    run: str
    owner: str
    attempt: int
    group: int
    index: int
    pod: str
    node: str
    slots: list[int]
    gpus: int
    role: str
    payer: str
    payer_owner: str
    relation: str
    opened: str
    start: str | None
    began: str | None  # when its pod began to run, if starting took time
    saved: str | None  # if work was lost: the work before this instant is saved
    end: str | None
    closed: str
    closure: str
    cause: str
    ending: LeaseEnding | None
    gpu_ms: int
    gpu_hours: str


class LeasesAnswer(Answer):
    total: int
    items: list[LeaseRow]


class PodRow(Answer):
    namespace: str
    name: str
    phase: str
    reason: str
    exit_code: int | None
    message: str
    node: str
    slots: list[int]
    gpus: int
    group: int
    index: int
    attempt: int
    started: str | None
    finished: str | None
    leases: list[str]


class PodsAnswer(Answer):
    run: str
    items: list[PodRow]


class DrainRow(Answer):
    run: str
    group: int | None
    gpus: int
    way: str
    state: str
    says: str


class DrainAnswer(Answer):
    node: str
    draining: bool
    asked_by: str
    gpus: int
    items: list[DrainRow]
