"""Turns the rows of MGSM's eleven files into tasks of string_match."""

from collections import Counter
from collections.abc import Iterable, Iterator

__all__ = ["tasks"]

INSTRUCTIONS = {
    "bn": "নিচের গণিতের সমস্যাটি ধাপে ধাপে সমাধান করুন। শেষ লাইনে শুধু উত্তরটি লিখুন, এইভাবে: "
    '"উত্তর: ", তারপর 0-9 অঙ্কে লেখা একটি পূর্ণসংখ্যা, আর কিছু নয়।',
    "de": "Löse die folgende Matheaufgabe Schritt für Schritt. Schreibe in die letzte Zeile nur "
    'das Ergebnis: "Antwort: ", dann eine ganze Zahl mit den Ziffern 0-9 und sonst nichts.',
    "en": "Solve the following mathematics problem step by step. Write nothing but the result on "
    'the last line: "Answer: ", then a whole number in the digits 0-9, and nothing else.',
    "es": "Resuelve paso a paso el siguiente problema de matemáticas. En la última línea escribe "
    'solo el resultado: "Respuesta: ", después un número entero con las cifras 0-9, y nada más.',
    "fr": "Résous pas à pas le problème de mathématiques suivant. N'écris sur la dernière ligne "
    'que le résultat : "Réponse: ", puis un nombre entier en chiffres 0-9, et rien d\'autre.',
    "ja": "次の算数の問題を順を追って解いてください。最後の行には答えだけを書いてください。"
    "「答え: 」の後に0-9の数字で整数を書き、ほかには何も書かないでください。",
    "ru": "Реши следующую математическую задачу шаг за шагом. Последняя строка содержит только "
    'результат: "Ответ: ", затем целое число цифрами 0-9 и больше ничего.',
    "sw": "Tatua tatizo lifuatalo la hisabati hatua kwa hatua. Kwenye mstari wa mwisho andika "
    'jibu tu: "Jibu: ", kisha namba nzima kwa tarakimu 0-9, bila kitu kingine.',
    "te": "కింది గణిత సమస్యను దశలవారీగా పరిష్కరించండి. చివరి పంక్తిలో జవాబు మాత్రమే రాయండి: "
    '"సమాధానం: ", తర్వాత 0-9 అంకెలలో ఒక పూర్ణాంకం, ఇంకేమీ వద్దు.',
    "th": "แก้โจทย์คณิตศาสตร์ต่อไปนี้ทีละขั้นตอน บรรทัดสุดท้ายให้เขียนเฉพาะคำตอบ: "
    '"คำตอบ: " ตามด้วยจำนวนเต็มที่เขียนด้วยเลข 0-9 และไม่ต้องเขียนอย่างอื่น',
    "zh": "请一步一步地解答下面的数学题。最后一行只写结果: "
    "先写“答案: ”再用数字0-9写一个整数。不要写其他内容。",
}
"""Our own words for what simple-evals asks in each language."""

PREFIXES = {
    "bn": "উত্তর",
    "de": "Antwort",
    "en": "Answer",
    "es": "Respuesta",
    "fr": "Réponse",
    "ja": "答え",
    "ru": "Ответ",
    "sw": "Jibu",
    "te": "సమాధానం",
    "th": "คำตอบ",
    "zh": "答案",
}
"""The word after which simple-evals reads the answer."""


def tasks(rows: Iterable[dict[str, str]]) -> Iterator[dict[str, str | bool]]:
    """Yield a task for each row, with the instruction of its language."""
    numbers: Counter[str] = Counter()
    for row in rows:
        language = row["_file"].removeprefix("mgsm_").removesuffix(".tsv")
        numbers[language] += 1
        yield {
            "id": f"{language}-{numbers[language]}",
            "language": language,
            "instruction": INSTRUCTIONS[language],
            "question": row["question"],
            "expected_answer": row["answer"].strip().replace(",", ""),
            "extraction_mode": "last_digits",
            "answer_prefix": PREFIXES[language],
            "case_sensitive": True,
        }
