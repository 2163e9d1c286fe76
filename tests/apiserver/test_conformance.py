"""The same conversation with a real kube-apiserver, which is right, and with the facade.

A case must declare every difference with a reason. A declared difference must still exist, so that
no outdated reason stays in the table.
"""

import pytest
from tests.apiserver import cases_objects, cases_reading, cases_writing
from tests.apiserver.client import Client
from tests.apiserver.reasons import REASONS
from tests.apiserver.table import CASES, Row, reason_for
from tests.apiserver.talk import Talk, differences

MODULES = (cases_objects, cases_reading, cases_writing)


def test_table_of_reasons_has_exactly_the_reasons_of_declared_differences() -> None:
    used = {reason for row in CASES.values() for reason in row.differs.values()}

    assert used == set(REASONS)


@pytest.mark.parametrize("row", CASES.values(), ids=lambda row: row.name)
def test_facade_answers_as_kube_apiserver_does_except_for_declared_cases(
    row: Row, real: Client, ours: Client
) -> None:
    talks = []
    for client in (real, ours):
        namespace = row.name.replace("_", "-")
        talk = Talk(client, namespace)
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        talk.make("/api/v1/namespaces", document)
        row.case(talk)
        talks.append(talk)
    found = differences(talks[0].seen, talks[1].seen)
    explained = {path: reason_for(row, path) for path in found}
    unexplained = [
        f"{path}: the real server has {real_one!r}, ours {our_one!r}"
        for path, (real_one, our_one) in found.items()
        if explained[path] is None
    ]
    outlived = [pattern for pattern in row.differs if pattern not in explained.values()]

    assert not unexplained, "\n" + "\n".join(unexplained)
    assert not outlived, f"these no longer differ: {outlived}"
