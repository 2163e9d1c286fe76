"""`leasehold sim replay` on small files: reports, two settings side by side, errors."""

import json
import os
import pty
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from leasehold.cli.main import main

FLEET = "fleet: [{domain: d, nodes: 1, gpus: 8, flavor: V100, region: r, cluster: c}]\n"
TRACE = "submit,duration,gpus,owner\n0,3600,8,a\n600,1800,8,a\n700,60,0,a\n"


def budget(owner: str, gpus: int) -> str:
    return (
        "apiVersion: rq.davidlangworthy.io/v1\n"
        "kind: Budget\n"
        f"metadata: {{name: {owner}, namespace: {owner}}}\n"
        f"spec: {{owner: 'org:{owner}', envelopes: "
        f"[{{name: own, flavor: V100, concurrency: {gpus}}}]}}\n"
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (
        ("fleet.yaml", FLEET),
        ("two.yaml", FLEET.replace("nodes: 1", "nodes: 2")),
        ("budgets.yaml", budget("a", 16)),
        ("none.yaml", budget("b", 16)),
        ("trace.csv", TRACE),
    ):
        (tmp_path / name).write_text(text)
    return tmp_path


GIVEN = ("trace.csv", "--fleet", "fleet.yaml", "--budgets", "budgets.yaml", "--owner", "org:{}")


def replay(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["sim", "replay", *arguments])


def test_replay_table_has_a_row_for_each_team(folder: Path) -> None:
    result = replay(*GIVEN, "--durations", "all")

    assert result.exit_code == 0, result.stderr
    lines = [re.sub(" +", " ", line) for line in result.stdout.splitlines()]
    assert lines[0] == "2 jobs of trace.csv, submitted within 10m"
    assert lines[1] == "1 row without a GPU, left out"
    assert lines[3].startswith("TEAM JOBS DONE FAILED NEVER STARTED MEAN WAIT MEDIAN P95")
    # The second waits 50 minutes; 12 GPU-hours are used.
    assert lines[4] == "all 2 2 0 0 25m 0s 50m 50m 0 12 0.0 %"
    assert lines[5] == "org:a 2 2 0 0 25m 0s 50m 50m 0 12 0.0 %"
    assert lines[6].startswith("100.0 % of 8 GPUs were in use from the first submission")
    assert result.stderr == ""  # no progress bar


def test_terminal_shows_replay_progress(folder: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "leasehold", "sim", "replay", *GIVEN],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    ) as process:
        os.close(theirs)
        stdout, _ = process.communicate()
        shown = os.read(ours, 1 << 16).decode()
    os.close(ours)

    assert process.returncode == 0
    assert b"2 jobs of trace.csv" in stdout
    assert "A: fleet.yaml, budgets.yaml" in shown
    assert "jobs over" in shown


def test_replay_json_has_the_figures_of_both_settings(folder: Path) -> None:
    result = replay(*GIVEN, "--durations", "all", "--against-fleet", "two.yaml", "-o", "json")

    document = json.loads(result.stdout)
    one, two = document["replays"]
    assert document["remarks"] == {"without a GPU, left out": 1}
    assert (one["setting"], two["setting"]) == (
        "fleet.yaml, budgets.yaml",
        "two.yaml, budgets.yaml",
    )
    assert (one["total"]["waits"]["mean"], two["total"]["waits"]["mean"]) == (1500, 0)
    assert (one["gpus"], two["gpus"]) == (8, 16)
    assert one["total"]["curve"][100] == 3000
    assert one["teams"][0]["lostGpuHours"] == 0


class Tags(HTMLParser):
    """The tags of a page, and the addresses that it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.fetched: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "srcset")]


def test_html_page_contains_its_charts_and_fetches_nothing(folder: Path) -> None:
    (folder / "<b>.csv").write_text(TRACE)

    result = replay("<b>.csv", *GIVEN[1:], "--durations", "all",
                    "--against-fleet", "two.yaml", "--html", "page.html")  # fmt: skip

    assert result.exit_code == 0, result.stderr
    text = (folder / "page.html").read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.fetched == []
    assert "script" not in tags.names
    assert tags.names.count("svg") == 4  # curves of all and of a team, and the use of each setting
    assert tags.names.count("polyline") == 4  # two settings in each curve
    assert "url(" not in text
    assert "A: mean 25m, p95 50m; B: mean 0s, p95 0s" in text
    assert "&lt;b&gt;.csv" in text
    assert "org:a" in text


def test_written_ledger_can_be_verified_and_replayed(folder: Path) -> None:
    first = replay(*GIVEN, "--durations", "all", "--out", "left")
    assert first.exit_code == 0, first.stderr

    verified = CliRunner().invoke(main, ["ledger", "verify", "left/ledger.jsonl"])
    again = replay("--ledger", "left/ledger.jsonl", "--against-fleet", "two.yaml",
                   "--durations", "all", "-o", "json")  # fmt: skip

    assert verified.exit_code == 0, verified.output
    one, two = json.loads(again.stdout)["replays"]
    assert (one["total"]["waits"]["mean"], two["total"]["waits"]["mean"]) == (1500, 0)
    assert one["setting"] == "the ledger's nodes, the ledger's Budgets"


def test_two_settings_write_two_ledgers(folder: Path) -> None:
    result = replay(*GIVEN, "--against-fleet", "two.yaml", "--out", "left")

    assert result.exit_code == 0, result.stderr
    assert sorted(str(path.relative_to("left")) for path in Path("left").glob("*/*")) == [
        "A/ledger.jsonl",
        "B/ledger.jsonl",
    ]


def test_scale_and_time_range_select_the_replayed_jobs(folder: Path) -> None:
    fast = replay(*GIVEN, "--durations", "all", "--scale", "2", "-o", "json")
    late = replay(*GIVEN, "--from", "1970-01-01T00:10:00Z", "--to", "1970-01-02", "-o", "json")

    # The second job is submitted after five minutes and waits 55.
    assert json.loads(fast.stdout)["replays"][0]["total"]["waits"]["longest"] == 3300
    assert json.loads(late.stdout)["jobs"] == 1


def test_owner_without_a_budget_gets_a_warning(folder: Path) -> None:
    result = replay(*GIVEN, "--against-budgets", "none.yaml")

    said = "warning: fleet.yaml, none.yaml: no Budget of org:a; 2 jobs of it can never start\n"
    assert result.stderr == said
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a TRACE, or an exported ledger"),
        (("trace.csv", "--fleet", "fleet.yaml"), "--fleet F --budgets B"),
        (("--ledger", "trace.csv", "--columns", "gpus=n"), "are only for traces"),
        ((*GIVEN, "--columns", "cards=gpus"), "where PART is one of submit"),
        ((*GIVEN, "--scale", "0"), "use a number over 0"),
        ((*GIVEN, "--checkpoint", "soon"), "use 30s, 15m or 1h30m"),
        ((*GIVEN, "--from", "then"), "use 2017-10-01"),
        ((*GIVEN, "--owner", "two words"), "trace.csv:2: the owner"),
        ((*GIVEN, "--team", "z"), "trace.csv: nothing to replay"),
        ((*GIVEN, "--flavor", "H100"), "no node has the GPU type H100"),
        (("none.csv", *GIVEN[1:]), "none.csv:1: no such file: name a trace that exists"),
        ((*GIVEN, "--against-fleet", "trace.csv"), "trace.csv:1: "),
        ((*GIVEN, "--budgets", "fleet.yaml"), "fleet.yaml:1: "),
        ((*GIVEN, "--against-budgets", "bad.yaml"), "bad.yaml:4: Budget a/a: spec.owner"),
        ((*GIVEN, "--config", "none.yaml"), "none.yaml"),
        (("--ledger", "trace.csv"), "trace.csv:1: not a line of a ledger"),
        ((*GIVEN, "--html", "nowhere/page.html"), "nowhere/page.html: No such file"),
    ],
)
def test_invalid_arguments_are_reported_without_a_traceback(
    folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    (folder / "bad.yaml").write_text(budget("a", 8).replace("'org:a'", "'org a'"))

    result = replay(*arguments)

    assert result.exit_code in (1, 2)
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)
