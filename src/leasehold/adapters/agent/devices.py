"""The GPUs of this machine and the processes that use them, from NVML.

Called by the composition root (`discover`) and by `agent` (`DeviceWatch`). A machine without NVML
or a working driver has no devices, which is not an error. This module only reads: it never changes
a device or ends a process.
"""

import os
from contextlib import suppress
from dataclasses import dataclass

import pynvml  # type: ignore[import-untyped]


@dataclass(frozen=True, slots=True)
class Device:
    ordinal: int
    uuid: str  # "" for a virtual slot
    product: str
    memory_bytes: int


def discover() -> list[Device]:
    """Return all GPUs in NVML's order; none without a driver."""
    found: list[Device] = []
    if not _begin():
        return found
    with suppress(pynvml.NVMLError):
        for ordinal in range(pynvml.nvmlDeviceGetCount()):
            with suppress(pynvml.NVMLError):  # a GPU that fell off the bus
                handle = pynvml.nvmlDeviceGetHandleByIndex(ordinal)
                found.append(
                    Device(
                        ordinal=ordinal,
                        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
                        product=_text(pynvml.nvmlDeviceGetName(handle)),
                        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                    )
                )
    _end()
    return found


class DeviceWatch:
    """Finds the processes on each GPU. Keeps NVML open, because opening it is slow."""

    def __init__(self) -> None:
        self._is_open = False

    def holders(self, uuid: str) -> frozenset[int]:
        """Return the pids that use the GPU according to NVML; none if NVML does not answer."""
        self._is_open = self._is_open or _begin()
        found: set[int] = set()
        if not self._is_open:
            return frozenset()
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            for ask in (
                pynvml.nvmlDeviceGetComputeRunningProcesses,
                pynvml.nvmlDeviceGetGraphicsRunningProcesses,
            ):
                with suppress(pynvml.NVMLError):  # some products support only one of them
                    found.update(int(process.pid) for process in ask(handle))
        return frozenset(found)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            _end()


def is_alive(pid: int) -> bool:
    """Return whether the process exists here; NVML may report pids of another container."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _begin() -> bool:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def _end() -> None:
    with suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
