"""The error that a file or folder cannot be used, with a reason and a remedy.

Base class of the errors when a store, an archive or a data folder is opened; commands print it
unchanged.
"""

from pathlib import Path


class Unusable(Exception):  # noqa: N818 - named for the condition
    def __init__(self, path: Path, why: str, remedy: str) -> None:
        super().__init__(path, why, remedy)
        self.path = path
        self.why = why
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.path}: {self.why}; {self.remedy}"
