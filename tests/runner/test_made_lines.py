"""Lines of runs with what says how they were made."""

import msgspec

from gymcli.metrics import FailureLine
from gymcli.runner.made_lines import MadeLine, ScoredBy, made_lines
from gymcli.store.rollout_files import RolloutReading
from tests.runner.compared import line, nemo, write_lines


def lines_of(path):
    """Read all; what is undecoded is copied, since it is there until the next lines only."""
    found = []
    for lines in made_lines(path, RolloutReading(str(path))):
        found += [(one, getattr(one, "prompt_hash", None)) for one in lines]
    return found


def test_lines_of_ours_say_how_they_were_made(tmp_path):
    path = write_lines(tmp_path / "r.jsonl", [line("x", seed=5, group_size=2)])
    ((made, _),) = lines_of(path)
    assert isinstance(made, MadeLine)
    assert (made.seed, made.group_size, made.task_hash) == (5, 2, "00000000000000aa")
    assert made.verifier == ScoredBy("1", "s1")


def test_the_prompt_is_what_stands_before_the_answer(tmp_path):
    prompt = {"role": "user", "content": "Hi."}
    said = [{"role": "assistant", "content": text} for text in ("Hello.", "Yes?")]
    lines = [
        line("x", messages=[prompt, said[0]]),
        line("y", messages=[prompt, said[1]]),
        line("z", messages=[said[0], said[1]]),
        line("v", messages=[prompt, said[0]], tools=[{"type": "function"}]),
        line("w", messages=[prompt, said[0]], role_usage={"user": {"model": "u"}}),
        line("u", messages=[prompt, said[0]], role_usage={"judge": {"model": "j"}}),
    ]
    x, y, z, v, w, u = (number for _, number in lines_of(write_lines(tmp_path / "r.jsonl", lines)))
    assert x == y == u
    assert len({x, z, v, 0}) == 4
    assert w == 0, "a model had a hand in it"


def test_the_prompt_of_a_rollout_of_nemo_gym_is_that_of_the_same_of_ours(tmp_path):
    ours = line("x", messages=[{"role": "user", "content": "Hi."}])
    theirs = nemo("x", prompt="Hi.")
    (_, one), (made, other) = lines_of(write_lines(tmp_path / "r.jsonl", [ours, theirs]))
    assert one == other
    assert (made.task_hash, made.env_version, made.verifier) == ("", "", ScoredBy())
    assert (made.model, made.reward) == ("theirs", 1.0)


def test_a_rollout_whose_verifier_failed_is_a_failure(tmp_path):
    path = write_lines(tmp_path / "r.jsonl", [nemo("x", 0.0, _ng_failure_class="Timeout")])
    ((found, _),) = lines_of(path)
    assert isinstance(found, FailureLine)
    assert found.error.error_class == "Timeout"


def test_many_lines_come_in_several_lists(tmp_path):
    """Each is there until the next one, however long the lines are."""
    lines = [line(f"t{n}", fields={"text": "x" * 30_000}) for n in range(100)]
    path = write_lines(tmp_path / "r.jsonl", lines)
    sizes, ids = [], []
    for part in made_lines(path, RolloutReading(str(path))):
        sizes.append(len(part))
        ids += [one.task_id for one in part]
        assert all(len(msgspec.json.decode(one.task)["text"]) == 30_000 for one in part)
    assert ids == [f"t{n}" for n in range(100)]
    assert len(sizes) > 1
