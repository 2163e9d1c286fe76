"""What a job prints, kept in numbered files: `log.1`, `log.2`, … of which the oldest are dropped.

Called by the shim; read by `adapters.agent.logs`. A line of a file is what the container runtimes
of Kubernetes write, `<instant> <stream> <F or P> <text>`: P marks a piece that no newline ends. A
job never waits for a full disk: what cannot be written is dropped, counted, and told in the log
once there is room.
"""

import os
import time

PIECE_BYTES_MAX = 16 * 1024  # a longer line is written in pieces
PORTION_BYTES = 32 * 1024  # written at once; what does not fit is dropped by so much
_SECOND = 1_000_000_000


class LogFile:
    def __init__(self, folder: int, *, bytes_max: int, files_max: int) -> None:
        """`bytes_max` of one file, of which `files_max` are kept."""
        self.dropped_bytes = 0
        self.dropped_lines = 0
        self._folder = folder
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._number = 0
        self._size = 0
        self._fd = -1
        self._begun: dict[str, bytes] = {}  # by stream: a line whose end has not come
        self._untold = 0  # bytes dropped since the log last said so
        self._stamp = (0, b"")

    @property
    def has_begun(self) -> bool:
        """Whether a line waits for its end."""
        return any(self._begun.values())

    def add(self, stream: str, output: bytes) -> None:
        """Writes all whole lines; keeps the rest until it goes on, or `flush`."""
        lines = (self._begun.pop(stream, b"") + output).split(b"\n")
        rest = lines.pop()
        head = self._head(stream)
        written = [head + b"F " + line for line in lines if len(line) <= PIECE_BYTES_MAX]
        if len(written) != len(lines):
            written = [piece for line in lines for piece in _pieces(head, line, b"F ")]
        if len(rest) > PIECE_BYTES_MAX:
            cut = len(rest) - len(rest) % PIECE_BYTES_MAX
            written += _pieces(head, rest[:cut], b"P ")
            rest = rest[cut:]
        self._begun[stream] = rest
        self._write(written)

    def flush(self) -> None:
        """Writes lines that have begun as they are."""
        for stream, rest in self._begun.items():
            if rest:
                self._write([self._head(stream) + b"P " + rest])
        self._begun.clear()

    def close(self) -> None:
        self.flush()
        if self._untold:
            self._write([])
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _head(self, stream: str) -> bytes:
        second, fraction = divmod(time.time_ns(), _SECOND)
        if second != self._stamp[0]:
            text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            self._stamp = (second, text.encode())
        return b"%s.%09dZ %s " % (self._stamp[1], fraction, stream.encode())

    def _write(self, lines: list[bytes]) -> None:
        if self._untold:
            said = f"leasehold: {self._untold} bytes of output were dropped, the disk was full"
            lines = [self._head("stderr") + b"F " + said.encode(), *lines]
        # In portions, so that a file is hardly larger than it may be, and a disk well filled.
        portion: list[bytes] = []
        size = 0
        for line in lines:
            portion.append(line)
            size += len(line) + 1
            if size >= PORTION_BYTES or self._size + size >= self._bytes_max:
                self._put(portion, size)
                portion, size = [], 0
        if portion:
            self._put(portion, size)

    def _put(self, lines: list[bytes], size: int) -> None:
        try:
            if self._fd < 0 or self._size >= self._bytes_max:
                self._open_next()
            if os.write(self._fd, b"\n".join(lines) + b"\n") != size:
                os.ftruncate(self._fd, self._size)  # no half line
                raise OSError(28, os.strerror(28))
        except OSError:
            self.dropped_lines += len(lines)
            self.dropped_bytes += size
            self._untold += size
        else:
            self._size += size
            self._untold = 0

    def _open_next(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        fd = os.open(f"log.{self._number + 1}", flags, 0o600, dir_fd=self._folder)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._size = fd, 0
        self._number += 1
        oldest = self._number - self._files_max
        if oldest > 0:
            os.unlink(f"log.{oldest}", dir_fd=self._folder)


def _pieces(head: bytes, line: bytes, last: bytes) -> list[bytes]:
    starts = range(0, max(len(line), 1), PIECE_BYTES_MAX)
    cut = [line[start : start + PIECE_BYTES_MAX] for start in starts]
    return [head + b"P " + piece for piece in cut[:-1]] + [head + last + cut[-1]]
