"""The guide for clusters, followed step by step on real kubelets, from install to removal.

This story must run last, because it removes leasehold. The site's controller stands for the pods
of the Deployment, which no controller of this cluster would start.
"""

import os
import shutil
from pathlib import Path

from tests.apiserver.server import ROOT, program
from tests.docs.reader import Reader
from tests.kubelets.site import Site

GUIDE = ROOT / "docs" / "operator-guide" / "kubernetes.md"


class ClusterReader(Reader):
    """A reader who is an administrator of the cluster, by ~/.kube/config."""

    def __init__(self, folder: Path, site: Site) -> None:
        super().__init__(folder, Path(program("kubectl")))
        (folder / ".kube").mkdir()
        shutil.copy(site.cluster.kubeconfig(), folder / ".kube" / "config")
        self._env.pop("KUBECONFIG")
        self._env["PATH"] = f"{self._env['PATH']}:{os.environ['PATH']}"


def test_guide_for_clusters_works_as_written(fleet: Site, tmp_path: Path) -> None:
    reader = ClusterReader(tmp_path, fleet)
    text = GUIDE.read_text(encoding="utf-8")
    reader.read(text)
    assert reader.ran == text.count("\n$ ") > 10
    fleet.kubectl.ok("taint", "node", "n2", "rq.davidlangworthy.io/fleet-")
