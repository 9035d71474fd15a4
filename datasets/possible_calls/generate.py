"""Turns the requests of xlam_fc into tasks with possible arguments, in three languages."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from gymcli import JSONObject
from gymcli.envs import load_generator

LANGUAGES = {"python": "Python", "java": "Java", "javascript": "JavaScript"}


def generate(rng: Random, num: int) -> Iterator[JSONObject]:
    """Yield requests for one to four calls; every other easy one is of Java or JavaScript."""
    for number, row in enumerate(load_generator("xlam_fc").generate(rng, num)):
        is_easy = row["difficulty"] == "easy"
        language = ("python", "java", "python", "javascript")[number // 3 % 4 if is_easy else 0]
        tools = {tool["function"]["name"]: tool["function"] for tool in row["tools"]}
        named = {call["name"] for call in row["expected_answers"]}
        yield {
            "id": f"possible-{number}",
            "difficulty": row["difficulty"],
            "language": language,
            "messages": row["messages"],
            "tools": [
                {"type": "function", "function": _shown(function, language)}
                for function in tools.values()
            ],
            "functions": [_described(tools[name], language) for name in sorted(named)],
            "possible_answers": [
                {
                    call["name"]: {
                        name: [call["arguments"].get(name, "")]
                        for name in tools[call["name"]]["parameters"]["properties"]
                    }
                }
                for call in row["expected_answers"]
            ],
        }


def _shown(function: dict[str, Any], language: str) -> JSONObject:
    """Return a function whose arguments are texts, unless the language is Python."""
    if language == "python":
        return function
    parameters = function["parameters"]
    properties = {
        name: {
            "type": "string",
            "description": f"{one['description']} A {LANGUAGES[language]} {one['type']}, as text.",
        }
        for name, one in parameters["properties"].items()
    }
    return {**function, "parameters": {**parameters, "properties": properties}}


def _described(function: dict[str, Any], language: str) -> JSONObject:
    text = "string" if language == "python" else "String"
    types = {
        name: {"type": text if one["type"] == "string" else one["type"]}
        for name, one in function["parameters"]["properties"].items()
    }
    required = function["parameters"]["required"]
    return {"name": function["name"], "parameters": {"properties": types, "required": required}}
