"""`leasehold config show`: the configuration in force, every key with its value."""

from pathlib import Path

import click
import yaml

from leasehold.cli.data_folder import ledger_data_option
from leasehold.shell.config.config import BadConfig, Config, effective, load_config
from leasehold.shell.config.folder import DataFolder
from leasehold.shell.config.yamlfile import BadFile

config_option = click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The configuration file.  [default: config.yaml in the data folder, if there is one]",
)


@click.group("config")
def command() -> None:
    """Show the configuration."""


@command.command("show")
@ledger_data_option
@config_option
def show(data: DataFolder | None, config_file: Path | None) -> None:
    """Print every key with its current value, as a valid configuration file."""
    if data is None and config_file is None:
        raise click.UsageError(
            "KUBECONFIG names a server that has no data folder on this machine; name the folder "
            "with --data, or the configuration file of its controllers with --config"
        )
    shown = effective(read_config(data, config_file))
    click.echo(yaml.safe_dump(shown, sort_keys=False, default_flow_style=False), nl=False)


def read_config(data: DataFolder | None, config_file: Path | None) -> Config:
    """Read the configuration file that is named, otherwise the data folder's; return the defaults
    if there is neither. A mistake in a file ends the command."""
    if config_file is not None:
        return read_config_file(config_file)
    if data is None or not data.config.is_file():
        return Config()
    return read_config_file(data.config)


def read_config_file(path: Path, base: Config | None = None) -> Config:
    """Read a configuration file; a mistake in it ends the command. Keys that the file lacks have
    their values from `base`."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise click.ClickException(f"{path}: {why}; name a file that can be read") from None
    try:
        return load_config(text, base)
    except BadConfig as bad:
        raise click.ClickException(f"{path}:\n{bad}") from None
    except BadFile as bad:
        lines = str(bad).replace("configuration:", f"{path}:")
        raise click.ClickException(lines) from None
