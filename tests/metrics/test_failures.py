"""Failures count until their attempt is scored, and take part in what a run took until then."""

from collections import Counter

from gymcli.metrics.costs import Cost, Totals
from gymcli.metrics.failures import Failures
from gymcli.metrics.records import FailureLine
from gymcli.types import ErrorRecord, Usage


def failed(task_id, attempt, error_class="Timeout", *, prompt_tokens=0, cost=None):
    error = ErrorRecord(error_class=error_class, phase="verify")
    usage = Usage(prompt_tokens=prompt_tokens)
    return FailureLine(task_id=task_id, attempt=attempt, error=error, usage=usage, cost=cost)


def failures_of(*lines):
    failures = Failures()
    for line in lines:
        failures.add(line)
    return failures


def test_the_last_failure_of_an_attempt_counts():
    first, last = failed("a", 0, "First"), failed("a", 0, "Last")
    failures = failures_of(first, last)
    failures.settle([])

    assert list(failures.unscored()) == [last]
    assert failures.num_unscored("a") == 1
    assert failures.never_scored == {"a"}


def test_failures_that_were_made_up_for_do_not_count():
    rest = failed("b", 1)
    failures = failures_of(rest, failed("b", 0), failed("a", 0))
    failures.settle([("b", {0, 2}), ("a", {0})])

    assert failures.tasks == {"a", "b"}
    assert list(failures.unscored()) == [rest]
    assert (failures.num_unscored("a"), failures.num_unscored("b")) == (0, 1)
    assert failures.never_scored == set()


def test_failures_are_settled_anew():
    failures = failures_of(failed("a", 0))
    failures.settle([("a", {0})])
    failures.settle([])

    assert failures.num_unscored("a") == 1
    assert failures.never_scored == {"a"}


def test_what_failures_took_is_added_where_they_were_not_made_up_for():
    """A failure without an answer cost nothing, whatever is known of prices."""
    failures = failures_of(
        failed("a", 0, prompt_tokens=3, cost=0.5), failed("a", 1), failed("b", 0, prompt_tokens=7)
    )
    failures.settle([("b", {0})])
    totals = Totals(Usage(), Cost(), {}, Counter())
    failures.add_to(totals)

    assert totals.usage.prompt_tokens == 3
    assert totals.cost.total == 0.5
