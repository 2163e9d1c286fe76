"""Data folders with a history, identical byte for byte each time."""

from pathlib import Path

from leasehold.sim.scenario.runner import HELD, run_scenario

STORIES = Path(__file__).parents[1] / "scenarios"
SECRETS = {"tokens.json": b"{}", "lottery.key": b"k" * 32, "tls/ca.key": b"secret"}
USERS = b'{"team": 2000000000}'  # namespace -> uid


def make_data_folder(folder: Path) -> Path:
    """Create the data folder of a server that has played a scenario with preemptions and with
    closed and open leases."""
    folder.mkdir(mode=0o700)
    story = STORIES / "A5-a-checkpoint-keeps-the-place-in-the-queue.yaml"
    outcome = run_scenario(story, store="sqlite", out=folder, echo=lambda _: None)
    assert outcome.code == HELD
    for name, content in SECRETS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "agent").mkdir(mode=0o700)
    (folder / "agent" / "users.json").write_bytes(USERS)
    return folder
