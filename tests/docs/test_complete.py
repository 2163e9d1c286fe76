"""The guides document every metric, alert, command, option and field that users can meet."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from tests.unit.shell.plant import Plant

from leasehold.adapters.api.resources import RESOURCES
from leasehold.adapters.api.schemas_users import BUDGET, RUN
from leasehold.adapters.rest.app import HEALTH
from leasehold.cli.main import main as leasehold
from leasehold.cli.runs.command import command as runs
from leasehold.control.running import pods
from leasehold.core.names import Wire
from leasehold.core.objects.access import CallerRole, OwnerVerb
from leasehold.core.objects.wire import part
from leasehold.core.units import MINUTE
from leasehold.shell.observe.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
USER, OPERATOR = ROOT / "docs" / "user-guide", ROOT / "docs" / "operator-guide"
SAMPLE = re.compile(r"^(leasehold_\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$", re.MULTILINE)
TYPE = re.compile(r"^# TYPE (leasehold_\w+) (counter|gauge|histogram)$", re.MULTILINE)
SELECTED = re.compile(r'(leasehold_\w+)\{(\w+)="(\w+)"\}')


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def scrape() -> str:
    """The metrics of a server on which one run has started and one has not."""
    plant = Plant(nodes=1)
    metrics = Metrics(lambda: plant.controller.world, plant.control.clock)
    plant.submit("a/one", lasts=MINUTE)
    plant.submit("b/two")
    plant.wait(30_000)
    return metrics.text().decode()


def documented() -> dict[str, tuple[str, str, str]]:
    """Return for each documented metric its kind, its labels as written, and the whole row."""
    found = {}
    for line in read(OPERATOR / "monitoring.md").splitlines():
        if line.startswith("| `leasehold_"):
            name, kind, labels, *_ = (cell.strip() for cell in line.strip("|").split(" | "))
            found[name.strip("`")] = (kind, labels, line)
    return found


def test_every_metric_is_documented_with_its_kind_and_labels(scrape: str) -> None:
    kinds = {name: kind for name, kind in TYPE.findall(scrape) if not name.endswith("_created")}

    told = documented()

    assert {name: kind for name, (kind, _, _) in told.items()} == kinds
    for name, labels in SAMPLE.findall(scrape):
        if name in told:
            names = set(re.findall(r'(\w+)="', labels)) - {"le"}
            assert names <= set(re.findall(r"`(\w+)`", told[name][1])), name


def alerts() -> list[dict[str, str]]:
    (group,) = yaml.safe_load(read(OPERATOR / "alerts.yaml"))["groups"]
    rules = group["rules"]
    assert len(rules) >= 10
    return list(rules)


def test_alerts_use_metrics_and_label_values_that_exist() -> None:
    known = documented()
    names = {*known, *(f"{name}_bucket" for name, row in known.items() if row[0] == "histogram")}
    for alert in alerts():
        used = set(re.findall(r"\bleasehold_\w+", alert["expr"]))
        assert used or alert["expr"].startswith("up{"), alert["alert"]
        assert used <= names, f"{alert['alert']}: {used - names}"
        for name, label, value in SELECTED.findall(alert["expr"]):
            row = known[name][2]
            assert f"`{label}`" in row, f"{alert['alert']}: {label}"
            assert f"`{value}`" in row or label == "reason", f"{alert['alert']}: {value}"


def test_runbook_has_a_section_for_each_alert_and_no_other() -> None:
    sections = re.findall(r"^## (Leasehold\w+)$", read(OPERATOR / "runbook.md"), re.MULTILINE)

    assert sorted(sections) == sorted(alert["alert"] for alert in alerts())


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


@pytest.mark.parametrize(
    "tool",
    [
        pytest.param("cli_docs.py", id="command reference"),
        pytest.param("query_docs.py", id="query API reference"),
        pytest.param("runbook_page.py", id="dashboard runbook"),
    ],
)
def test_generated_page_is_up_to_date(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / tool), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_page_of_commands_has_every_command_and_option() -> None:
    sections = dict(re.findall(r"^## `([^`]+)`$(.*?)(?=^## |\Z)", read(ROOT / "docs" / "cli.md"),
                               re.MULTILINE | re.DOTALL))  # fmt: skip
    common = read(ROOT / "docs" / "cli.md").partition("## Common options")[2].partition("\n## ")[0]
    found = [
        each
        for each in (*commands(leasehold, "leasehold"), *commands(runs, "kubectl runs"))
        if not each[0].startswith("leasehold runs ")
    ]

    assert len(found) > 30
    for path, command in found:
        for option in command.params:
            if isinstance(option, click.Option):
                where = sections[path] + common
                assert all(name in where for name in option.opts), f"{path} {option.opts}"


def test_readme_names_every_command_of_kubectl_runs() -> None:
    heading = "## Which command answers your question"
    table = read(ROOT / "README.md").partition(heading)[2].partition("\n## ")[0]
    shown = table.replace("`kubectl runs ", "`")
    lacking = [name for name in runs.list_commands(click.Context(runs)) if f"`{name}" not in shown]

    assert lacking == []


def leaves(schema: Wire, path: str = "") -> Iterator[str]:
    """Yield the paths of all fields that a user may write; `[]` marks a list."""
    inner = part(schema, "properties") or part(part(schema, "items"), "properties")
    dots = f"{path}[]" if part(schema, "items") else path
    for name, member in inner.items():
        assert isinstance(member, dict), name
        below = list(leaves(member, f"{dots}.{name}" if dots else name))
        yield from below or [f"{dots}.{name}" if dots else name]


@pytest.mark.parametrize(("schema", "page"), [(RUN, "runs.md"), (BUDGET, "budgets.md")])
def test_every_field_of_a_spec_is_documented(schema: Wire, page: str) -> None:
    spec = part(part(schema, "properties"), "spec")
    text = read(USER / page)
    fields = [path for path in leaves(spec) if not path.startswith("template.")]

    assert len(fields) > 10
    for path in fields:
        names = path.split(".")
        short = [".".join(names[first:]) for first in range(len(names))]
        assert any(f"`{each}`" in text or f"`.{each}`" in text for each in short), path


def test_every_variable_of_a_pod_is_documented() -> None:
    source = read(Path(pods.__file__))
    told = set(re.findall(r'"([A-Z][A-Z_]+)":', source))

    assert len(told) > 15
    assert [each for each in sorted(told) if f"`{each}" not in read(USER / "runs.md")] == []


def test_every_field_that_can_be_selected_is_documented() -> None:
    text = read(USER / "kubectl.md")
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if "| " in line}

    for resource in RESOURCES:
        for path in (*resource.selectable, *resource.selectable_lists):
            assert f"`{path}`" in rows[resource.kind], f"{resource.kind} {path}"


def test_roles_verbs_and_health_are_documented() -> None:
    install, monitoring = read(OPERATOR / "install.md"), read(OPERATOR / "monitoring.md")

    assert [role for role in CallerRole if f"| `{role}` |" not in install] == []
    assert [verb for verb in OwnerVerb if f"| `--{verb}` |" not in install] == []
    assert [each for each in HEALTH if f"`/{each}`" not in monitoring] == []


def test_manifest_in_quickstart_equals_the_example_file() -> None:
    quoted = read(ROOT / "examples" / "torch" / "fixed.yaml")

    assert f"```yaml\n{quoted}```" in read(USER / "quickstart.md")
