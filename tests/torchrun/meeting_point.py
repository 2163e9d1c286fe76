"""Find the node whose torchrun holds the rendezvous store: the first one to start.

Called by `elastic`, which then fences exactly that node. The module reads `/proc`, because neither
torchrun nor leasehold records this node.
"""

from pathlib import Path

from tests.up.server import marked

_LISTENING = "0A"


def host_of_store(data: Path) -> str:
    """Return the name of the node; empty while no process listens."""
    for pid in marked(data):
        environ = _environ(pid)
        port = environ.get("PET_RDZV_ENDPOINT", "").rpartition(":")[2]
        if port and _listening(int(port)) & _sockets(pid):
            return environ.get("NODE_NAME", "")
    return ""


def _environ(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    pairs = (variable.partition("=") for variable in text.split("\0"))
    return {name: value for name, _, value in pairs}


def _listening(port: int) -> set[str]:
    """Return the inodes of the sockets that listen on this port, on any address."""
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            cells = row.split()
            if cells[3] == _LISTENING and int(cells[1].rpartition(":")[2], 16) == port:
                found.add(cells[9])
    return found


def _sockets(pid: int) -> set[str]:
    found = set()
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                found.add(target.removeprefix("socket:[").removesuffix("]"))
    except OSError:  # the process has ended
        return set()
    return found
