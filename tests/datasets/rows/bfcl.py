"""Questions and possible answers in the shapes of the leaderboard's files."""

import itertools

CATEGORIES = [
    "simple_python",
    "simple_java",
    "simple_javascript",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_relevance",
    "live_irrelevance",
]
TYPES = {
    "simple_java": ("String", "integer", {"type": "ArrayList", "items": {"type": "String"}}),
    "simple_javascript": (
        "String",
        "float",
        {"type": "dict", "properties": {"a": {"type": "any"}}},
    ),
}
PYTHON = ("string", "float", {"type": "array", "items": {"type": "dict", "properties": {}}})


def rows(rng, num):
    """Return the lines of each file; a name of two parts sets a file of answers apart."""
    files = {f"BFCL_v4_{category}.json": [] for category in CATEGORIES}
    answered = [one for one in CATEGORIES if "relevance" not in one]
    files |= {f"possible_answer/BFCL_v4_{category}.json": [] for category in answered}
    for number, category in zip(range(num), itertools.cycle(CATEGORIES), strict=False):
        text, amount, several = TYPES.get(category, PYTHON)
        cups = rng.randrange(2, 90)
        parameters = {
            "type": "dict",
            "required": ["tea"],
            "properties": {
                "tea": {"type": text, "description": "Which tea."},
                "cups": {"type": amount, "description": "How many.", "default": 1},
                "guests": {"description": "Who drinks it.", **several},
            },
        }
        names = ["kitchen.brew", "kitchen.pour"]
        functions = [
            {"name": name, "description": f"Make tea, {name}.", "parameters": parameters}
            for name in names[: 1 + ("multiple" in category)]
        ]
        request = {"role": "user", "content": f"Brew {cups} cups of Früchtetee, number {number}."}
        question = [request]
        if category == "live_irrelevance":
            functions = []
            question = [{"role": "system", "content": "You help."}, request]
        key = f"{category}_{number}-{number}-0" if "live" in category else f"{category}_{number}"
        line = {"id": key, "question": [question], "function": functions}
        files[f"BFCL_v4_{category}.json"].append(line)
        if category in answered:
            guests = {"simple_java": ["a"], "simple_javascript": {"a": ["b", ""]}}
            arguments = {
                "tea": ["Früchtetee", "Fruit tea"],
                "cups": [cups, ""] if number % 2 else [cups],
                "guests": [guests.get(category, [{"name": ["Ada"], "age": [5, ""]}]), ""],
            }
            answers = [{"kitchen.brew": arguments}]
            if "parallel" in category:
                answers += [{functions[-1]["name"]: {**arguments, "cups": [1]}}]
            line = {"id": key, "ground_truth": answers}
            files[f"possible_answer/BFCL_v4_{category}.json"].append(line)
    return files
