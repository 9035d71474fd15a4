"""`gym mock`: an OpenAI-compatible server on this machine that can be scripted and made to fail."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gymcli.commands.console import announce, warn
from gymcli.commands.open_files import MOST_OPEN_FILES, allow_open_files
from gymcli.commands.options import HostOption, PortOption
from gymcli.commands.signals import run_async
from gymcli.errors import UsageError
from gymcli.runner.run_options import Heading
from gymcli.secrets import scrubber_of

if TYPE_CHECKING:
    from gymcli.mock import Recorder
    from gymcli.secrets import Scrubber


def mock(
    behaviour: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="Answers: echo, fixed:TEXT or script:FILE.jsonl.",
            rich_help_panel=Heading.ANSWERS,
        ),
    ] = "echo",
    host: HostOption = "127.0.0.1",
    port: PortOption = 0,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="Model to serve.",
            show_default="every name",
            rich_help_panel=Heading.ANSWERS,
        ),
    ] = None,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            metavar="VARIABLE",
            help="Variable with the key that requests need; with --record, the endpoint's key.",
            rich_help_panel=Heading.SERVER,
        ),
    ] = None,
    latency: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="Delay of answers in seconds: a number, uniform:LOW:HIGH, lognormal:MEDIAN:SIGMA "
            "or exponential:MEAN.",
            rich_help_panel=Heading.ANSWERS,
        ),
    ] = "0",
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND[=RATE][@TEXT]",
            help="Inject a fault; `gym docs mock` lists the kinds.",
            rich_help_panel=Heading.FAULTS,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(help="Seed of faults, latency and token ids.", rich_help_panel=Heading.FAULTS),
    ] = 0,
    max_in_flight: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Answer 429 to requests beyond N in flight.",
            rich_help_panel=Heading.FAULTS,
        ),
    ] = None,
    requests_per_minute: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Answer 429 to requests beyond N a minute.",
            rich_help_panel=Heading.FAULTS,
        ),
    ] = None,
    down_after: Annotated[
        str | None,
        typer.Option(
            metavar="5s|100r",
            help="Go down after seconds (s) or requests (r).",
            rich_help_panel=Heading.FAULTS,
        ),
    ] = None,
    down_for: Annotated[
        str | None,
        typer.Option(
            metavar="20s|for-ever",
            help="Come back after this time.",
            rich_help_panel=Heading.FAULTS,
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Forward requests to --base-url and write its answers to this script.",
            rich_help_panel=Heading.ANSWERS,
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Endpoint to record.", rich_help_panel=Heading.ANSWERS),
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Report token ids as this server does: vllm, token_id, llamacpp or nemo_gym.",
            rich_help_panel=Heading.ANSWERS,
        ),
    ] = None,
    token_drift: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of ids that a later prompt renders differently.",
            rich_help_panel=Heading.ANSWERS,
        ),
    ] = 0.0,
    weight_version: Annotated[
        str,
        typer.Option(
            metavar="VERSION",
            help="Version of the weights to report.",
            show_default=False,
            rich_help_panel=Heading.ANSWERS,
        ),
    ] = "",
    log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Append one JSON line per request to this file.",
            rich_help_panel=Heading.SERVER,
        ),
    ] = None,
    with_parent: Annotated[
        bool,
        typer.Option(
            "--with-parent",
            help="Also stop when stdin closes.",
            rich_help_panel=Heading.SERVER,
        ),
    ] = False,
) -> None:
    """Serve an endpoint without a model that fails on demand.

    Prints its base URL on stdout. SIGTERM or Ctrl-C stops it with exit code 0; SIGUSR1 brings it
    back when it is down. Which requests fail depends only on the seed and the requests, not on
    their order. GET /stats returns counts; POST /down?seconds=N takes it down.
    """
    from gymcli.environment.addresses import is_loopback
    from gymcli.mock import (
        Faults,
        Latency,
        MockServer,
        Outage,
        TokenSampler,
        parse_behaviour,
        serve,
    )

    if record and tokens:
        raise UsageError(f"--record {record}: cannot be combined with --tokens {tokens}")
    key = _key(api_key_env)
    secrets = scrubber_of([key] if key else (), os.environ)
    server = MockServer(
        parse_behaviour(behaviour),
        host=host,
        port=port,
        latency=Latency.parse(latency),
        keeps_requests=False,
        models=model or (),
        api_key=None if record else key,  # a recorder sends it; its clients need none
        seed=seed,
        faults=Faults.parse(fault or ()),
        max_in_flight=max_in_flight,
        requests_per_minute=requests_per_minute,
        outage=Outage.parse(down_after, down_for),
        log=log,
        recorder=_recorder(record, base_url, key, behaviour, secrets),
        sampler=TokenSampler.parse(
            tokens, drift=token_drift, weight_version=weight_version, seed=seed
        ),
        secrets=secrets,
    )
    if not is_loopback(host):
        warn(f"--host {host}: other machines may reach the server")
    allow_open_files(MOST_OPEN_FILES)
    run_async(serve(server, announce, with_parent=with_parent))


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"--api-key-env {variable}: the variable is not set")
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"--api-key-env {variable}: its value cannot be sent in an HTTP header")
    return key


def _recorder(
    record: Path | None, base_url: str | None, key: str | None, behaviour: str, secrets: Scrubber
) -> Recorder | None:
    from gymcli.environment.addresses import checked_address
    from gymcli.mock import Recorder
    from gymcli.models.settings import proxy_for

    if record is None or base_url is None:
        if record is not None:
            raise UsageError(f"--record {record}: needs --base-url, the endpoint to record")
        if base_url is not None:
            raise UsageError("--base-url: needs --record, the file to write")
        return None
    if behaviour != "echo":
        raise UsageError(f"--record {record}: cannot be combined with --behaviour {behaviour}")
    try:
        address = checked_address(base_url, name="the base URL", example="https://host/v1")
    except ValueError as error:
        raise UsageError(f"--base-url: {error}") from None
    proxy = proxy_for(address, os.environ)
    return Recorder(record, address, api_key=key, proxy=proxy, secrets=secrets)
