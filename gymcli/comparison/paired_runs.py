"""Compares two runs: task by task, and by how each was made."""

from __future__ import annotations

import filecmp
import math
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import numpy as np

from gymcli.comparison.comparison_results import Comparison, Drift, DriftKind, RunSide, Setting
from gymcli.comparison.difference_verdict import Rule
from gymcli.comparison.paired_differences import Measure, PairedAttempts, parse_measure
from gymcli.comparison.run_comparison import compare, doubts
from gymcli.errors import RunError, RunMismatchError, UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.measure import ComparedLine, open_run, read_compared_lines, selected
from gymcli.metrics.results import RunMetrics
from gymcli.metrics.slicing import field_of, slice_name
from gymcli.store.manifest import Manifest
from gymcli.store.rollout_files import ROLLOUTS, read_structs
from gymcli.store.scored_lines import EnvironmentFacts, FailureLine
from gymcli.types import JSON_ERRORS, AttemptKey, JSONObject, canonical_json, is_other_source

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUM_NAMED = 3
_HIGHEST_LEVEL = 0.999999
_HASH = re.compile(r"[0-9a-f]{16}")
_MASK = (1 << 64) - 1
_NEVER = (1 << 63) - 1
"""Stands for the first attempt of a task that a run lacks."""
_MAX_KEPT = 8
"""The most different values to keep of one setting; a normal run has one or two."""
_SEVERAL = "several"
_PROMPTING = {"prompt": "prompt template", "emulate_tools": "emulated tools"}
"""Keys of a run's identity that determine what the model is shown."""
_NO_TOOLS = (b"", b"[]", b"null")
_NOT_SETTINGS = (
    *_PROMPTING,
    "environments",
    "roles",
    "repeats",
    "model",
    "params",
    "params_of_rows",
)
"""Keys of a run's identity that are compared elsewhere."""


def compare_runs(
    a: Path,
    b: Path,
    *,
    metric: str = "mean_reward",
    rule: Rule | None = None,
    by: Sequence[str] = (),
    env: str | None = None,
    allow_drift: bool = False,
    with_tasks: bool = False,
    attempts: frozenset[AttemptKey] | None = None,
) -> Comparison:
    """Compare run B with run A: directories, or rollout files of gymcli or NeMo Gym.

    `metric` is a name that gates use, `rule` the margin and the level; `by` are fields of the task
    rows to slice by, `env` is the environment of lines that name none. With `allow_drift`, runs
    that were made differently are compared too; with `with_tasks`, the result lists every task.
    With `attempts`, only these of B count.

    Raises:
        RunMismatchError: The runs were made differently, without `allow_drift`.
        RunError: One of the runs has no score.
        UsageError: A path, a line or an argument is wrong, or the runs share no task.
    """
    measure, by = parse_measure(metric), list(dict.fromkeys(by))
    rule = _check_rule(rule or Rule())._replace(is_same_run=_are_same_rollouts(a, b))
    reader = _RunReader(measure, by, rule.level)
    run_a = reader.read(a, env, is_a=True)
    run_b = reader.read(b, env, is_a=False, attempts=attempts)
    drift, unknown_facts = _differences(run_a, run_b, reader.pairs)
    if drift and not allow_drift:
        drift_lines = "\n".join(f"  {line}" for line in drift)
        raise RunMismatchError(
            f"A ({a}) and B ({b}) differ in more than the model, so a difference may have other "
            f"causes; --allow-drift compares them anyway:\n{drift_lines}"
        )
    comparison = compare(
        list(reader.pairs.values()),
        a=run_a.side,
        b=run_b.side,
        facts={**dict.fromkeys(reader.pairs, EnvironmentFacts()), **run_b.facts, **run_a.facts},
        measure=measure,
        rule=rule,
        fields=by,
        with_tasks=with_tasks,
    )
    if not comparison.num_tasks:
        raise UsageError(_no_shared_task_reason(a, b, comparison))
    comparison.is_same_run = rule.is_same_run
    comparison.drift, comparison.unknown = drift, unknown_facts
    comparison.compared = settings(run_a.provenance, run_b.provenance)
    comparison.warnings = doubts(comparison, rule)
    return comparison


def _differences(
    a: _ReadRun, b: _ReadRun, pairs: Mapping[str, PairedAttempts]
) -> tuple[list[Drift], list[str]]:
    """Return how the settings and tasks of two runs differ, and what of that is unknown."""
    environments = sorted(a.contents.keys() & b.contents.keys())
    drift = list(drift_of(a.provenance, b.provenance, environments, (a.facts, b.facts)))
    unknown_facts = [
        text for run in (a, b) for text in unrecorded_settings(run.provenance, environments)
    ]
    # An environment may build different prompts from different seeds.
    knows_seeds = bool(a.provenance.identity and b.provenance.identity)
    for name in environments:
        tasks_drift = task_drift(a.contents[name], b.contents[name])
        ids = list(pairs[name].task_numbers)
        if tasks_drift.contents:
            text = _name_tasks([ids[task] for task in tasks_drift.contents], "different content")
            drift.append(Drift(kind="tasks", env=name, name=text))
        if tasks_drift.prompts:
            description = "a different prompt or different tools"
            text = _name_tasks([ids[task] for task in tasks_drift.prompts], description)
            drift.append(Drift(kind="prompt", env=name, name=text))
        if tasks_drift.num_by_seed and not knows_seeds:
            unknown_facts.append(
                f"prompts of {tasks_drift.num_by_seed:,} tasks of {name} differ, and so do their "
                "seeds: whether these are the cause is not known"
            )
    return drift, unknown_facts


def _are_same_rollouts(a: Path, b: Path) -> bool:
    """Return whether two runs are one, or one is a copy of the other."""
    file_a, file_b = (path / ROLLOUTS if path.is_dir() else path for path in (a, b))
    return file_a.is_file() and file_b.is_file() and filecmp.cmp(file_a, file_b, shallow=False)


class _ReadRun(NamedTuple):
    side: RunSide
    facts: dict[str, EnvironmentFacts]
    provenance: RunProvenance
    contents: dict[str, TaskContents]


class _RunReader:
    """Reads the attempts of two runs into one table per environment."""

    def __init__(self, measure: Measure, fields: Sequence[str], level: float) -> None:
        self.pairs: dict[str, PairedAttempts] = {}
        self._measure = measure
        self._fields = fields
        self._level = level

    def read(
        self,
        path: Path,
        env: str | None,
        *,
        is_a: bool,
        attempts: frozenset[AttemptKey] | None = None,
    ) -> _ReadRun:
        run = open_run(path, env=env)
        provenance = RunProvenance(str(path), run.manifest)
        contents: dict[str, TaskContents] = {}
        facts = run.facts_expecting(attempts)
        aggregator = Aggregator(facts)
        blocks = () if run.rollouts is None else read_compared_lines(run.rollouts, run.reading)
        for lines in blocks:
            lines_by_environment: dict[str, list[ComparedLine]] = {}
            for line in selected(lines, attempts):
                line.env = run.names.get(line.env, line.env)
                if isinstance(line, FailureLine):
                    aggregator.add_failure(line)
                else:
                    lines_by_environment.setdefault(line.env, []).append(line)
            for name, environment_lines in lines_by_environment.items():
                provenance.add(name, environment_lines)
                self._add(environment_lines, contents.setdefault(name, TaskContents()), is_a=is_a)
                # A `RunSide` shows only rewards and the compared number.
                for line in environment_lines:
                    line.answer = None
                    if self._measure.source != "components":
                        line.components = None
                    if self._measure.source != "metrics":
                        line.metrics = None
                aggregator.add_scored_lines(environment_lines)
        if run.failures is not None:
            failures = read_structs(run.failures, msgspec.json.Decoder(FailureLine))
            for failure in selected(failures, attempts):
                aggregator.add_failure(failure)
        metrics = aggregator.metrics(level=self._level)
        if not metrics.num_scored:
            raise RunError(f"{path}: nothing is scored, so there is nothing to compare")
        return _ReadRun(self._side(provenance, metrics), facts, provenance, contents)

    def _side(self, provenance: RunProvenance, metrics: RunMetrics) -> RunSide:
        return RunSide(
            run=provenance.name,
            model=provenance.model,
            num_expected=metrics.num_expected,
            num_present=metrics.num_present,
            num_scored=metrics.num_scored,
            coverage=metrics.coverage,
            num_tasks=metrics.num_clusters,
            mean_reward=metrics.mean_reward,
            estimate=metrics.estimates.get(self._measure.name),
            strict_mean_reward=metrics.strict_mean_reward,
            bounds=metrics.bounds,
            no_answers={name: part.no_answers for name, part in metrics.environments.items()},
        )

    def _add(self, lines: Sequence[ComparedLine], contents: TaskContents, *, is_a: bool) -> None:
        env = lines[0].env
        if env not in self.pairs:
            self.pairs[env] = PairedAttempts(env, len(self._fields))
        pairs = self.pairs[env]
        numbers = pairs.task_numbers
        for line in lines:
            number = numbers.setdefault(line.task_id, len(numbers))
            contents.add(number, line)
            for field, values in zip(self._fields, pairs.slices, strict=True):
                # Interned, since many tasks share few values.
                if number == len(values):
                    values.append(sys.intern(_slice(line.task, field)))
        table, measure = pairs.a if is_a else pairs.b, self._measure
        first_row = len(table)
        table.extend(
            [line.task_id for line in lines],
            [line.attempt for line in lines],
            reward=[line.reward for line in lines],
        )
        if measure.source != "reward":
            key = measure.key
            numbers_of_lines = [getattr(line, measure.source) or {} for line in lines]
            table.extend_named(
                measure.source,
                first_row,
                [{key: numbers[key]} if key in numbers else None for numbers in numbers_of_lines],
            )


class TaskContents:
    """Content, prompt and seed of the first attempt of each task, in 32 bytes per task."""

    def __init__(self) -> None:
        self.attempts = array("q")
        """By the number of the task; `_NEVER` if the run lacks it."""
        self.contents = array("Q")
        """0 if unknown, as with the prompt."""
        self.prompts = array("q")
        self.seeds = array("Q")

    def add(self, task: int, line: ComparedLine) -> None:
        """Add a line of the task with this number."""
        num_new = task + 1 - len(self.attempts)
        if num_new > 0:
            self.attempts.extend([_NEVER] * num_new)
            for column in (self.contents, self.prompts, self.seeds):
                column.frombytes(bytes(column.itemsize * num_new))
        # Lines are in the order in which attempts ended, not in that of their numbers.
        if line.attempt < self.attempts[task]:
            self.attempts[task] = line.attempt
            self.contents[task] = _content_number(line.task_hash)
            self.prompts[task] = line.prompt_hash
            self.seeds[task] = line.seed & _MASK


def _content_number(task_hash: str) -> int:
    """Return a hash of a task's content as a number; 0 if unknown."""
    if _HASH.fullmatch(task_hash):
        return int(task_hash, 16)
    # It differs between processes, but is compared only within this one.
    return hash(task_hash) & _MASK if task_hash else 0


class TaskDrift(NamedTuple):
    """The numbers of tasks that both runs have but that differ."""

    contents: list[int]
    prompts: list[int]
    """Tasks with the same content and seed but another prompt."""
    num_by_seed: int
    """Tasks whose prompts and seeds both differ, so that the seed may be the cause."""


def task_drift(a: TaskContents, b: TaskContents) -> TaskDrift:
    """Return the tasks of one environment that differ between two runs."""
    num_tasks = min(len(a.attempts), len(b.attempts))

    def columns(values_a: array[int], values_b: array[int]) -> Iterator[NDArray[np.int64]]:
        return (np.asarray(values)[:num_tasks] for values in (values_a, values_b))

    attempts_a, attempts_b = columns(a.attempts, b.attempts)
    contents_a, contents_b = columns(a.contents, b.contents)
    prompts_a, prompts_b = columns(a.prompts, b.prompts)
    seeds_a, seeds_b = columns(a.seeds, b.seeds)
    is_shared = (attempts_a != _NEVER) & (attempts_b != _NEVER)
    has_other_content = (
        is_shared & (contents_a != contents_b) & (contents_a != 0) & (contents_b != 0)
    )
    has_other_prompt = is_shared & (prompts_a != prompts_b) & (prompts_a != 0) & (prompts_b != 0)
    has_other_prompt &= ~has_other_content
    # The first attempts may have different numbers, and then have different seeds.
    has_other_seed = (attempts_a != attempts_b) | (seeds_a != seeds_b)
    return TaskDrift(
        np.flatnonzero(has_other_content).tolist(),
        np.flatnonzero(has_other_prompt & ~has_other_seed).tolist(),
        int((has_other_prompt & has_other_seed).sum()),
    )


def _name_tasks(ids: Sequence[str], description: str) -> str:
    more = ", ..." if len(ids) > _NUM_NAMED else ""
    has = "task has" if len(ids) == 1 else "tasks have"
    return f"{len(ids):,} {has} {description} ({', '.join(sorted(ids)[:_NUM_NAMED])}{more})"


def _slice(task: msgspec.Raw, field: str) -> str:
    try:
        row = msgspec.json.decode(task, type=dict[str, msgspec.Raw]) if bytes(task) else {}
    except JSON_ERRORS as error:
        raise UsageError(f"--by {field}: a task is no JSON object: {error}") from error
    return slice_name(field_of(row, field))


def _check_rule(rule: Rule) -> Rule:
    if rule.margin is not None and not (math.isfinite(rule.margin) and rule.margin >= 0.0):
        raise UsageError(f"--margin {rule.margin:g}: must be 0 or a positive number")
    if not 0.5 < rule.level <= _HIGHEST_LEVEL:
        raise UsageError(
            f"--level {rule.level:g}: must be between 0.5 and {_HIGHEST_LEVEL}, such as 0.95"
        )
    return rule


def _no_shared_task_reason(a: Path, b: Path, comparison: Comparison) -> str:
    unmatched = comparison.unmatched
    if unmatched.num_too_few_attempts:
        at_k = re.fullmatch(r"[a-z]+[@^](\d+)", comparison.metric)
        return (
            f"--metric {comparison.metric}: none of {unmatched.num_too_few_attempts:,} tasks has "
            f"{f'{at_k[1]} attempts' if at_k else 'it'} in both runs; gym metrics --all lists the "
            "metrics of a run"
        )
    return (
        f"{a} and {b} share no task: one has {unmatched.only_a[0]}, the other "
        f"{unmatched.only_b[0]}; compare runs of the same tasks"
    )


class _ScoringSetup(NamedTuple):
    env_version: str
    env_options: bytes
    group_size: int
    verifier_version: str
    verifier_source: str


_SOURCE = "verifier source"
_FACETS: tuple[tuple[DriftKind, str, Callable[[_ScoringSetup], str]], ...] = (
    ("environment", "version", lambda setup: setup.env_version),
    ("options", "options", lambda setup: setup.env_version and _canonical(setup.env_options)),
    ("verifier", "verifier version", lambda setup: setup.verifier_version),
    ("verifier", _SOURCE, lambda setup: setup.verifier_source),
    ("verifier", "group size", lambda setup: setup.env_version and str(setup.group_size or 1)),
)
"""What must be alike; empty if a rollout, such as a foreign one, does not record it."""

_T = TypeVar("_T", str, bytes, _ScoringSetup)


class RunProvenance:
    """How a run was made, from its lines and its manifest; a bare file has no manifest."""

    def __init__(self, name: str, manifest: Manifest | None) -> None:
        self.name = name
        self.manifest = manifest
        self.identity: JSONObject = {} if manifest is None else manifest.identity
        """Empty if unknown."""
        self.environments = set() if manifest is None else {*manifest.environments}
        self.models: set[str] = set()
        self.environments_with_tools: set[str] = set()
        """Environments in which a rollout has tools."""
        self._samplings: set[bytes] = set()
        self._setups: dict[str, set[_ScoringSetup]] = {}
        self._roles: dict[str, set[str]] = {}

    @property
    def model(self) -> str:
        """The model, or the models, of the run."""
        recorded_model = self.manifest.model if self.manifest is not None else ""
        return ", ".join(sorted(self.models)) or recorded_model

    def add(self, env: str, lines: Sequence[ComparedLine]) -> None:
        """Add lines of an environment."""
        _add_examples(self.models, {line.model for line in lines})
        _add_examples(self._samplings, {bytes(line.sampling) for line in lines})
        if any(bytes(line.tools) not in _NO_TOOLS for line in lines):
            self.environments_with_tools.add(env)
        setups = zip(
            [line.env_version for line in lines],
            [bytes(line.env_options) for line in lines],
            [line.group_size for line in lines],
            [line.verifier.version for line in lines],
            [line.verifier.source_hash for line in lines],
            strict=True,
        )
        _add_examples(
            self._setups.setdefault(env, set()), {_ScoringSetup(*setup) for setup in set(setups)}
        )
        for uses in filter(None, [line.role_usage for line in lines]):
            for role, use in uses.items():
                _add_examples(self._roles.setdefault(role, set()), {use.model})

    def sampling(self) -> str:
        """Return the request parameters, as JSON text."""
        samplings = {_canonical(sampling) for sampling in self._samplings}
        return samplings.pop() if len(samplings) == 1 else _SEVERAL

    def roles_on_record(self) -> dict[str, str] | None:
        """Return the models of roles in the manifest, by role; None if it names none."""
        models = self.identity.get("roles", {})
        if not self.identity or not isinstance(models, dict):
            return None
        return {role: canonical_json(model).decode() for role, model in models.items()}

    def roles_in_use(self) -> dict[str, str]:
        """Return the models of roles in the lines, by role."""
        return {role: ", ".join(sorted(models)) for role, models in self._roles.items()}

    def facets(self, env: str) -> dict[tuple[DriftKind, str], str | None]:
        """Return how an environment was played and scored, by kind and name; None if unknown."""
        texts_by_facet: dict[tuple[DriftKind, str], str | None] = {}
        for kind, name, text in _FACETS:
            texts = {text(setup) for setup in self._setups.get(env, ())}
            is_known = bool(texts) and "" not in texts
            texts_by_facet[kind, name] = ", ".join(sorted(texts)) if is_known else None
        return texts_by_facet


def drift_of(
    a: RunProvenance,
    b: RunProvenance,
    environments: Iterable[str],
    facts: tuple[Mapping[str, EnvironmentFacts], Mapping[str, EnvironmentFacts]],
) -> Iterator[Drift]:
    """Yield every difference between two runs' shared environments, except differing tasks."""
    environments = list(environments)
    with_tools = a.environments_with_tools | b.environments_with_tools
    shows_tools = not with_tools.isdisjoint(environments)
    if a.identity and b.identity:
        for key, name in _PROMPTING.items():
            value_a, value_b = a.identity.get(key), b.identity.get(key)
            # Emulation changes nothing where no model was shown a tool.
            if value_a != value_b and (key != "emulate_tools" or shows_tools):
                yield Drift(
                    kind="prompt", name=name, a=_value_text(value_a), b=_value_text(value_b)
                )
    for env in environments:
        facets_b = b.facets(env)
        for (kind, name), text_a in a.facets(env).items():
            text_b = facets_b[kind, name]
            if text_a is None or text_b is None or text_a == text_b:
                continue
            # Releases that hash code differently cannot be compared by their hashes.
            if name == _SOURCE and not _are_other_sources(text_a, text_b):
                continue
            yield Drift(kind=kind, env=env, name=name, a=text_a, b=text_b)
        yield from _scale_drift(env, facts[0].get(env), facts[1].get(env))
    yield from _role_drift(a, b)


def _are_other_sources(sources_a: str, sources_b: str) -> bool:
    pairs = product(sources_a.split(", "), sources_b.split(", "))
    return any(is_other_source(source_a, source_b) for source_a, source_b in pairs)


def _role_drift(a: RunProvenance, b: RunProvenance) -> Iterator[Drift]:
    """Yield the models of roles that differ.

    A role that only one run has counts only if the manifests show it: lines name just the models
    that were asked, and a run may have more environments than the other.
    """
    roles_a, roles_b = a.roles_on_record(), b.roles_on_record()
    are_known = roles_a is not None and roles_b is not None
    if roles_a is None or roles_b is None:
        roles_a, roles_b = a.roles_in_use(), b.roles_in_use()
    roles = roles_a.keys() & roles_b.keys()
    if are_known and a.environments == b.environments:
        roles = roles_a.keys() | roles_b.keys()
    for role in sorted(roles):
        model_a, model_b = roles_a.get(role, "none"), roles_b.get(role, "none")
        if model_a != model_b:
            yield Drift(kind="role", name=f"role {role}", a=model_a, b=model_b)


def _scale_drift(
    env: str, a: EnvironmentFacts | None, b: EnvironmentFacts | None
) -> Iterator[Drift]:
    if a is None or b is None:
        return
    if a.max_reward != b.max_reward:
        best_rewards = _value_text(a.max_reward), _value_text(b.max_reward)
        yield Drift(kind="scale", env=env, name="best reward", a=best_rewards[0], b=best_rewards[1])
        if a.pass_threshold is None and b.pass_threshold is None:
            return  # the threshold is the best reward, which is reported above
    if a.success_threshold != b.success_threshold:
        thresholds = _value_text(a.success_threshold), _value_text(b.success_threshold)
        yield Drift(
            kind="scale", env=env, name="threshold of success", a=thresholds[0], b=thresholds[1]
        )


def unrecorded_settings(provenance: RunProvenance, environments: Iterable[str]) -> Iterator[str]:
    """Yield a text about each environment whose settings a run does not record in full."""
    for env in environments:
        facets = provenance.facets(env).items()
        missing = [name for (_, name), text in facets if text is None]
        if missing:
            yield f"{provenance.name} does not record for {env}: {', '.join(missing)}"


def settings(a: RunProvenance, b: RunProvenance) -> list[Setting]:
    """Return the models, and the request parameters and addresses if they differ."""
    model_setting = [Setting(name="model", a=a.model, b=b.model)]
    values = [("sampling", a.sampling(), b.sampling())]
    if a.manifest is not None and b.manifest is not None:
        values.append(("endpoint", _address(a.manifest), _address(b.manifest)))
    if a.identity and b.identity:
        keys = sorted({*a.identity, *b.identity}.difference(_NOT_SETTINGS))
        values += [
            (key, _value_text(a.identity.get(key)), _value_text(b.identity.get(key)))
            for key in keys
        ]
    return model_setting + [Setting(name=key, a=x, b=y) for key, x, y in values if x != y]


def _address(manifest: Manifest) -> str:
    endpoint = manifest.options.get("endpoint")
    address = endpoint.get("base_url") if isinstance(endpoint, dict) else None
    return _value_text(address)


def _add_examples(examples: set[_T], values: set[_T]) -> None:
    examples.update(sorted(values - examples)[: _MAX_KEPT - len(examples)])


def _canonical(encoded: bytes) -> str:
    try:
        return canonical_json(msgspec.json.decode(encoded)).decode() if encoded else "{}"
    except JSON_ERRORS:  # the line was decoded before, so it is valid but nested too deeply
        return encoded.decode(errors="replace")


def _value_text(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else canonical_json(value).decode()
