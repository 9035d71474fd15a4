"""What an environment may use beside the record: models of roles, replay, isolated workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from gymcli.environment.parts import EnvironmentOptions, Task
from gymcli.types import JSONObject, Message, Rollout

if TYPE_CHECKING:
    from gymcli.environment.contract import Environment

__all__ = ["Cache", "Context", "Model"]

T = TypeVar("T")


class Cache(NamedTuple):
    """Under which text an answer is kept, and whether it is."""

    text: str
    keeps: Callable[[Message], bool]
    """Whether an answer is worth keeping; one on record that is not is asked for again."""


class Model(Protocol):
    """A model beside the policy, as environments and roles see it."""

    @property
    def is_scalar(self) -> bool:
        """Whether it answers a conversation with a number, as a reward model does."""
        ...

    async def complete(
        self,
        messages: list[Message],
        *,
        schema: JSONObject | None = None,
        params: JSONObject | None = None,
        cache: Cache | str | None = None,
    ) -> Message:
        """Answer a conversation with one message.

        Args:
            messages: The conversation.
            schema: A JSON Schema that constrains the text.
            params: Sampling parameters; those that the user gave for the role win.
            cache: The version of the prompt, and the number of the vote where there are several.
                The same request under the same text is asked once in a run, and its answer kept,
                without log probabilities and reasoning. None: it is asked every time.

        Raises:
            RoleError: There is no usable answer: the call failed, or what came is cut, filtered,
                refused or empty.
            UsageError: Log probabilities of an answer that is kept are asked for.

        """
        ...


class Context(Protocol):
    """What `verify` may use beside the record."""

    @property
    def options(self) -> EnvironmentOptions:
        """The environment's options of this scoring."""
        ...

    @property
    def roles(self) -> Mapping[str, Model]:
        """The models that the environment asked for, by role."""
        ...

    async def replay(self, rollout: Rollout) -> Environment[Task]:
        """Play the record again in a fresh instance and give it as it stands at the end.

        Its `rollout.step_rewards` are those that the replay gave. A replay asks no role: the
        models of the instance raise `RoleError`, and what a user said is read from the record.

        Raises:
            ReplayDivergedError: The environment answered otherwise than on record.
            RoleError: The environment asked a role.

        """
        ...

    async def isolated(
        self,
        function: Callable[..., T],
        *args: object,
        timeout: float = 10.0,  # noqa: ASYNC109  # it kills a process, which no scope here could
        memory_mb: int = 1024,
        imports: tuple[str, ...] = (),
    ) -> T:
        """Call a module-level function in a process that is killed where it runs away.

        Arguments and result are pickled; what the function raises is raised here.

        Args:
            function: Found again by its name, in a process that may serve many calls.
            args: Its arguments.
            timeout: Seconds from the start of the function, however long it waited for a process.
            memory_mb: Megabytes that it may need beside what the process has (Linux only).
            imports: Heavy modules that the function uses; their import does not count as its time.

        Raises:
            TypeError: It is no function at the top level of a module.
            VerifierTimeoutError: It took longer than `timeout` seconds.
            VerifierError: The process died, or needed more than `memory_mb` beside what it had.

        """
        ...

    def search(self, pattern: str, text: str, *, flags: int = 0) -> list[str]:
        """Give every match of a row's regular expression, within a time limit.

        The first group where the pattern has one, else the whole match.

        Raises:
            ValueError: The pattern is no regular expression.
            VerifierTimeoutError: The search took too long.

        """
        ...
