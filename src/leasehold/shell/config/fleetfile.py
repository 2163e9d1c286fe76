"""Reads fleets as rows of equal nodes, from scenario files and for `leasehold up --fleet`.

`node_rows` names the nodes `<domain>-<two digits>`; a second row of the same domain continues the
count. The caller decides what a node is (simulated or local).
"""

from pathlib import Path

from leasehold.core.facts import Record
from leasehold.core.objects import readers
from leasehold.core.objects.fields import Fields
from leasehold.core.objects.problems import Problem, shown
from leasehold.core.objects.quantity import milli, units
from leasehold.shell.config.yamlfile import BadFile, Document, Mistake, load_documents

NODES_MAX = 100_000
NODE_GPUS_MAX = 1_024


class FleetRow(Record):
    domain: str
    nodes: int
    gpus: int
    flavor: str
    region: str
    cluster: str
    line: int
    cpu_milli: int | None = None  # simulated nodes only; None: no limit
    memory_bytes: int | None = None


def node_rows(fleet: tuple[FleetRow, ...]) -> list[tuple[str, FleetRow]]:
    """Return each node's name, with the row that describes the node."""
    counted: dict[str, int] = {}
    named = []
    for row in fleet:
        first = counted.get(row.domain, 0)
        counted[row.domain] = first + row.nodes
        named += [(f"{row.domain}-{first + i:02d}", row) for i in range(row.nodes)]
    return named


def read_fleet(
    fields: Fields, document: Document, *, has_amounts: bool = False
) -> tuple[FleetRow, ...]:
    """Read the rows under `fleet`, and note mistakes in `fields`. `has_amounts`: rows may set CPU
    and memory. That makes sense only for simulated nodes; a real machine has what it has."""
    rows: list[FleetRow] = []
    if fields.raw("fleet") is None:
        fields.need("fleet", readers.text)
    for row in fields.each("fleet"):
        domain = row.need("domain", readers.namespace)
        nodes = row.need("nodes", readers.whole(1, NODES_MAX))
        gpus = row.need("gpus", readers.whole(1, NODE_GPUS_MAX))
        flavor = row.need("flavor", readers.word)
        region, cluster = row.need("region", readers.word), row.need("cluster", readers.word)
        cpu = row.take("cpu", milli, None) if has_amounts else None
        memory = row.take("memory", units, None) if has_amounts else None
        row.finish()
        if None not in (domain, nodes, gpus, flavor, region, cluster):
            rows.append(
                FleetRow(
                    domain=domain or "",
                    nodes=nodes or 0,
                    gpus=gpus or 0,
                    flavor=flavor or "",
                    region=region or "",
                    cluster=cluster or "",
                    line=document.line_of(row.path),
                    cpu_milli=cpu,
                    memory_bytes=memory,
                )
            )
    if sum(row.nodes for row in rows) > NODES_MAX:
        fields.note("fleet", f"use at most {NODES_MAX} nodes in all")
        return ()
    return tuple(rows)


def load_fleet(path: Path) -> tuple[FleetRow, ...]:
    """Read a file that contains only `fleet:` and its rows; raise `BadFile` with all mistakes."""
    document = load_documents(path)[0]
    if not isinstance(document.data, dict):
        remedy = (
            "add `fleet:` with rows under it, such as {domain, nodes, gpus, flavor, region, "
            "cluster}"
        )
        problem = Problem(path="", value=shown(document.data), remedy=remedy)
        raise BadFile(str(path), [Mistake(line=document.line, problem=problem)])
    problems: list[Problem] = []
    fields = Fields(document.data, "", problems)
    rows = read_fleet(fields, document)
    fields.finish()
    if problems:
        mistakes = [mistake_at(document, problem) for problem in problems]
        raise BadFile(str(path), sorted(mistakes, key=lambda mistake: mistake.line))
    return rows


def mistake_at(document: Document, problem: Problem) -> Mistake:
    """Return the problem with its line in the file. Its path is put in front of its value, because
    `BadFile` prints only value and remedy."""
    where = f"{problem.path}: " if problem.path else ""
    said = Problem(path=problem.path, value=f"{where}{problem.value}", remedy=problem.remedy)
    return Mistake(line=document.line_of(problem.path), problem=said)
