"""`kubectl runs` as krew installs it: the manifest's digest is right, and kubectl finds the
plugin."""

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import yaml
from tests.apiserver.server import ROOT, program


def test_krew_package_works_as_kubectl_plugin(tmp_path: Path) -> None:
    uri = "https://example.com/kubectl-runs.tar.gz"
    words = [sys.executable, str(ROOT / "tools" / "krew.py"), "--out", str(tmp_path), "--uri", uri]
    subprocess.run(words, check=True, capture_output=True, timeout=240)
    manifest = yaml.safe_load((tmp_path / "runs.yaml").read_text("utf-8"))
    [platform] = manifest["spec"]["platforms"]
    packed = tmp_path / "kubectl-runs.tar.gz"
    assert platform["sha256"] == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert platform["uri"] == uri
    store, links = tmp_path / "store", tmp_path / "bin"
    with tarfile.open(packed) as archive:
        archive.extractall(store, filter="data")
    links.mkdir()
    (links / "kubectl-runs").symlink_to(store / platform["bin"])
    env = {
        "PATH": f"{links}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
        "HOME": str(tmp_path),
    }
    for asked in (["runs", "--help"], ["plugin", "list"]):
        done = subprocess.run(
            [program("kubectl"), *asked], env=env, capture_output=True, text=True, timeout=60,
            check=True,
        )  # fmt: skip
        assert "runs" in done.stdout
    # Without a cluster the plugin says what is missing; it loads no code from outside the package.
    done = subprocess.run(
        [program("kubectl"), "runs", "list"], env=env, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert "there is no kubeconfig" in done.stderr
