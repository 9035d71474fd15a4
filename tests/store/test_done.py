"""What is scored of each task: the law of a dict, in less memory."""

from hypothesis import given
from hypothesis import strategies as st

from gymcli.store.done import Done, DoneTasks

ENVS = st.sampled_from(["quiz", "maths"])
IDS = st.sampled_from(["a", "b", "ä/1", "c" * 40, ""])
HASHES = st.sampled_from(["", "h", "0" * 16, "00000000000000ff", "f" * 16, "F" * 16, "f" * 17])
ATTEMPTS = st.integers(0, 3) | st.integers(62, 66) | st.just(1_000_000)
LINES = st.lists(st.tuples(ENVS, IDS, HASHES, ATTEMPTS, st.sampled_from([0, 4])), max_size=30)


@given(LINES)
def test_tasks_are_those_of_a_dict(lines):
    """Of a task the first hash counts, and every attempt once."""
    found = DoneTasks()
    expected: dict[tuple[str, str], Done] = {}
    for env, task_id, task_hash, attempt, size in lines:
        before = expected.get((env, task_id), Done(task_hash, 0, size))
        is_new = not before.has(attempt)
        assert found.add(env, task_id, Done(task_hash, 1 << attempt, size)) is is_new
        expected[env, task_id] = before._replace(attempts=before.attempts | 1 << attempt)
    assert dict(found) == expected
    assert len(found) == len(expected)
    assert found.get(("quiz", "gone")) is None
    assert found.get(("gone", "a")) is None
    assert found.num_attempts() == {
        env: sum(done.attempts.bit_count() for key, done in expected.items() if key[0] == env)
        for env in {env for env, _ in expected}
    }


@given(LINES, st.lists(st.tuples(ENVS | st.just("gone"), IDS)))
def test_absent_are_the_tasks_that_are_not_named(lines, named):
    found = DoneTasks()
    for env, task_id, task_hash, attempt, size in lines:
        found.add(env, task_id, Done(task_hash, 1 << attempt, size))
    absent = list(found.absent(named))
    assert len(absent) == len(set(absent))
    assert set(absent) == set(found) - set(named)
