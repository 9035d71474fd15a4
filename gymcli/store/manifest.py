"""The manifest of a run, run.json: its options, tasks and environments."""

from __future__ import annotations

from pathlib import Path

import msgspec

from gymcli.errors import RunFileError
from gymcli.store.rollout_files import ROLLOUTS
from gymcli.types import JSON_ERRORS, SCHEMA_VERSION, JSONObject

MANIFEST = "run.json"


class EnvironmentRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One environment of the run."""

    version: str = ""
    source_hash: str = ""
    earlier_source_hashes: list[str] = []
    """Hashes of other code of the same version that scored a part of the run."""
    options: JSONObject = {}
    max_reward: float | None = None
    pass_threshold: float | None = None
    num_expected: int = 0
    num_expected_of_all_shards: int = 0
    """`num_expected` over all shards; 0 if the run is not a shard."""
    rescore: str = ""
    computes_metrics: bool = False
    """Whether its class overrides `Environment.metrics`."""


class BenchmarkRecord(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True):
    """The benchmark that a run took its tasks and settings from."""

    name: str
    version: str
    spec: str
    """What finds it again: its name, or the absolute path of a user's own."""
    settings_hash: str
    """Of its settings, prompt, map and source: the same version must have the same."""
    deviations: tuple[str, ...] = ()
    """Settings of the run that are not the benchmark's, each in words: `temperature 0.7, not 0`."""
    hub: str = ""
    """The address of the Hugging Face Hub that served its rows, if they are from one."""
    remarks: tuple[str, ...] = ()
    """How many tasks and attempts differ: `repeats 4, not 8`; these are no other settings."""


class Manifest(msgspec.Struct, omit_defaults=True, kw_only=True):
    """run.json: the settings of a run, without any secret."""

    schema_version: int = SCHEMA_VERSION
    gymcli_version: str = ""
    identity: JSONObject = {}
    """The settings that must not change; compared key by key when a run is resumed."""
    options: JSONObject = {}
    """The other resolved options."""
    tasks: list[JSONObject] = []
    """`path`, `sha256` and `num_rows` of each tasks file."""
    benchmark: BenchmarkRecord | None = None
    environments: dict[str, EnvironmentRecord] = {}
    model: str = ""
    shard: str = ""
    """`I/N` if the run takes only this part of the tasks."""
    missing_shards: list[str] = []
    """`I/N` of each shard that was missing when the others were merged into this run."""
    roles: dict[str, str] = {}
    """The value of `--role` for each role, without any secret."""
    role_params: dict[str, JSONObject] = {}
    """Request parameters of roles."""
    libraries: dict[str, str] = {}
    git_commit: str | None = None
    num_expected: int = 0
    """Attempts that this run plans: rows times repeats."""
    num_tasks: int = 0
    started_at: float = 0.0
    ended_at: float | None = None
    seconds: float = 0.0
    """The time that all commands together spent on the run."""


def read_manifest(folder: Path) -> Manifest | None:
    """Read run.json; None if it does not exist, RunFileError if it is not a manifest."""
    path = folder / MANIFEST
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except JSON_ERRORS as error:
        raise RunFileError(
            f"{path}: is not a run's manifest: {error}; the scores are in "
            f"{folder / ROLLOUTS}, which you can pass instead; to collect, use another --out"
        ) from error


def differences(run_identity: JSONObject, identity: JSONObject, prefix: str = "") -> list[str]:
    """List the keys that differ between the identity of a run and another one, with both values.

    Environments that only one side has are not compared.
    """
    texts = []
    for key in sorted({*run_identity, *identity}):
        old, new = run_identity.get(key), identity.get(key)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            texts += differences(old, new, f"{prefix}{key}.")
        elif not (prefix == "environments." and (old is None or new is None)):
            texts.append(f"{prefix}{key} {_text(old)} there, {_text(new)} here")
    return texts


def _text(value: object) -> str:
    return "unset" if value is None else msgspec.json.encode(value).decode()
