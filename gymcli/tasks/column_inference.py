"""Infers from the names of a table's columns how its rows become tasks.

Two shapes are known: a multiple-choice table (question, options, answer), whose rows are those of
the environment `mcqa`, and a table of questions and answers, for the environment that is named.
Every other column becomes a field of its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from string import ascii_uppercase
from typing import NamedTuple, cast

import msgspec
from pydantic import ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema

from gymcli.environment.registry import Registration
from gymcli.errors import UsageError
from gymcli.tasks.column_conversions import CONVERSIONS, listed_options
from gymcli.tasks.row_map import TableMap, column_value, is_empty, with_prompt
from gymcli.tasks.table_files import SourceTable, local_rows, table_columns
from gymcli.tasks.task_row import PromptTemplate, listed
from gymcli.types import JSON, JSON_ERRORS, JSONObject

CHOICE_ENV = "mcqa"
"""The environment of multiple-choice tables."""
RowDefaults = Mapping[str, JSONObject]
"""Fields by the environment that a row names; empty: it names none."""
TABLE_DEFAULTS: Mapping[str, JSONObject] = {
    CHOICE_ENV: {"grading_mode": "letter"},
    "string_match": {"near": False},
}
"""Fields of tables whose defaults differ from those of NeMo Gym's rows."""
_CHOICE_PROMPT = "{question}\n\n{choices}\n\nPut the letter in \\boxed{{}}."
_ANSWER_PROMPTS = {
    "math_with_judge": "{question}\n\nPut your final answer in \\boxed{{}}.",
    "string_match": '{question}\n\nEnd with a line that says "Final answer:" and the answer.',
}
"""Prompts for environments that read an answer only where it is marked."""

_QUESTIONS = ("prompt", "question", "input", "query", "problem", "instruction")
_ANSWERS = (
    "expected_answer",
    "answer",
    "correct_answer",
    "answer_key",
    "answerkey",
    "correct",
    "expected",
    "target",
    "gold",
    "label",
    "ground_truth",
)
"""Names of columns, and of the fields of environments, that hold the right answer."""
_LISTS = ("options", "choices")
_OPTION_TEXTS = ("text", "content", "value")
_OPTION_LABELS = ("label", "key", "letter", "id")
"""Names in options that have a text and a label each, as those of ARC."""
_OPTION = re.compile(r"(option|choice|opt|)_?([a-z]|\d)", re.ASCII)
_READ_AS = {
    "letter_of": "letters",
    "letter_in": "texts",
    "letter_from_0": "positions from 0",
    "letter_from_1": "positions from 1",
}
"""How answers may name an option: conversions with what they read."""
_CONTROLS: Mapping[str, str] = {
    "id": "strip",
    "task_id": "strip",
    "uuid": "strip",
    "env": "strip",
    "prompt": "",
    "max_turns": "number",
    "messages": "json",
    "tools": "json",
    "params": "json",
    "agent_ref": "json",
    "responses_create_params": "json",
}
"""The names in a row that no environment declares, with the conversion of a text."""
_PROMPTS = ("responses_create_params", "messages", "prompt")
_NOT_RAW = (*_PROMPTS, "agent_ref", "resolved_row")
"""Fields of rows that have a prompt, or leave it to their environment."""

_NUM_HEAD_ROWS = 1000
"""How many rows of a table are held while its map is inferred."""

_Source = str | tuple[str, ...]
"""A column or a path into one; several are a list of their values."""


class _Field(NamedTuple):
    source: _Source
    conversion: str = ""
    options: _Source = ()
    """Where the options are whose letter the conversion finds."""

    def converted(self, value: JSON, row: Mapping[str, object]) -> JSON:
        if not self.conversion:
            return value
        options = _source_value(row, self.options) if self.options else None
        try:
            return CONVERSIONS[self.conversion](value, options)
        except ValueError as error:
            column = (
                f'column "{self.source}"'
                if isinstance(self.source, str)
                else f"columns {listed(self.source)}"
            )
            raise ValueError(f"{column}: {self.conversion}: {error}") from error


_Fields = dict[str, _Field]


class InferredMap(NamedTuple):
    """How the rows of a table become tasks."""

    fields: _Fields
    template: PromptTemplate | None = None
    env: str | None = None
    """The environment that the columns imply, which has multiple-choice questions."""
    note: str = ""
    """Which columns became fields of another name, in words."""

    def task(self, row: Mapping[str, object]) -> JSONObject:
        """Return the task row, without fields whose column is empty.

        Raises:
            ValueError: A column is missing or cannot be converted.
        """
        fields: JSONObject = {}
        for name, field in self.fields.items():
            value = _source_value(row, field.source)
            if not is_empty(value):
                fields[name] = field.converted(value, row)
        return with_prompt(fields, self.template)

    @property
    def yaml(self) -> str | None:
        """The map as a YAML file in one line, which strips no ids; None if it converts values."""
        fields = self.fields.items()
        if not all(field.conversion in ("", "strip") for _, field in fields):
            return None
        prompt = {"user": self.template.user} if self.template else {}
        content = {"fields": {name: field.source for name, field in fields}, "drop_empty": True}
        return msgspec.json.encode(content | prompt).decode()


def _source_value(row: Mapping[str, object], source: _Source) -> JSON:
    if isinstance(source, str):
        return column_value(row, source)
    values = [column_value(row, path) for path in source]
    while values and is_empty(values[-1]):  # a table has cells for the longest list
        values.pop()
    return values


def mapped_file(
    table_map: TableMap, defaults: RowDefaults, path: Path
) -> Iterator[tuple[int, JSONObject | str]]:
    """Yield the task rows of a file, each with its number; see `set_defaults`."""
    for _, number, row in table_map([SourceTable(str(path), local_rows(path))]):
        if isinstance(row, dict):
            set_defaults(row, defaults)
        yield number, row


def table_defaults(
    env: str | None, find: Callable[[str], Registration], *, has_choices: bool = True
) -> RowDefaults:
    """Return the fields that rows of tables have unless they say otherwise.

    Args:
        env: The environment of rows that name none.
        find: Finds an environment by its name.
        has_choices: Whether multiple-choice questions are among them that a map made.
    """
    defaults: dict[str, JSONObject] = {}
    for name, fields in TABLE_DEFAULTS.items():
        if name == CHOICE_ENV and not has_choices:
            continue
        environment = find(name).environment
        if not fields.keys() <= environment.Task.model_fields.keys():
            continue  # the name is that of a server, which has its own rules
        defaults[name] = fields
        if env is not None and issubclass(find(env).environment, environment):
            defaults[""] = fields
    return defaults


def set_defaults(row: JSONObject, defaults: RowDefaults) -> None:
    """Add the default fields of its environment to a row, unless it is a row of NeMo Gym."""
    is_nemo = "responses_create_params" in row or "agent_ref" in row
    env = row.get("env") or ""
    if not is_nemo and isinstance(env, str):
        for name, value in defaults.get(env, {}).items():
            row.setdefault(name, value)


def infer_map(
    path: Path,
    env: str | None,
    find: Callable[[str], Registration],
    *,
    has_template: bool,
    id_field: str | None = None,
) -> InferredMap:
    """Infer the map of a table from its columns and its environment.

    Args:
        path: The table.
        env: The environment of rows that name none.
        find: Finds an environment by its name.
        has_template: Whether the prompts come from a template.
        id_field: The column with the ids; None: `task_id`, `id` or `uuid`.

    Raises:
        UsageError: The table cannot be read, or its columns do not say how they become tasks.
    """
    table = _Table(path, id_field)
    env = env or table.only_env()
    registration = None if env is None else find(env)
    takes_choices = registration is None or issubclass(
        registration.environment, find(CHOICE_ENV).environment
    )
    if takes_choices and table.is_choice():
        env = CHOICE_ENV if registration is None else registration.name
        return _choice_map(table, env, has_template=has_template)
    if registration is None:
        if has_template or any(name in table.columns for name in _PROMPTS):
            return InferredMap(table.plain({}))  # rows that may name their own environments
        if isinstance(options := table.option_columns, str):
            raise table.unclear(f'"{options}" holds no JSON list of options, such as ["yes", "no"]')
        if table.find(_QUESTIONS) and table.find(_ANSWERS):
            raise table.unclear(
                "has questions and answers, but no environment to score them",
                "name it, as in --env string_match, or say what the columns are with --map FILE",
            )
        raise table.unclear("has no columns with a question and its answer")
    return _answer_map(table, registration, has_template=has_template)


def refuse_raw_rows(path: Path, env: str | None, find: Callable[[str], Registration]) -> None:
    """Raise UsageError for JSON Lines whose first row has a question, but no prompt.

    They are not mapped unasked, as a table is: a row of this shape is for a prompt file.
    """
    if ".jsonl" not in path.suffixes:
        return
    number, row = next(local_rows(path), (0, ""))
    if isinstance(row, str) or not row.keys().isdisjoint(_NOT_RAW):
        return
    names = {name.casefold() for name in row}
    if names.isdisjoint(_QUESTIONS) or (env is None and names.isdisjoint(_ANSWERS)):
        return
    inferred = infer_map(path, env, find, has_template=False)
    yaml = inferred.yaml
    remedy = (
        "--map FILE.py:FUNCTION: `gym docs data` has an example"
        if yaml is None
        else f"--map FILE with this map in it: {yaml}"
    )
    raise UsageError(f"{path}:{number}: has no prompt; use --prompt FILE, or {remedy}")


class _Table:
    """A table's columns, and the values that tell how to read them."""

    def __init__(self, path: Path, id_field: str | None) -> None:
        self.path = path
        self.id_field = id_field
        self._head = list(islice(_good_rows(path), _NUM_HEAD_ROWS))
        self.columns = (
            [name for name in self._head[0] if name.strip()] if self._head else table_columns(path)
        )
        self.by_name: dict[str, str] = {}
        """Columns by their names in lower case, with underscores."""
        for column in self.columns:
            name = re.sub(r"[\s-]+", "_", column.strip().casefold())
            if self.by_name.setdefault(name, column) != column:
                names = " ".join(f"{self.by_name[name]} and {column}".split())
                raise UsageError(f"{path}: the columns {names} differ too little; rename one")
        self.option_columns, self.option_labels = self._option_columns()

    def rows(self) -> Iterator[dict[str, object]]:
        """Yield the rows that can be read; those of a long table are read again."""
        yield from self._head
        if len(self._head) == _NUM_HEAD_ROWS:
            yield from islice(_good_rows(self.path), _NUM_HEAD_ROWS, None)

    def find(self, names: Sequence[str]) -> list[str]:
        """Return the columns with one of these names."""
        return [self.by_name[name] for name in names if name in self.by_name]

    def one(self, names: Sequence[str], purpose: str) -> str | None:
        """Return the column with one of these names; raise UsageError if there are several."""
        columns = self.find(names)
        if len(columns) > 1:
            raise self.unclear(f"{' and '.join(columns)} may both be the {purpose}")
        return columns[0] if columns else None

    def only_env(self) -> str | None:
        """Return the environment that every row names."""
        if "env" not in self.columns:
            return None
        envs = (row.get("env") for row in self.rows())
        names = {env.strip() if isinstance(env, str) else "" for env in envs}
        return names.pop() or None if len(names) == 1 else None

    def is_choice(self) -> bool:
        """Return whether this is a multiple-choice table."""
        if self.option_columns is None or not self.find(_QUESTIONS) or not self.find(_ANSWERS):
            return False
        if isinstance(self.option_columns, tuple):
            return True
        # In rows of mcqa itself, each option is an object with its letter.
        first = self._first_options()
        return bool(first) and not any(isinstance(item, dict) for item in first)

    def holds(self, column: str, kind: type | tuple[type, ...]) -> bool:
        """Return whether the first value of a column that is not empty is of a kind."""
        return isinstance(self._first_values.get(column), kind)

    @cached_property
    def _first_values(self) -> dict[str, object]:
        """The first value of each column that is not empty."""
        values: dict[str, object] = {}
        for row in self.rows():
            new = {name: value for name, value in row.items() if name not in values}
            values |= {name: value for name, value in new.items() if value not in (None, "")}
            if len(values) == len(self.columns):
                break
        return values

    def _first_options(self) -> list[JSON]:
        options = self.option_columns
        assert isinstance(options, str)
        for row in self.rows():
            with suppress(ValueError):
                if items := listed_options(column_value(row, options)):
                    return items
        return []

    def _option_columns(self) -> tuple[_Source | None, str | None]:
        """Return where the options are, and their labels if these are not the letters."""
        columns_by_prefix: dict[str, dict[str, str]] = {}
        for name, column in self.by_name.items():
            if match := _OPTION.fullmatch(name):
                columns_by_prefix.setdefault(match[1] or "", {})[match[2]] = column
        for prefix, columns in columns_by_prefix.items():
            numbers = ("0123456789", "123456789") if prefix else ()
            for names in ("abcdefghijklmnopqrstuvwxyz", *numbers):
                run = [columns[name] for name in names if name in columns]
                if len(run) > 1 and all(name in columns for name in names[: len(run)]):
                    return tuple(run), None
        lists = self.find(_LISTS)
        return self._nested_options(lists[0]) if lists else (None, None)

    def _nested_options(self, column: str) -> tuple[_Source, str | None]:
        """Return the same of a list, a list of objects, an object of lists or one with letters."""
        value = self._first_values.get(column)
        if isinstance(value, str):
            with suppress(*JSON_ERRORS):
                value = msgspec.json.decode(value)
        if "." in column or not value:
            return column, None
        names = value[0] if isinstance(value, list) else value
        if not isinstance(names, dict):
            return column, None
        text_name = next((name for name in _OPTION_TEXTS if name in names), None)
        label_name = next((name for name in _OPTION_LABELS if name in names), None)
        if text_name is not None:
            return f"{column}.{text_name}", label_name and f"{column}.{label_name}"
        letters = sorted(names, key=str.upper)
        is_lettered = "".join(letters).upper() == ascii_uppercase[: len(letters)]
        # In a list, each option is an object with its letter: rows of mcqa itself.
        if is_lettered and len(letters) > 1 and names is value:
            return tuple(f"{column}.{letter}" for letter in letters), None
        return column, None

    def plain(self, fields: _Fields, *, without: Sequence[str] = ()) -> _Fields:
        """Return these fields, and every other column under its own name."""
        other_fields: _Fields = {}
        for column in self.columns:
            name = column.strip()
            if column not in without and name not in fields:
                other_fields[name] = _Field(column, self.conversion(name, column))
        return {**other_fields, **fields}

    def conversion(self, name: str, column: str) -> str:
        """Return the conversion of a column's texts into a field of the row itself; "" for none."""
        conversion = "strip" if column == self.id_field else _CONTROLS.get(name, "")
        return conversion if self.holds(column, str) else ""

    def unclear(
        self, reason: str, remedy: str = "say what the columns are with --map FILE"
    ) -> UsageError:
        """Return the error for columns that do not say how they become tasks."""
        text = f"{reason} (columns: {listed(self.columns)}); {remedy}"
        one_line = " ".join(text.split())  # a name may have several lines
        return UsageError(f"{self.path}: {one_line}: `gym docs data` has an example of a map")


def _good_rows(path: Path) -> Iterator[dict[str, object]]:
    return (row for _, row in local_rows(path) if not isinstance(row, str))


def _choice_map(table: _Table, env: str, *, has_template: bool) -> InferredMap:
    question, answer = table.one(_QUESTIONS, "question"), table.one(_ANSWERS, "answer")
    options = table.option_columns
    assert question is not None
    assert answer is not None
    assert options is not None
    conversion, place, read_as = _answer_reading(table, answer, options)
    fields: _Fields = {
        "question": _Field(question),
        "choices": _Field(options, "lettered"),
        "options": _Field(options, "letters"),
        "expected_answer": _Field(answer, conversion, place),
    }
    for name in ("id", "task_id", "uuid"):
        if name in table.by_name:
            column = table.by_name[name]
            fields[name] = _Field(column, table.conversion(name, column))
    used = {name for field in fields.values() for name in _names(field.source)}
    used |= {name.rpartition(".")[0] for name in _names(options) if name not in table.columns}
    fields = table.plain(fields, without=[*used])
    option_text = options if isinstance(options, str) else f"{options[0]}-{options[-1]}"
    field_by_column = {
        question: "question" if has_template else "prompt",
        option_text: "options",
        f"{answer} ({read_as})": "expected_answer",
    }
    renamed = [f"{column} → {name}" for column, name in field_by_column.items() if column != name]
    template = None if has_template else PromptTemplate(_CHOICE_PROMPT)
    return InferredMap(fields, template, env, _note(renamed, env))


def _note(renamed: Sequence[str], env: str) -> str:
    return " ".join(f"{', '.join(renamed)} (environment {env})".split())


def _names(source: _Source) -> tuple[str, ...]:
    return (source,) if isinstance(source, str) else source


def _answer_reading(table: _Table, answer: str, options: _Source) -> tuple[str, _Source, str]:
    """Return the conversion that reads most answers, its options, and what it reads, in words.

    All readings that do so must agree on the letters, unless the options have labels.
    """
    letters: dict[str, list[JSON]] = {name: [] for name in _READ_AS}
    letters_of_labels: list[JSON] = []
    example: JSON = None
    sources = (answer, options, table.option_labels or ())
    for row in table.rows():
        try:
            value, items, labels = (_source_value(row, source) for source in sources)
        except (ValueError, RecursionError):  # listed with its line when it is read as a task
            continue
        if is_empty(value):
            continue
        example = value if example is None else example
        for name, read_letters in letters.items():
            read_letters.append(_letter_or_none(name, value, items))
        letters_of_labels.append(_letter_or_none("letter_in", value, labels))
    num_read = {
        name: len(read_letters) - read_letters.count(None) for name, read_letters in letters.items()
    }
    max_read = max(num_read.values())
    best = [name for name, num in num_read.items() if num == max_read]
    num_labels = len(letters_of_labels) - letters_of_labels.count(None)
    if 2 * max(max_read, num_labels) < len(letters_of_labels):
        raise table.unclear(
            f'"{answer}" holds neither letters nor positions nor texts of the options: '
            f"{example!r:.60}"
        )
    if table.option_labels is not None and num_labels >= max_read:
        return "letter_in", table.option_labels, "labels"
    if any(letters[name] != letters[best[0]] for name in best):
        readings = " or ".join(_READ_AS[name] for name in best)
        raise table.unclear(
            f'"{answer}" may hold {readings}',
            "write letters, or say which with --map FILE.py:FUNCTION",
        )
    return best[0], options, _READ_AS[best[0]]


def _letter_or_none(conversion: str, answer: JSON, options: JSON) -> JSON:
    try:
        return CONVERSIONS[conversion](answer, options)
    except ValueError:
        return None


def _answer_map(table: _Table, registration: Registration, *, has_template: bool) -> InferredMap:
    fields_of_task = registration.environment.Task.model_fields
    fields: _Fields = {}
    renamed: list[str] = []

    def add(name: str, column: str) -> None:
        fields[name] = _Field(column, _conversion(table, registration, name, column))
        if name.casefold() != column.strip().casefold():
            renamed.append(f"{column} → {name}")

    for name in dict.fromkeys([*fields_of_task, *_CONTROLS]):
        if name in table.columns:
            add(name, name)
        elif name in table.by_name:
            add(name, table.by_name[name])
    template = None
    if not has_template and not any(name in fields for name in _PROMPTS):
        question = table.one(_QUESTIONS, "prompt")
        if question is None:
            raise table.unclear("has no column with the prompt, such as prompt or question")
        if registration.name in _ANSWER_PROMPTS and "extraction_mode" not in fields:
            fields["question"] = _Field(question)
            renamed.append(f"{question} → prompt")
            template = PromptTemplate(_ANSWER_PROMPTS[registration.name])
        else:
            add("prompt", question)
    if "question" in fields_of_task and "question" not in fields and "prompt" in fields:
        add("question", str(fields["prompt"].source))
    answers = [name for name in _ANSWERS if name in fields_of_task]
    if len(answers) == 1 and answers[0] not in fields:
        answer = table.one(_ANSWERS, "answer")
        if answer is not None:
            add(answers[0], answer)
    used = {str(field.source) for field in fields.values()}
    fields = table.plain(fields, without=[*used])
    note = _note(renamed, registration.name) if renamed else ""
    inferred = InferredMap(fields, template, None, note)
    _check_first(table, registration, inferred)
    return inferred


def _conversion(table: _Table, registration: Registration, name: str, column: str) -> str:
    """Return the conversion of a table's values into the type of a field; "" for none."""
    if name in _CONTROLS or column == table.id_field:
        return table.conversion(name, column)
    kinds = _json_types(registration, name)
    if kinds - {"null"} == {"string"} and table.holds(column, (int, float)):
        return "text"  # as in a CSV file
    if "string" in kinds or not table.holds(column, str):
        return ""
    is_nested = kinds & {"array", "object"}
    return "json" if is_nested else "number" if kinds & {"integer", "number"} else ""


def _json_types(registration: Registration, name: str) -> set[str]:
    """Return the JSON types that a field may have; none if they are unknown."""
    try:
        schema = registration.environment.Task.model_json_schema()
    except PydanticInvalidForJsonSchema:  # an author may use any Python type
        return set()
    definitions = cast("dict[str, JSONObject]", schema.get("$defs", {}))
    waiting = [cast("dict[str, JSONObject]", schema["properties"]).get(name, {})]
    kinds: set[str] = set()
    while waiting:
        schema_part = waiting.pop()
        if isinstance(reference := schema_part.get("$ref"), str):
            waiting.append(definitions[reference.rpartition("/")[2]])
        waiting += cast("list[JSONObject]", schema_part.get("anyOf", []))
        if isinstance(kind := schema_part.get("type"), str):
            kinds.add(kind)
    return kinds


def _check_first(table: _Table, registration: Registration, inferred: InferredMap) -> None:
    """Raise UsageError if the first row lacks a field that the environment needs."""
    first = next(table.rows(), None)
    if first is None:
        return
    try:
        registration.environment.parse_task(inferred.task(first))
    except ValidationError as error:
        missing = [".".join(map(str, e["loc"])) for e in error.errors() if e["type"] == "missing"]
        absent = [name for name in missing if name not in inferred.fields]
        if absent:
            raise table.unclear(
                f"has no column for {listed(absent)}, which environment {registration.name} needs"
            ) from error
    except ValueError:
        return  # the row has its own problem, which is listed with its line
