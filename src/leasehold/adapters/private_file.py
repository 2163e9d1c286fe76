"""Files that only their owner may read, replaced whole or not at all.

Used for tokens, keys and kubeconfigs. A reader sees the old text or the new one; after a power cut
too, since the text is on the disk before its name is.
"""

import os
import tempfile
from pathlib import Path


def write_private(path: Path, data: bytes) -> None:
    """Atomically, with mode 0600 from the first byte; missing folders are made 0700."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # made 0600
    scratch = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
