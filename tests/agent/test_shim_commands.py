"""How a shim finds and starts a command, and which error it reports: the same as Python.

The model is `os.execvpe` itself in a separate process. It gives an errno or a text, from which
`expected` makes the text of the exit record.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.agent.harness import is_alive
from tests.agent.zygote import Zygote, exit_of, journal_for, request, texts, until

from leasehold.adapters.agent.journals import Exit

MODEL = """
import json, os, sys
argv, env, cwd = json.loads(sys.argv[1])
try:
    stage = "folder"
    os.chdir(cwd)
    stage = "exec"
    os.execvpe(argv[0], argv, env)
except OSError as error:
    print(json.dumps([stage, error.strerror, error.errno]))
except ValueError as error:
    print(json.dumps([stage, str(error), None]))
"""


@pytest.fixture
def zygote(ground: Path) -> Iterator[Zygote]:
    with Zygote(ground / "shims.err") as made:
        yield made


def expected(argv: list[str], env: dict[str, str], cwd: str) -> tuple[int, str]:
    """Return the exit code and the error; a command that runs has no error and exits with 7."""
    asked = json.dumps([argv, env, cwd])
    done = subprocess.run([sys.executable, "-c", MODEL, asked], capture_output=True, check=False)
    if done.returncode:
        return done.returncode, ""
    stage, reason, number = json.loads(done.stdout)
    if stage == "folder":
        return 128, f"its working directory {cwd} cannot be entered: {reason}"
    if number == 2:
        return 127, f"command not found: {argv[0]}"
    return 126, f"{argv[0]} cannot be run: {reason}"


@pytest.fixture
def bin_(ground: Path) -> Path:
    """Create a folder with many kinds of files that may be taken for commands."""
    place = ground / "bin"
    (place / "folder").mkdir(parents=True)
    (place / "deep").mkdir()
    kinds = {
        "seven": "#!/bin/sh\nexit 7\n",
        "deep/seven": "#!/bin/sh\nexit 7\n",
        "orphan": "#!/no/such/interpreter\n",
        "garbage": "\x01\x02\x03",
        "empty": "",
        "closed": "#!/bin/sh\nexit 7\n",
    }
    for name, text in kinds.items():
        (place / name).write_text(text)
        (place / name).chmod(0o644 if name == "closed" else 0o755)
    (place / "loop").symlink_to("loop")
    return place


@pytest.mark.parametrize(
    "name",
    ["seven", "orphan", "garbage", "empty", "closed", "folder", "loop", "missing", "folder/x", "",
     ".", "..", "deep/seven", "seven/x", "é", "with space", "x" * 300, "y" * 5000],
)  # fmt: skip
@pytest.mark.parametrize(
    "path",
    ["{bin}", "{bin}/deep:{bin}", "{bin}/seven:{bin}", "{bin}:{bin}/seven", "", ":", "bin/deep",
     None, "/no/such:{bin}/", "{bin}/loop:{bin}", "/" + "z" * 5000 + ":{bin}"],
)  # fmt: skip
def test_command_is_searched_in_path_of_job_like_python_does(
    ground: Path, bin_: Path, zygote: Zygote, name: str, path: str | None
) -> None:
    env = {} if path is None else {"PATH": path.format(bin=bin_)}
    journal = journal_for(ground, request(ground, name, env=env, cwd=str(bin_)))

    ended = zygote.run(journal)

    code, said = expected([name], env, str(bin_))
    if len(name) > 3000:
        said = said.replace(name, f"{name[:3000]}…")  # the shim shortens long names in its record
    assert (ended.code, ended.error) == (code, said)


@pytest.mark.parametrize("name", ["{bin}/seven", "{bin}/missing", "{bin}/folder", "{bin}/closed",
                                  "{bin}/loop", "{bin}/seven/x", "deep/seven", "./seven",
                                  "../bin/seven", "/"])  # fmt: skip
def test_command_with_slash_is_not_searched_in_path(
    ground: Path, bin_: Path, zygote: Zygote, name: str
) -> None:
    name = name.format(bin=bin_)
    env = {"PATH": "/nowhere"}
    journal = journal_for(ground, request(ground, name, env=env, cwd=str(bin_)))

    ended = zygote.run(journal)

    assert (ended.code, ended.error) == expected([name], env, str(bin_))


@pytest.mark.parametrize("cwd", ["{bin}/missing", "{bin}/seven", "{bin}/loop", "/" + "d" * 300, ""])
def test_working_directory_that_cannot_be_entered_is_reported(
    ground: Path, bin_: Path, zygote: Zygote, cwd: str
) -> None:
    cwd = cwd.format(bin=bin_)
    journal = journal_for(ground, request(ground, "/bin/true", cwd=cwd))

    ended = zygote.run(journal)

    assert (ended.code, ended.error) == expected(["/bin/true"], {}, cwd)


@pytest.mark.parametrize("name", ["A=B", "", "=", "=A", "A"])
def test_variable_with_invalid_name_is_handled_like_python_does(
    ground: Path, bin_: Path, zygote: Zygote, name: str
) -> None:
    env = {"PATH": str(bin_), name: "value"}
    journal = journal_for(ground, request(ground, "seven", env=env, cwd=str(bin_)))

    ended = zygote.run(journal)

    assert (ended.code, ended.error) == expected(["seven"], env, str(bin_))


def test_zero_byte_in_working_directory_does_not_shift_later_fields(
    ground: Path, zygote: Zygote
) -> None:
    asked = request(ground, "/usr/bin/id", cwd="/tmp\x000\x000\x00")

    ended = zygote.run(journal_for(ground, asked))

    assert ended.code == 128
    assert ended.error == (
        "its working directory /tmp\ufffd0\ufffd0\ufffd cannot be entered: No such file or "
        "directory"
    )


def test_exit_record_is_valid_json_for_any_command_name(ground: Path, zygote: Zygote) -> None:
    """Quotes, newlines, all planes of Unicode, and bytes that are not UTF-8."""
    for index, (name, shown) in enumerate([
        ('a"b\\c\n\t\r\b\f\x01\x1f\x7f', 'a"b\\c\n\t\r\b\f\x01\x1f\x7f'),
        ("é€𝄞\U0010ffff", "é€𝄞\U0010ffff"),
        ("\udc80\udcff", "\ufffd\ufffd"),  # bytes 80 and ff, as Python names them
        ("a\udce2\udc82z", "a\ufffd\ufffdz"),  # a truncated character
        ("\udced\udca0\udc80", "\ufffd\ufffd\ufffd"),  # a surrogate
        ("\udcc0\udcaf", "\ufffd\ufffd"),  # an overlong encoding of a slash
        ("\udce0\udc80\udcaf", "\ufffd" * 3),
        ("\udcf0\udc80\udc80\udcaf", "\ufffd" * 4),
        ("\udcf4\udc90\udc80\udc80", "\ufffd" * 4),  # beyond the last code point
        ("€" * 1200, "€" * 500 + "…"),  # three thousand bytes of JSON
        ("\x01" * 1200, "\x01" * 500 + "…"),
    ]):  # fmt: skip
        asked = request(ground, name, uid=f"pod-{index}", env={"PATH": "/nowhere"})
        journal = journal_for(ground, asked)

        ended = zygote.run(journal)

        assert ended.error == f"command not found: {shown}"
        assert texts(journal)[-1] == json.dumps(exit_of(journal))


def test_arguments_and_variables_reach_the_job_unchanged(ground: Path, zygote: Zygote) -> None:
    words = ["", " ", "a\nb", "é€𝄞", "\udc80\udcff", "-n", "$(x)", "'\"", "=" * 3]
    env = {"PATH": os.environ["PATH"], "EMPTY": "", "LINES_": "a\nb=c", "B": "\udcfe", "é": "ü"}
    program = (
        "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]), flush=True)"
    )
    asked = request(ground, sys.executable, "-I", "-c", program, *words, env=env)
    journal = journal_for(ground, asked)

    assert zygote.run(journal).code == 0

    line = (journal.logs / "log.1").read_text().split(" ", 3)[3]
    found, variables = json.loads(line)
    assert found == words
    assert {name: variables[name] for name in env} == env


PAGE_STRINGS = 32 * os.sysconf("SC_PAGE_SIZE")  # the limit of one string, with its zero byte


@pytest.mark.parametrize(
    ("one", "count", "is_run"),
    [(PAGE_STRINGS - 1, 1, True), (PAGE_STRINGS, 1, False), (100_000, 18, True),
     (100_000, 80, False), (1, 100_000, True), (0, 1_000_000, False)],
)  # fmt: skip
def test_huge_command_runs_or_is_refused_by_the_kernel(
    ground: Path, zygote: Zygote, one: int, count: int, is_run: bool
) -> None:
    journal = journal_for(ground, request(ground, "/bin/true", *(["x" * one] * count)))

    assert _verdict(zygote.run(journal)) == _huge(is_run)


@pytest.mark.parametrize(
    ("one", "count", "is_run"),
    [(PAGE_STRINGS - 8, 1, True), (PAGE_STRINGS, 1, False), (100_000, 18, True),
     (100_000, 80, False), (10, 60_000, True)],
)  # fmt: skip
def test_huge_environment_runs_or_is_refused_by_the_kernel(
    ground: Path, zygote: Zygote, one: int, count: int, is_run: bool
) -> None:
    env = {f"V{number:05}": "x" * one for number in range(count)}
    journal = journal_for(ground, request(ground, "/bin/true", env=env))

    assert _verdict(zygote.run(journal)) == _huge(is_run)


def test_no_job_becomes_root(ground: Path, zygote: Zygote) -> None:
    journal = journal_for(ground, request(ground, "/bin/touch", "ran", user=[0, 0]))

    shim = zygote.ask(journal)
    until(lambda: not is_alive(shim))

    assert not (ground / "ran").exists()
    if os.geteuid() == 0:  # another user cannot even pass the pipes to it
        assert exit_of(journal)["code"] == 128
        said = exit_of(journal)["error"]
        assert said == "it cannot become user [0, 0]: Operation not permitted"


def _verdict(ended: Exit) -> tuple[int | None, str]:
    return ended.code, ended.error


def _huge(is_run: bool) -> tuple[int, str]:
    return (0, "") if is_run else (126, "/bin/true cannot be run: Argument list too long")
