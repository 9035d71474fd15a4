"""What is handed out, in which order, and what of a dead worker comes back."""

from gymcli.engines.units import Unit, Units
from gymcli.environment.contract import Environment
from gymcli.environment.tool import EnvironmentOptions, Task
from gymcli.runner.attempts import Attempt
from gymcli.types import Rollout, Verifier


def attempt(task_id: str, number: int = 0, **more) -> Attempt:
    """Give an attempt whose conversation is on record."""
    rollout = Rollout(env="e", task_id=task_id, attempt=number)
    return Attempt(Environment[Task], EnvironmentOptions(), Verifier(), None, rollout, **more)


def ids(units: list[Unit]) -> list[list[str]]:
    return [sorted(key.task_id for key in unit.attempts) for unit in units]


def test_take_gives_as_many_as_fit():
    units = Units(attempt(str(n)) for n in range(5))
    assert ids(units.take(3, is_idle=True)) == [["0"], ["1"], ["2"]]
    assert ids(units.take(9, is_idle=False)) == [["3"], ["4"]]
    assert units.is_empty


def test_take_gives_a_group_whole_wherever_its_members_are():
    members = [attempt("g", n, group_size=2) for n in range(2)]
    units = Units(iter([members[0], attempt("a"), members[1], attempt("b")]))
    assert ids(units.take(1, is_idle=True)) == [["a"]]
    assert ids(units.take(1, is_idle=True)) == [["g", "g"]]
    assert ids(units.take(9, is_idle=True)) == [["b"]]


def test_take_gives_an_incomplete_group_at_the_end():
    units = Units(iter([attempt("g", 0, group_size=2), attempt("a")]))
    assert ids(units.take(9, is_idle=True)) == [["a"], ["g"]]


def test_what_was_with_two_deaths_is_handed_out_alone():
    units = Units(iter([attempt("a"), attempt("b")]))
    first, second = units.take(2, is_idle=True)
    first.num_deaths = 2
    units.put_back(first)
    units.put_back(second)
    assert units.take(2, is_idle=False) == []
    assert units.take(2, is_idle=True) == [first]
    assert units.take(2, is_idle=False) == [second]


def test_unit_to_run_leaves_out_what_has_its_outcome():
    done = attempt("g", 0, group_size=3, is_done=True)
    ended, left = (attempt("g", n, group_size=3) for n in (1, 2))
    unit = Unit([done, ended, left])
    unit.left.discard(ended.generation.key)
    assert unit.to_run() == [done, left]
