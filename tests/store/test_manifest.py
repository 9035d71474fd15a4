"""The manifest of a run, and how two identities differ."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunFileError
from gymcli.store.manifest import EnvironmentRecord, Manifest, differences, read_manifest
from gymcli.store.run_directory import RunDirectory


def test_read_manifest_gives_what_was_written(tmp_path):
    assert read_manifest(tmp_path) is None
    manifest = Manifest(
        identity={"model": "m"},
        environments={"quiz": EnvironmentRecord(version="2", max_reward=None, num_expected=3)},
        num_expected=3,
    )
    RunDirectory(tmp_path).write_manifest(manifest)
    assert read_manifest(tmp_path) == manifest
    text = (tmp_path / "run.json").read_text()
    assert text.startswith('{\n  "identity"')
    assert text.endswith("}\n")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"tasks": 3}', b"\xff", b"[" * 100_000])
def test_read_manifest_names_a_damaged_file(tmp_path, text):
    (tmp_path / "run.json").write_bytes(text)
    with pytest.raises(RunFileError, match=r"run\.json: is not a run's manifest: ") as caught:
        read_manifest(tmp_path)
    assert f"the scores are in {tmp_path}/rollouts.jsonl, which you can pass instead" in str(
        caught.value
    )


def test_read_manifest_names_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "run.json").mkdir()
    with pytest.raises(RunFileError, match=r"run\.json: cannot be read: Is a directory"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("there", "here", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 2}, ["a 1 there, 2 here"]),
        ({"a": 1}, {}, ["a 1 there, unset here"]),
        ({}, {"a": [True]}, ["a unset there, [true] here"]),
        ({"p": {"t": 0.5, "x": 1}}, {"p": {"t": 0, "x": 1}}, ["p.t 0.5 there, 0 here"]),
        ({"b": 1, "a": "x"}, {"b": 2, "a": "y"}, ['a "x" there, "y" here', "b 1 there, 2 here"]),
        ({"environments": {"one": "1"}}, {"environments": {"two": "1"}}, []),
        (
            {"environments": {"one": {"version": "1"}}},
            {"environments": {"one": {"version": "2"}}},
            ['environments.one.version "1" there, "2" here'],
        ),
        ({"environments": None}, {"environments": {}}, ["environments unset there, {} here"]),
    ],
)
def test_differences_name_key_and_both_values(there, here, expected):
    assert differences(there, here) == expected


identities = st.dictionaries(
    st.text(max_size=3),
    st.integers() | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    max_size=4,
)


@given(identities, identities)
def test_differences_are_none_exactly_where_identities_are_equal(there, here):
    is_equal = {k: v for k, v in there.items() if v != {}} == {
        k: v for k, v in here.items() if v != {}
    }
    assert differences(there, there) == []
    if differences(there, here) == []:
        assert is_equal
    elif there.keys() == here.keys():
        assert there != here
