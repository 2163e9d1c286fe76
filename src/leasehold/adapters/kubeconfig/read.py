"""Reads server and credentials from kubeconfig files, like kubectl.

Used by `kubectl runs` and other clients of a Kubernetes API server. Reads the named file, otherwise
every file of `$KUBECONFIG` (the first value wins), otherwise `~/.kube/config`. Supports tokens,
token files, client certificates, passwords and exec plugins.
"""

import base64
import binascii
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from leasehold.core.names import Wire

EXEC_SECONDS = 60


class BadKubeconfig(Exception):  # noqa: N818 - named for the condition
    """The kubeconfig cannot be used; names the file, the problem and a remedy."""


@dataclass(frozen=True)
class KubeContext:
    """A context of a kubeconfig: a server and the credentials for it."""

    name: str
    server: str
    user: str
    namespace: str
    ca_file: str = ""
    ca_data: bytes = b""
    verify: bool = True
    server_name: str = ""
    token: str = field(default="", repr=False)
    basic: str = field(default="", repr=False)
    cert_file: str = ""
    key_file: str = ""
    cert_data: bytes = field(default=b"", repr=False)
    key_data: bytes = field(default=b"", repr=False)
    files: str = ""  # for messages


def load_context(path: str, context: str) -> KubeContext:
    """Return the named context, or the current one; raise `BadKubeconfig` if it cannot be used."""
    files = _files(path)
    found = [(file, _read(file, required=bool(path))) for file in files]
    shown = ", ".join(str(file) for file in files)
    config = [(file, each) for file, each in found if each]
    if not config:
        raise BadKubeconfig(
            f"there is no kubeconfig ({shown}); `leasehold up` writes one: name it with "
            "--kubeconfig or $KUBECONFIG"
        )
    name = context or next(
        (text for _, each in config if (text := _text(each, "current-context"))), ""
    )
    if not name:
        raise BadKubeconfig(f"{shown} has no current-context; name a context with --context")
    _, chosen = _named(config, "contexts", "context", name, shown)
    at, cluster = _named(config, "clusters", "cluster", _text(chosen, "cluster"), shown)
    user_name = _text(chosen, "user")
    home, user = _named(config, "users", "user", user_name, shown) if user_name else (at, {})
    server = _text(cluster, "server")
    if not server.startswith(("https://", "http://")):
        raise BadKubeconfig(f"{at}: cluster {_text(chosen, 'cluster')!r} has no https:// server")
    if _text(cluster, "proxy-url"):
        raise BadKubeconfig(f"{at}: proxy-url is not supported; reach {server} without a proxy")
    return _with_user(
        KubeContext(
            name=name,
            server=server.rstrip("/"),
            user=user_name,
            namespace=_text(chosen, "namespace") or "default",
            ca_file=_path(at, _text(cluster, "certificate-authority")),
            ca_data=_data(at, cluster, "certificate-authority-data"),
            verify=cluster.get("insecure-skip-tls-verify") is not True,
            server_name=_text(cluster, "tls-server-name"),
            files=shown,
        ),
        home,
        user,
    )


def _files(path: str) -> list[Path]:
    if path:
        return [Path(path)]
    listed = os.environ.get("KUBECONFIG", "")
    if listed:
        return [Path(each) for each in listed.split(os.pathsep) if each]
    return [Path.home() / ".kube" / "config"]


def _read(file: Path, *, required: bool) -> Wire:
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        if required:
            raise BadKubeconfig(f"{file}: there is no such kubeconfig") from None
        return {}
    except OSError as error:
        raise BadKubeconfig(f"{file}: cannot be read: {error.strerror}") from None
    return _parsed(raw, str(file))


def _parsed(raw: bytes, place: str) -> Wire:
    import yaml  # here: completion of a subcommand's name needs no kubeconfig

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        found = yaml.load(raw, Loader=loader)
    except (yaml.YAMLError, UnicodeDecodeError):
        raise BadKubeconfig(f"{place}: is not YAML") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadKubeconfig(f"{place}: is not a kubeconfig")
    return found


def _named(
    config: list[tuple[Path, Wire]], plural: str, single: str, name: str, shown: str
) -> tuple[Path, Wire]:
    names = []
    for file, each in config:
        entries = each.get(plural)
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict):
                if entry.get("name") == name and isinstance(entry.get(single), dict):
                    return file, entry[single]
                names.append(str(entry.get("name")))
    known = f"there is {', '.join(names)}" if names else f"it has no {plural}"
    raise BadKubeconfig(f"{shown}: there is no {single} {name!r}; {known}")


def _text(wire: Wire, key: str) -> str:
    found = wire.get(key)
    return found if isinstance(found, str) else ""


def _path(file: Path, name: str) -> str:
    """Return a path named in a kubeconfig; a relative one is relative to the folder of that
    file."""
    return str(file.parent / name) if name else ""


def _data(file: Path, wire: Wire, key: str) -> bytes:
    try:
        return base64.b64decode(_text(wire, key), validate=True)
    except (binascii.Error, ValueError):
        raise BadKubeconfig(f"{file}: {key} is not base64") from None


def _with_user(context: KubeContext, file: Path, user: Wire) -> KubeContext:
    token = _text(user, "token")
    token_file = _path(file, _text(user, "tokenFile"))
    if token_file and not token:
        try:
            token = Path(token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadKubeconfig(f"{file}: tokenFile {token_file}: {error}") from None
    basic = ""
    if _text(user, "username"):
        pair = f"{_text(user, 'username')}:{_text(user, 'password')}"
        basic = base64.b64encode(pair.encode()).decode()
    cert, key = _data(file, user, "client-certificate-data"), _data(file, user, "client-key-data")
    plugin = user.get("exec")
    if isinstance(plugin, dict) and not token and not cert:
        token, cert, key = _ask_plugin(file, plugin)
    elif user.get("auth-provider"):
        raise BadKubeconfig(
            f"{file}: auth-provider is not supported; use a token or an exec plugin"
        )
    if any(ord(each) < 33 or ord(each) > 126 for each in token):
        raise BadKubeconfig(
            f"{file}: the token of user {context.user!r} has characters that a token cannot contain"
        )
    changes = {
        "token": token,
        "basic": basic,
        "cert_file": _path(file, _text(user, "client-certificate")),
        "key_file": _path(file, _text(user, "client-key")),
        "cert_data": cert,
        "key_data": key,
    }
    return KubeContext(**{**context.__dict__, **changes})


def _ask_plugin(file: Path, plugin: Wire) -> tuple[str, bytes, bytes]:
    """Run an exec plugin and return its token, certificate and key. The plugin may prompt on
    stderr."""
    command = _text(plugin, "command")
    args = plugin.get("args")
    words = [command, *(str(each) for each in (args if isinstance(args, list) else []))]
    env = dict(os.environ)
    entries = plugin.get("env")
    for each in entries if isinstance(entries, list) else []:
        if isinstance(each, dict):
            env[str(each.get("name"))] = str(each.get("value"))
    version = _text(plugin, "apiVersion") or "client.authentication.k8s.io/v1"
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
    env["KUBERNETES_EXEC_INFO"] = json.dumps(info)
    try:
        done = subprocess.run(
            words, env=env, stdout=subprocess.PIPE, timeout=EXEC_SECONDS, check=False
        )
        said = json.loads(done.stdout) if done.returncode == 0 else {}
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise BadKubeconfig(
            f"{file}: the exec plugin {command!r} returned no credential: {error}"
        ) from None
    status = said.get("status") if isinstance(said, dict) else None
    if not isinstance(status, dict):
        raise BadKubeconfig(f"{file}: the exec plugin {command!r} returned no credential")
    return (
        _text(status, "token"),
        _text(status, "clientCertificateData").encode(),
        _text(status, "clientKeyData").encode(),
    )
