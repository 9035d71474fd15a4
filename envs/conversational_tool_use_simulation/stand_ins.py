"""Scripted models for rows with gold calls: customer, tools, and a judge that checks the calls."""

from collections.abc import Iterable
from typing import cast

import msgspec

from gymcli import JSONObject, Message

from .judging import QUESTIONS, question
from .simulation import TOOL_INSTRUCTIONS, SimulationTask

__all__ = ["Script", "ScriptedJudge"]


class Script:
    """The customer and the tools of a task in one model, since one role may play both."""

    def __init__(self, task: SimulationTask) -> None:
        self.task = task

    def answer(self, messages: list[Message]) -> str:
        """Return the customer's message or a tool's result."""
        last = messages[-1].text
        # Only the instructions tell which of the two is asked.
        if messages[0].text.startswith(TOOL_INSTRUCTIONS):
            # The call is the last line of the prompt.
            return self._result(msgspec.json.decode(last.rpartition("\n")[2]))
        return self._words(last, is_first=len(messages) == 2)

    def _result(self, call: JSONObject) -> str:
        """Return the result of a gold call; for any other call, the smallest value that fits."""
        for gold in self.task.gold_calls:
            if {"tool": gold.name, "arguments": gold.arguments} == call:
                return msgspec.json.encode(gold.result).decode()
        schema = next(tool.returns for tool in self.task.tools if tool.name == call["tool"])
        return msgspec.json.encode(_empty(schema or {})).decode()

    def _words(self, heard: str, *, is_first: bool) -> str:
        task, asked = self.task, heard.casefold()
        if is_first:
            told = self._told(task.facts if task.profile == "general" else ())
            return f"{task.customer_scenario.reason_for_contact or 'Hello.'} {told}"
        # The words of the oracle.
        if "transferring you" in asked:
            return "All right. ###TRANSFER###"
        if task.report and task.report in heard:
            return "Thank you, that is all. ###STOP###"
        told = self._told(name for name in task.facts if name in asked)
        return told or "I do not know. Can you do what I asked for, please?"

    def _told(self, names: Iterable[str]) -> str:
        told = [f"{name}: {self.task.facts[name]}." for name in names]
        return " ".join(f"{text[0].upper()}{text[1:]}" for text in told)


class ScriptedJudge:
    """A judge that looks for the gold calls, their results and the reported outcome.

    A call is right only if its arguments occur in the policy or in an earlier message of the
    customer or a tool.
    """

    def __init__(self, task: SimulationTask) -> None:
        self.task = task
        self._gold = [(gold.name, gold.arguments) for gold in task.gold_calls]
        self._rules = {
            "customer": self._keeps_secrets,
            "tool": self._gives_gold,
            "message": self._calls_gold,
            "conversation": self._serves,
        }

    def answer(self, messages: list[Message]) -> str:
        """Judge by the lines of the conversation in the prompt."""
        before, _, asked = messages[-1].text.rpartition("\nQuestion: ")
        shown = before.partition("\n<conversation>\n")[2].partition("\n</conversation>\n")[0]
        lines = [msgspec.json.decode(line) for line in shown.split("\n")]
        kind = next(kind for kind in QUESTIONS if asked.startswith(question(kind, self.task)))
        verdict: JSONObject = {"explanation": "Compared with the gold of the task."}
        if kind == "all":
            verdict["customer_success"] = self._all_of("customer", lines)
            verdict["tools_success"] = self._all_of("tool", lines)
            verdict["representative_success"] = self._serves(lines)
        else:
            verdict["success"] = self._rules[kind](lines)
        return msgspec.json.encode(verdict).decode()

    def _all_of(self, speaker: str, lines: list[JSONObject]) -> bool:
        places = [place for place, line in enumerate(lines, 1) if line["speaker"] == speaker]
        return all(self._rules[speaker](lines[:place]) for place in places)

    def _keeps_secrets(self, lines: list[JSONObject]) -> bool:
        """Return whether the customer of a proactive row told only what was asked for."""
        says, asked = str(lines[-1].get("says")), " ".join(_said(lines)).casefold()
        told = [name for name, value in self.task.facts.items() if value in says]
        return self.task.profile == "general" or all(name in asked for name in told)

    def _gives_gold(self, lines: list[JSONObject]) -> bool:
        """Return whether the last result is the gold one, if its call is a gold call."""
        # Results come in the order of their calls.
        num_results = sum(line["speaker"] == "tool" for line in lines)
        call = _calls(lines)[num_results - 1]
        result = _decoded(str(lines[-1]["result"]))
        gold = [gold.result for gold in self.task.gold_calls if (gold.name, gold.arguments) == call]
        return result is None or not gold or result in gold

    def _calls_gold(self, lines: list[JSONObject]) -> bool:
        """Return whether the last calls are gold calls without a guessed argument."""
        is_gold = all(call in self._gold for call in _calls(lines[-1:]))
        return is_gold and self._is_grounded(lines)

    def _is_grounded(self, lines: list[JSONObject]) -> bool:
        """Return whether every argument of a gold call was mentioned before the call."""
        heard = [self.task.policy]
        for line in lines:
            if line["speaker"] != "representative":
                heard.append(str(line.get("says", line.get("result", ""))))
            made = [
                arguments for name, arguments in _calls([line]) if (name, arguments) in self._gold
            ]
            values = [str(v) for arguments in made for v in cast("JSONObject", arguments).values()]
            if not all(any(value in text for text in heard) for value in values):
                return False
        return True

    def _serves(self, lines: list[JSONObject]) -> bool:
        """Return whether only the gold calls were made, in order, and the outcome was told."""
        made, said = _calls(lines), _said(lines)
        later = iter(made)
        # `in` consumes the iterator, so each gold call must come after the one before it.
        is_done = all(call in later for call in self._gold)
        is_needed = all(call in self._gold for call in made)
        is_told = bool(said) and self.task.report in said[-1]
        return is_done and is_needed and is_told and self._is_grounded(lines)


def _said(lines: list[JSONObject]) -> list[str]:
    return [str(line["says"]) for line in lines if line["speaker"] == "representative"]


def _calls(lines: list[JSONObject]) -> list[tuple[str, object]]:
    made = [call for line in lines for call in cast("list[dict[str, str]]", line.get("calls", []))]
    return [(call["tool"], _decoded(call["arguments"])) for call in made]


def _decoded(text: str) -> object:
    """Decode JSON; None if the text is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _empty(schema: JSONObject) -> object:
    """Return the smallest value that fits a schema of a common form."""
    if "enum" in schema:
        return cast("list[object]", schema["enum"])[0]
    if schema.get("type") == "object":
        properties = cast("dict[str, JSONObject]", schema.get("properties", {}))
        return {name: _empty(inner) for name, inner in properties.items()}
    values = {"string": "none", "integer": 0, "number": 0, "boolean": False, "array": []}
    return values.get(str(schema.get("type")))
