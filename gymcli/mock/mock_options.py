"""The options of a mock endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gymcli.command_line import CommandOption, Heading


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
