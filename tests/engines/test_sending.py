"""What crosses between processes comes out as it went in."""

from contextlib import ExitStack

import aiohttp
import msgspec
import pytest

from gymcli.engines.code import code_of
from gymcli.engines.messages import EndedAttempt, SentError
from gymcli.engines.sending import outcome_received, raised_again, sent_error, sent_outcome
from gymcli.errors import (
    AuthenticationError,
    EndpointConnectionError,
    EndpointGoneError,
    GymError,
    RoleError,
    VerifierTimeoutError,
)
from gymcli.models.api_errors import is_unreachable
from gymcli.runner.attempts import Outcome
from gymcli.types import ErrorRecord, Failure, Message, Rollout, Timing


def crossed(error: BaseException) -> GymError:
    """Give an error as the other side has it."""
    return raised_again(msgspec.json.decode(msgspec.json.encode(sent_error(error)), type=SentError))


@pytest.mark.parametrize(
    "error",
    [AuthenticationError("no key", status=401), VerifierTimeoutError("late"), GymError("any")],
)
def test_error_keeps_class_text_and_status(error):
    again = crossed(error)
    assert (type(again), str(again)) == (type(error), str(error))
    assert vars(again) == vars(error)


def test_error_keeps_that_others_were_answered():
    error = AuthenticationError("no key")
    error.follows_answers = True
    assert crossed(error).follows_answers


def test_error_keeps_the_clients_error_behind_that_of_a_role():
    error = RoleError("judge: gone")
    error.__cause__ = EndpointGoneError("gone")
    assert isinstance(crossed(error).__cause__, EndpointGoneError)


def test_error_keeps_that_no_connection_was_made():
    error = EndpointConnectionError("refused")
    assert not is_unreachable(crossed(error))
    error.__cause__ = aiohttp.ConnectionTimeoutError()
    assert is_unreachable(crossed(error))


def test_error_of_an_unknown_class_is_the_nearest_known_one():
    class OwnError(RoleError):
        """Of an environment."""

    assert type(crossed(OwnError("own"))) is RoleError
    assert type(crossed(ValueError("theirs"))) is GymError


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(
            Rollout(
                task_id="1",
                attempt=0,
                messages=[Message(role="user", content="é\u2028")],
                timing=Timing(started_at=1.5),
                final_state={"big": 2**63, "small": 1e-9},
                reward=0.1,
            ),
            was_answered=True,
        ),
        Outcome(
            Failure(task_id="1", attempt=0, error=ErrorRecord(error_class="X", phase="verify")),
            generation=Rollout(task_id="1", attempt=0),
            is_own=False,
        ),
    ],
)
def test_outcome_stays_as_it_is(outcome):
    data = msgspec.json.encode(sent_outcome(outcome))
    assert outcome_received(msgspec.json.decode(data, type=EndedAttempt)) == outcome


def test_code_of_a_file_keeps_the_name_that_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "quiz.py"
    path.write_text("A = 1")
    code = code_of("an_agent=quiz.py:Quiz")
    with ExitStack() as stack:
        assert code.specs(stack) == (f"an_agent={path}:Quiz",)
        path.unlink()
        [spec] = code.specs(stack)
    assert spec.startswith("an_agent=/")
    assert spec.endswith("/quiz.py:Quiz")
    assert str(tmp_path / "quiz.py") not in spec
