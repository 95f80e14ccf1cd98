"""The advice as one HTML page that fetches nothing; every text that comes from a file or a name is escaped."""

from __future__ import annotations

from html import escape
from pathlib import Path

from armillary.advice.advice import Advice, Answered, gain, on_what, sections, spread
from armillary.wording import counted

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
COLUMNS = ("use", "instead of", "gain", "95 % interval", "in", "on", "but", "to adopt it", "it assumes")


def render(advice: Advice) -> str:
    """The whole page."""
    style = (Path(__file__).parents[1] / "study" / "report" / "page.css").read_text(encoding="utf-8")
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
    )
    title = escape(f"What pays off on {advice.cluster}")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head>{head}<title>{title}</title><style>{style}</style></head>\n'
        f"<body><main><h1>{title}</h1>{body(advice)}</main></body></html>\n"
    )


def body(advice: Advice) -> str:
    """The page's content without its frame."""
    work = f" · {escape(', '.join(advice.work))}" if advice.work else ""
    parts = [f"<p class='meta'>{escape(advice.cluster)}{work} · seed {advice.seed}</p><p class='answer'>{escape(advice.answer())}</p>"]
    for title, holds, answers in sections(advice):
        rows = "".join(_row(answered) for answered in answers)
        head = "".join(f"<th scope='col'>{name}</th>" for name in COLUMNS)
        table = f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        parts.append(f"<h2>{escape(title)}</h2><p>{escape(holds)}</p>{table}")
    if advice.together:
        said = (f"{t.in_words()} ({t.kind}, {counted(t.cases, 'case')} of {t.second}; {t.what})." for t in advice.together)
        parts.append(f"<h2>Two at a time</h2><ul>{''.join(f'<li>{escape(one)}</li>' for one in said)}</ul>")
    if advice.not_judged:
        rows = "".join(f"<tr><td>{escape(n.arena)}</td><td>{escape(n.reason)}</td></tr>" for n in advice.not_judged)
        table = f"<table><thead><tr><th scope='col'>arena</th><th scope='col'>why not</th></tr></thead><tbody>{rows}</tbody></table>"
        parts.append(f"<h2>What could not be judged</h2><div class='scroll'>{table}</div>")
    return "".join(parts)


def _row(answered: Answered) -> str:
    f = answered.finding
    also = f" (as good: {', '.join(f.as_good[:4])})" if f.as_good else ""
    partial = [f"{name} answers only {count} of {f.cases} cases" for name, count in f.partial.items()]
    but = "; ".join([*f.costs, *partial])
    cells = (
        f"{f.technique}{also}", f.today, gain(f), spread(f), f"{f.metric} ({f.kind}), {f.arena}", on_what(answered), but, answered.adopt,
        f"{answered.assumes}; {answered.source}",
    )  # fmt: skip
    return "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in cells) + "</tr>"
