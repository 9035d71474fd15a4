"""The options of a mock endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gymcli.command_line import CommandOption, Heading
from gymcli.environment.addresses import checked_address
from gymcli.errors import UsageError
from gymcli.mock.behaviours import parse_behaviour
from gymcli.mock.faults import Faults, Latency, Outage
from gymcli.mock.recording import Recorder
from gymcli.mock.server import MockServer
from gymcli.mock.tokenizer import TokenSampler
from gymcli.models.settings import proxy_for
from gymcli.secrets import Scrubber, scrubber_of


class MockOptions(BaseModel):
    """What an endpoint answers, when it fails, and what it records."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    behaviour: Annotated[
        str,
        CommandOption(
            "Answers: echo, fixed:TEXT or script:FILE.jsonl.", Heading.ANSWERS, metavar="KIND"
        ),
    ] = "echo"
    model: Annotated[
        tuple[str, ...],
        CommandOption(
            "Model to serve.", Heading.ANSWERS, "-m", metavar="NAME", show_default="every name"
        ),
    ] = ()
    api_key_env: Annotated[
        str | None,
        CommandOption(
            "Variable with the key that requests need; with --record, the endpoint's key.",
            Heading.SERVER,
            metavar="VARIABLE",
        ),
    ] = None
    latency: Annotated[
        str,
        CommandOption(
            "Delay of answers in seconds: a number, uniform:LOW:HIGH, lognormal:MEDIAN:SIGMA or "
            "exponential:MEAN.",
            Heading.ANSWERS,
            metavar="SPEC",
        ),
    ] = "0"
    fault: Annotated[
        tuple[str, ...],
        CommandOption(
            "Inject a fault; `gym docs mock` lists the kinds.",
            Heading.FAULTS,
            metavar="KIND[=RATE][@TEXT]",
        ),
    ] = ()
    seed: Annotated[
        int, CommandOption("Seed of faults, latency and token ids.", Heading.FAULTS)
    ] = 0
    max_in_flight: Annotated[
        int | None,
        Field(ge=1),
        CommandOption("Answer 429 to requests beyond N in flight.", Heading.FAULTS),
    ] = None
    requests_per_minute: Annotated[
        int | None,
        Field(ge=1),
        CommandOption("Answer 429 to requests beyond N a minute.", Heading.FAULTS),
    ] = None
    down_after: Annotated[
        str | None,
        CommandOption(
            "Go down after seconds (s) or requests (r).", Heading.FAULTS, metavar="5s|100r"
        ),
    ] = None
    down_for: Annotated[
        str | None,
        CommandOption("Come back after this time.", Heading.FAULTS, metavar="20s|for-ever"),
    ] = None
    record: Annotated[
        Path | None,
        CommandOption(
            "Forward requests to --base-url and write its answers to this script.",
            Heading.ANSWERS,
            metavar="FILE",
        ),
    ] = None
    base_url: Annotated[
        str | None, CommandOption("Endpoint to record.", Heading.ANSWERS, metavar="URL")
    ] = None
    tokens: Annotated[
        str | None,
        CommandOption(
            "Report token ids as this server does: vllm, token_id, llamacpp or nemo_gym.",
            Heading.ANSWERS,
            metavar="KIND",
        ),
    ] = None
    token_drift: Annotated[
        float,
        Field(ge=0, le=1),
        CommandOption("Share of ids that a later prompt renders differently.", Heading.ANSWERS),
    ] = 0.0
    weight_version: Annotated[
        str,
        CommandOption(
            "Version of the weights to report.",
            Heading.ANSWERS,
            metavar="VERSION",
            show_default=False,
        ),
    ] = ""
    log: Annotated[
        Path | None,
        CommandOption(
            "Append one JSON line per request to this file.", Heading.SERVER, metavar="FILE"
        ),
    ] = None


def mock_server(
    options: MockOptions, *, host: str, port: int, environ: Mapping[str, str]
) -> MockServer:
    """Return a server with these options, which keeps no requests.

    Raises:
        UsageError: An option is wrong, or its variable is not set.
    """
    if options.record and options.tokens:
        raise UsageError(
            f"--record {options.record}: cannot be combined with --tokens {options.tokens}"
        )
    key = _key(options.api_key_env, environ)
    secrets = scrubber_of([key] if key else (), environ)
    return MockServer(
        parse_behaviour(options.behaviour),
        host=host,
        port=port,
        latency=Latency.parse(options.latency),
        keeps_requests=False,
        models=options.model,
        api_key=None if options.record else key,  # a recorder sends it; its clients need none
        seed=options.seed,
        faults=Faults.parse(options.fault),
        max_in_flight=options.max_in_flight,
        requests_per_minute=options.requests_per_minute,
        outage=Outage.parse(options.down_after, options.down_for),
        log=options.log,
        recorder=_recorder(options, key, secrets, environ),
        sampler=TokenSampler.parse(
            options.tokens,
            drift=options.token_drift,
            weight_version=options.weight_version,
            seed=options.seed,
        ),
        secrets=secrets,
    )


def _key(variable: str | None, environ: Mapping[str, str]) -> str | None:
    if variable is None:
        return None
    key = environ.get(variable)
    if not key:
        raise UsageError(f"--api-key-env {variable}: the variable is not set")
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"--api-key-env {variable}: its value cannot be sent in an HTTP header")
    return key


def _recorder(
    options: MockOptions, key: str | None, secrets: Scrubber, environ: Mapping[str, str]
) -> Recorder | None:
    record, base_url = options.record, options.base_url
    if record is None or base_url is None:
        if record is not None:
            raise UsageError(f"--record {record}: needs --base-url, the endpoint to record")
        if base_url is not None:
            raise UsageError("--base-url: needs --record, the file to write")
        return None
    if options.behaviour != "echo":
        raise UsageError(
            f"--record {record}: cannot be combined with --behaviour {options.behaviour}"
        )
    try:
        address = checked_address(base_url, name="the base URL", example="https://host/v1")
    except ValueError as error:
        raise UsageError(f"--base-url: {error}") from None
    proxy = proxy_for(address, environ)
    return Recorder(record, address, api_key=key, proxy=proxy, secrets=secrets)
