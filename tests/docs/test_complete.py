"""Everything of the server and its commands that a person can meet is in the guides."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from leasehold.adapters.rest.app import HEALTH
from leasehold.adapters.rest.resources import RESOURCES
from leasehold.cli.main import main as leasehold
from leasehold.cli.runs.command import command as runs
from leasehold.core.access import CallerRole, OwnerVerb
from leasehold.shell.metrics import Metrics
from tests.docs.reader import Reader
from tests.unit.shell.test_metrics import Counted

ROOT = Path(__file__).resolve().parents[2]
USER, OPERATOR = ROOT / "docs" / "user-guide", ROOT / "docs" / "operator-guide"
METRIC = re.compile(r"\bleasehold_\w+")
SELECTED = re.compile(r'(leasehold_\w+)\{(\w+)="(\w+)"\}')
