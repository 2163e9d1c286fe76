"""What all tests have in common: what they counted is printed at the end."""

from typing import Any

import pytest


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """A test says with `record_property("counts", …)` what it wants to be read; also from a worker
    of xdist, whose output nobody sees."""
    reports = [each for kind in ("passed", "failed") for each in terminalreporter.getreports(kind)]
    for report in reports:
        if isinstance(report, pytest.TestReport):
            for name, value in report.user_properties:
                if name == "counts":
                    terminalreporter.write_line(str(value))
