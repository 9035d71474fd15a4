"""Runs the code of a served environment: makes it, lets it answer, scores what was played.

Each call is within the limits that it has in `gym collect`.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import ValidationError

from gymcli.environment.contract import Environment, make, shown_tools
from gymcli.environment.contract_checks import checked_json, checked_messages, checked_step
from gymcli.environment.registry import Found
from gymcli.environment.tool import EnvironmentOptions, Step, Task
from gymcli.errors import (
    EnvironmentTimeoutError,
    EpisodeError,
    SetupError,
    SetupTimeoutError,
    boundary,
)
from gymcli.models.roles import RoleModels
from gymcli.rollout.scoring import score
from gymcli.runner.attempts import Shared
from gymcli.runner.judging import Judges
from gymcli.serving.messages import RefusedError
from gymcli.serving.sessions import Session, Sessions, close, limited
from gymcli.serving.wire import opened_record
from gymcli.store.verdicts import Verdicts
from gymcli.types import JSONObject, Message, Rollout, Score, Verifier

__all__ = ["Stage"]


class Stage:
    """Where the episodes of one environment take place.

    Args:
        found: The environment.
        options: Its options.
        judges: Who plays its roles.
        shared: What opened models, workers and the watchdog.
        sessions: Those that are open.
        described: Puts an exception into words that a client may read.

    """

    def __init__(
        self,
        found: Found,
        options: EnvironmentOptions,
        judges: Judges,
        shared: Shared,
        sessions: Sessions,
        described: Callable[[BaseException], str],
    ) -> None:
        self._found = found
        self.options = options
        self._judges = judges
        self._shared = shared
        self._sessions = sessions
        self._described = described

    async def opened(
        self, row: JSONObject, seed: int | None, *, is_own: bool
    ) -> tuple[Session, list[Message]]:
        """Open a session for a row; gives the environment's opening as well.

        `is_own` says that no other program writes the conversation or reads the calls in it.

        Raises:
            RefusedError: It is no row of this environment, or there is no room.
            AttemptError: The environment cannot be set up.

        """
        rollout = opened_record(row, self._found, self.options, seed, is_own=is_own)
        models = self.models()
        async with self._sessions.room():
            environment = self._made(rollout, models)
            environment.rollout = rollout
            environment.now = self._shared.watchdog.now
            environment.tool_error_text = self._described
            environment.reads_arguments_laxly = not is_own
            try:
                opening = await _set_up(environment)
            except BaseException:
                await close(environment)
                raise
            session = Session(environment, models)
            self._sessions.add(session)
        return session, opening

    def _made(self, rollout: Rollout, models: RoleModels) -> Environment[Task]:
        environment = self._found.environment
        try:
            with boundary(SetupError):
                made = make(
                    environment,
                    rollout.task,
                    options=self.options,
                    roles=models.of(environment, rollout.task, {}),
                    rng=rollout.seed,
                )
        except SetupError as error:
            if isinstance(error.__cause__, ValidationError):
                text = f"the row is none of environment {self._found.name}: {error}"
                raise RefusedError(422, text) from error
            raise
        try:
            with boundary(SetupError):
                environment.check_task(made.task, self.options)
        except SetupError as error:
            raise RefusedError(422, f"environment {self._found.name}: {error}") from error
        return made

    async def stepped(self, session: Session, messages: list[Message]) -> Step:
        """Let the environment answer the last of these messages, and record all.

        Raises:
            AttemptError: The environment failed.

        """
        rollout = session.rollout
        rollout.messages += messages
        with boundary(EpisodeError):
            environment = session.environment
            step = await limited(
                environment,
                environment.step(messages[-1]),
                environment.step_timeout,
                lambda text: EnvironmentTimeoutError(f"step {text} (step_timeout)"),
            )
            step = checked_step(environment, step)
        if step.reward is not None:
            _pad(rollout, _num_turns(rollout) - 1)
            rollout.step_rewards.append(float(step.reward))
        rollout.messages += step.messages
        return step

    async def scored_session(self, session: Session) -> Score:
        """Score a session's record as it stands.

        Raises:
            AttemptError: The environment or its verifier failed.

        """
        rollout = session.rollout
        if rollout.step_rewards:
            _pad(rollout, _num_turns(rollout))
        with boundary(EpisodeError):
            environment = session.environment
            final_state = await limited(
                environment,
                environment.final_state(),
                environment.step_timeout,
                lambda text: EnvironmentTimeoutError(f"final_state {text} (step_timeout)"),
            )
            rollout.final_state = checked_json(environment, "final_state", final_state)
        return await self.scored(rollout, session.models)

    async def scored(self, rollout: Rollout, models: RoleModels) -> Score:
        """Score a record, as `gym verify` does.

        Raises:
            AttemptError: The verifier failed.

        """
        environment = self._found.environment
        scored = await score(
            environment,
            rollout,
            verifier=Verifier(environment.version, self._found.source_hash),
            options=self.options,
            roles=models.of(environment, rollout.task, {}),
            workers=self._shared.workers,
        )
        assert scored.reward is not None, "what is scored has a reward"
        return Score(
            scored.reward, scored.components, scored.metrics, scored.answer, scored.details
        )

    def models(self) -> RoleModels:
        """Give the models of one session; what they answered is forgotten with it."""
        return RoleModels(
            self._judges.sources,
            params=self._judges.params,
            pool=self._shared.roles.pool,
            verdicts=Verdicts(),
        )


async def _set_up(environment: Environment[Task]) -> list[Message]:
    """Build the environment's state and record its opening, which counts as prompt."""
    rollout = environment.rollout
    with boundary(SetupError):
        opening = await limited(
            environment,
            environment.setup(),
            environment.setup_timeout,
            lambda text: SetupTimeoutError(f"setup {text} (setup_timeout)"),
        )
        opening = checked_messages(environment, "setup", opening)
        rollout.messages += opening
        if not rollout.tools:
            rollout.tools = shown_tools(environment)
    if not rollout.messages:
        raise RefusedError(422, "there is no prompt: neither row nor environment gives one")
    environment.shown_tools = rollout.tools
    rollout.num_prompt_messages = len(rollout.messages)
    return opening


def _pad(rollout: Rollout, length: int) -> None:
    rollout.step_rewards += [None] * (length - len(rollout.step_rewards))


def _num_turns(rollout: Rollout) -> int:
    return sum(message.role == "assistant" for message in rollout.responses)
