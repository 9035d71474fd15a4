"""How two runs were made, as manifests and lines say: what must be alike, and what may differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple, TypeVar

import msgspec

from gymcli.metrics import EnvironmentFacts
from gymcli.metrics.comparison import Drift, DriftKind, Setting
from gymcli.runner.made_lines import MadeLine, ScoredBy
from gymcli.store.manifest import Manifest
from gymcli.types import JSON_ERRORS, JSONObject, canonical_json, is_other_source

__all__ = ["Making", "drift_of", "settings", "unknown"]


_MAX_KEPT = 8
"""Ways of making rollouts that are kept of each kind; in a sound run there are one or two."""
_SEVERAL = "several"
_PROMPTING = {"prompt": "prompt template", "emulate_tools": "emulated tools"}
"""Keys of a run's identity that say what the model is shown."""
_NOT_SETTINGS = (*_PROMPTING, "environments", "roles", "repeats", "model", "params")
"""Keys of a run's identity that are compared in another way."""


class _Way(NamedTuple):
    """How rollouts of an environment were played and scored."""

    env_version: str
    env_options: bytes
    group_size: int
    verifier: ScoredBy


_SOURCE = "verifier source"
_FACETS: tuple[tuple[DriftKind, str, Callable[[_Way], str]], ...] = (
    ("environment", "version", lambda way: way.env_version),
    ("options", "options", lambda way: way.env_version and _canonical(way.env_options)),
    ("verifier", "verifier version", lambda way: way.verifier.version),
    ("verifier", _SOURCE, lambda way: way.verifier.source_hash),
    ("verifier", "group size", lambda way: way.env_version and str(way.group_size or 1)),
)
"""What must be alike; empty where a rollout does not say it, as those of others."""

_T = TypeVar("_T", str, bytes, _Way)


class Making:
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

    def see(self, env: str, lines: Sequence[MadeLine]) -> None:
        """Take lines of an environment."""
        _keep(self.models, {line.model for line in lines})
        _keep(self._samplings, {bytes(line.sampling) for line in lines})
        ways = zip(
            [line.env_version for line in lines],
            [bytes(line.env_options) for line in lines],
            [line.group_size for line in lines],
            [line.verifier for line in lines],
            strict=True,
        )
        _keep(self._ways.setdefault(env, set()), {_Way(*way) for way in set(ways)})
        for uses in filter(None, [line.role_usage for line in lines]):
            for role, use in uses.items():
                _keep(self._roles.setdefault(role, set()), {use.model})

    def sampling(self) -> str:
        """Give how the model was asked, as JSON text."""
        found = {_canonical(sampling) for sampling in self._samplings}
        return found.pop() if len(found) == 1 else _SEVERAL

    def roles_on_record(self) -> dict[str, str] | None:
        """Give the models beside the policy as the manifest says them; None where it does not."""
        recorded = self.identity.get("roles", {})
        if not self.identity or not isinstance(recorded, dict):
            return None
        return {role: canonical_json(said).decode() for role, said in recorded.items()}

    def roles_in_use(self) -> dict[str, str]:
        """Give the names of the models beside the policy that lines say, by role."""
        return {role: ", ".join(sorted(models)) for role, models in self._roles.items()}

    def facets(self, env: str) -> dict[tuple[DriftKind, str], str | None]:
        """Give how an environment was played and scored, by kind and name; None: not known."""
        found: dict[tuple[DriftKind, str], str | None] = {}
        for kind, name, text in _FACETS:
            texts = {text(way) for way in self._ways.get(env, ())}
            is_known = bool(texts) and "" not in texts
            found[kind, name] = ", ".join(sorted(texts)) if is_known else None
        return found


def drift_of(
    a: Making,
    b: Making,
    environments: Iterable[str],
    facts: tuple[Mapping[str, EnvironmentFacts], Mapping[str, EnvironmentFacts]],
) -> Iterator[Drift]:
    """Give what should be alike in two runs and is not, but for the tasks themselves.

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


def _role_drift(a: Making, b: Making) -> Iterator[Drift]:
    """Give the models beside the policy that differ.

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


def unknown(making: Making, environments: Iterable[str]) -> Iterator[str]:
    """Say what a run does not tell of how it was made."""
    for env in environments:
        facets = making.facets(env).items()
        missing = [name for (_, name), said in facets if said is None]
        if missing:
            yield f"{making.name} does not say of {env}: {', '.join(missing)}"


def settings(a: Making, b: Making) -> list[Setting]:
    """Give the models, and what else differs and may: how they were asked, where, for how long."""
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
    """Add to a set that stays small, whatever a run holds."""
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
