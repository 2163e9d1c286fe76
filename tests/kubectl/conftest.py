"""Fixtures: a real kubectl, found or built once, with its own home folder for each test."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubectl.command import Kubectl
from tests.rest.facade import ADMIN, Facade, prepared

ROOT = Path(__file__).resolve().parents[2]
VERSION = "v1.36.3"


@pytest.fixture(scope="session")
def kubectl_path() -> Path:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    folders = [Path(assets)] if assets else []
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folders.append(cache / "leasehold" / "kube" / VERSION)
    for folder in folders:
        if os.access(folder / "kubectl", os.X_OK):
            return folder / "kubectl"
    built = subprocess.run(
        [str(ROOT / "tools" / "kube" / "build"), "kubectl"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Path(built.stdout.strip())


@pytest.fixture(scope="module")
def facade(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Facade]:
    found = prepared(tmp_path_factory.mktemp("facade"))
    yield found
    found.__exit__()


@pytest.fixture
def kubectl(facade: Facade, kubectl_path: Path, tmp_path: Path) -> Iterator[Kubectl]:
    found = Kubectl(kubectl_path, facade.kubeconfig(ADMIN), tmp_path)
    yield found
    found.stop_all()
