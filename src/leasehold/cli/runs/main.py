"""The console scripts `kubectl-runs` and `kubectl_complete-runs`.

kubectl finds both scripts on the PATH. The first one is `kubectl runs`; the second one answers its
shell completion.
"""

import os
import signal
import sys
from contextlib import suppress

import click

from leasehold.cli.runs.command import command


def main() -> None:
    """Run a command. Ctrl-C exits with status 130. If the reader of the output goes away, that is
    not an error."""
    try:
        command.main(args=sys.argv[1:], prog_name="kubectl runs", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        raise SystemExit(exit_.exit_code) from None
    except (click.Abort, KeyboardInterrupt):
        raise SystemExit(128 + signal.SIGINT) from None
    except click.ClickException as failure:
        failure.show()
        raise SystemExit(failure.exit_code) from None
    except BrokenPipeError:
        # Buffered output has no reader: let the interpreter's last flush go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def complete() -> None:
    """Print the candidates for the last word, one per line. Then print `:4`, by which cobra tells
    the shell not to offer file names."""
    from leasehold.cli.runs.completion import candidates

    with suppress(click.ClickException, OSError):  # without an answer there are no candidates
        for each in candidates(sys.argv[1:]):
            print(each)
    print(":4")


if __name__ == "__main__":
    main()
