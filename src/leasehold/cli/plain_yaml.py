"""Writes YAML without anchors: a part that occurs twice is written twice."""

import yaml


class PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - no data is an exception
        return True
