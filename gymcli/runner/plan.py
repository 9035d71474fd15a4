"""Every attempt of a run in its order, and what each of them is played and scored with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gymcli.environment.registry import environment_options, prepare, split_env_args
from gymcli.models.roles import ORACLE, check_declared
from gymcli.rollout.episode import EpisodeLimits, EpisodePlan
from gymcli.runner.attempts import Attempt
from gymcli.runner.manifest import declared_sources
from gymcli.runner.options import CollectOptions
from gymcli.runner.params import merged_params
from gymcli.runner.resumption import Standing
from gymcli.runner.survey import Survey
from gymcli.runner.task_source import TaskSource
from gymcli.store.run import Done, Waiting
from gymcli.types import AttemptKey, Rollout, TaskRow, Usage, Verifier

__all__ = ["Plan"]


class Plan:
    """What a run is to do.

    Args:
        source: The tasks.
        options: What is asked for.
        found: What the tasks need.
        model: The policy's name on record.
        spend: Told what every answer of the policy took.

    Raises:
        UsageError: An option of an environment is wrong, a role has no model, or an environment
            cannot be played here.

    """

    def __init__(
        self,
        source: TaskSource,
        options: CollectOptions,
        found: Survey,
        model: str,
        *,
        spend: Callable[[Usage, float | None], None] | None = None,
    ) -> None:
        self._source = source
        self._options = options
        self._model = model
        self._spend = spend
        endpoint = options.endpoint
        has_prices = endpoint is not None and endpoint.cost(Usage()) is not None
        self._cost = endpoint.cost if endpoint is not None and has_prices else None
        self._limits = EpisodeLimits(
            options.max_episode_tokens, options.max_episode_cost, options.max_episode_time
        )
        environments = found.environments
        self.roles = declared_sources(options, environments)
        """The models beside the policy, of those roles that the environments have."""
        classes = {name: item.environment for name, item in environments.items()}
        check_declared(self.roles, (*options.roles, *options.role_params), classes)
        given = split_env_args(options.env_args, environments.values())
        self.group_sizes = found.group_sizes
        """Planned attempts of each task whose attempts are scored together."""
        self.env_options = {
            name: environment_options(item.environment, name, given[name], {})
            for name, item in environments.items()
        }
        self._recorded_options = {
            name: given_options.model_dump(mode="json", exclude_defaults=True)
            for name, given_options in self.env_options.items()
        }
        for name, item in environments.items():
            prepare(item, self.env_options[name])
        self._attempts = {
            name: Attempt(
                item.environment,
                self.env_options[name],
                Verifier(item.environment.version, item.source_hash),
                plan=None,
            )
            for name, item in environments.items()
        }
        """By environment, what is the same of all attempts."""

    def self_judgement(self) -> list[str]:
        """Warn of roles that the policy itself plays."""
        policy = self._options.endpoint
        own = self._options.model if policy is None else (policy.base_url, policy.model)
        played = {
            role: source if isinstance(source, str) else (source.base_url, source.model)
            for role, source in self.roles.items()
        }
        return [
            f"the {role} is the policy itself ({self._model}): what it says of its own answers is "
            "no independent measure, and training on it would train both"
            for role, who in played.items()
            if who == own and who != ORACLE
        ]

    def first(self) -> EpisodePlan:
        """Give the plan of the first attempt."""
        return self._episode(next(self._source.selected()), 0)

    def rows(self) -> Iterator[tuple[TaskRow, int]]:
        """Give every attempt, done or not; those of one row follow each other."""
        repeats = self._options.repeats
        for row in self._source.selected():
            first = row.first_attempt * repeats
            for attempt in range(first, first + repeats):
                yield row, attempt

    def find(self, key: AttemptKey) -> EpisodePlan | None:
        """Return the plan of one attempt; None where it is not selected."""
        for row, attempt in self.rows():
            if AttemptKey(row.env, row.id, attempt) == key:
                return self._episode(row, attempt)
        return None

    def attempts(
        self,
        standing: Standing,
        done: Mapping[tuple[str, str], Done],
        takes: Callable[[AttemptKey], bool] | None = None,
        *,
        read: Callable[[Waiting], Rollout],
    ) -> Iterator[Attempt]:
        """Yield what is left to do: waiting conversations first, then everything not done.

        Args:
            standing: What is left.
            done: What is scored.
            takes: Returns whether an attempt is to be played now; None: all are.
            read: Reads a conversation that waits, when it is its turn.

        """
        left_out = set(standing.left_failed)
        for waiting in standing.waiting:
            left_out.add(waiting.key)
            if takes is None or takes(waiting.key):
                yield self._recorded(read(waiting))
        for rollout in standing.mates:
            if takes is None or takes(rollout.key):
                yield self._recorded(rollout)._replace(is_done=True)
        is_new = not done
        for row, attempt in self.rows():
            scored = None if is_new else done.get((row.env, row.id))
            if scored is not None and scored.has(attempt):
                continue
            if left_out and AttemptKey(row.env, row.id, attempt) in left_out:
                continue
            if takes is not None and not takes(AttemptKey(row.env, row.id, attempt)):
                continue
            environment, options, verifier, *_ = self._attempts[row.env]
            size = self.group_sizes.of(row.env, row.id)
            yield Attempt(
                environment, options, verifier, self._episode(row, attempt), group_size=size
            )

    def _recorded(self, rollout: Rollout) -> Attempt:
        return self._attempts[rollout.env]._replace(
            generation=rollout, group_size=rollout.group_size
        )

    def _episode(self, row: TaskRow, attempt: int) -> EpisodePlan:
        options = self._options
        environment = self._attempts[row.env].environment
        return EpisodePlan(
            row=row,
            attempt=attempt,
            environment=environment,
            options=self.env_options[row.env],
            env_version=environment.version,
            env_options=self._recorded_options[row.env],
            model=self._model,
            params=merged_params(row.params, options.params),
            run_seed=options.seed or 0,
            sends_seed=options.seed is not None,
            max_turns=options.max_turns,
            limits=self._limits,
            cost=self._cost,
            spend=self._spend,
        )
