"""What became of every paper: from hand-made records to lines, figures and states."""

from __future__ import annotations

from dataclasses import replace

from armillary import catalogue, records, report_card

VERDICT = {
    "claim": "storage/eviction/fifo-mep#1", "technique": "fifo-mep", "state": "held", "figure": 1.23456, "low": 1.1, "high": 1.3,
    "unit": "×", "stand_in": "", "beyond": False,
}  # fmt: skip


def test_every_paper_has_a_line_and_counts_its_claims():
    lines = report_card.report_card(catalogue.arenas(), records.records())
    assert [line.paper.key for line in lines] == list(catalogue.papers())
    for line in lines:
        if line.record is not None and line.technique is not None:
            assert sum(line.counts) == len(line.verdicts)


def test_claims_without_a_record_are_not_tried_and_papers_to_come_have_none():
    (line,) = [one for one in report_card.report_card(catalogue.arenas(), {}) if one.technique == "fifo-mep"]
    assert line.counts == (0, 0, 0, 3)
    assert replace(line, technique=None, arena=None).counts == (0, 0, 0, 0)


def test_figures_and_states_in_words():
    assert report_card.figure(VERDICT) == "1.23× (1.1 to 1.3)"
    assert report_card.figure(VERDICT | {"figure": None}) == "–"
    assert report_card.figure(VERDICT | {"low": None}) == "1.23×"
    assert report_card.state(VERDICT) == "● held"
    assert report_card.state(VERDICT | {"beyond": True, "stand_in": "clock"}) == "● held, beyond the published range, with a stand-in (clock)"


def test_the_first_sentence_ends_at_a_full_stop_or_is_cut():
    assert report_card.first_sentence("It is 1.5 times faster. And more.") == "It is 1.5 times faster."
    assert len(report_card.first_sentence("word " * 200)) <= report_card.LONGEST
