"""Puts quoted facts into words with a language model, and adds the quotes, so that the reader can check the words."""

from __future__ import annotations

from .judging import near, numbers_in
from .model import Model, ModelError


def grounded(model: Model, question: str, quoted: str) -> str:
    """The model's answer with the quotes that it was given; the quotes alone where a number of the answer is not among them."""
    asked = f"Answer the question from these facts only, and cite their ids in brackets.\nQuestion: {question}\nFacts:\n{quoted}\n"
    try:
        said = model.complete(asked).text.strip()[:4_000]
    except ModelError as error:
        return f"{quoted}\n({error}.)"
    known = numbers_in(quoted) + numbers_in(question)
    if not said or not all(any(near(number, one) for one in known) for number in numbers_in(said)):
        return f"{quoted}\n(The model's answer was dropped, because a number of it is not among these facts.)"
    return f"{''.join(c if c.isprintable() or c == chr(10) else ' ' for c in said)}\n\n{quoted}"
