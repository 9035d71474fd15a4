"""How a run was made, as its manifest and lines say: what must be alike in two, what may differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from gymcli.metrics.comparison_results import Drift, DriftKind, Setting
from gymcli.metrics.scored_lines import EnvironmentFacts, FailureLine, ScoredLine
from gymcli.runner.measure import BLOCK_BYTES, measured
from gymcli.store.lines import Block, decode_block, iterate_blocks
from gymcli.store.manifest import Manifest
from gymcli.store.rollout_files import RolloutReading, decode_rollout, without_torn
from gymcli.types import (
    JSON_ERRORS,
    JSONObject,
    Rollout,
    Verifier,
    canonical_json,
    is_other_source,
)

__all__ = [
    "ComparedLine",
    "RunProvenance",
    "drift_of",
    "read_compared_lines",
    "settings",
    "unknown",
]

_MAX_KEPT = 8
"""Ways of making rollouts that are kept of each kind; in a sound run there are one or two."""
_SEVERAL = "several"
_PROMPTING = {"prompt": "prompt template", "emulate_tools": "emulated tools"}
"""Keys of a run's identity that say what the model is shown."""
_NOT_SETTINGS = (*_PROMPTING, "environments", "roles", "repeats", "model", "params")
"""Keys of a run's identity that are compared in another way."""
_SCORING_ROLES = frozenset({"judge", "reward"})
"""Roles that have no hand in the prompt."""
_NOTHING = msgspec.Raw(b"")


class ComparedLine(ScoredLine, kw_only=True, gc=False):
    """A scored line with what says how it came to be; what is seldom looked at stays undecoded."""

    schema_version: Annotated[int, msgspec.Meta(ge=1)]
    task_hash: str = ""
    """Empty on rollouts of others: theirs does not tell what is the task from what is not."""
    seed: int = 0
    group_size: int = 0
    env_version: str = ""
    env_options: msgspec.Raw = _NOTHING
    task: msgspec.Raw = _NOTHING
    messages: list[msgspec.Raw] = []
    num_prompt_messages: int = 0
    tools: msgspec.Raw = _NOTHING
    model: str = ""
    sampling: msgspec.Raw = _NOTHING
    verifier: Verifier = msgspec.field(default_factory=Verifier)

    @property
    def prompt_hash(self) -> int:
        """A number for prompt and tools in this process; 0 where a model had a hand in them."""
        if self.role_usage and not _SCORING_ROLES.issuperset(self.role_usage):
            return 0
        prompt = [*map(bytes, self.messages[: self.num_prompt_messages]), bytes(self.tools)]
        return hash(tuple(prompt)) or 1


def read_compared_lines(
    file: Path, reading: RolloutReading
) -> Iterator[list[ComparedLine | FailureLine]]:
    """Yield the lines of a rollout file, some hundred at a time; they are there until the next.

    Raises:
        UsageError: The file cannot be read, or a line is no rollout with a score.

    """
    decoder = msgspec.json.Decoder(ComparedLine)
    for block in iterate_blocks(file, size=BLOCK_BYTES):
        decoded = decode_block(block, decoder)
        yield list(_one_by_one(block, file, reading, decoder) if decoded is None else decoded)


def _one_by_one(
    block: Block, file: Path, reading: RolloutReading, decoder: msgspec.json.Decoder[ComparedLine]
) -> Iterator[ComparedLine | FailureLine]:
    for line in without_torn(block.lines(file)):
        try:
            yield decoder.decode(line.data)
        except JSON_ERRORS:
            rollout = decode_rollout(line.number, line.data, reading)
            yield _of_others(rollout, f"{file}:{line.number}")


def _of_others(rollout: Rollout, place: str) -> ComparedLine | FailureLine:
    found = measured(rollout, place)
    if isinstance(found, FailureLine):
        return found
    return ComparedLine(
        **msgspec.structs.asdict(found),
        schema_version=rollout.schema_version,
        task=_raw(rollout.task),
        messages=[_raw(message) for message in rollout.messages],
        num_prompt_messages=rollout.num_prompt_messages,
        tools=_raw(rollout.tools),
        model=rollout.model,
        sampling=_raw(rollout.sampling),
    )


def _raw(value: object) -> msgspec.Raw:
    """Encode as the line of a run would have it; what is empty is left out there."""
    return msgspec.Raw(msgspec.json.encode(value)) if value else _NOTHING


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
"""What must be alike; empty where a rollout does not say it, as those of others."""

_T = TypeVar("_T", str, bytes, _Way)


class RunProvenance:
    """How a run was made.

    Args:
        name: What to call the run in messages.
        manifest: What its run.json says; None for a bare file.

    """

    def __init__(self, name: str, manifest: Manifest | None) -> None:
        self.name = name
        self.manifest = manifest
        self.models: set[str] = set()
        self._samplings: set[bytes] = set()
        self._ways: dict[str, set[_Way]] = {}
        self._roles: dict[str, set[str]] = {}

    @property
    def model(self) -> str:
        """The model, or the models, of the run."""
        recorded = self.manifest.model if self.manifest is not None else ""
        return ", ".join(sorted(self.models)) or recorded

    @property
    def identity(self) -> JSONObject:
        """What names the run; empty where it is not known."""
        return {} if self.manifest is None else self.manifest.identity

    @property
    def environments(self) -> set[str]:
        """The environments of the run as its manifest says them."""
        return set() if self.manifest is None else {*self.manifest.environments}

    def add(self, env: str, lines: Sequence[ComparedLine]) -> None:
        """Add lines of an environment."""
        _keep(self.models, {line.model for line in lines})
        _keep(self._samplings, {bytes(line.sampling) for line in lines})
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
        """Return how the model was asked, as JSON text."""
        found = {_canonical(sampling) for sampling in self._samplings}
        return found.pop() if len(found) == 1 else _SEVERAL

    def roles_on_record(self) -> dict[str, str] | None:
        """Return the models of roles that the manifest names; None where it names none."""
        recorded = self.identity.get("roles", {})
        if not self.identity or not isinstance(recorded, dict):
            return None
        return {role: canonical_json(said).decode() for role, said in recorded.items()}

    def roles_in_use(self) -> dict[str, str]:
        """Return the models of roles that lines name, by role."""
        return {role: ", ".join(sorted(models)) for role, models in self._roles.items()}

    def facets(self, env: str) -> dict[tuple[DriftKind, str], str | None]:
        """Return how an environment was played and scored, by kind and name; None: not known."""
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
    """Yield what should be alike in two runs and is not, but for the tasks themselves.

    Args:
        a: How run A was made.
        b: How run B was made.
        environments: Those that both have.
        facts: What each run says of its environments.

    """
    if a.identity and b.identity:
        for key, name in _PROMPTING.items():
            one, other = a.identity.get(key), b.identity.get(key)
            if one != other:
                yield Drift(kind="prompt", name=name, a=_shown(one), b=_shown(other))
    for env in environments:
        theirs = b.facets(env)
        for (kind, name), said in a.facets(env).items():
            other_said = theirs[kind, name]
            if said is None or other_said is None or said == other_said:
                continue
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

    One that only one run has counts where the manifests say so: lines name the models that were
    asked, and another run may have more environments.
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
            return  # it is the best reward
    if a.success_threshold != b.success_threshold:
        least = _shown(a.success_threshold), _shown(b.success_threshold)
        yield Drift(kind="scale", env=env, name="threshold of success", a=least[0], b=least[1])


def unknown(provenance: RunProvenance, environments: Iterable[str]) -> Iterator[str]:
    """Yield what a run does not say of how it was made."""
    for env in environments:
        facets = provenance.facets(env).items()
        missing = [name for (_, name), said in facets if said is None]
        if missing:
            yield f"{provenance.name} does not say of {env}: {', '.join(missing)}"


def settings(a: RunProvenance, b: RunProvenance) -> list[Setting]:
    """Return the models, and what else may differ and does: how they were asked, and where."""
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
    except JSON_ERRORS:  # it is sound, or the line were not read, but it may be nested too deeply
        return encoded.decode(errors="replace")


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else canonical_json(value).decode()
