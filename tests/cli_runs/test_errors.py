"""Every failure gives one message on stderr and a non-zero status, never a traceback."""

import base64
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli_runs.certificates import authority, certificate
from tests.cli_runs.conftest import Cli
from tests.cli_runs.facade import TOKEN, Facade, kubeconfig, served
from tests.cli_runs.test_golden import NEW

from leasehold.cli.runs.command import command
from leasehold.core.objects.access import Caller

SCRIPT = [sys.executable, "-m", "leasehold.cli.runs.main"]


def failed(config: Path | str, *words: str, stdin: str | None = None) -> str:
    """Run a command that must fail with one message, and return that message."""
    done = CliRunner().invoke(command, list(words), env={"KUBECONFIG": str(config)}, input=stdin)
    assert done.exit_code == 1, done
    assert isinstance(done.exception, SystemExit)
    assert done.stdout == ""
    first, *rest = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert all(line.startswith("  ") for line in rest)
    return done.stderr


def test_refused_connection_is_reported_with_url(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        said = failed(kubeconfig(tmp_path, f"https://127.0.0.1:{port}"), "list")
    assert "connection refused; is it running?" in said
    assert f"https://127.0.0.1:{port}" in said


def test_server_that_does_not_answer_times_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        said = failed(kubeconfig(tmp_path, url), "list", "--request-timeout", "0.2")
    assert "did not answer within 0.2 s" in said


def test_server_without_tls_is_reported(tmp_path: Path, facade: Facade) -> None:
    with served(facade) as url:
        said = failed(kubeconfig(tmp_path, url.replace("http:", "https:")), "list")
    assert "TLS error from" in said


def test_unknown_host_is_reported(tmp_path: Path) -> None:
    said = failed(kubeconfig(tmp_path, "http://leasehold.invalid:1"), "list")
    assert "leasehold.invalid" in said


def tls(folder: Path) -> tuple[ssl.SSLContext, str]:
    """Return a server context with a certificate for the loopback, and its CA as PEM."""
    ca = authority()
    chain = folder / "server.pem"
    chain.write_bytes(certificate(ca, "127.0.0.1"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    return context, ca.pem


def test_server_is_trusted_only_by_ca_of_kubeconfig_or_skip_verify(
    tmp_path: Path, facade: Facade
) -> None:
    context, pem = tls(tmp_path)
    (tmp_path / "ca.pem").write_text(pem)
    with served(facade, context) as url:
        said = failed(kubeconfig(tmp_path, url), "list")
        assert "is not trusted" in said
        assert "certificate-authority" in said
        trusting = kubeconfig(tmp_path, url, **{"certificate-authority": "ca.pem"})
        done = CliRunner().invoke(command, ["list"], env={"KUBECONFIG": str(trusting)})
        assert done.exit_code == 0, done.stderr
        assert "train" in done.stdout
        careless = json.loads(kubeconfig(tmp_path, url).read_text())
        careless["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
        (tmp_path / "careless").write_text(json.dumps(careless))
        env = {"KUBECONFIG": str(tmp_path / "careless")}
        assert CliRunner().invoke(command, ["list"], env=env).exit_code == 0
        bad = kubeconfig(tmp_path, url, **{"certificate-authority": "missing.pem"})
        assert "a certificate or key cannot be used" in failed(bad, "list")


def test_unknown_token_is_reported_with_user_name(cli: Cli, facade: Facade) -> None:
    facade.callers = {}
    done = cli("list")
    assert done.exit_code == 1
    assert "does not accept the credentials of user 'me'" in done.stderr


def test_forbidden_namespace_is_reported(cli: Cli, facade: Facade) -> None:
    facade.callers[TOKEN] = Caller(user="vera", namespaces=("vision",))
    done = cli("explain", "text/pretrain")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "is forbidden: user 'vera' may not see 'text'" in done.stderr


def test_missing_run_and_invalid_run_name_are_reported(cli: Cli) -> None:
    done = cli("explain", "nothing")
    assert done.exit_code == 1
    assert done.stderr == ("error: runs.rq.davidlangworthy.io 'nothing' not found in 'vision'\n")
    assert "is not a run name" in cli("explain", "a/b/c").stderr


def test_every_mistake_of_a_manifest_is_reported_by_path(cli: Cli) -> None:
    wrong = NEW.replace("totalGPUs: 8", "totalGPUs: -8").replace("org:ai:mm:vision", "No Body")
    done = cli("plan", "-f", "-", stdin=wrong)
    assert done.exit_code == 1
    paths = [line.strip().partition(":")[0] for line in done.stderr.splitlines()[1:]]
    assert paths == ["spec.owner", "spec.resources.totalGPUs"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "standard input:"),
        ("", "an empty file"),
        ("- 1\n", "use an object with kind and spec"),
        ("kind: Budget\nmetadata: {name: x}\n", "has no Run"),
    ],
)
def test_file_that_is_not_a_manifest_is_reported(cli: Cli, text: str, says: str) -> None:
    done = cli("plan", "-f", "-", stdin=text)
    assert done.exit_code == 1
    assert says in done.stderr


def test_plan_needs_either_a_run_or_a_file(cli: Cli) -> None:
    assert "name a RUN or a file" in cli("plan").stderr
    assert "name a RUN or a file" in cli("plan", "x", "-f", "y").stderr


def test_parquet_report_without_duckdb_names_the_package_extra_to_install(
    config: Path, tmp_path: Path
) -> None:
    """The process imports a fake duckdb module that raises, from the first folder of its path."""
    (tmp_path / "duckdb.py").write_text("raise ModuleNotFoundError('duckdb')")
    words = ["report", "gpu-hours", "-o", "parquet", "--file", str(tmp_path / "x.parquet")]
    env = {**os.environ, "KUBECONFIG": str(config), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([*SCRIPT, *words], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'leasehold[parquet]'" in done.stderr
    assert not (tmp_path / "x.parquet").exists()


def test_file_option_must_match_output_form(cli: Cli) -> None:
    assert "--file is for" in cli("report", "gpu-hours", "--file", "x").stderr
    assert "name a file with --file" in cli("report", "gpu-hours", "-o", "parquet").stderr


def test_csv_report_can_be_written_to_a_file(cli: Cli, tmp_path: Path) -> None:
    printed = cli("report", "gpu-hours", "-o", "csv").stdout
    cli("report", "gpu-hours", "-o", "csv", "--file", str(tmp_path / "x.csv"))
    assert (tmp_path / "x.csv").read_text() == printed
    done = cli("report", "gpu-hours", "-o", "csv", "--file", str(tmp_path / "no" / "x.csv"))
    assert "cannot write" in done.stderr


def kubeconfigs(tmp_path: Path) -> dict[str, str]:
    return {
        "no such file": str(tmp_path / "none"),
        "YAML": "a: [",
        "is not a kubeconfig": "[1]",
        "no current-context": "kind: Config",
        "no context 'x'; it has no contexts": "current-context: x",
        "no cluster 'c'": "{current-context: x, contexts: [{name: x, context: {cluster: c}}]}",
        "no https:// server": "{current-context: x, contexts: [{name: x, context: {cluster: c}}], "
        "clusters: [{name: c, cluster: {}}]}",
        "is not base64": "{current-context: x, contexts: [{name: x, context: {cluster: c}}], "
        "clusters: [{name: c, cluster: {server: 'https://h', certificate-authority-data: '!'}}]}",
        "proxy-url is not supported": "{current-context: x, contexts: [{name: x, context: "
        "{cluster: c}}], clusters: [{name: c, cluster: {server: 'https://h', proxy-url: p}}]}",
    }


@pytest.mark.parametrize("says", list(kubeconfigs(Path())))
def test_unusable_kubeconfig_is_reported(tmp_path: Path, says: str) -> None:
    if says == "no such file":
        assert "there is no kubeconfig" in failed(tmp_path / "none", "list")
        named = failed("", "list", "--kubeconfig", str(tmp_path / "none"))
        assert "there is no such kubeconfig" in named
        return
    file = tmp_path / "config"
    file.write_text(kubeconfigs(tmp_path)[says])
    assert says in failed(file, "list")


def test_several_kubeconfigs_are_merged(config: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    whole = json.loads(config.read_text())
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    user = {"name": "me", "user": {"tokenFile": "token"}}
    one.write_text(json.dumps({"current-context": "here", "users": [user]}))
    two.write_text(json.dumps({key: whole[key] for key in ("contexts", "clusters")}))
    env = {"KUBECONFIG": os.pathsep.join(map(str, (tmp_path / "none", one, two)))}
    done = CliRunner().invoke(command, ["list"], env=env)
    assert done.exit_code == 0, done.stderr


def test_exec_plugin_provides_token(config: Path, tmp_path: Path) -> None:
    whole = json.loads(config.read_text())
    said = json.dumps({"kind": "ExecCredential", "status": {"token": TOKEN}})
    plugin = {"command": sys.executable, "args": ["-c", f"print({said!r})"]}
    whole["users"] = [{"name": "me", "user": {"exec": plugin}}]
    file = tmp_path / "exec"
    file.write_text(json.dumps(whole))
    assert CliRunner().invoke(command, ["list"], env={"KUBECONFIG": str(file)}).exit_code == 0
    whole["users"][0]["user"]["exec"] = {"command": "/no/such/plugin"}
    file.write_text(json.dumps(whole))
    assert "returned no credential" in failed(file, "list")


def test_program_prints_table_and_sets_exit_status(config: Path) -> None:
    env = {**os.environ, "KUBECONFIG": str(config)}
    done = subprocess.run([*SCRIPT, "list"], env=env, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("NAME ")
    assert "\x1b" not in done.stdout
    bad = subprocess.run([*SCRIPT, "lsit"], env=env, capture_output=True, text=True, timeout=30)
    assert bad.returncode == 2
    assert "lsit" in bad.stderr
    gone = subprocess.run(
        [*SCRIPT, "explain", "x"], env=env, capture_output=True, text=True, timeout=30
    )
    assert gone.returncode == 1
    assert gone.stderr.startswith("error: ")


def test_closed_pipe_prints_no_error(config: Path) -> None:
    env = {**os.environ, "KUBECONFIG": str(config), "PYTHONUNBUFFERED": "1"}
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [*SCRIPT, "leases", "-o", "json"], env=env, stdout=closed, stderr=subprocess.PIPE,
            timeout=30,
        )  # fmt: skip
    assert done.stderr == b""
    assert done.returncode == 1


def test_ctrl_c_exits_with_status_130_silently(config: Path, facade: Facade) -> None:
    env = {**os.environ, "KUBECONFIG": str(config)}
    with subprocess.Popen(
        [*SCRIPT, "watch", "--interval", "0.1"], env=env, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as watching:  # fmt: skip
        deadline = time.monotonic() + 20
        while len(facade.asked) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=20)
    assert watching.returncode == 130
    assert said == b""


def test_client_certificate_and_tls_server_name_are_used(tmp_path: Path, facade: Facade) -> None:
    ca = authority()
    chain = tmp_path / "server.pem"
    chain.write_bytes(certificate(ca, "127.0.0.2"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=ca.pem)
    mine = certificate(ca, "127.0.0.3")
    key = mine[mine.index(b"-----BEGIN PRIVATE KEY") :]
    with served(facade, context) as url:
        whole = json.loads(kubeconfig(tmp_path, url).read_text())
        whole["clusters"][0]["cluster"] |= {
            "certificate-authority-data": base64.b64encode(ca.pem.encode()).decode(),
            "tls-server-name": "127.0.0.2",
        }
        file = tmp_path / "strict"
        file.write_text(json.dumps(whole))
        assert "error: " in failed(file, "list")  # no certificate
        whole["users"][0]["user"] |= {
            "client-certificate-data": base64.b64encode(mine).decode(),
            "client-key-data": base64.b64encode(key).decode(),
        }
        file.write_text(json.dumps(whole))
        done = CliRunner().invoke(command, ["list"], env={"KUBECONFIG": str(file)})
        assert done.exit_code == 0, done.stderr
        del whole["clusters"][0]["cluster"]["tls-server-name"]
        file.write_text(json.dumps(whole))
        assert "is not trusted" in failed(file, "list")
