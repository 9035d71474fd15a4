"""The answers of judges, stored by everything that they depend on."""

import os

import msgspec
import pytest

from gymcli.errors import RunFileError
from gymcli.store.run_directory import RunDirectory
from gymcli.store.verdicts import Verdicts, copy_verdicts, rescoring_verdicts, verdict_key
from gymcli.types import Message

ASKED = {"messages": [Message(role="user", content="Good?")], "schema": None, "params": {}}


def key(model="m", cache="1/0", **changes):
    asked = {**ASKED, **changes}
    return verdict_key(
        model, asked["messages"], schema=asked["schema"], params=asked["params"], cache=cache
    )


def test_verdict_key_tells_apart_what_an_answer_depends_on():
    keys = {
        key(),
        key(model="other"),
        key(cache="2/0"),
        key(cache="1/1"),
        key(messages=[Message(role="user", content="Bad?")]),
        key(messages=[Message(role="system", content="Good?")]),
        key(schema={"type": "object"}),
        key(params={"temperature": 0}),
    }
    assert len(keys) == 8
    assert key() == key()


def test_verdicts_are_there_again_when_the_file_is_read(tmp_path):
    answer = Message(role="assistant", content="yes", reasoning="hm")
    first = Verdicts(tmp_path)
    assert first.get("k") is None
    first.add("k", answer, role="judge", model="m")
    first.close()
    assert Verdicts(tmp_path).get("k") == Message(role="assistant", content="yes")
    assert b'"reasoning":"hm"' in (tmp_path / "verdicts.jsonl").read_bytes()


def test_verdicts_hold_no_more_than_scores_need(tmp_path):
    """Both for an answer that was read and for one that was just added."""
    items = [{"type": "reasoning", "encrypted_content": "x" * 999}]
    answer = Message(
        role="assistant", content="yes", reasoning="hm", response_items=items, logprobs=[{}]
    )
    new = Verdicts(tmp_path)
    new.add("k", answer, role="judge", model="m")
    new.close()
    for verdicts in (new, Verdicts(tmp_path)):
        assert verdicts.get("k") == Message(role="assistant", content="yes")


@pytest.mark.parametrize("content", [None, "", " \n", []])
def test_verdicts_leave_out_what_is_empty(tmp_path, content):
    """Older versions stored empty answers; the new answer to the question counts."""
    line = {"key": "k", "message": {"role": "assistant", "content": content, "reasoning": "hm"}}
    (tmp_path / "verdicts.jsonl").write_bytes(msgspec.json.encode(line) + b"\n")
    verdicts = Verdicts(tmp_path)
    assert verdicts.get("k") is None
    verdicts.add("k", Message(role="assistant", content="yes"), role="judge", model="m")
    verdicts.close()
    assert Verdicts(tmp_path).get("k").text == "yes"


def test_verdicts_in_memory_leave_the_folder_alone(tmp_path):
    for verdicts in (Verdicts(), Verdicts(tmp_path, kept_in=())):
        verdicts.add("k", Message(role="assistant", content="yes"), role="judge", model="m")
        assert verdicts.get("k") is not None
        assert verdicts.num_unkept == 1
        verdicts.close()
    assert not list(tmp_path.iterdir())


def test_verdicts_name_a_damaged_line(tmp_path):
    line = msgspec.json.encode({"key": "k", "message": {"role": "assistant"}})
    (tmp_path / "verdicts.jsonl").write_bytes(b"{}\n" + line + b"\n")
    with pytest.raises(RunFileError, match=r"verdicts\.jsonl:1: is damaged.*; delete the line"):
        Verdicts(tmp_path)


def add(verdicts, key):
    verdicts.add(key, Message(role="assistant", content="yes"), role="judge", model="m")


def keys(folder):
    return [
        msgspec.json.decode(x)["key"] for x in (folder / "verdicts.jsonl").read_bytes().splitlines()
    ]


@pytest.fixture
def folders(tmp_path):
    """Return a run with one verdict, and an empty directory."""
    run, out = tmp_path / "run", tmp_path / "out"
    run.mkdir()
    out.mkdir()
    verdicts = Verdicts(run)
    add(verdicts, "old")
    verdicts.close()
    return run, out


def test_rescoring_verdicts_mend_a_torn_line_before_they_append(folders):
    run, _ = folders
    path = run / "verdicts.jsonl"
    path.write_bytes(path.read_bytes() * 2)
    path.write_bytes(path.read_bytes()[:-20])
    (run / "failures.jsonl").write_bytes(b"{")
    warnings = []
    with rescoring_verdicts(run, None, warnings.append) as verdicts:
        add(verdicts, "new")
        verdicts.close()
    assert keys(run) == ["old", "new"]
    assert ["verdicts.jsonl: the last line was not finished" in x for x in warnings] == [True]
    assert (run / "failures.jsonl").read_bytes() == b"{", "other files must not change"


def test_rescoring_verdicts_are_kept_in_the_run_and_the_new_one(folders):
    run, out = folders
    copy_verdicts(run, out)
    with rescoring_verdicts(run, out, pytest.fail) as verdicts:
        add(verdicts, "new")
        verdicts.close()
    assert keys(run) == keys(out) == ["old", "new"]


def test_rescoring_verdicts_of_a_bare_file_are_kept_in_the_new_run(folders):
    _, out = folders
    with rescoring_verdicts(None, out, pytest.fail) as verdicts:
        add(verdicts, "new")
        verdicts.close()
    assert keys(out) == ["new"]


def test_rescoring_verdicts_leave_a_run_alone_that_another_process_writes(folders):
    run, out = folders
    other = RunDirectory(run)
    other.lock()
    warnings = []
    try:
        with rescoring_verdicts(run, None, warnings.append) as verdicts:
            assert verdicts.get("old") is not None
        assert not warnings, "no verdict was added"
        with rescoring_verdicts(run, None, warnings.append) as verdicts:
            add(verdicts, "new")
        [warning] = warnings
        assert warning.startswith("1 new answers of judges were not saved: ")
        assert "another process is writing this run" in warning
        with rescoring_verdicts(run, out, pytest.fail) as verdicts:
            add(verdicts, "new")
            verdicts.close()
    finally:
        other.close()
    assert (keys(run), keys(out)) == (["old"], ["new"])


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_rescoring_verdicts_leave_a_run_alone_that_may_only_be_read(folders):
    run, _ = folders
    path = run / "verdicts.jsonl"
    path.write_bytes(path.read_bytes() + b"{")
    run.chmod(0o500)
    warnings = []
    try:
        with rescoring_verdicts(run, None, warnings.append) as verdicts:
            add(verdicts, "new")
    finally:
        run.chmod(0o700)
    assert path.read_bytes().endswith(b"\n{")
    assert warnings == [f"1 new answers of judges were not saved: {run}: cannot be written"]


def test_copy_verdicts_leaves_a_torn_line_out(folders):
    run, out = folders
    path = run / "verdicts.jsonl"
    path.write_bytes(path.read_bytes() + b'{"key": ')
    copy_verdicts(run, out)
    assert keys(out) == ["old"]
    copy_verdicts(out / "nothing", out)
    assert keys(out) == ["old"]
