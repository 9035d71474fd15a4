"""Declare and read the options that several commands share."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.command_line import Heading
from gymcli.commands.console import hide, message
from gymcli.commands.signals import run_async
from gymcli.errors import GymError, UsageError

if TYPE_CHECKING:
    from gymcli.models.roles import RoleSource
    from gymcli.runner.judges import Judges
    from gymcli.store.manifest import Manifest
    from gymcli.types import JSONObject


def complete_env(incomplete: str) -> list[str]:
    """Complete the name of an environment in a shell."""
    from gymcli.environment.registry import Registry  # late: heavy, as below

    return [name for name in Registry.names() if name.startswith(incomplete)]


def complete_benchmark(incomplete: str) -> list[str]:
    """Complete the name of a benchmark in a shell."""
    from gymcli.benchmarks.benchmark import benchmark_names, with_variants

    base, at, _ = incomplete.partition("@")
    names = [name for name in benchmark_names() if name.startswith(base)]
    if at or names == [base]:  # the files of others need not be read
        for name in [*names]:
            with suppress(UsageError):
                names += [benchmark.name for benchmark in with_variants(name)[1:]]
    return [name for name in names if name.startswith(incomplete)]


def complete_tasks(incomplete: str) -> list[str]:
    """Complete the name of an environment, or of a file with tasks."""
    endings = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".csv", ".tsv", ".parquet", ".xlsx")
    files = filter(lambda name: name.endswith(endings), map(str, _begun(incomplete, "*")))
    return [*complete_env(incomplete), *complete_benchmark(incomplete), *files]


def complete_model(incomplete: str) -> list[str]:
    """Complete the name of a model of gym.toml, or of one that needs no endpoint."""
    from gymcli.models.settings import load_settings

    names = ["local", "oracle"]
    with suppress(GymError):  # a command would say what is wrong with the file
        names += load_settings().models
    return [name for name in names if name.startswith(incomplete)]


def complete_run(incomplete: str) -> list[str]:
    """Complete the name of a run directory, here or in a folder such as runs."""
    manifests = [*_begun(incomplete, "*/run.json"), *_begun(incomplete, "*/*/run.json")]
    return [str(manifest.parent) for manifest in manifests]


def _begun(incomplete: str, pattern: str) -> list[Path]:
    """Return the paths that begin as typed and go on as the pattern says."""
    folder, slash, start = incomplete.rpartition("/")
    return sorted(Path(folder + slash).glob(glob.escape(start) + pattern))


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON.", rich_help_panel=Heading.RESULTS)
]
CacheOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder where benchmark tasks are cached.",
        show_default="gymcli/benchmarks in XDG_CACHE_HOME",
        rich_help_panel=Heading.EXPERT,
    ),
]
OwnEnvArgOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="Set an option of the environment.")
]
LineEnvOption = Annotated[
    str | None,
    typer.Option(
        metavar="ENV",
        help="Environment of lines that name none, such as NeMo Gym's.",
        autocompletion=complete_env,
    ),
]
RunsArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN",
        help="Run directories or rollout files.",
        rich_help_panel=Heading.WHAT,
        autocompletion=complete_run,
    ),
]
HostOption = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="Address to listen on.", rich_help_panel=Heading.SERVER),
]
PortOption = Annotated[
    int,
    typer.Option(
        min=0,
        max=65535,
        help="Port to listen on; 0 picks a free one.",
        rich_help_panel=Heading.SERVER,
    ),
]


def key_values(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Split `key=value` texts; raise UsageError for any other."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        # Python decodes bytes of an argument that are not UTF-8 as lone surrogates.
        if not text.isascii() and text != text.encode(errors="replace").decode():
            raise UsageError(f"{option} {key}: is not UTF-8")
        if not key or not equals:
            raise UsageError(f"{option} {text}: expected key=value")
        pairs[key] = value
    return pairs


def parameters(option: str, texts: Iterable[str]) -> dict[str, object]:
    """Read request parameters: a value is JSON if it parses as JSON, else text."""
    import msgspec  # late: heavy

    from gymcli.models.endpoint import RESERVED_PARAMETERS

    values: dict[str, object] = {}
    for name, text in key_values(option, texts).items():
        place = f"{option} {name}"
        if name in RESERVED_PARAMETERS:
            raise UsageError(f"{place}: is not a sampling parameter; gymcli sets it itself")
        try:
            values[name] = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            if text.lstrip().startswith(("{", "[")):
                raise UsageError(
                    f"{place}: is not JSON: {error}; put text that looks like JSON in quotes"
                ) from error
            if _is_not_finite(text):
                raise UsageError(
                    f"{place}: must be a finite number; put it in quotes to send it as text"
                ) from error
            values[name] = text
    return values


def role_specs(texts: Iterable[str]) -> dict[str, RoleSource]:
    """Read `--role ROLE=NAME_OR_URL`: the text that names the model, by role."""
    texts = list(texts)
    for text in texts:
        if "://" in text.partition("=")[0]:  # not shown: an address may hold a secret
            raise UsageError("--role URL: expected key=value, such as judge=http://host/v1#MODEL")
    return dict(key_values("--role", texts))


def collect_defaults(repeatable: Container[str]) -> dict[str, object]:
    """Return the defaults that gym.toml sets for `gym collect`, by the names of its parameters.

    `repeatable` are those that take a list.
    """
    from gymcli.models.settings import load_settings

    settings = load_settings().collect.model_dump(exclude_unset=True)
    return {
        name: value[-1] if isinstance(value, list) and name not in repeatable else value
        for name, value in settings.items()
    }


def announce_settings() -> None:
    """Print where gym.toml is, unless it is in the working folder or there is none."""
    from gymcli.models.settings import settings_file

    file = settings_file()
    if file is not None and file.parent != Path():
        message(f"settings from {file}")


def settings_secrets() -> tuple[str, ...]:
    """Return every secret that gym.toml holds or names; none is printed from now on."""
    from gymcli.models.settings import load_settings

    secrets = load_settings().secrets(os.environ)
    hide(secrets)
    return secrets


def hide_models(sources: Iterable[object]) -> None:
    """Print none of the secrets of these models from now on."""
    for source in sources:
        hide(getattr(source, "secrets", ()))


def role_params(option: str, texts: Iterable[str]) -> dict[str, dict[str, object]]:
    """Read request parameters of roles: `role.key=value`."""
    params: dict[str, dict[str, object]] = {}
    for text in texts:
        role, dot, pair = text.partition(".")
        if not (role and dot) or "=" in role:
            raise UsageError(f"{option} {text}: expected role.key=value")
        params.setdefault(role, {}).update(parameters(option, [pair]))
    return params


def judges_of(
    roles: Mapping[str, RoleSource],
    params: Mapping[str, JSONObject],
    concurrency: int,
    *,
    manifest: Manifest | None = None,
) -> Judges:
    """Return the models of the roles as the library does, and print where gym.toml is."""
    from gymcli.library import role_models  # late: heavy

    settings_secrets()
    judges = role_models.judges_of(
        roles, params, concurrency, manifest=manifest, run_loop=run_async
    )
    hide_models(judges.sources.values())
    if judges.sources:
        announce_settings()
    return judges


def _is_not_finite(text: str) -> bool:
    try:
        return not math.isfinite(float(text))
    except ValueError:
        return False
