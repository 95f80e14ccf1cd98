"""The two webhooks of the VNI service as documents: what the DecoratorController posts, and what it gets back.

`/sync` is posted for every annotated object and every VniClaim, and the answer lists the Vni objects that should be attached to it;
`/finalize` is posted before an object goes, and the answer says whether it may. The documents are those of the public service, so this is
a drop-in endpoint. Where the public one can be led astray, this one differs: an annotation joins claims only, and never another job's own
VNI; a claim's name belongs to the object that came first; finalizing twice succeeds; a claim that is still in use changes nothing; and an
object gives back all that its uid has, also when its annotation was changed or removed meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from armillary.errors import InputError, one_line

from .database import InUse, NoFreeVni, NoSuchClaim, Taken, VniDatabase

GROUP, ATTACHED = "horizon-opencube.eu/v1", "Vni.horizon-opencube.eu/v1"
#: The kinds of object that may carry the annotation, by API version.
DECORATED = frozenset({
    ("apps/v1", "Deployment"), ("apps/v1", "DaemonSet"), ("apps/v1", "ReplicaSet"), ("batch/v1", "Job"),
    ("batch.volcano.sh/v1alpha1", "Job"),
})  # fmt: skip
#: Seconds after which an object that cannot go yet is asked about again.
RESYNC_S = 5
LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
OWN = ("true", "yes")
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LIKE_A_JOBS = re.compile(r"vni-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class Answer:
    """The status of HTTP and the document."""

    status: int
    content: dict[str, Any]


@dataclass(frozen=True)
class Decorated:
    """What a hook needs to know of an object: its claim's name for a VniClaim, otherwise its annotation."""

    kind: Literal["job", "claim"]
    namespace: str
    uid: str
    wanted: str

    @staticmethod
    def of(document: object) -> Decorated:
        """The object of a request; raises InputError for one that has none."""
        body = _mapping(_mapping(document, "the body").get("object"), "object")
        meta = _mapping(body.get("metadata"), "object.metadata")
        kind = (_text(body.get("apiVersion"), "object.apiVersion"), _text(body.get("kind"), "object.kind"))
        uid = _text(meta.get("uid"), "object.metadata.uid")
        if not _UID.fullmatch(uid):
            raise InputError(f'found "{one_line(uid, 60)}"; expected a uid', where="object.metadata.uid")
        namespace = _text(meta.get("namespace"), "object.metadata.namespace")
        if not LABEL.fullmatch(namespace):
            raise InputError(f'found "{one_line(namespace, 60)}"; expected a DNS label', where="object.metadata.namespace")
        if kind == (GROUP, "VniClaim"):
            name = _mapping(body.get("spec"), "object.spec").get("name")
            return Decorated("claim", namespace, uid, claim_name(name, "object.spec.name"))
        if kind not in DECORATED:
            raise InputError(f"found {one_line(' '.join(kind), 80)}; expected a kind that is decorated", where="object.kind")
        annotations = _mapping_or_none(meta.get("annotations"), "object.metadata.annotations")
        return Decorated("job", namespace, uid, annotation(annotations.get("vni", ""), "object.metadata.annotations.vni"))


def claim_name(name: object, where: str) -> str:
    """The name of a claim, if it is one: a DNS label, and nothing that an annotation or a job's Vni object means already."""
    if not isinstance(name, str) or not LABEL.fullmatch(name):
        raise InputError(f"found {one_line(repr(name), 60)}; expected a DNS label", where=where)
    if name in OWN or _LIKE_A_JOBS.fullmatch(name):
        raise InputError(f'found "{name}", which means something else; expected another name', where=where)
    return name


def annotation(value: object, where: str) -> str:
    """The annotation in lower case: "", "true", "yes" or the name of a claim."""
    if not isinstance(value, str):
        raise InputError(f"found {one_line(repr(value), 60)}; expected a text", where=where)
    low = value.lower()
    return low if low in ("", *OWN) else claim_name(low, where)


def sync(database: VniDatabase, document: object) -> Answer:
    """The Vni object that an object should have. 404: its claim does not exist; 409: its name is taken; 503: no VNI is ready."""
    try:
        wanted = Decorated.of(document)
        name = f"vni-{wanted.uid}"
        if wanted.kind == "claim":
            name = wanted.wanted
            vni = database.acquire(name, wanted.namespace, kind="claim", uid=wanted.uid)
        elif wanted.wanted in OWN:
            vni = database.acquire(name, wanted.namespace, uid=wanted.uid)
        elif wanted.wanted:
            vni = database.join(wanted.wanted, wanted.namespace, wanted.uid)
        else:
            return _answer([])
    except InputError as problem:
        return _refused(400, str(problem))
    except NoSuchClaim as problem:
        return _refused(404, str(problem))
    except Taken as problem:
        return _refused(409, str(problem))
    except NoFreeVni as problem:
        return _refused(503, str(problem))
    made = {"apiVersion": GROUP, "kind": "Vni", "metadata": {"name": name, "namespace": wanted.namespace}, "spec": {"vni": vni}}
    return _answer([made])


def finalize(database: VniDatabase, document: object) -> Answer:
    """Gives back what an object has; it may go once no Vni is attached to it any more, and a claim once nobody uses it."""
    try:
        gone = Decorated.of(_lenient(document))
        attachments = _mapping_or_none(_mapping(document, "the body").get("attachments"), "attachments")
        attached = _mapping_or_none(attachments.get(ATTACHED), f"attachments.{ATTACHED}")
    except InputError as problem:
        return _refused(400, str(problem))
    try:
        database.end(gone.namespace, gone.uid, gone.kind)
    except InUse:
        kept = [{"apiVersion": GROUP, "kind": "Vni", "metadata": {"name": name, "namespace": gone.namespace}, "spec": _spec(one)}
                for name, one in attached.items()]  # fmt: skip
        return _answer(kept, finalized=False)
    return _answer([], finalized=not attached)


def _lenient(document: object) -> object:
    """An object that goes may say anything in its annotation: what it has is found by its uid."""
    body = _mapping(document, "the body").get("object")
    if isinstance(body, Mapping) and body.get("kind") != "VniClaim" and isinstance(body.get("metadata"), Mapping):
        return {"object": {**body, "metadata": {**body["metadata"], "annotations": {}}}}
    return document


def _spec(attached: object) -> dict[str, Any]:
    spec = attached.get("spec") if isinstance(attached, Mapping) else None
    return dict(spec) if isinstance(spec, Mapping) else {}


def _answer(attachments: list[dict[str, Any]], *, finalized: bool | None = None) -> Answer:
    content: dict[str, Any] = {"labels": {}, "annotations": {}, "status": None, "attachments": attachments, "resyncAfterSeconds": 0}
    if finalized is not None:
        content |= {"finalized": finalized, "resyncAfterSeconds": 0 if finalized else RESYNC_S}
    return Answer(200, content)


def _refused(status: int, said: str) -> Answer:
    return Answer(status, {"error": one_line(said)})


def _mapping(found: object, where: str) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise InputError(f"found {one_line(repr(found), 40)}; expected an object", where=where)
    return found


def _mapping_or_none(found: object, where: str) -> Mapping[str, Any]:
    return {} if found is None else _mapping(found, where)


def _text(found: object, where: str) -> str:
    if not isinstance(found, str) or not found:
        raise InputError(f"found {one_line(repr(found), 40)}; expected a text", where=where)
    return found
