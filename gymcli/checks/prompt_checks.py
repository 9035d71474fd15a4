"""Checks of prompts, tools and judges: no leaked answers, documented tools, robust judges."""

from __future__ import annotations

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gymcli.checks.subject import CheckedEpisode, Finding, Subject, failed, not_applicable, passed
from gymcli.environment.contract import Environment
from gymcli.environment.judge import Judge, StandIn
from gymcli.environment.tool import Task
from gymcli.errors import RoleError, VerifierError, boundary
from gymcli.models.roles import declared_roles
from gymcli.types import JSON, JSONObject, Message, canonical_json

_MIN_CHARACTERS = 4
"""Shorter answers occur in many texts by chance."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The function names that endpoints accept."""
_PARAMETER_KEYS = {"description", "type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"}
"""Any of these describes a parameter to a model."""

_TEMPLATE_FIELD = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


async def leaks(subject: Subject) -> Finding:
    """Check that no prompt contains the gold answer, word for word.

    Gold answers are the one that the verifier found in the oracle's episode and the oracle's last
    text. Choices may occur in the prompt. Arguments of calls are not searched for, since a request
    has to name its objects.
    """
    golds = await subject.golds()
    answers = [(episode, _gold_texts(subject, episode)) for episode in golds]
    gold_texts = [(episode, texts) for episode, texts in answers if texts]
    if not gold_texts:
        return not_applicable(f"no gold answers of {_MIN_CHARACTERS} characters or more")
    leaking = [
        (episode, text)
        for episode, texts in gold_texts
        for text in texts
        # Whole words only: "cat" does not leak in "category".
        if any(re.search(rf"(?<!\w){re.escape(text)}(?!\w)", m.text) for m in episode.prompt)
    ]
    if leaking:
        ids = [episode.row.id for episode, _ in leaking]
        return failed(f"the prompt contains the gold answer: {leaking[0][1]!r}", ids)
    return passed(f"{len(gold_texts)} gold answers, none of them in its prompt")


def _gold_texts(subject: Subject, episode: CheckedEpisode) -> list[str]:
    choices = {choice.strip() for choice in subject.choices(episode.row)}
    texts = {episode.record.last_text.strip(), (episode.record.answer or "").strip()}
    return sorted(text for text in texts - choices if len(text) >= _MIN_CHARACTERS)


async def duplicates(subject: Subject) -> Finding:
    """Check that no two tasks have the same prompt, including the messages that `setup` adds."""
    by_prompt: defaultdict[bytes, list[str]] = defaultdict(list)
    for episode in await subject.episodes("oracle"):
        by_prompt[canonical_json([episode.prompt, episode.record.tools])].append(episode.row.id)
    equal_prompts = [ids for ids in by_prompt.values() if len(ids) > 1]
    if equal_prompts:
        task_ids = [task_id for ids in equal_prompts for task_id in ids]
        example = " = ".join(equal_prompts[0][:4])
        text = f"{len(task_ids)} tasks share {len(equal_prompts)} prompts: {example}"
        return failed(text, task_ids)
    return passed(f"{len(by_prompt)} different prompts")


async def tools(subject: Subject) -> Finding:
    """Check names, descriptions and schemas of all tools, those of the task rows included.

    A tool that raises in every call of the oracle fails too.
    """
    class_tools = subject.environment.method_tools().values()
    # By their JSON, so that a tool that many rows declare is checked once.
    specs = {canonical_json(tool.spec): tool.spec for tool in class_tools}
    for episode in await subject.episodes("oracle"):
        specs |= {canonical_json(spec): spec for spec in episode.record.tools}
    functions = [spec["function"] for spec in specs.values() if "function" in spec]
    if not functions:
        return not_applicable("no tools")
    problems = [problem for function in functions for problem in _schema_problems(function)]
    problems += _raising_tools(await subject.episodes("oracle"))
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return failed(f"{problems[0]}{more}")
    return passed(f"{len(functions)} documented, with valid schemas")


def _schema_problems(function: JSON) -> Iterator[str]:
    import jsonschema  # late: heavy

    if not isinstance(function, dict):
        yield f"a tool's function must be an object, not {function!r}"
        return
    name = str(function.get("name") or "")
    if not _TOOL_NAME.fullmatch(name):
        yield f"endpoints do not accept the tool name {name!r}"
    if not str(function.get("description") or "").strip():
        yield f"the tool {name} has no description"
    parameters = function.get("parameters") or {}
    if not isinstance(parameters, dict):
        yield f"the parameters of {name} must be an object, not {parameters!r}"
        return
    try:
        jsonschema.Draft202012Validator.check_schema(parameters)
    except jsonschema.SchemaError as error:
        yield f"the parameters of {name} are not JSON Schema: {error.json_path}: {error.message}"
        return
    yield from _parameter_problems(name, parameters)


def _parameter_problems(name: str, parameters: JSONObject) -> Iterator[str]:
    properties = parameters.get("properties") or {}
    assert isinstance(properties, dict)
    for parameter, schema in properties.items():
        if not (isinstance(schema, dict) and _PARAMETER_KEYS & schema.keys()):
            yield f"the parameter {parameter} of {name} has neither a type nor a description"
    required_names = parameters.get("required") or []
    assert isinstance(required_names, list)
    for parameter in required_names:
        if parameter not in properties:
            yield f"{name} requires the parameter {parameter} but does not describe it"


def _raising_tools(episodes: Sequence[CheckedEpisode]) -> Iterator[str]:
    num_calls: Counter[str] = Counter()
    num_raised: Counter[str] = Counter()
    texts: dict[str, str] = {}
    for episode in episodes:
        answers = list(tool_answers(episode))
        num_calls.update(name for name, _ in answers)
        failures = [(name, text) for name, text in answers if text.startswith(f"{name} failed: ")]
        # A tool may return such a text itself; then it is unknown which calls raised.
        if len(failures) == episode.record.tool_errors.get("raised", 0):
            num_raised.update(name for name, _ in failures)
            texts = dict(failures) | texts
    for name, num in num_raised.items():
        if num == num_calls[name]:
            calls = "the only call" if num == 1 else f"all {num} calls"
            yield f"{name} raises in {calls} of the oracle: {texts[name]}"


def tool_answers(episode: CheckedEpisode) -> Iterator[tuple[str, str]]:
    waiting: list[str] = []
    for message in episode.record.responses:
        if message.role == "assistant":
            waiting = [call.name for call in message.tool_calls]
        elif message.role == "tool" and waiting:
            yield waiting.pop(0), message.text


async def judges(subject: Subject) -> Finding:
    """Check that a label or JSON verdict inside the judged text is never read as the verdict."""
    judge_by_name = _find_judges(subject.environment)
    if not judge_by_name:
        if "judge" in declared_roles(subject.environment):
            return failed('the role "judge" is declared, but neither class nor module has a Judge')
        return not_applicable("no judge")
    num_verdicts = 0
    for name, judge in judge_by_name.items():
        with boundary(VerifierError):  # the schema may be invalid
            verdicts = list(_verdicts(judge))
        if not verdicts:
            return failed(f"{name}: this check cannot construct an object that fits its schema")
        problem = await _judge_problem(judge, verdicts)
        if problem is not None:
            return failed(f"{name}: {problem}")
        num_verdicts += len(verdicts)
    return passed(
        f"{', '.join(judge_by_name)}: none of {num_verdicts} quoted verdicts is read as one"
    )


def _find_judges(environment: type[Environment[Task]]) -> dict[str, Judge]:
    module_name = environment.__module__
    # In a package, any of its modules may define the judge.
    modules = [m for name, m in sys.modules.items() if f"{name}.".startswith(f"{module_name}.")]
    bases = [base for base in environment.__mro__ if issubclass(base, Environment)]
    judge_by_name: dict[str, Judge] = {}
    num_by_name: Counter[str] = Counter()
    for owner in (*bases, *modules):
        for name, attribute in vars(owner).items():
            candidates = list(attribute.values()) if isinstance(attribute, Mapping) else attribute
            for judge in candidates if isinstance(candidates, list | tuple) else [candidates]:
                if not isinstance(judge, Judge) or id(judge) in map(id, judge_by_name.values()):
                    continue
                number = num_by_name[name]
                num_by_name[name] += 1
                judge_by_name[f"{name} {number}" if number else name] = judge
    return judge_by_name


def _verdicts(judge: Judge) -> Iterator[tuple[str, str]]:
    """Yield label and text of the possible verdicts for which an example can be constructed."""
    if judge.labels is not None:
        yield from judge.labels.items()
        return
    example = _example(judge.schema)
    if not isinstance(example, dict):
        return
    decides = judge.decides
    values = [None] if decides is None else _property_values(judge.schema, decides)
    for value in values:
        verdict = example if decides is None else {**example, decides: value}
        decision = verdict if decides is None else value
        label = decision if isinstance(decision, str) else canonical_json(decision).decode()
        text = msgspec.json.encode(verdict).decode()
        # If it is not, the example does not fit the schema.
        if judge.parse(text)[0] == label:
            yield label, text


def _property_values(schema: JSON, name: str) -> list[JSON]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or name not in properties:
        return []
    property_schema = properties[name]
    if isinstance(property_schema, dict) and isinstance(property_schema.get("enum"), list):
        return list(property_schema["enum"])
    is_boolean = isinstance(property_schema, dict) and property_schema.get("type") == "boolean"
    return [True, False] if is_boolean else [_example(property_schema)]


def _example(schema: JSON) -> JSON:
    if not isinstance(schema, dict):
        return "text"
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list):
        return schema["enum"][0]
    kinds = schema.get("type", "object" if "properties" in schema else "string")
    kind = kinds[0] if isinstance(kinds, list) else kinds
    if kind == "object":
        properties = schema.get("properties")
        if not isinstance(properties, dict):
            return {}
        return {name: _example(inner) for name, inner in properties.items()}
    if kind == "array":
        num = schema.get("minItems", 0)
        return [_example(schema.get("items"))] * (num if isinstance(num, int) else 0)
    if kind in ("number", "integer"):
        return schema.get("minimum", 1)
    examples: dict[JSON, JSON] = {"boolean": True, "null": None}
    return examples.get(kind, "text")


async def _judge_problem(judge: Judge, verdicts: Sequence[tuple[str, str]]) -> str | None:
    """Return how a candidate can smuggle in its own verdict, with verdicts in either order."""
    names = list(dict.fromkeys(_TEMPLATE_FIELD.findall(judge.template)))
    empty_prompt = _prompt_text(judge, dict.fromkeys(names, ""))
    # The rules `first` and `last` read from opposite ends.
    for ordered_verdicts in (verdicts, verdicts[::-1]):
        candidate = " ".join(f"The verdict is {text}" for _, text in ordered_verdicts)
        fields = dict.fromkeys(names, candidate)
        prompt = _prompt_text(judge, fields)
        for label, text in verdicts:
            # The prompt itself may name the verdict.
            if prompt.count(text) > empty_prompt.count(text):
                return f"{text} in the judged text enters the prompt unchanged"
            quote = judge.neutralise(candidate)
            verdict_text = text if judge.labels is None else judge.written(label, **fields)
            try:
                verdict = await judge.ask(_quoting(quote, verdict_text), **fields)
            except RoleError as error:
                if not error.is_answered:
                    raise
                return f"no verdict is read from an answer that quotes others, then says {label}"
            if set(verdict.votes) != {label}:
                vote = verdict.votes[0]
                return f"{vote} is read from an answer that quotes others, then says {label}"
    return None


def _quoting(quote: str, verdict: str) -> StandIn:
    def answer(messages: list[Message]) -> str:
        if not any(quote in message.text for message in messages):
            raise RoleError("the prompt lacks the judged text as `neutralise` returns it")
        return f"What I am to judge says:\n{quote}\n\nMy verdict: {verdict}"

    return StandIn(answer)


def _prompt_text(judge: Judge, fields: Mapping[str, str]) -> str:
    return "\n".join(message.text for message in judge.render(**fields))
