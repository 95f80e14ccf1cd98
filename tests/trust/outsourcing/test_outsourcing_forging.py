"""Servers that cheat: every forgery is refused, thousands of times; and forgers win where a part of the check is left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from armillary.trust.outsourcing import Bases, Cheated, Client, Element, Local, Recheck, Server, TwoG2T, TwoG2TPrf, Unchecked, msm
from armillary.trust.outsourcing.delegation.shifts import StoredShifts
from armillary.trust.outsourcing.forging import toy
from armillary.trust.outsourcing.forging.attacking import Attacked, attack, scene_of
from armillary.trust.outsourcing.forging.forgeries import FORGERIES
from armillary.trust.outsourcing.group.bases import as_scalars
from armillary.trust.outsourcing.group.element import ENCODED_BYTES, times_generator
from armillary.trust.outsourcing.two_g2t import Delegated, shifted
from armillary.trust.outsourcing.workload import scalars_of

TERMS = 64


def draws(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


def attacked(technique: Any, attacks: int, kind: str = "uniform", seed: int = 0, terms: int = TERMS) -> Attacked:
    rng = draws(seed)
    return attack(technique.begin, Bases.from_label("attack", terms), lambda: scalars_of(kind, terms, rng), attacks, rng)


@pytest.mark.parametrize("technique", [TwoG2T(), TwoG2TPrf()])
@pytest.mark.parametrize("kind", ["uniform", "small", "sparse", "bits"])
def test_no_forgery_is_believed(technique: Any, kind: str) -> None:
    found = attacked(technique, 10 * len(FORGERIES), kind)
    assert found.tried == dict.fromkeys(FORGERIES, 10)
    assert not found.believed


@pytest.mark.slow
@pytest.mark.parametrize("technique", [TwoG2T(), TwoG2TPrf()])
def test_no_forgery_of_ten_thousand_is_believed(technique: Any) -> None:
    found = attacked(technique, 10_000, seed=1)
    assert found.tried.total() == 10_000
    assert not found.believed


def test_a_forgery_differs_from_the_right_answer_and_an_honest_answer_passes_between_them() -> None:
    bases = Bases.from_label("attack", TERMS)
    session, stranger = TwoG2T().begin(bases), TwoG2T().begin(bases)
    x = scalars_of("uniform", TERMS, draws(2))
    scene = scene_of(session, stranger, x, x, draws(3))
    right = b"".join(map(bytes, scene.right))
    for name, forge in FORGERIES.items():
        forged = forge(scene)
        assert forged != right, name
        with pytest.raises(Cheated):
            session.check(x, forged)
        with pytest.raises(Cheated):
            session.prepare(x)(forged)
        assert session.check(x, right) == msm(bases, x)


def test_a_query_of_zeros_has_forgeries_that_are_right_and_they_do_not_count() -> None:
    rng = draws(4)
    none = as_scalars([0] * 8)
    found = attack(TwoG2T().begin, Bases.from_label("attack", 8), lambda: none, 200, rng)
    assert not found.believed
    assert "nothing" not in found.tried


def test_a_spent_client_is_set_up_again() -> None:
    found = attacked(TwoG2T(limit=5), 200)
    assert found.tried.total() == 200
    assert found.clients == 40
    assert not found.believed


def test_who_trusts_believes_every_element_and_a_recheck_every_other_half() -> None:
    trusting, rechecking = (attacked(one, 40 * len(FORGERIES)).believed for one in (Unchecked(), Recheck()))
    encodings = {"top-bit", "odd", "random-bytes", "truncated", "longer"}
    assert {name for name in FORGERIES if trusting[name] == 40} == set(FORGERIES) - encodings
    assert not any(trusting[name] for name in encodings - {"random-bytes"})
    for name in ("first-changed", "last-changed", "neighbour"):
        assert 5 <= rechecking[name] <= 35, name
    assert not any(rechecking[name] for name in ("all-changed", "turned", "another-query", "truncated"))


@pytest.mark.parametrize(
    ("broken", "forgery"),
    [("no shifts", "solved"), ("one shift", "solved"), ("known multiplier", "guessed"), ("half a check", "last-changed")],
)
def test_a_forger_wins_where_a_part_is_left_out(broken: str, forgery: str) -> None:
    """Each part of the mechanism is needed: without it a server that uses only what it sees is believed."""
    bases = Bases.from_elements([times_generator(a) for a in (2, 3, 5)])
    x, k = as_scalars([7, 11, 13]), 1000
    shifts = {"no shifts": [0, 0, 0], "one shift": [9, 9, 9]}.get(broken, [21, 22, 23])
    found = StoredShifts(as_scalars(shifts))
    client, public = Client(as_scalars([k])[0], found), shifted(bases, as_scalars([k])[0], found)
    server = Server(bases, public)
    a, b = (Element.from_bytes(server.answer(x)[at : at + ENCODED_BYTES]) for at in (0, ENCODED_BYTES))
    more = times_generator(77)
    if broken == "no shifts":  # T = k·P, so the sums of another query keep the relation.
        forged = server.answer([1, 2, 3])
    elif broken == "one shift":  # Only the sum of x counts in ⟨x, r⟩, so another query of the same sum does.
        forged = server.answer([8, 10, 13])
    elif broken == "known multiplier":
        forged = bytes(a + more) + bytes(b + more * k)
    else:  # A client that looks at A alone.
        forged = bytes(a) + bytes(b + more)
        assert Unchecked().begin(bases).check(x, forged[:ENCODED_BYTES]) == a
        with pytest.raises(Cheated):
            client.verify(x, forged)
        return
    assert client.verify(x, forged) != msm(bases, x)
    right, proper = Client.setup(bases)
    with pytest.raises(Cheated):
        right.verify(x, Server(bases, proper).answer([1, 2, 3]))
    with pytest.raises(Cheated):
        right.verify(x, bytes(a + more) + bytes(b + more * k))


@pytest.mark.parametrize("technique", [TwoG2T(), TwoG2TPrf()])
def test_the_best_forger_on_the_toy_group_wins_as_often_as_a_guess(technique: Any) -> None:
    keys = 200_000
    share = technique.toy_share(keys, 4, draws(5))
    error = (1 / toy.ORDER * (1 - 1 / toy.ORDER) / keys) ** 0.5
    assert abs(share - 1 / toy.ORDER) < 4 * error


def test_a_recheck_on_the_toy_group_believes_every_other_forgery() -> None:
    assert abs(Recheck().toy_share(50_000, 4, draws(6)) - 0.5) < 0.01
    assert Unchecked().toy_share(1, 4, draws(7)) == 1.0


def test_an_exhausted_toy_server_learns_only_what_a_rejection_tells() -> None:
    """Each of the 100 multipliers makes exactly one of the 100 guesses pass, so a rejection rules out one multiplier and no more."""
    rng = draws(8)
    bases, x, r = toy.POWERS[[3, 9]], rng.integers(0, toy.ORDER, 2), rng.integers(0, toy.ORDER, 2)
    passes = np.zeros((toy.ORDER, toy.ORDER), bool)
    for k in range(1, toy.ORDER):
        t = toy.shifted(bases, np.int64(k), r)
        a, b = (toy.combined(one, x) for one in (bases, t))
        for guess in range(1, toy.ORDER):
            forged = a * toy.POWERS[1] % toy.MODULUS, b * toy.POWERS[guess] % toy.MODULUS
            passes[k, guess] = toy.accepted(np.int64(k), r, x, *forged)
    assert (passes == np.eye(toy.ORDER, dtype=bool) & (np.arange(toy.ORDER) > 0)).all()


def test_a_recheck_computes_one_half_and_its_sum_is_whole() -> None:
    bases, x = Bases.from_label("attack", 50), scalars_of("uniform", 50, draws(9))
    session = Recheck().begin(bases)
    query = session.query(x)
    assert (query.half(0) + query.half(1) == x).all()
    assert session.check(query, session.ask(query)) == msm(bases, x)
    with pytest.raises(Cheated, match="63 bytes"):
        session.check(query, session.ask(query)[1:])
    looked_at = [session.query(x).looked_at for _ in range(200)]
    assert 50 < sum(looked_at) < 150


def test_sessions_of_every_kind_give_the_sum() -> None:
    bases, x = Bases.from_label("attack", 50), scalars_of("uniform", 50, draws(10))
    for technique in (TwoG2T(), Recheck(), Unchecked(), Local()):
        session: Any = technique.begin(bases)
        query = session.query(x)
        answer = session.ask(query)
        assert session.check(query, answer) == session.prepare(query)(answer) == msm(bases, x)
        other = scalars_of("uniform", 50, draws(11))
        assert len(session.ask(session.changed(query, other))) == len(answer)
    assert isinstance(TwoG2T().begin(bases), Delegated)
