"""Makes tasks and examples of the rows of MMLU-Pro."""

import re
from collections.abc import Iterable, Iterator

from gymcli import JSONObject

__all__ = ["tasks"]

LETTERS = "ABCDEFGHIJ"
OUTPUT_REGEX = r"best answer is[ *(]*([A-J])\b"


def tasks(rows: Iterable[JSONObject]) -> Iterator[JSONObject]:
    """Yield one task for each row, and the solution in `answer` where the row has one.

    Only those of the split validation have one. It ends as the prompt asks for it.
    """
    for row in rows:
        options = row["options"]
        assert isinstance(options, list)
        options = list(zip(LETTERS, options, strict=False))
        task: JSONObject = {
            "id": str(row["question_id"]),
            "question": str(row["question"]).strip(),
            "choices": "\n".join(f"{letter}. {text}" for letter, text in options),
            "options": [{letter: text} for letter, text in options],
            "expected_answer": row["answer"],
            "category": row["category"],
            "grading_mode": "last_answer_colon",
            "template_metadata": {"output_regex": OUTPUT_REGEX},
        }
        solution = str(row["cot_content"]).removeprefix("A: Let's think step by step.").strip()
        if solution:
            task["answer"] = re.sub(
                r"The answer is \(([A-J])\)\.", r"The best answer is \1.", solution
            )
        yield task
