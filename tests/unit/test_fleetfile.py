"""Fleet files: rows become node names, mistakes are reported with their lines."""

from pathlib import Path

import pytest

from leasehold.shell.config.fleetfile import load_fleet, node_rows
from leasehold.shell.config.yamlfile import BadFile

ROW = "{domain: a, nodes: 2, gpus: 4, flavor: H, region: r, cluster: c}"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    return path


def test_rows_of_one_domain_continue_its_node_numbers(tmp_path: Path) -> None:
    other = ROW.replace("domain: a", "domain: b")
    fleet = load_fleet(written(tmp_path, f"fleet:\n- {ROW}\n- {other}\n- {ROW}\n"))
    names = [name for name, _ in node_rows(fleet)]
    assert names == ["a-00", "a-01", "b-00", "b-01", "a-02", "a-03"]
    assert {row.gpus for _, row in node_rows(fleet)} == {4}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("- 1\n", 1, "add `fleet:`"),
        ("nodes: 3\n", 1, "fleet"),
        (f"fleet:\n- {ROW}\n- {ROW.replace('4', '0')}\n", 3, "1 to 1024"),
        (f"fleet:\n- {ROW}\nsteps: []\n", 3, "steps"),
        ("fleet:\n- {domain: a}\n", 2, "region"),
    ],
)
def test_fleet_file_mistake_is_reported_with_its_line(
    tmp_path: Path, text: str, line: int, says: str
) -> None:
    with pytest.raises(BadFile) as bad:
        load_fleet(written(tmp_path, text))
    assert any(mistake.line == line for mistake in bad.value.mistakes)
    assert says in str(bad.value)
