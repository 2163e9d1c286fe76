"""Records a command on a terminal and turns the recording into an animated picture.

The terminal supports only what `kubectl runs watch` writes (lines, colours, moving up, erasing)
and fails on anything else, so that the picture is never wrong.
"""

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

COLUMNS, LINES = 128, 7
_PART = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")
_COLOURS = {"31": "#ff9a8f", "32": "#7ccb98", "33": "#f0b860"}
_PLAIN = "#eceae4"
_WIDE, _TALL, _EDGE, _TOP = 8.4, 20, 18, 44  # a character's width, a line's height, the margins
HOLD_MS, LAST_MS = 1200, 3000  # how long a screen is shown at most, and how long the last one

Cells = list[tuple[str, str]]  # character, colour


class Terminal:
    def __init__(self) -> None:
        self._lines: list[Cells] = [[]]
        self._row = self._column = 0
        self._colour = _PLAIN

    def write(self, text: str) -> None:
        at = 0
        while at < len(text):
            found = _PART.match(text, at)
            assert found is not None, f"the terminal does not know {text[at : at + 12]!r}"
            at = found.end()
            arguments, command, control, plain = found.groups()
            if control:
                self._column = 0
                if control == "\n":
                    self._down()
            elif plain:
                self._put(plain)
            else:
                self._obey(arguments, command)

    def screen(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        return tuple(tuple(line) for line in self._lines[-LINES:])

    def text(self) -> str:
        return "\n".join("".join(each for each, _ in line) for line in self._lines)

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self._lines):
            self._lines.append([])

    def _put(self, text: str) -> None:
        line = self._lines[self._row]
        line += [(" ", _PLAIN)] * (self._column + len(text) - len(line))
        for place, each in enumerate(text):
            line[self._column + place] = (each, self._colour)
        self._column += len(text)

    def _obey(self, arguments: str, command: str) -> None:
        if command == "m":
            for each in (arguments or "0").split(";"):
                self._colour = _COLOURS.get(each, _PLAIN if each == "0" else self._colour)
        elif command == "A":
            self._row = max(0, self._row - int(arguments or 1))
        elif command == "K":
            self._lines[self._row] = []
        else:
            assert (arguments, command) in (("?25", "l"), ("?25", "h")), f"{arguments}{command}"


class Recording:
    """A recording that begins at its creation; `stop` ends the command as Ctrl-C does."""

    def __init__(self, command: Sequence[str | Path], env: Mapping[str, str]) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES + 4, COLUMNS, 0, 0))
        plain = {key: value for key, value in env.items() if key != "NO_COLOR"}
        self._process = subprocess.Popen(
            command,
            env={**plain, "TERM": "xterm", "COLUMNS": str(COLUMNS)},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._ours = ours
        self._written: list[tuple[float, bytes]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._ours, 65536)
            except OSError:  # the last writer has closed the terminal
                return
            if not part:
                return
            self._written.append((time.monotonic(), part))

    def stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(30)
        self._thread.join(30)
        os.close(self._ours)

    def screens(self) -> list[tuple[int, Terminal]]:
        """Return each screen that differs from the one before, and its milliseconds on show."""
        terminal, found = Terminal(), []
        decoded = [(at, part.decode("utf-8", "replace")) for at, part in self._written]
        for place, (at, part) in enumerate(decoded):
            terminal.write(part)
            following = decoded[place + 1][0] if place + 1 < len(decoded) else at + 9
            # One update may be read in several parts; only a screen that stays for a moment counts.
            if following - at > 0.05:
                shown = Terminal()
                shown._lines = [list(line) for line in terminal.screen()]
                if found and found[-1][1].screen() == shown.screen():
                    last = min(HOLD_MS, found[-1][0] + round(1000 * (following - at)))
                    found[-1] = (last, found[-1][1])
                else:
                    found.append((min(HOLD_MS, round(1000 * (following - at))), shown))
        return found


def as_svg(title: str, screens: Sequence[tuple[int, Terminal]]) -> str:
    """Return an animated SVG; a viewer who prefers reduced motion sees the last screen."""
    spans = [span for span, _ in screens[:-1]] + [LAST_MS]
    whole, begins = sum(spans), 0
    wide = round(2 * _EDGE + COLUMNS * _WIDE)
    tall = _TOP + _EDGE + LINES * _TALL
    rules, groups = [], []
    for place, ((_, terminal), span) in enumerate(zip(screens, spans)):
        first, last = 100 * begins / whole, 100 * (begins + span) / whole
        begins += span
        rules.append(
            f"@keyframes f{place}{{0%{{opacity:0}}{first:.3f}%{{opacity:1}}"
            f"{last:.3f}%{{opacity:0}}}}"
            f".f{place}{{animation:f{place} {whole}ms step-end infinite}}"
        )
        lines = [_line(cells, row) for row, cells in enumerate(terminal.screen())]
        groups.append(f'<g class="f f{place}">{"".join(lines)}</g>')
    end = f".f{len(spans) - 1}{{opacity:1}}"
    still = f"@media(prefers-reduced-motion:reduce){{.f{{animation:none}}{end}}}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" role="img">'
        f"<title>{escape(title)}</title><style>text{{font:14px ui-monospace,monospace;"
        f"white-space:pre}}.f{{opacity:0}}{''.join(rules)}{still}</style>"
        f'<rect width="{wide}" height="{tall}" rx="8" fill="#121418"/>'
        f'<text x="{_EDGE}" y="28" fill="#a3a7b0">$ {escape(title)}</text>{"".join(groups)}</svg>\n'
    )


def _line(cells: Sequence[tuple[str, str]], row: int) -> str:
    parts, at = [], 0
    while at < len(cells):
        end = at
        while end < len(cells) and cells[end][1] == cells[at][1]:
            end += 1
        text = "".join(each for each, _ in cells[at:end])
        if text.strip():
            x, y = _EDGE + at * _WIDE, _TOP + (row + 1) * _TALL
            length = f'textLength="{len(text) * _WIDE:.1f}" lengthAdjust="spacingAndGlyphs"'
            fill = cells[at][1]
            parts.append(f'<text x="{x:.1f}" y="{y}" fill="{fill}" {length}>{escape(text)}</text>')
        at = end
    return "".join(parts)
