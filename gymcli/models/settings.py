"""Reads gym.toml and environment variables, and resolves options to an endpoint."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec
from pydantic import (
    AllowInfNan,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    Strict,
    ValidationError,
    model_validator,
)

from gymcli.environment.addresses import is_loopback
from gymcli.errors import ConfigError, FatalEndpointError, InvalidAnswerError, UsageError, described
from gymcli.models.endpoint import Endpoint, EndpointLimits, EndpointOptions, checked_base_url
from gymcli.models.http import read_body
from gymcli.store.lines import read_toml
from gymcli.suggestions import did_you_mean, pydantic_reason
from gymcli.types import JSON_ERRORS

OPENAI_URL = "https://api.openai.com/v1"

_WAYS_OUT = (
    "use --model local, a small model that needs no key; or --base-url URL --model NAME for an "
    "OpenAI-compatible server; or set OPENAI_API_KEY and --model NAME for the OpenAI API"
)


def _addresses(value: object) -> object:
    """Return one address or several as a tuple; pydantic's message would number a single one."""
    addresses = [value] if isinstance(value, str) else value
    if not isinstance(addresses, list) or not all(isinstance(text, str) for text in addresses):
        raise ValueError("must be an address, or a list of addresses")
    if not addresses:
        raise ValueError("the list of addresses is empty")
    return tuple(map(checked_base_url, addresses))


class ModelSettings(EndpointOptions):
    """One `[models.NAME]` table."""

    base_url: Annotated[tuple[str, ...], BeforeValidator(_addresses)]
    """The address of the model, or several that serve the same one."""
    model: str | None = None
    """The model's name at the endpoint; None: the name of the table."""
    api_key_env: str | None = None
    """The environment variable that holds the key; None: no key is sent."""
    # Strict: a text or a boolean is no number.
    temperature: Annotated[float, AllowInfNan(False), Strict()] | None = None
    top_p: Annotated[float, AllowInfNan(False), Strict()] | None = None
    max_tokens: Annotated[int, Strict()] | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _check_once(self) -> Self:
        for name in self._own_params.keys() & self.params:
            raise ValueError(f"{name} is set twice; take it out of params")
        return self

    @property
    def _own_params(self) -> dict[str, object]:
        return self.model_dump(include={"temperature", "top_p", "max_tokens"}, exclude_none=True)

    @property
    def request_params(self) -> dict[str, object]:
        return {**self._own_params, **self.params}


def _texts(value: object) -> object:
    return [value] if isinstance(value, str) else value


class CollectSettings(BaseModel):
    """The `[collect]` table: defaults of options of `gym collect`, which have the same names.

    The options themselves check ranges. Options are left out that a command could not undo, that
    belong to one run (`--out`, `--task`), or that may hold a key.
    """

    # Strict: an option would read the text "4" as a number, and 2.5 as 2.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    model: Annotated[list[str], BeforeValidator(_texts)] | None = None
    repeats: int | None = None
    limit: int | None = None
    seed: int | None = None
    concurrency: int | None = None
    max_turns: int | None = None
    max_episode_tokens: int | None = None
    max_episode_cost: float | None = None
    max_episode_time: float | None = None
    max_tokens_total: int | None = None
    max_cost: float | None = None
    max_run_time: float | None = None
    max_failures: int | None = None
    grace: float | None = None
    outage_deadline: float | None = None
    min_coverage: float | None = None
    gate: Annotated[list[str], BeforeValidator(_texts)] | None = None
    gate_on: str | None = None


class Settings(BaseModel):
    """The contents of gym.toml."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    models: dict[str, ModelSettings] = {}
    roles: dict[str, str] = {}
    """The model of each role, written as for `--role`."""
    collect: CollectSettings = CollectSettings()

    def secrets(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return every key and password in the file or in a variable that it names."""
        secrets: list[str] = []
        for model in self.models.values():
            secrets += model.secrets
            secrets.append(environ.get(model.api_key_env or "", "").strip())
        return tuple(filter(None, secrets))


def settings_file() -> Path | None:
    """Find gym.toml in the working folder, else in the nearest folder above it.

    The search ends with a folder that holds .git and with the home folder. It also ends below a
    folder such as /tmp, to which anyone may write: a file there could send keys to a stranger.
    """
    path = Path("gym.toml")
    if os.path.lexists(path):
        return path
    try:
        folder, home = Path.cwd(), Path("~").expanduser().resolve()
        while folder not in (home, folder.parent) and not (folder / ".git").exists():
            folder, path = folder.parent, ".." / path
            if folder.stat().st_mode & stat.S_IWOTH:
                return None
            if path.exists():
                return path
    except (OSError, RuntimeError):  # a folder was deleted or cannot be read; there is no home
        return None
    return None


def load_settings(path: Path | None = None) -> Settings:
    """Read a settings file; without a path, the one that `settings_file` finds, if any.

    Relative names of files in it are relative to its folder.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or has an unknown key or invalid value.
    """
    path = path or settings_file()
    if path is None:
        return Settings()
    try:
        settings = Settings.model_validate(read_toml(path))
    except UsageError as error:
        raise ConfigError(str(error)) from error
    except ValidationError as error:
        raise ConfigError("\n".join(f"{path}: {line}" for line in _problems(error))) from error
    folder = path.parent
    models = {
        name: model.model_copy(update={"ca_file": folder / model.ca_file})
        if model.ca_file is not None
        else model
        for name, model in settings.models.items()
    }
    roles = {role: _from_folder(spec, folder) for role, spec in settings.roles.items()}
    collect = settings.collect
    if collect.model is not None:
        named = [_from_folder(model, folder) for model in collect.model]
        collect = collect.model_copy(update={"model": named})
    return settings.model_copy(update={"models": models, "roles": roles, "collect": collect})


def _from_folder(model: str, folder: Path) -> str:
    """Return a model with the file of `local:PATH` relative to a folder."""
    scheme, colon, file = model.partition(":")
    if scheme != "local" or not colon or file.startswith("~"):
        return model
    return f"local:{folder / file}"


def _problems(error: ValidationError) -> list[str]:
    """Describe each wrong key in one line, without its value, which may be secret."""
    lines = []
    for detail in error.errors(include_url=False, include_input=False):
        path = [str(step) for step in detail["loc"]]
        reason = pydantic_reason(detail)
        if detail["type"] == "extra_forbidden":
            fields = ModelSettings.model_fields if len(path) > 1 else Settings.model_fields
            if "limits" in path[:-1]:
                fields = EndpointLimits.model_fields
            elif path[0] == "collect":
                fields = CollectSettings.model_fields
            hint = did_you_mean(path[-1], fields)
            if path[0] == "collect" and path[-1] in ModelSettings.model_fields:
                hint = "it belongs to [models.NAME]"
            reason = f"unknown key{hint and f' ({hint})'}"
        lines.append(f"{'.'.join(path)}: {reason}")
    return lines


def resolve_endpoint(
    model: str | None,
    *,
    base_url: str | Sequence[str] | None,
    api_key_env: str | None,
    dialect: str | None,
    settings: Settings,
    environ: Mapping[str, str],
    ways_out: str = _WAYS_OUT,
) -> Endpoint:
    """Return the endpoint that options, gym.toml and environment variables name.

    The first of these wins: the option `base_url`, the table of gym.toml that `model` names, the
    variable OPENAI_BASE_URL, the OpenAI API. A key is sent only to its own endpoint: the key in
    `api_key_env` (which may name OPENAI_API_KEY) to any endpoint, a table's key to that table's
    addresses, OPENAI_API_KEY to OPENAI_BASE_URL and the OpenAI API. So `base_url` gets only the
    key in `api_key_env`. Several addresses serve the same model and get the same key. `ways_out`
    ends the message if no endpoint is named.

    Raises:
        UsageError: No endpoint is named, or its model, key or address is missing or wrong.
    """
    base_urls = [base_url] if isinstance(base_url, str) else list(base_url or ())
    table = settings.models.get(model or "") if not base_urls else None
    options: dict[str, Any] = {"name": None if base_urls else model}
    if table is not None:
        options |= {field: getattr(table, field) for field in EndpointOptions.model_fields}
        options["params"] = table.request_params
        addresses, key = list(table.base_url), _key_of(api_key_env or table.api_key_env, environ)
        model = table.model or model
    else:
        addresses = base_urls or [_known_address(model, settings, environ, ways_out)]
        key = _key_of(api_key_env, environ)
        # OPENAI_API_KEY goes to the address of an option only if `api_key_env` names it.
        if not key and not base_urls:
            key = environ.get("OPENAI_API_KEY", "").strip()
    try:
        first, *replicas = dict.fromkeys(checked_base_url(address) for address in addresses)
    except ValueError as error:
        raise UsageError(f"endpoint: base_url: {error}") from error
    if not model:
        raise UsageError("the endpoint needs the name of a model: --model NAME")
    if dialect is not None:
        options["dialect"] = dialect
    options["proxy"] = options.get("proxy") or _shared_proxy([first, *replicas], environ)
    options |= {"base_url": first, "replicas": tuple(replicas), "model": model}
    return Endpoint(**options, api_key=SecretStr(key) if key else None)


def _shared_proxy(addresses: Sequence[str], environ: Mapping[str, str]) -> str | None:
    proxies = {proxy_for(address, environ) for address in addresses}
    if len(proxies) > 1:  # one session, with one proxy, serves all addresses
        raise UsageError(
            "endpoint: base_url: HTTPS_PROXY, HTTP_PROXY and NO_PROXY choose different proxies "
            "for the addresses of one model; name one proxy for all of them in gym.toml"
        )
    return proxies.pop()


def proxy_for(base_url: str, environ: Mapping[str, str]) -> str | None:
    """Return the proxy of HTTPS_PROXY or HTTP_PROXY, unless NO_PROXY or loopback rules it out."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    name = f"{parts.scheme}_proxy"
    proxy = environ.get(name) or environ.get(name.upper())  # lower case wins, as in curl
    if not proxy or is_loopback(host):  # a proxy would look for the server on its own machine
        return None
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if any(_covers(entry.strip().lower(), host, parts.port) for entry in excluded.split(",")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _covers(entry: str, host: str, port: int | None) -> bool:
    """Return whether an entry of NO_PROXY covers a host: a name, its subdomains, or `*`."""
    if entry == "*":
        return True
    name, _, entry_port = entry.partition(":")
    if entry_port and entry_port != str(port):
        return False
    name = name.lstrip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _known_address(
    model: str | None, settings: Settings, environ: Mapping[str, str], ways_out: str
) -> str:
    if address := environ.get("OPENAI_BASE_URL"):
        return address
    # Version 0 of the OpenAI package read this variable. If it names another server, the key may
    # be for that server alone.
    openai_api_base = environ.get("OPENAI_API_BASE", "").rstrip("/")
    if model and environ.get("OPENAI_API_KEY") and openai_api_base in ("", OPENAI_URL):
        return OPENAI_URL
    hint = did_you_mean(model or "", settings.models, "of gym.toml")
    problem = f"no endpoint{f' for model {model}' if model else ''}{hint and f' ({hint})'}"
    if openai_api_base:
        ways_out = f"OPENAI_API_BASE is not read, set OPENAI_BASE_URL instead; or {ways_out}"
    raise UsageError(f"{problem}: {ways_out}")


def _key_of(variable: str | None, environ: Mapping[str, str]) -> str:
    if variable is None:
        return ""
    # A key that was read from a file often ends with a line break, which no header can carry.
    key = environ.get(variable, "").strip()
    if not key:
        raise UsageError(f"the environment variable {variable} must hold the key, and is empty")
    return key


_TIMEOUT = 10.0


class _ListedModel(msgspec.Struct):
    id: str


class _ModelList(msgspec.Struct):
    data: list[_ListedModel]


async def served_model(base_url: str) -> str:
    """Return the only model that an endpoint lists at `/models` or `/v1/models`; no key is sent.

    Raises:
        FatalEndpointError: The address cannot be reached, or answers 5xx.
        UsageError: The address is invalid or may hold a secret (then nothing is sent), or serves
            several models, which the message names.
    """
    try:
        base_url = checked_base_url(base_url)
    except ValueError as error:
        raise UsageError(str(error)) from error
    remedy = "name the model after the address: URL#MODEL"
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        status, body = await _get(session, f"{base_url}/models", remedy)
        if status == 404:  # a reward model's address does not end in /v1
            status, body = await _get(session, f"{base_url}/v1/models", remedy)
    if status >= 500:
        raise FatalEndpointError(f"GET {base_url}/models: status {status}")
    try:
        names = [model.id for model in msgspec.json.decode(body, type=_ModelList).data]
    except JSON_ERRORS as error:
        text = f"GET {base_url}/models: status {status}, not a list of models; {remedy}"
        raise UsageError(text) from error
    if len(names) != 1:
        raise UsageError(f"{base_url}: serves {', '.join(names) or 'no model'}; {remedy}")
    return names[0]


async def _get(session: aiohttp.ClientSession, url: str, remedy: str) -> tuple[int, bytes]:
    try:
        async with session.get(url, allow_redirects=False) as response:
            return response.status, await read_body(response, f"GET {url}", _TIMEOUT)
    except InvalidAnswerError as error:
        raise UsageError(f"{error}; {remedy}") from error
    except (aiohttp.ClientConnectionError, TimeoutError) as error:
        question = "is the server running, and the address right?"
        raise FatalEndpointError(f"GET {url}: {described(error)}; {question}") from error
    except (aiohttp.ClientError, ValueError) as error:
        raise UsageError(f"GET {url}: {described(error)}; {remedy}") from error
