"""What is scored of each task."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gymcli.errors import RunFileError
from gymcli.store.rollout_files import read_done

ENVS = st.sampled_from(["quiz", "maths"])
IDS = st.sampled_from(["a", "b", "ä/1", "c" * 40])
HASHES = st.sampled_from(["", "h", "0" * 16, "f" * 16, "F" * 17])
ATTEMPTS = st.integers(0, 3) | st.integers(62, 66) | st.just(1_000_000)
LINES = st.lists(
    st.tuples(ENVS, IDS, ATTEMPTS, HASHES, st.sampled_from([0, 4])),
    max_size=30,
    unique_by=lambda line: line[:3],
)


@given(LINES)
def test_every_attempt_counts_and_the_first_hash_of_a_task(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("run") / "rollouts.jsonl"
    names = ("env", "task_id", "attempt", "task_hash", "group_size")
    path.write_bytes(
        b"".join(msgspec.json.encode(dict(zip(names, line, strict=True))) + b"\n" for line in lines)
    )
    found = read_done(path)
    expected: dict[tuple[str, str], tuple[str, int, set[int]]] = {}
    for env, task_id, attempt, task_hash, size in lines:
        _, _, attempts = expected.setdefault((env, task_id), (task_hash, size, set()))
        attempts.add(attempt)
    assert found.keys() == expected.keys()
    for task, done in found.items():
        task_hash, size, attempts = expected[task]
        assert (done.task_hash, done.group_size) == (task_hash, size)
        assert done.attempts.bit_count() == len(attempts)
        assert all(map(done.has, attempts))
        assert done.is_torn is (len(attempts) < size)


def test_an_attempt_that_is_there_twice_is_named(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    line = b'{"env":"quiz","task_id":"a","attempt":3}\n'
    path.write_bytes(line + line.replace(b"3", b"4") + line)
    with pytest.raises(RunFileError, match=r"rollouts\.jsonl:3: attempt 3 of task a \(quiz\) is"):
        read_done(path)
