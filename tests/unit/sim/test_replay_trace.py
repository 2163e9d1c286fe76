"""Traces are read as jobs: layouts, column maps, origins of time, and unreadable files."""

import gzip
from fractions import Fraction
from pathlib import Path

import pytest

from leasehold.core.units import HOUR, MINUTE, SECOND, parse_instant
from leasehold.shell.config.yamlfile import BadFile
from leasehold.sim.replay.jobs import NEVER_RAN, NO_GPU, ROUNDED, Job, hurried, within
from leasehold.sim.replay.trace import TraceFormat, read_trace

SWF = """\
; Version: 2.2
; UnixStartTime: 1000000000
; Note: two processors were asked for, and none noted
1 0 5 3600 4 -1 -1 4 7200 -1 1 3 7 -1 1 1 -1 -1
2 60 0 10.5 -1 -1 -1 2 -1 -1 1 3 8 -1 1 1 -1 -1
3 90 0 -1 2 -1 -1 2 -1 -1 5 3 8 -1 1 1 -1 -1
"""


def write(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_columns_with_leasehold_names_need_no_map(tmp_path: Path) -> None:
    path = write(tmp_path, "submit,gpus,duration,owner,limit\n60,2,30,lab,\n0,4,90.5,lab,120\n")

    workload = read_trace(path, TraceFormat())

    first = Job(
        line=3, name="job-3", owner="lab", gpus=4, submit=0, duration=90_500, limit=120 * SECOND
    )
    second = Job(line=2, name="job-2", owner="lab", gpus=2, submit=MINUTE, duration=30 * SECOND)
    assert workload.jobs == [first, second]


def test_merged_philly_trace_is_recognized_by_its_heading(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv.gz"
    heading = "job_id,submit_s,submit_time,vc,num_gpus,duration_s,source\n"
    row = "0,1545618,2017-08-18 21:20:18,7f04ca,8,60,muri\n"
    path.write_bytes(gzip.compress((heading + row).encode()))

    (job,) = read_trace(path, TraceFormat(owner="org:{}")).jobs

    assert job.submit == parse_instant("2017-08-18T21:20:18Z")
    assert (job.owner, job.gpus, job.duration) == ("org:7f04ca", 8, MINUTE)


def test_openb_trace_takes_durations_from_two_columns(tmp_path: Path) -> None:
    heading = "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
    rows = "p0,1,1000,10,400,100\np1,0,0,10,400,100\np2,1,460,20,,\n"
    path = write(tmp_path, heading + rows)

    workload = read_trace(path, TraceFormat(owner="lab"))

    (job,) = workload.jobs
    assert (job.submit, job.duration) == (10 * SECOND, 300 * SECOND)
    assert workload.remarks[NO_GPU] == 1
    assert workload.remarks[NEVER_RAN] == 1


def test_columns_with_other_headings_are_read_by_a_column_map(tmp_path: Path) -> None:
    path = write(tmp_path, "when,long,n,who\n5,60,0.5,ann\n6,60,1,bob\n")
    columns = (("submit", "when"), ("duration", "long"), ("gpus", "n"), ("owner", "who"))

    workload = read_trace(path, TraceFormat(columns=columns, teams=("ann",), epoch=HOUR))

    (job,) = workload.jobs
    assert (job.owner, job.submit, job.gpus) == ("ann", HOUR + 5 * SECOND, 1)
    assert workload.remarks[ROUNDED] == 1


def test_swf_trace_counts_from_its_own_start_and_omits_jobs_that_never_ran(tmp_path: Path) -> None:
    path = write(tmp_path, SWF, "trace.swf")

    workload = read_trace(path, TraceFormat(owner="lab:g{}"))

    one, two = workload.jobs
    assert (one.submit, one.duration, one.gpus) == (1_000_000_000_000, HOUR, 4)
    assert (one.owner, one.limit) == ("lab:g7", 2 * HOUR)
    assert (two.submit, two.duration, two.gpus) == (1_000_000_060_000, 10_500, 2)
    assert (two.owner, two.limit) == ("lab:g8", None)
    assert workload.remarks[NEVER_RAN] == 1


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "an empty file"),
        ("submit,gpus,duration\n1,2\n", 2, "2 cells"),
        ("submit,gpus,duration,owner\n1,many,3,lab\n", 2, "use a number of GPUs"),
        ("submit,gpus,duration,owner\nsoon,1,3,lab\n", 2, "use a time such as"),
        ("submit,gpus,duration,owner\n1,1,nan,lab\n", 2, "use a number of seconds"),
        ("submit,gpus,duration,owner\n-9,1,3,lab\n", 2, "between 1970 and 3000"),
        ("submit,gpus,duration,owner\n1,1,3,two words\n", 2, "use an owner path"),
        ("submit,gpus,duration\n1,1,3\n", 2, "--owner NAME"),
        ("when,gpus,duration\n1,1,3\n", 1, "no column is known for submit"),
        ("submit,gpus,start\n1,1,3\n", 1, "duration (or start and end)"),
        ("submit,gpus,duration,owner\n1,1,1e10,a\n", 2, "use at most 3650 days"),
        ("submit,gpus,duration,owner\n1,1e9,1,a\n", 2, "use at most 1000000 GPUs"),
        ("submit,gpus,duration,owner\n1e12,1,1,a\n", 2, "between 1970 and 3000"),
        (SWF + "4 1 2\n", 7, "3 fields"),
    ],
)
def test_unreadable_row_is_reported_with_its_line(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    path = write(tmp_path, text)

    with pytest.raises(BadFile) as caught:
        read_trace(path, TraceFormat())

    assert f"{path}:{line}: " in str(caught.value)
    assert words in str(caught.value)


def test_binary_truncated_or_missing_file_is_reported(tmp_path: Path) -> None:
    half = tmp_path / "half.csv.gz"
    rows = b"submit,gpus,duration,owner\n" + b"1,1,1,a\n" * 1000
    half.write_bytes(gzip.compress(rows)[:-9])
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"submit,\xff\xfe\n")
    told = []
    for path in (half, binary, tmp_path, tmp_path / "none.csv"):
        with pytest.raises(BadFile) as caught:
            read_trace(path, TraceFormat())
        told.append(caught.value.mistakes[0].problem.value)

    assert told[0].startswith("not a whole gzip file")
    assert told[1:] == ["not UTF-8", "a directory", "no such file"]


def test_missing_column_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path, "submit,gpus,duration\n1,1,1\n")

    with pytest.raises(BadFile, match="--columns gpus=cards: no such column: name one of: submit"):
        read_trace(path, TraceFormat(columns=(("gpus", "cards"),)))


def test_at_most_ten_mistakes_are_reported(tmp_path: Path) -> None:
    path = write(tmp_path, "submit,gpus,duration,owner\n" + "x,1,1,a\n" * 50)

    with pytest.raises(BadFile) as caught:
        read_trace(path, TraceFormat())

    assert len(caught.value.mistakes) == 10


def test_jobs_of_a_span_can_be_selected_and_sped_up() -> None:
    jobs = [
        Job(line=n, name=f"j{n}", owner="a", gpus=1, submit=n * MINUTE, duration=1)
        for n in range(5)
    ]

    chosen = within(jobs, MINUTE, 4 * MINUTE)

    assert [job.line for job in chosen] == [1, 2, 3]
    assert [job.submit for job in hurried(chosen, Fraction(2))] == [60_000, 90_000, 120_000]
