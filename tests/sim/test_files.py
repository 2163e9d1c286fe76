"""Plans as scenario files: the file of a shrunk failure plays, and fails, by itself."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from leasehold.cli.main import main
from leasehold.shell.config.yamlfile import BadFile
from leasehold.shell.leadership.tenure import StoreTenures
from leasehold.sim.faults.file import plan_of, scenario_of
from leasehold.sim.faults.plan import draw_plan
from leasehold.sim.faults.play import play
from leasehold.sim.scenario.parse import parse_story
from leasehold.sim.scenario.trouble import Profile

HEAD = """title: t
fleet: [{domain: a, nodes: 1, gpus: 8, flavor: H, region: r, cluster: c}]
"""


@pytest.mark.parametrize("profile", [Profile.HUNTER, Profile.LIVENESS])
def test_plan_and_its_file_give_the_same_history(profile: Profile) -> None:
    plan = draw_plan(3, profile=profile)
    text = scenario_of(plan, "Three")
    read = plan_of(parse_story(text, "f.yaml"), text)
    assert (read.attacks, read.store, read.stale) == (plan.attacks, plan.store, plan.stale)
    assert (read.rollout, read.late) == (plan.rollout, plan.late)
    assert play(read).digest == play(plan).digest


def test_planted_bug_leaves_a_scenario_that_fails_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never_refuse(self: StoreTenures, key: str, *_: object, **__: object) -> None:
        """Grant every request, without waiting for the holder."""

    with monkeypatch.context() as planted:
        planted.setattr(StoreTenures, "_refusal", never_refuse)
        asked = ["sim", "--seed", "5", "--shrink", "--keep", str(tmp_path)]
        shrunk = CliRunner().invoke(main, asked)
        assert shrunk.exit_code == 1, shrunk.output
        (file,) = tmp_path.glob("*.yaml")
        assert f"leasehold sim scenario {os.path.relpath(file)}" in shrunk.output
        failed = CliRunner().invoke(main, ["sim", "scenario", str(file), "--quiet"])
        assert failed.exit_code == 1, failed.output
        assert "ExpiredLeaseClaimable" in failed.output
        left = parse_story(file.read_text(), "f.yaml")
        assert (left.steps, left.budgets) == ((), ())  # two contenders are enough
    held = CliRunner().invoke(main, ["sim", "scenario", str(file)])
    assert held.exit_code == 0, held.output
    assert held.output.rstrip().endswith("everything held")


def test_scenario_with_trouble_rejects_the_store_option(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(f"{HEAD}trouble: {{seed: 1, lasts: 1m}}\nsteps: []\n")
    said = CliRunner().invoke(main, ["sim", "scenario", str(file), "--store", "sqlite"])
    assert said.exit_code == 2
    assert "leave out --out, --show and --store" in said.output


@pytest.mark.parametrize(
    ("written", "remedy"),
    [
        ("trouble: {lasts: 1m}\nsteps: []\n", "this field is required"),
        ("trouble: {seed: 1, lasts: 1m, store: {rain: 0.1}}\nsteps: []\n", "use one of refuse"),
        ("trouble: {seed: 1, lasts: 1m, store: {refuse: 2}}\nsteps: []\n", "from 0 to 1"),
        ("trouble: {seed: 1, lasts: 1m, core: c9}\nsteps: []\n", "use c1 or c2 or c3"),
        ("trouble: {seed: 1, lasts: 1m, netwrk: {}}\nsteps: []\n", "did you mean network"),
        ("trouble: {seed: 1, lasts: 1m, rollout: {older: 2}}\nsteps: []\n", "from 0 to 1"),
        ("trouble: {seed: 1, lasts: 1m, rollout: {settings: {activationLad: 1m}}}\nsteps: []\n",
         "did you mean activationLead"),
    ],
)  # fmt: skip
def test_mistakes_in_trouble_are_reported_with_remedy(written: str, remedy: str) -> None:
    with pytest.raises(BadFile) as caught:
        parse_story(HEAD + written, "f.yaml")
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("attack", "remedy"),
    [
        ("{harm: rain, who: leader}", "use crash or pause"),
        ("{harm: cut, who: me}", "use leader or standby"),
        ("{harm: crash, who: busy-node}", "a node can only have cut, cut-requests, cut-answers"),
        ("{harm: pause, who: recovering}", "name a point of its recovery"),
        ("{harm: pause, who: leader, point: lunch}", "use before or after a call"),
    ],
)
def test_mistakes_in_attacks_are_reported_with_remedy(attack: str, remedy: str) -> None:
    step = f"trouble: {{seed: 1, lasts: 1m}}\nsteps:\n  - {{at: 1s, attack: {attack}}}\n"
    with pytest.raises(BadFile) as caught:
        parse_story(HEAD + step, "f.yaml")
    assert remedy in str(caught.value)
