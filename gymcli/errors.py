"""Every error a user can meet, each with its exit code.

GymError                      1   a bug in gymcli, except for the classes below
├── UsageError                2   the user's mistake
│   ├── ConfigError               gym.toml cannot be read, or has an invalid key or value
│   ├── TasksError                rows of a tasks file are wrong; the message lists them
│   ├── RunMismatchError          the run directory belongs to other settings
│   ├── RunFileError              a line of a run's files is damaged
│   ├── FilterError               an expression cannot be read, or does not fit its values
│   ├── UnknownNameError          no environment, task or run has this name
│   ├── EnvironmentImportError    the environment exists but cannot be imported
│   └── MissingPackageError       an optional package is not installed
├── BudgetReachedError        6   the run stopped at a budget
├── InterruptedRunError     130   Ctrl-C ended the run
│   └── TerminatedRunError  143   SIGTERM ended the run
├── RunError                  4   the run is not usable
│   ├── FatalEndpointError        the endpoint would refuse every request of the run
│   ├── TooManyFailuresError      as many attempts failed as `--max-failures` allows
│   ├── EngineError               the workers of a cluster cannot be started, or keep dying
│   ├── RunDirectoryError         the run directory cannot be written
│   └── OutputError               standard output cannot be written
└── AttemptError              1   one attempt cannot be scored; recorded, never fatal to the run
    ├── ModelError                phase "model"
    │   ├── EndpointConnectionError   there was no connection, or it broke
    │   ├── EndpointTimeoutError      there was no answer in time
    │   ├── EndpointGoneError         every address was down or overloaded for too long
    │   ├── RateLimitError            a limit of the rate, even to the last retry
    │   ├── ServerError               5xx, 408 or 409, even to the last retry
    │   ├── RequestRefusedError       a 4xx that is never retried
    │   │   ├── PromptFilteredError       the provider's filter; becomes a stop reason
    │   │   └── MalformedCallError        a call that the endpoint cannot read; becomes an answer
    │   ├── AuthenticationError       401 or 403
    │   ├── InvalidAnswerError        the body is not an answer of the dialect
    │   ├── UnknownUsageError         the answer lacks the token counts that a limit needs
    │   └── ContextOverflowError      the conversation no longer fits; becomes a stop reason
    ├── SetupError                phase "setup"
    │   └── SetupTimeoutError         building the state took too long
    ├── EpisodeError              phase "environment"
    │   └── EnvironmentTimeoutError   a step took too long
    ├── CrashedAttemptError       the process of the run died twice during the attempt
    ├── RoleError                 phase "role"
    ├── VerifierError             phase "verify"
    │   ├── VerifierTimeoutError      the verifier took too long
    │   ├── VerifierCrashedError      the process of the verifier died, or needed too much memory
    │   ├── IncompleteGroupError      another attempt of the task has no score yet
    │   └── ReplayDivergedError       replaying the record led to other results
    └── UnfinishedAttemptError    the run ended during the attempt, in this phase
        ├── CancelledAttemptError     a signal, or an endpoint that is down, ended the run
        └── BudgetAttemptError        the run stopped at a budget

`boundary` turns any exception of third-party code into the AttemptError of its phase.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, Literal

Phase = Literal["setup", "model", "environment", "role", "verify"]


class GymError(Exception):
    """Base of every error that gymcli raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(GymError):
    """Raised when options, files or names given by the user cannot be used."""

    exit_code = 2


class ConfigError(UsageError):
    """Raised when gym.toml cannot be read, or has an unknown key or an invalid value."""


class TasksError(UsageError):
    """Raised when rows of a tasks file are wrong; the message lists them, one per line."""


class RunMismatchError(UsageError):
    """Raised when a run directory holds a run with a different identity or different tasks."""


class RunFileError(UsageError):
    """Raised when a run's file, or another program's rollout file, has a damaged line."""


class FilterError(UsageError):
    """Raised when an expression cannot be read, or does not fit the values of its names."""


class UnknownNameError(UsageError):
    """Raised when no environment, task or run has the given name."""


class EnvironmentImportError(UsageError):
    """Raised when the code of an environment exists and fails to import."""


class MissingPackageError(UsageError):
    """Raised when a needed optional package is not installed."""


class BudgetReachedError(GymError):
    """Raised when a run stopped at a budget; its records are valid and it can be resumed."""

    exit_code = 6


class InterruptedRunError(GymError):
    """Raised when Ctrl-C ended a run; finished attempts are saved."""

    exit_code = 130


class TerminatedRunError(InterruptedRunError):
    """Raised when SIGTERM ended a run; finished attempts are saved."""

    exit_code = 143


class RunError(GymError):
    """Raised when a run has no usable results."""

    exit_code = 4


class FatalEndpointError(RunError):
    """Raised when the endpoint refused for a reason that applies to every request of the run."""


class TooManyFailuresError(RunError):
    """Raised when a run stopped because as many attempts failed as the user allows."""


class EngineError(RunError):
    """Raised when the workers of a cluster cannot be started, or die one after another."""


class RunDirectoryError(RunError):
    """Raised when the run directory cannot be written or another process writes it."""


class OutputError(RunError):
    """Raised when standard output cannot be written (a closed pipe is not an error)."""


class AttemptError(GymError):
    """Raised when one attempt cannot be scored; the runner records it and continues."""

    phase: Phase = "environment"
    frames: Sequence[str] = ()
    """Where the author's code failed, in the form of `frames_of`, if no traceback shows it."""


class ModelError(AttemptError):
    """Raised when the endpoint sent no usable answer; `status` is its HTTP status, if any."""

    phase = "model"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        is_hopeless: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        """Seconds that the endpoint asked us to wait before the next try."""
        self.is_hopeless = is_hopeless
        """Whether the endpoint's message means that it would refuse every other request too."""
        self.follows_answers = False
        """Whether the endpoint had answered another request before."""


class EndpointConnectionError(ModelError):
    """Raised when the endpoint cannot be reached or the connection broke."""


class EndpointTimeoutError(ModelError):
    """Raised when the endpoint did not answer in time."""


class EndpointGoneError(ModelError):
    """Raised when every address of the endpoint was down or overloaded past its deadline."""


class RateLimitError(ModelError):
    """Raised when the endpoint still refuses for its rate after the last retry, mostly with 429."""


class ServerError(ModelError):
    """Raised when the endpoint answers 408, 409 or 5xx after the last retry."""


class RequestRefusedError(ModelError):
    """Raised when the endpoint refuses the request itself: 400, 404, 422 and so on."""


class PromptFilteredError(RequestRefusedError):
    """Raised when a provider's filter refuses the conversation; the episode ends and is scored."""


class MalformedCallError(RequestRefusedError):
    """Raised when the endpoint cannot read the tool call that the model wrote, `text`."""

    def __init__(self, message: str, *, text: str = "", status: int | None = None) -> None:
        super().__init__(message, status=status)
        self.text = text


class AuthenticationError(ModelError):
    """Raised when the endpoint refuses the key: 401 or 403."""


class InvalidAnswerError(ModelError):
    """Raised when the endpoint's body is not JSON or not an answer of its dialect."""


class ContextOverflowError(ModelError):
    """Raised when the conversation no longer fits the model's context window."""


class UnknownUsageError(ModelError):
    """Raised when an answer lacks the token counts that a limit needs."""


class SetupError(AttemptError):
    """Raised when an environment cannot build the state of an episode."""

    phase = "setup"


class SetupTimeoutError(SetupError):
    """Raised when an environment takes too long to build the state of an episode."""


class EpisodeError(AttemptError):
    """Raised when an environment fails in the middle of an episode."""


class EnvironmentTimeoutError(EpisodeError):
    """Raised when an environment takes too long over a step."""


class CrashedAttemptError(AttemptError):
    """Raised when a run's process died twice during an attempt, the second time with no other."""


class RoleError(AttemptError):
    """Raised when a judge, a simulated user or a reward model fails."""

    phase = "role"

    def __init__(self, message: str, *, is_answered: bool = False) -> None:
        super().__init__(message)
        self.is_answered = is_answered
        """Whether the model answered, but its answer is cut, filtered, refused or empty."""


class VerifierError(AttemptError):
    """Raised when a verifier fails, or returns something other than a score."""

    phase = "verify"


class VerifierTimeoutError(VerifierError):
    """Raised when a verifier takes longer than its time limit."""


class VerifierCrashedError(VerifierError):
    """Raised when the process of a verifier dies or exceeds its memory limit."""


class IncompleteGroupError(VerifierError):
    """Raised when attempts are scored together and one of them is missing."""


class ReplayDivergedError(VerifierError):
    """Raised when a replayed conversation differs from the record."""


class UnfinishedAttemptError(AttemptError):
    """Raised when a run ends before its attempt does; `phase` is where the attempt was."""

    def __init__(self, message: str, *, phase: Phase = "environment") -> None:
        super().__init__(message)
        self.phase = phase


class CancelledAttemptError(UnfinishedAttemptError):
    """Raised when a signal, or a fatal error of the run, cuts an attempt off."""


class BudgetAttemptError(UnfinishedAttemptError):
    """Raised when a run stops at its budget and cuts an attempt off."""


_MAX_CHARACTERS = 20_000
"""How long a recorded text of an exception may be."""


@contextmanager
def boundary(error_class: type[AttemptError], *passes: type[AttemptError]) -> Iterator[None]:
    """Attribute any exception of third-party code in the block to one phase of an attempt.

    This includes `sys.exit`, a panic of a Rust extension and the outcomes of test frameworks, which
    are not an `Exception`, and every class of gymcli: each ends the attempt, never the run. What
    ends a run is reported by the models of roles instead (see runner/attempts.py). A cancellation
    passes only if the task was asked to end.

    Raises:
        AttemptError: A RoleError and those of `error_class` and `passes` unchanged; every other
            exception as `error_class`, in one line.
        KeyboardInterrupt: Unchanged.
    """
    try:
        yield
    except (KeyboardInterrupt, RoleError):
        raise
    except BaseException as error:
        if isinstance(error, (error_class, *passes)) or _ends_coroutine(error):
            raise
        is_plain = isinstance(error, AttemptError)  # it says all that its class would
        raise error_class(text_of(error) if is_plain else described(error)) from error


def described(error: BaseException) -> str:
    """Describe an exception of third-party code in one line: its class, and its text if any."""
    name = type(error).__name__
    text = " ".join(text_of(error).split())
    return f"{name}: {text}" if text else name


def text_of(error: BaseException) -> str:
    """Return the text of an exception as it is recorded: shortened to 20,000 characters."""
    try:
        text = str(error)
    except BaseException as failed:  # noqa: BLE001  # `__str__` is the author's and may raise
        return f"(its text cannot be read: {type(failed).__name__})"
    if len(text) > _MAX_CHARACTERS:
        half = _MAX_CHARACTERS // 2
        left_out = len(text) - 2 * half
        text = f"{text[:half]} [{left_out:,} characters left out] {text[-half:]}"
    # It may hold lone surrogates, which UTF-8 cannot encode.
    return text.encode(errors="replace").decode()


def _ends_coroutine(error: BaseException) -> bool:
    """Return whether an error ends the running coroutine: its task is cancelled, or it is closed.

    A CancelledError that third-party code raises without a cancellation does not.
    """
    import asyncio  # late: `gym --help` does not need it

    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        try:
            return asyncio.current_task() is None
        except RuntimeError:  # the event loop has ended
            return True
    return False
