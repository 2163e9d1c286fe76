"""Packs `kubectl runs` for krew, kubectl's plugin manager: an archive for one platform, and a
manifest with the archive's digest. Dependencies come from the requirement file with hashes.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
# What `kubectl runs` loads; the server's dependencies stay out of it.
NEEDED = ("click", "markdown-it-py", "mdurl", "msgspec", "pygments", "pyyaml", "rich")
LAUNCHER = r"""#!/bin/sh
# krew links to this file; what it needs lies beside it.
here=$(dirname "$(readlink -f "$0")")
export PYTHONPATH="$here/lib"
exec "${PYTHON:-python3}" "$here/lib/kubectl_runs.py" "$@"
"""
PROGRAM = """import sys

from leasehold.cli.runs.main import main

sys.exit(main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--uri", required=True, help="where the archive will be fetched from")
    asked = parser.parse_args()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    asked.out.mkdir(parents=True, exist_ok=True)
    archive = asked.out / "kubectl-runs.tar.gz"
    pack(archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    path = asked.out / "runs.yaml"
    text = yaml.safe_dump(manifest(version, asked.uri, digest), sort_keys=False)
    path.write_text(text, encoding="utf-8")
    print(f"{archive}\n{path}")


def pack(archive: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        (top / "kubectl-runs").write_text(LAUNCHER, encoding="utf-8")
        (top / "kubectl-runs").chmod(0o755)
        wanted = top / "requirements.txt"
        wanted.write_text(requirements(), encoding="utf-8")
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        words += ["--target", str(top / "lib"), "--no-deps", "--require-hashes"]
        subprocess.run([*words, "-r", str(wanted)], check=True)
        wanted.unlink()
        shutil.copytree(
            ROOT / "src" / "leasehold",
            top / "lib" / "leasehold",
            ignore=shutil.ignore_patterns("__pycache__", "shim"),
        )
        (top / "lib" / "kubectl_runs.py").write_text(PROGRAM, encoding="utf-8")
        with tarfile.open(archive, "w:gz") as packed:
            for name in ("kubectl-runs", "lib"):
                packed.add(top / name, arcname=name)


def requirements() -> str:
    """Return the entries of the lock file for the packages that the plugin needs, with their
    hashes."""
    text = (ROOT / "requirements.txt").read_text("utf-8")
    entries = re.findall(r"^[a-z0-9].*\n(?: +--hash=.*\n)+", text, re.MULTILINE)
    found = {re.split(r"[=\s;]", entry)[0]: entry for entry in entries}
    # The last hash of an entry has no backslash, so entries can be joined.
    return "".join(found[name] for name in NEEDED)


def manifest(version: str, uri: str, digest: str) -> dict[str, object]:
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "runs"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Who pays for which GPUs, what starts when, and why",
            "description": "Asks a cluster with leasehold on it: who pays for a Run, why it waits,"
            "\nwhy it was cut, what a change would do; and submits and cancels Runs.\n",
            "caveats": "It needs Python 3.11 or later (python3, or what PYTHON names).\n",
            "platforms": [
                {
                    "selector": {"matchLabels": {"os": "linux", "arch": "amd64"}},
                    "uri": uri,
                    "sha256": digest,
                    "bin": "kubectl-runs",
                }
            ],
        },
    }


if __name__ == "__main__":
    main()
