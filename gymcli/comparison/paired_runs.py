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
from gymcli.comparison.paired_differences import Measure, PairedAttempts, parse_measure
from gymcli.comparison.run_comparison import Rule, compare, doubts
from gymcli.errors import RunError, RunMismatchError, UsageError
from gymcli.metrics.aggregate import Aggregator
from gymcli.metrics.measure import ComparedLine, open_run, read_compared_lines, selected
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
    rule = _checked(rule or Rule())._replace(is_same_run=_are_same_rollouts(a, b))
    reader = _RunReader(measure, by, rule.level)
    first = reader.read(a, env, is_a=True)
    second = reader.read(b, env, is_a=False, attempts=attempts)
    environments = sorted(first.contents.keys() & second.contents.keys())
    drift = list(
        drift_of(first.provenance, second.provenance, environments, (first.facts, second.facts))
    )
    not_known = [one for run in (first, second) for one in unknown(run.provenance, environments)]
    # An environment may build different prompts from different seeds.
    knows_seeds = bool(first.provenance.identity and second.provenance.identity)
    for name in environments:
        differing = task_drift(first.contents[name], second.contents[name])
        ids = list(reader.pairs[name].task_numbers)
        if differing.contents:
            text = _named([ids[task] for task in differing.contents], "different content")
            drift.append(Drift(kind="tasks", env=name, name=text))
        if differing.prompts:
            what = "a different prompt or different tools"
            text = _named([ids[task] for task in differing.prompts], what)
            drift.append(Drift(kind="prompt", env=name, name=text))
        if differing.num_by_seed and not knows_seeds:
            not_known.append(
                f"prompts of {differing.num_by_seed:,} tasks of {name} differ, and so do their "
                "seeds: whether these are the cause is not known"
            )
    if drift and not allow_drift:
        found = "\n".join(f"  {one}" for one in drift)
        raise RunMismatchError(
            f"A ({a}) and B ({b}) differ in more than the model, so a difference may have other "
            f"causes; --allow-drift compares them anyway:\n{found}"
        )
    comparison = compare(
        list(reader.pairs.values()),
        a=first.side,
        b=second.side,
        facts={**dict.fromkeys(reader.pairs, EnvironmentFacts()), **second.facts, **first.facts},
        measure=measure,
        rule=rule,
        fields=by,
        with_tasks=with_tasks,
    )
    if not comparison.num_tasks:
        raise UsageError(_nothing_shared(a, b, comparison))
    comparison.is_same_run = rule.is_same_run
    comparison.drift, comparison.unknown = drift, not_known
    comparison.compared = settings(first.provenance, second.provenance)
    comparison.warnings = doubts(comparison, rule)
    return comparison


def _are_same_rollouts(a: Path, b: Path) -> bool:
    """Return whether two runs are one, or one is a copy of the other."""
    one, other = (path / ROLLOUTS if path.is_dir() else path for path in (a, b))
    return one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)


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
            by_environment: dict[str, list[ComparedLine]] = {}
            for line in selected(lines, attempts):
                line.env = run.names.get(line.env, line.env)
                if isinstance(line, FailureLine):
                    aggregator.add_failure(line)
                else:
                    by_environment.setdefault(line.env, []).append(line)
            for name, own in by_environment.items():
                provenance.add(name, own)
                self._add(own, contents.setdefault(name, TaskContents()), is_a=is_a)
                for line in own:  # a `RunSide` shows only rewards and the compared number
                    line.answer = None
                    if self._measure.source != "components":
                        line.components = None
                    if self._measure.source != "metrics":
                        line.metrics = None
                aggregator.add_scored_lines(own)
        if run.failures is not None:
            failures = read_structs(run.failures, msgspec.json.Decoder(FailureLine))
            for failure in selected(failures, attempts):
                aggregator.add_failure(failure)
        metrics = aggregator.metrics(level=self._level)
        if not metrics.num_scored:
            raise RunError(f"{path}: nothing is scored, so there is nothing to compare")
        side = RunSide(
            run=str(path),
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
        return _ReadRun(side, facts, provenance, contents)

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
        (pairs.a if is_a else pairs.b).extend(
            [line.task_id for line in lines],
            [line.attempt for line in lines],
            [self._value(line) for line in lines],
        )

    def _value(self, line: ComparedLine) -> float:
        if self._measure.source == "reward":
            return line.reward
        named = line.components if self._measure.source == "components" else line.metrics
        return math.nan if named is None else named.get(self._measure.key, math.nan)


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


def _named(ids: Sequence[str], what: str) -> str:
    more = ", ..." if len(ids) > _NUM_NAMED else ""
    has = "task has" if len(ids) == 1 else "tasks have"
    return f"{len(ids):,} {has} {what} ({', '.join(sorted(ids)[:_NUM_NAMED])}{more})"


def _slice(task: msgspec.Raw, field: str) -> str:
    try:
        row = msgspec.json.decode(task, type=dict[str, msgspec.Raw]) if bytes(task) else {}
    except JSON_ERRORS as error:
        raise UsageError(f"--by {field}: a task is no JSON object: {error}") from error
    return slice_name(field_of(row, field))


def _checked(rule: Rule) -> Rule:
    if rule.margin is not None and not (math.isfinite(rule.margin) and rule.margin >= 0.0):
        raise UsageError(f"--margin {rule.margin:g}: must be 0 or a positive number")
    if not 0.5 < rule.level <= _HIGHEST_LEVEL:
        raise UsageError(
            f"--level {rule.level:g}: must be between 0.5 and {_HIGHEST_LEVEL}, such as 0.95"
        )
    return rule


def _nothing_shared(a: Path, b: Path, comparison: Comparison) -> str:
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


class _Way(NamedTuple):
    env_version: str
    env_options: bytes
    group_size: int
    verifier_version: str
    verifier_source: str


_SOURCE = "verifier source"
_FACETS: tuple[tuple[DriftKind, str, Callable[[_Way], str]], ...] = (
    ("environment", "version", lambda way: way.env_version),
    ("options", "options", lambda way: way.env_version and _canonical(way.env_options)),
    ("verifier", "verifier version", lambda way: way.verifier_version),
    ("verifier", _SOURCE, lambda way: way.verifier_source),
    ("verifier", "group size", lambda way: way.env_version and str(way.group_size or 1)),
)
"""What must be alike; empty if a rollout, such as a foreign one, does not record it."""

_T = TypeVar("_T", str, bytes, _Way)


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
        self._ways: dict[str, set[_Way]] = {}
        self._roles: dict[str, set[str]] = {}

    @property
    def model(self) -> str:
        """The model, or the models, of the run."""
        recorded = self.manifest.model if self.manifest is not None else ""
        return ", ".join(sorted(self.models)) or recorded

    def add(self, env: str, lines: Sequence[ComparedLine]) -> None:
        """Add lines of an environment."""
        _keep(self.models, {line.model for line in lines})
        _keep(self._samplings, {bytes(line.sampling) for line in lines})
        if any(bytes(line.tools) not in _NO_TOOLS for line in lines):
            self.environments_with_tools.add(env)
        ways = zip(
            [line.env_version for line in lines],
            [bytes(line.env_options) for line in lines],
            [line.group_size for line in lines],
            [line.verifier.version for line in lines],
            [line.verifier.source_hash for line in lines],
            strict=True,
        )
        _keep(self._ways.setdefault(env, set()), {_Way(*way) for way in set(ways)})
        for uses in filter(None, [line.role_usage for line in lines]):
            for role, use in uses.items():
                _keep(self._roles.setdefault(role, set()), {use.model})

    def sampling(self) -> str:
        """Return the request parameters, as JSON text."""
        found = {_canonical(sampling) for sampling in self._samplings}
        return found.pop() if len(found) == 1 else _SEVERAL

    def roles_on_record(self) -> dict[str, str] | None:
        """Return the models of roles in the manifest, by role; None if it names none."""
        recorded = self.identity.get("roles", {})
        if not self.identity or not isinstance(recorded, dict):
            return None
        return {role: canonical_json(said).decode() for role, said in recorded.items()}

    def roles_in_use(self) -> dict[str, str]:
        """Return the models of roles in the lines, by role."""
        return {role: ", ".join(sorted(models)) for role, models in self._roles.items()}

    def facets(self, env: str) -> dict[tuple[DriftKind, str], str | None]:
        """Return how an environment was played and scored, by kind and name; None if unknown."""
        found: dict[tuple[DriftKind, str], str | None] = {}
        for kind, name, text in _FACETS:
            texts = {text(way) for way in self._ways.get(env, ())}
            is_known = bool(texts) and "" not in texts
            found[kind, name] = ", ".join(sorted(texts)) if is_known else None
        return found


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
            one, other = a.identity.get(key), b.identity.get(key)
            # Emulation changes nothing where no model was shown a tool.
            if one != other and (key != "emulate_tools" or shows_tools):
                yield Drift(kind="prompt", name=name, a=_shown(one), b=_shown(other))
    for env in environments:
        theirs = b.facets(env)
        for (kind, name), said in a.facets(env).items():
            other_said = theirs[kind, name]
            if said is None or other_said is None or said == other_said:
                continue
            # Releases that hash code differently cannot be compared by their hashes.
            if name == _SOURCE and not _are_other_sources(said, other_said):
                continue
            yield Drift(kind=kind, env=env, name=name, a=said, b=other_said)
        yield from _scale_drift(env, facts[0].get(env), facts[1].get(env))
    yield from _role_drift(a, b)


def _are_other_sources(said: str, other_said: str) -> bool:
    pairs = product(said.split(", "), other_said.split(", "))
    return any(is_other_source(one, other) for one, other in pairs)


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
        one, other = roles_a.get(role, "none"), roles_b.get(role, "none")
        if one != other:
            yield Drift(kind="role", name=f"role {role}", a=one, b=other)


def _scale_drift(
    env: str, a: EnvironmentFacts | None, b: EnvironmentFacts | None
) -> Iterator[Drift]:
    if a is None or b is None:
        return
    if a.max_reward != b.max_reward:
        best = _shown(a.max_reward), _shown(b.max_reward)
        yield Drift(kind="scale", env=env, name="best reward", a=best[0], b=best[1])
        if a.pass_threshold is None and b.pass_threshold is None:
            return  # the threshold is the best reward, which is reported above
    if a.success_threshold != b.success_threshold:
        least = _shown(a.success_threshold), _shown(b.success_threshold)
        yield Drift(kind="scale", env=env, name="threshold of success", a=least[0], b=least[1])


def unknown(provenance: RunProvenance, environments: Iterable[str]) -> Iterator[str]:
    """Yield a text about each environment whose settings a run does not record in full."""
    for env in environments:
        facets = provenance.facets(env).items()
        missing = [name for (_, name), said in facets if said is None]
        if missing:
            yield f"{provenance.name} does not record for {env}: {', '.join(missing)}"


def settings(a: RunProvenance, b: RunProvenance) -> list[Setting]:
    """Return the models, and the request parameters and addresses if they differ."""
    found = [Setting(name="model", a=a.model, b=b.model)]
    both = [("sampling", a.sampling(), b.sampling())]
    if a.manifest is not None and b.manifest is not None:
        both.append(("endpoint", _address(a.manifest), _address(b.manifest)))
    if a.identity and b.identity:
        keys = sorted({*a.identity, *b.identity}.difference(_NOT_SETTINGS))
        both += [(key, _shown(a.identity.get(key)), _shown(b.identity.get(key))) for key in keys]
    return found + [Setting(name=key, a=x, b=y) for key, x, y in both if x != y]


def _address(manifest: Manifest) -> str:
    endpoint = manifest.options.get("endpoint")
    address = endpoint.get("base_url") if isinstance(endpoint, dict) else None
    return _shown(address)


def _keep(few: set[_T], found: set[_T]) -> None:
    few.update(sorted(found - few)[: _MAX_KEPT - len(few)])


def _canonical(encoded: bytes) -> str:
    try:
        return canonical_json(msgspec.json.decode(encoded)).decode() if encoded else "{}"
    except JSON_ERRORS:  # the line was decoded before, so it is valid but nested too deeply
        return encoded.decode(errors="replace")


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else canonical_json(value).decode()
