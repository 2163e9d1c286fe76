"""Structured logs on stderr: one line per decision and per problem.

Each long-running command configures logging once, here. On a terminal the lines are formatted for
people, otherwise as JSON; both have the same fields. Nothing else in the program configures
logging.
"""

import logging
import sys
from typing import TextIO

import structlog
from structlog.processors import ExceptionRenderer
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import Processor

from leasehold.control.turn import Turn

# Local variables in tracebacks would help, but may contain tokens.
_NO_LOCALS = ExceptionDictTransformer(show_locals=False)
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


def configure(level: str, *, stream: TextIO | None = None) -> None:
    """Configure logging; `level` is one of `LEVELS`."""
    out = sys.stderr if stream is None else stream
    shape: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if out.isatty():
        plain = structlog.dev.plain_traceback
        shape.append(structlog.dev.ConsoleRenderer(exception_formatter=plain))
    else:
        shape += [ExceptionRenderer(_NO_LOCALS), structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=shape,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=out, format="%(message)s")
    # uvicorn warns of every malformed request, and anyone who reaches the port can send those.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)


class DecisionLog:
    """Logs one line per notice of a turn, with the batch that committed it."""

    def __init__(self) -> None:
        self._log = structlog.get_logger("leasehold")

    def after_turn(self, turn: Turn) -> None:
        for notice in turn.notices:
            self._log.info(
                notice.reason,
                kind=notice.kind,
                subject=notice.subject,
                message=notice.message,
                batch=notice.batch,
            )

    def alert(self, words: str) -> None:
        self._log.warning("alert", message=f"alert: {words}")
