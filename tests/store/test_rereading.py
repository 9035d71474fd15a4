"""Tasks read once more: the same as the first time, as long as their files are."""

import gzip
import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import TasksError, UsageError
from gymcli.store.rereading import FirstReading
from gymcli.store.task_row import PromptTemplate
from gymcli.store.tasks import TaskReading, read_tasks, told_apart
from gymcli.types import TaskRow

READING = TaskReading(default_env="quiz")

CHANGED = (
    "was changed after it was checked, and is no task now; mend it, and give the same command again"
)

ROWS = st.fixed_dictionaries(
    {"answer": st.integers(0, 2)},
    optional={
        "prompt": st.sampled_from(["Hi", "", [{"role": "user", "content": "Hi", "name": None}]]),
        "messages": st.sampled_from([[], [{"role": "user", "content": "Ho"}], [{"role": "x"}]]),
        "responses_create_params": st.sampled_from([{"input": "Hm", "temperature": 1}]),
        "params": st.sampled_from([{"top_k": 5, "model": "n"}]),
        "id": st.sampled_from(["a", "b", 3]),
        "env": st.sampled_from(["quiz", "other"]),
        "_ng_task_index": st.integers(0, 2),
    },
)


def read_first(paths, reading=READING, *, max_kept=1 << 20):
    """Read files; above 0 their rows are few enough to be kept."""
    first, items = FirstReading(paths, reading, max_kept=max_kept), []
    for item in read_tasks(paths, reading):
        first.add(item)
        items.append(item)
    return first, items


def write(path, *rows):
    path.write_bytes(b"\n".join(map(msgspec.json.encode, rows)) + b"\n")
    return path


@given(
    st.lists(st.lists(ROWS, max_size=6), min_size=1, max_size=2),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2000),
)
def test_rows_are_those_of_the_first_reading(
    tmp_path_factory, files, is_prefixed, is_templated, max_kept
):
    """Copies among them, whatever their shape is; a wrong one shows that more has to be done."""
    folder = tmp_path_factory.mktemp("tasks")
    paths = [write(folder / f"{n}.jsonl", *rows) for n, rows in enumerate(files)]
    template = PromptTemplate("Say {answer}") if is_templated else None
    reading = READING._replace(id_by_file=is_prefixed, template=template)
    first, items = told_apart(
        lambda shared_ids: read_first(
            [*paths, paths[0]], reading._replace(shared_ids=shared_ids), max_kept=max_kept
        )
    )
    tasks = [item for item in items if isinstance(item, TaskRow)]
    is_sound = len(tasks) == sum(map(len, [*files, files[0]]))
    assert first.holds() is is_sound
    if is_sound:
        assert list(first.rows()) == tasks
        assert list(first.rows()) == tasks


@pytest.mark.parametrize(
    "data",
    [
        b'{"prompt":"a"}\n\n  \n{"prompt":"b"}',
        b'\xef\xbb\xbf{"prompt":"a"}\r\n{"prompt":"b"}\r\n',
        b'\x1e{"prompt":"a"}\n\x1e{"prompt":"b"}\n',
        b'{"prompt":"a"}\n{"prompt":"a"}\n{"prompt":"a","_ng_rollout_index":1}\n',
    ],
    ids=["blank lines", "byte order mark", "separators", "copies"],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("max_kept", [0, 1 << 20])
def test_rows_are_found_however_the_lines_are_written(tmp_path, data, suffix, max_kept):
    path = tmp_path / f"t.jsonl{suffix}"
    path.write_bytes(gzip.compress(data) if suffix else data)
    first, items = read_first([path], max_kept=max_kept)
    assert list(first.rows()) == items
    assert len(items) > 1


def test_a_first_reading_holds_until_a_file_is_changed_or_gone(tmp_path):
    """Also by a change that keeps its length, or another file of that name."""
    path = write(tmp_path / "t.jsonl", {"prompt": "a"})
    first, _ = read_first([path])
    assert first.holds()
    stat = path.stat()
    write(path, {"prompt": "b"})
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert not first.holds()
    first, _ = read_first([path], max_kept=0)
    path.unlink()
    assert not first.holds()
    with pytest.raises(UsageError, match=r"t\.jsonl: cannot be read"):
        next(first.rows())


@pytest.mark.parametrize("row", [b"{", b"[]", b"\xff", b'{"prompt":3}', b"[" * 100_000])
def test_a_row_that_is_none_any_more_is_named(tmp_path, row):
    """Where a file is changed while it is read."""
    path = write(tmp_path / "t.jsonl", {"prompt": "a"}, {"prompt": "b"})
    first, items = read_first([path], max_kept=0)
    path.write_bytes(msgspec.json.encode({"prompt": "a"}) + b"\n" + row + b"\n")
    rows = first.rows()
    assert next(rows) == items[0]
    with pytest.raises(TasksError, match=r"t\.jsonl:2: was changed after it was checked"):
        next(rows)


def test_few_rows_are_not_read_again(tmp_path):
    """What was read is what is given, also where the file is gone by then."""
    path = write(tmp_path / "t.jsonl", {"prompt": "a"}, {"prompt": "b"})
    first, items = read_first([path])
    path.unlink()
    assert list(first.rows()) == items


@pytest.mark.parametrize("share", [0.5, 1.5])
def test_rows_are_read_again_where_they_are_many(tmp_path, share):
    """Whether that is seen by the size of the file, or while it is read."""
    path = write(tmp_path / "t.jsonl", *({"prompt": f"{n}"} for n in range(50)))
    first, items = read_first([path], max_kept=int(share * path.stat().st_size))
    assert list(first.rows()) == items
    path.unlink()
    with pytest.raises(UsageError, match=r"t\.jsonl: cannot be read"):
        next(first.rows())


def test_rows_are_given_anew_each_time(tmp_path):
    """What is done to one is seen by no later reading."""
    first, items = read_first([write(tmp_path / "t.jsonl", {"prompt": "a", "seen": []})])
    for row in first.rows():
        row.fields["seen"].append("this")
        row.messages.clear()
    assert list(first.rows()) == items


@pytest.mark.parametrize("max_kept", [0, 1 << 20])
def test_numbers_are_given_as_they_were_read(tmp_path, max_kept):
    text = '{"prompt":"","messages":[],"a":[1,1.0,-0.0,1e16,5e-324,0.1,123456789012345678901]}'
    path = tmp_path / "t.jsonl"
    path.write_text(text + "\n")
    first, items = read_first([path], max_kept=max_kept)
    assert repr(list(first.rows())) == repr(items)


def test_rows_of_a_file_whose_name_is_no_text_are_read_again(tmp_path):
    name = os.fsdecode(b"t-\xff.jsonl")
    try:
        path = write(tmp_path / name, {"prompt": "a"})
    except OSError:
        pytest.skip("this file system takes only names that are text")
    first, items = read_first([path])
    assert first.holds()
    assert list(first.rows()) == items


def test_rows_as_deep_as_can_be_read_are_given_again_or_named(tmp_path):
    """Around the depth from which a row is a problem."""

    def read_nested(depth):
        path = tmp_path / "t.jsonl"
        path.write_bytes(b'{"prompt":"a","x":' + b"[" * depth + b"]" * depth + b"}\n")
        return read_first([path])

    low, high = 1, 1 << 20
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if read_nested(middle)[0].holds() else (low, middle)

    def given_at(num_frames):
        """Read once more with so much less of the stack left, which some interpreters count."""
        if num_frames:
            return given_at(num_frames - 1)
        try:
            return list(first.rows())
        except TasksError as error:
            return str(error)

    refused = "row 1 of the tasks: it is nested too deeply; make it flatter"
    for depth in range(low - 8, low + 1):
        first, items = read_nested(depth)
        assert given_at(0) in (items, refused)
        assert given_at(50) in (items, refused, f"{items[0].place}: {CHANGED}")
    first, items = read_nested(low // 2)
    assert given_at(50) == items
