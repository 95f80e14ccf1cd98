"""Twenty-six ways to get at somebody else's VNI through the service, none of which may work; and what the hooks answer to honest ones."""

from __future__ import annotations

import functools
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tenancy_objects import UID, Clock, claim, job, request

from armillary.network.tenancy import InUse, NoFreeVni, NoSuchClaim, VniServer, VniService
from armillary.network.tenancy.simulation.attacks import draw

VICTIM = "victim"


class World:
    """A victim with a job and a claim that another of its jobs has joined, and an attacker with a job in another namespace."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.service = VniService(options.pop("path", ":memory:"), **{"clock": self.clock, "low": 100, "high": 119, **options})
        self.own = self.vni(job(UID, "true", VICTIM))
        self.shared = self.vni(claim("mesh", "c-victim", VICTIM))
        assert self.vni(job("member", "mesh", VICTIM)) == self.shared
        self.mine = self.vni(job("attacker", "true", "evil"))

    def sync(self, document: dict[str, Any]) -> Any:
        return self.service.sync(request(document))

    def vni(self, document: dict[str, Any]) -> int:
        answer = self.sync(document)
        assert answer.status == 200, answer
        (made,) = answer.content["attachments"]
        return int(made["spec"]["vni"])

    def finalize(self, document: dict[str, Any], attached: dict[str, Any] | None = None) -> Any:
        return self.service.finalize(request(document, attached))

    def victims(self) -> set[int]:
        return {self.own, self.shared}

    def unharmed(self) -> None:
        """The victim has what it had, and nobody else has it."""
        base = self.service.database
        assert base.vni_of(f"vni-{UID}", VICTIM) == self.own
        assert base.vni_of("mesh", VICTIM) == self.shared
        assert base.users("mesh", VICTIM) == ["member"]
        others = {a.vni for a in base.allocations() if a.namespace != VICTIM}
        assert not others & self.victims()
        base.check()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with made.service:
        yield made


def refused(answer: Any, status: int) -> None:
    assert answer.status == status, answer
    assert "\n" not in answer.content["error"]
    assert "attachments" not in answer.content


# Guessed

GUESSED: dict[str, tuple[Callable[[World], str], int]] = {
    "the number itself": (lambda w: str(w.own), 404),
    "the owner's name": (lambda w: f"vni-{UID}", 400),
    "a claim of another namespace": (lambda w: "mesh", 404),
    "a claim with its namespace": (lambda w: f"{VICTIM}/mesh", 400),
    "an injection": (lambda w: "mesh' OR '1'='1", 400),
    "a pattern": (lambda w: "%", 400),
    "another way to write it": (lambda w: "mesh\u200b", 400),
    "a very long name": (lambda w: "a" * 64, 400),
}


@pytest.mark.parametrize("how", GUESSED)
def test_guessed_annotations(world: World, how: str) -> None:
    written, status = GUESSED[how]
    refused(world.sync(job("thief", written(world), "evil")), status)
    world.unharmed()


def test_guessed_from_the_same_namespace(world: World) -> None:
    refused(world.sync(job("neighbour", f"vni-{UID}", VICTIM)), 400)
    with pytest.raises(NoSuchClaim):
        world.service.join(f"vni-{UID}", VICTIM, "neighbour")
    world.unharmed()


@pytest.mark.parametrize("name", [f"vni-{UID}", "true", "yes", "Mesh", "a/b", "a b", "", 7, None, "-a", "a" * 64])
def test_claims_with_names_that_mean_something_else(world: World, name: Any) -> None:
    refused(world.sync(claim(name, "c-evil", VICTIM)), 400)
    world.unharmed()


# Stale


def test_stale_number_by_taking_all(world: World) -> None:
    world.finalize(job(UID, "true", VICTIM))
    world.clock.now += 59
    taken = set()
    with pytest.raises(NoFreeVni):
        for i in range(30):
            taken.add(world.service.acquire(f"grab-{i}", "evil"))
    assert world.own not in taken


@pytest.mark.parametrize("quarantine_s", [60.0, 0.0])
def test_stale_number_after_a_restart(tmp_path: Any, quarantine_s: float) -> None:
    world = World(path=tmp_path / "vni.db", high=103)
    with world.service:
        world.finalize(job(UID, "true", VICTIM))
    with VniService(tmp_path / "vni.db", clock=world.clock, low=100, high=103, quarantine_s=quarantine_s) as again:
        assert again.acquire("grab", "evil") not in world.victims()
        with pytest.raises(NoFreeVni):
            again.acquire("grab-2", "evil")


def test_stale_number_with_a_clock_that_was_set_back(world: World) -> None:
    world.finalize(job(UID, "true", VICTIM))
    world.clock.now -= 1e6
    assert world.service.database.free()[1] == 1
    world.clock.now += 1e6 + 61
    assert world.service.database.free()[1] == 0


def test_stale_answers_that_are_sent_again(world: World) -> None:
    world.finalize(job("member", "mesh", VICTIM))
    assert world.finalize(claim("mesh", "c-victim", VICTIM)).content["finalized"]
    refused(world.sync(job("member-2", "mesh", VICTIM)), 404)
    again = world.vni(claim("mesh", "c-new", VICTIM))
    assert again != world.shared, "the claim of the same name is another one"
    assert world.vni(job("member-3", "mesh", VICTIM)) == again
    assert world.finalize(claim("mesh", "c-victim", VICTIM)).content["finalized"]
    assert world.service.database.vni_of("mesh", VICTIM) == again, "the old claim's end does not end the new one"


# Forged


def test_forged_end_from_another_namespace(world: World) -> None:
    assert world.finalize(job(UID, "true", "evil")).status == 200
    assert world.finalize(claim("mesh", "c-victim", "evil")).status == 200
    world.unharmed()


def test_forged_attachments(world: World) -> None:
    """The public service releases the Vni objects that a request lists, in the namespace that they name."""
    attached = {f"vni-{UID}": {"metadata": {"namespace": VICTIM}}, "mesh": {"metadata": {"namespace": VICTIM}}}
    for document in (job("attacker", "true", "evil"), claim("x", "c-evil", "evil"), job("attacker", "mesh", "evil")):
        world.finalize(document, attached)
    world.unharmed()


def test_forged_claim_of_the_same_name(world: World) -> None:
    refused(world.sync(claim("mesh", "c-evil", VICTIM)), 409)
    assert world.finalize(claim("mesh", "c-evil", VICTIM)).content["finalized"]
    world.unharmed()


def test_forged_job_with_the_uid_of_a_claim(world: World) -> None:
    world.finalize(job("member", "mesh", VICTIM))
    world.finalize(job("c-victim", "true", VICTIM))
    assert world.service.database.vni_of("mesh", VICTIM) == world.shared


def test_forged_job_with_the_uid_of_a_job_elsewhere(world: World) -> None:
    assert world.vni(job(UID, "true", "evil")) not in world.victims()
    world.unharmed()


@pytest.mark.parametrize(
    "kind",
    [
        ("v1", "Pod"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "VniClaim"),
        ("horizon-opencube.eu/v2", "VniClaim"),
        ("horizon-opencube.eu/v1", "Vni"),
    ],
)
def test_forged_kinds(world: World, kind: tuple[str, str]) -> None:
    forged = {**claim("mesh", "c-evil", VICTIM), "apiVersion": kind[0], "kind": kind[1]}
    refused(world.sync(forged), 400)
    refused(world.finalize(forged), 400)
    world.unharmed()


@pytest.mark.parametrize("uid", ["", "a b", "../x", "x'--", "\x00", 5, None, ["x"], "a" * 200])
def test_forged_uids(world: World, uid: Any) -> None:
    forged = job("x", "true", VICTIM)
    forged["metadata"]["uid"] = uid
    refused(world.sync(forged), 400)
    refused(world.finalize(forged), 400)
    world.unharmed()


def test_a_job_that_changes_its_annotation_keeps_nothing_when_it_ends(world: World) -> None:
    first = world.vni(job("fickle", "true", VICTIM))
    assert world.vni(job("fickle", "mesh", VICTIM)) == world.shared
    world.finalize(job("fickle", None, VICTIM))
    assert world.service.database.vni_of("vni-fickle", VICTIM) is None
    assert first not in {a.vni for a in world.service.database.allocations()}
    world.unharmed()


# Raced


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What the calls return, or raise, when they begin at the same time."""
    gate = threading.Barrier(len(calls))
    found: list[Any] = [None] * len(calls)

    def go(place: int) -> None:
        gate.wait()
        try:
            found[place] = calls[place]()
        except Exception as problem:
            found[place] = problem

    threads = [threading.Thread(target=go, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_raced_syncs_of_one_job(world: World) -> None:
    found = at_once(*[lambda: world.vni(job("racer", "true", "evil"))] * 8)
    assert len(set(found)) == 1
    assert found[0] not in world.victims()
    world.unharmed()


def test_raced_syncs_of_many_jobs(world: World) -> None:
    found = at_once(*[lambda name=name: world.vni(job(name, "true", "evil")) for name in "abcdefgh"])
    assert len(set(found)) == 8
    world.unharmed()


def test_raced_join_and_end_of_a_claim(world: World) -> None:
    for turn in range(30):
        world.clock.now += 100
        vni = world.vni(claim("brief", f"c{turn}", VICTIM))
        end = functools.partial(world.finalize, claim("brief", f"c{turn}", VICTIM))
        joined, answer = at_once(functools.partial(world.service.join, "brief", VICTIM, "late"), end)
        ended = answer.content["finalized"]
        if joined == vni:
            assert ended is False, "a claim with a user went away"
            with pytest.raises(InUse):
                world.service.release("brief", VICTIM)
            world.service.leave("brief", VICTIM, "late")
            world.finalize(claim("brief", f"c{turn}", VICTIM))
        else:
            assert isinstance(joined, NoSuchClaim)
            assert ended is True
    world.unharmed()


def test_raced_ends_and_a_thief(world: World) -> None:
    for turn in range(30):
        world.clock.now += 100
        vni = world.vni(job(f"brief-{turn}", "true", VICTIM))
        end = functools.partial(world.finalize, job(f"brief-{turn}", "true", VICTIM))
        *ends, stolen = at_once(end, end, functools.partial(world.service.acquire, f"thief-{turn}", "evil"))
        assert [answer.status for answer in ends] == [200, 200]
        assert stolen != vni
        world.service.release(f"thief-{turn}", "evil")
        world.service.database.check()
    world.unharmed()


# Through the network


def post(url: str, path: str, body: object, **headers: str) -> tuple[int, Any]:
    line = http.client.HTTPConnection(url.removeprefix("http://").partition("/")[0], timeout=20)
    line.request("POST", path, json.dumps(body), {"content-type": "application/json", **headers})
    answer = line.getresponse()
    said = json.loads(answer.read())
    line.close()
    return answer.status, said


def test_only_who_knows_the_token_is_served(world: World) -> None:
    token = "s3cret-s3cret-s3cret"
    end = request(job(UID, "true", VICTIM))
    with VniServer(world.service, port=0, token=token) as server:
        for path in (
            "/finalize",
            "//finalize",
            f"/{token[:-1]}/finalize",
            f"/{token}x/finalize",
            "/%00/finalize",
            "/../finalize",
            "/%C3%A9/finalize",
        ):
            assert post(server.url, path, end)[0] == 404
        assert post(server.url, f"/{token}/finalize", end, origin="http://evil.example")[0] == 403
        assert post(server.url, f"/{token}/finalize", end, host="rebound.example")[0] == 403
        world.unharmed()
        for host in (
            "127.0.0.1:1",
            "[::1]:8842",
            "localhost",
            "vni-endpoint-service.vni-management:8842",
            "vni-endpoint-service.vni-management.svc",
        ):
            assert post(server.url, f"/{token}/sync", request(job("honest", "true", "evil")), host=host)[0] == 200


# What honest requests get


def test_the_documents_of_the_public_service() -> None:
    with VniService(":memory:", clock=Clock()) as service:
        wanted = request(job("u1"))
        assert service.sync(wanted).content == {
            "labels": {}, "annotations": {}, "status": None, "resyncAfterSeconds": 0,
            "attachments": [{"apiVersion": "horizon-opencube.eu/v1", "kind": "Vni", "metadata": {"name": "vni-u1", "namespace": "physics"}, "spec": {"vni": 100}}],
        }  # fmt: skip
        assert service.sync(request(job("u1", "TRUE"))).content["attachments"][0]["spec"] == {"vni": 100}, "values are lower-cased"
        assert service.sync(request(job("u2", "Yes"))).content["attachments"][0]["spec"] == {"vni": 101}
        assert service.sync(request(job("u3", ""))).content["attachments"] == []
        attached = request(job("u1"), {"vni-u1": {"metadata": {"namespace": "physics"}, "spec": {"vni": 100}}})
        answer = service.finalize(attached)
        assert (answer.content["finalized"], answer.content["resyncAfterSeconds"], answer.content["attachments"]) == (False, 5, [])
        for _ in range(2):
            answer = service.finalize(request(job("u1")))
            assert (answer.status, answer.content["finalized"]) == (200, True)


@pytest.mark.parametrize(
    "kind",
    [
        ("apps/v1", "Deployment"),
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "ReplicaSet"),
        ("batch/v1", "Job"),
        ("batch.volcano.sh/v1alpha1", "Job"),
    ],
)
def test_every_kind_that_is_decorated(kind: tuple[str, str]) -> None:
    with VniService(":memory:") as service:
        assert service.sync(request(job("u", version=kind[0], kind=kind[1]))).status == 200


def test_a_claim_waits_for_its_users(world: World) -> None:
    attached = {"mesh": {"spec": {"vni": world.shared}}}
    answer = world.finalize(claim("mesh", "c-victim", VICTIM), attached)
    assert answer.content["finalized"] is False
    assert answer.content["resyncAfterSeconds"] == 5
    assert answer.content["attachments"][0]["spec"] == {"vni": world.shared}, "its Vni object stays"
    world.unharmed()
    world.finalize(job("member", "mesh", VICTIM))
    assert world.finalize(claim("mesh", "c-victim", VICTIM), attached).content["finalized"] is False
    assert world.finalize(claim("mesh", "c-victim", VICTIM)).content["finalized"] is True
    assert world.service.database.free()[1] == 1


def test_the_published_finalization_fails_the_second_time() -> None:
    with VniService(":memory:", published_finalize=True) as service:
        service.sync(request(job("u")))
        assert [service.finalize(request(job("u"))).status for _ in range(2)] == [200, 500]


@pytest.mark.parametrize(
    "document",
    [None, [], "x", {}, {"object": 3}, {"object": {}}, {"object": {"metadata": {}}}, {"object": {"kind": "Job", "apiVersion": "batch/v1", "metadata": {"namespace": "n"}}},
     {"object": {**job("u"), "metadata": {"uid": "u", "namespace": "UPPER"}}}, {"object": {**job("u"), "metadata": {"uid": "u", "namespace": "n", "annotations": []}}},
     {"object": {**job("u"), "metadata": {"uid": "u", "namespace": "n", "annotations": {"vni": ["a"]}}}}, {"object": {**job("u", 'a"b')}}, {"object": {**job("u", "a/b")}}],
)  # fmt: skip
def test_what_is_no_request_is_answered_in_one_line(document: Any) -> None:
    with VniService(":memory:") as service:
        answer = service.sync(document)
        assert answer.status == 400
        assert "\n" not in answer.content["error"]
        assert service.database.allocations() == []


def test_no_number_left_is_no_error_of_the_service() -> None:
    with VniService(":memory:", low=100, high=100) as service:
        service.acquire("a", "n")
        answer = service.sync(request(job("u")))
        assert (answer.status, answer.content) == (503, {"error": "no VNI is free"})


def test_scenes_are_drawn_from_the_stream() -> None:
    import numpy as np

    first, again = (draw(np.random.default_rng(3), 4, 2, 5) for _ in range(2))
    assert first == again
    assert {one.tenant for one in first.later}.isdisjoint({first.jobs[first.deleted].tenant})
