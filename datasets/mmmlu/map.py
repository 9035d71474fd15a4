"""Makes tasks of the translated questions of MMLU."""

from collections import Counter
from collections.abc import Iterable, Iterator


def tasks(rows: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
    """Yield a task for each row; its id is the language and its number among those of the language.

    Without such an id, rows that repeat a question would be one task.
    """
    numbers: Counter[object] = Counter()
    for row in rows:
        language = row["_config"]
        numbers[language] += 1
        options = [(letter, str(row[letter])) for letter in "ABCD"]
        yield {
            "id": f"{language}-{numbers[language]}",
            "env": "mcqa",
            "question": row["Question"],
            "choices": "\n".join(f"{letter}: {text}" for letter, text in options),
            "options": [{letter: text} for letter, text in options],
            "expected_answer": row["Answer"],
            "grading_mode": "last_answer_colon",
            "subject": row["Subject"],
            "language": language,
        }
