"""A container image made of Debian's static busybox, so that no registry is needed."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
JOB = "leasehold.test/job:1"
PAUSE = "leasehold.test/pause:1"
PUBLIC = "busybox:1.36"  # its name in the documentation
_COMMANDS = ("sh", "cat", "date", "echo", "env", "nc", "nslookup", "sleep", "test", "true", "wget")
_FILES = {"etc/passwd": b"root:x:0:0:root:/:/bin/sh\n", "etc/group": b"root:x:0:\n"}


def write_image(path: Path) -> None:
    """Write a docker-archive with one layer, tagged as the image of jobs and as the pause image
    that holds a pod's namespaces."""
    layer = _layer()
    layer_id = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "1000000"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer_id}"]},
        }
    ).encode()
    config_id = hashlib.sha256(config).hexdigest()
    manifest = [
        {
            "Config": f"{config_id}.json",
            "RepoTags": [JOB, PAUSE, PUBLIC],
            "Layers": [f"{layer_id}/layer.tar"],
        }
    ]
    with tarfile.open(path, "w") as image:
        _add(image, f"{layer_id}/layer.tar", layer)
        _add(image, f"{config_id}.json", config)
        _add(image, "manifest.json", json.dumps(manifest).encode())


def _layer() -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as layer:
        for name in ("bin", "etc", "tmp"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            layer.addfile(folder)
        _add(layer, "bin/busybox", BUSYBOX.read_bytes(), mode=0o755)
        for name in _COMMANDS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(link)
        for name, content in _FILES.items():
            _add(layer, name, content)
    return held.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
