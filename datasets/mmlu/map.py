"""Makes tasks of the questions of MMLU."""

from collections import Counter
from collections.abc import Iterable, Iterator


def tasks(rows: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
    """Yield a task for each row; its id is the subject and its number among those of the subject.

    Without such an id, rows that repeat a question would be one task.
    """
    numbers: Counter[object] = Counter()
    for row in rows:
        texts, answer, subject = row["choices"], row["answer"], row["subject"]
        assert isinstance(texts, list)
        assert isinstance(answer, int)
        numbers[subject] += 1
        options = list(zip("ABCD", texts, strict=True))
        yield {
            "id": f"{subject}-{numbers[subject]}",
            "env": "mcqa",
            "question": row["question"],
            "choices": "\n".join(f"{letter}: {text}" for letter, text in options),
            "options": [{letter: text} for letter, text in options],
            "expected_answer": "ABCD"[answer],
            "grading_mode": "last_answer_colon",
            "subject": subject,
        }
