"""What judges answered, kept by everything that it depends on."""

import msgspec
import pytest

from gymcli.errors import RunFileError
from gymcli.store.verdicts import Verdicts, verdict_key
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
    assert Verdicts(tmp_path).get("k") == answer


def test_verdicts_in_memory_leave_the_folder_alone(tmp_path):
    for verdicts in (Verdicts(), Verdicts(tmp_path, is_kept=False)):
        verdicts.add("k", Message(role="assistant", content="yes"), role="judge", model="m")
        assert verdicts.get("k") is not None
        verdicts.close()
    assert not list(tmp_path.iterdir())


def test_verdicts_name_a_damaged_line(tmp_path):
    line = msgspec.json.encode({"key": "k", "message": {"role": "assistant"}})
    (tmp_path / "verdicts.jsonl").write_bytes(b"{}\n" + line + b"\n")
    with pytest.raises(RunFileError, match=r"verdicts\.jsonl:1: is damaged"):
        Verdicts(tmp_path)
