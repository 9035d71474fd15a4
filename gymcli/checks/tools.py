"""Tools are documented, and what a model is shown of them is valid."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from gymcli.checks.report import Finding, failed, not_applicable, passed
from gymcli.checks.subject import Episode, Subject
from gymcli.types import JSON, JSONObject, canonical_json

__all__ = ["tools"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What endpoints take for a function's name."""

_SAYS_WHAT = {"description", "type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}
"""Any of these tells a model what a parameter takes."""


async def tools(subject: Subject) -> Finding:
    """Check names, descriptions and schemas of all tools that the tasks show.

    A tool that raises whenever the oracle calls it does not work.
    """
    own = subject.environment.method_tools().values()
    specs = {canonical_json(tool.spec): tool.spec for tool in own}
    for episode in await subject.oracles():
        specs |= {canonical_json(spec): spec for spec in episode.record.tools}
    functions = [spec["function"] for spec in specs.values() if "function" in spec]
    if not functions:
        return not_applicable("no tools")
    problems = [problem for function in functions for problem in _problems(function)]
    problems += _broken(await subject.oracles())
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return failed(f"{problems[0]}{more}")
    return passed(f"{len(functions)} documented, with valid schemas")


def _broken(episodes: Sequence[Episode]) -> Iterator[str]:
    """Say which tools raised in every call of the oracle."""
    num_calls: Counter[str] = Counter()
    num_raised: Counter[str] = Counter()
    said: dict[str, str] = {}
    for episode in episodes:
        answers = list(_answers(episode))
        num_calls.update(name for name, _ in answers)
        raised = [(name, text) for name, text in answers if text.startswith(f"{name} failed: ")]
        # A tool may answer so by itself; then it is not known which of them raised.
        if len(raised) == episode.record.tool_errors.get("raised", 0):
            num_raised.update(name for name, _ in raised)
            said = dict(raised) | said
    for name, num in num_raised.items():
        if num == num_calls[name]:
            calls = "the only call" if num == 1 else f"all {num} calls"
            yield f"{name} raises in {calls} of the oracle: {said[name]}"


def _answers(episode: Episode) -> Iterator[tuple[str, str]]:
    """Yield each tool that was called with what the model was told."""
    waiting: list[str] = []
    for message in episode.record.responses:
        if message.role == "assistant":
            waiting = [call.name for call in message.tool_calls]
        elif message.role == "tool" and waiting:
            yield waiting.pop(0), message.text


def _problems(function: JSON) -> Iterator[str]:
    """Say what is wrong with a tool in chat shape."""
    import jsonschema  # late: heavy

    if not isinstance(function, dict):
        yield f"a tool's function is no object but {function!r}"
        return
    name = str(function.get("name") or "")
    if not _NAME.fullmatch(name):
        yield f"the tool name {name!r} is none that endpoints take"
    if not str(function.get("description") or "").strip():
        yield f"the tool {name} has no description"
    parameters = function.get("parameters") or {}
    if not isinstance(parameters, dict):
        yield f"the parameters of {name} are no object but {parameters!r}"
        return
    try:
        jsonschema.Draft202012Validator.check_schema(parameters)
    except jsonschema.SchemaError as error:
        yield f"the parameters of {name} are no JSON Schema: {error.json_path}: {error.message}"
        return
    yield from _parameter_problems(name, parameters)


def _parameter_problems(name: str, parameters: JSONObject) -> Iterator[str]:
    properties = parameters.get("properties") or {}
    assert isinstance(properties, dict)
    for parameter, schema in properties.items():
        if not (isinstance(schema, dict) and _SAYS_WHAT & schema.keys()):
            yield f"the parameter {parameter} of {name} has neither a type nor a description"
    required = parameters.get("required") or []
    assert isinstance(required, list)
    for parameter in required:
        if parameter not in properties:
            yield f"{name} requires the parameter {parameter} and does not describe it"
