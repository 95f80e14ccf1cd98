"""The model of the card: who may open an endpoint, pools, and what the driver refuses."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from armillary.errors import InputError
from armillary.network.tenancy import CxiDevice, CxiError, Limit, Member, Process, ServiceDescription, parse_service, read_service
from armillary.network.tenancy.cni.plugin import DRIVER, grant
from armillary.network.tenancy.device.kept import keep, kept_devices
from armillary.network.tenancy.device.tool import ToolCard, listed, service_yaml

MINE, OTHER = 4026532001, 4026532002


def fails(code: int, call: Any, *arguments: Any) -> str:
    with pytest.raises(CxiError) as caught:
        call(*arguments)
    assert caught.value.code == code
    return str(caught.value)


def test_a_namespace_counts_and_users_do_not() -> None:
    card = CxiDevice()
    by_namespace = card.alloc_service(ServiceDescription((Member("netns", MINE),), (137,)), DRIVER)
    by_user = card.alloc_service(ServiceDescription((Member("uid", 1000), Member("gid", 1000)), (138,)), DRIVER)
    honest = Process(1000, 1000, MINE)
    for vni, service in ((137, by_namespace), (138, by_user)):
        card.close(card.open_endpoint(honest, service, vni))
    for thief in (
        Process(1000, 1000, OTHER),
        Process(0, 0, OTHER),
        Process(0, 0, OTHER, claimed_netns=MINE),
        Process(1000, 0, OTHER, admin=True),
    ):
        fails(errno.EACCES, card.open_endpoint, thief, by_namespace, 137)
    for impostor in (Process(1000, 7, OTHER), Process(7, 1000, OTHER)):
        card.close(card.open_endpoint(impostor, by_user, 138))
    fails(errno.EACCES, card.open_endpoint, Process(0, 0, OTHER), by_user, 138)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_an_endpoint_opens_exactly_if_the_rules_allow_it(data: st.DataObject) -> None:
    """Against the rules written once more, as one expression."""
    members = st.one_of(
        st.just(()), st.tuples(st.builds(Member, st.just("netns"), st.integers(1, 3))),
        st.lists(st.builds(Member, st.sampled_from(["uid", "gid"]), st.integers(0, 2)), min_size=1, max_size=2).map(tuple),
    )  # fmt: skip
    whats = data.draw(
        st.lists(
            st.builds(ServiceDescription, members, st.lists(st.integers(1, 4), max_size=4).map(tuple), enabled=st.booleans()), max_size=4
        )
    )
    card = CxiDevice(default_enabled=data.draw(st.booleans()))
    for what in whats:
        card.alloc_service(what, DRIVER)
    for process, service, vni in itertools.product(
        [Process(u, g, n) for u in range(2) for g in range(2) for n in (1, 2)], range(8), range(6)
    ):
        one = card.services.get(service)
        allowed = (
            one is not None and one.what.enabled and vni >= 1 and (not one.what.vnis or vni in one.what.vnis)
            and (not one.what.members or bool({("uid", process.uid), ("gid", process.gid), ("netns", process.netns)} & {(m.kind, m.number) for m in one.what.members}))
        )  # fmt: skip
        try:
            card.close(card.open_endpoint(process, service, vni))
            assert allowed
        except CxiError:
            assert not allowed


def test_services_are_for_administrators_and_the_default_one_stays() -> None:
    card = CxiDevice()
    assert fails(errno.EPERM, card.alloc_service, ServiceDescription(), Process(0, 0, 1)).startswith("EPERM")
    fails(errno.EPERM, card.destroy_service, 1, Process(0, 0, 1))
    fails(errno.EPERM, card.enable, 1, Process(0, 0, 1))
    fails(errno.EINVAL, card.destroy_service, 1, DRIVER)
    fails(errno.ENOENT, card.destroy_service, 9, DRIVER)
    fails(errno.EACCES, card.open_endpoint, Process(0, 0, 1), 1, 10)
    card.enable(1, DRIVER)
    opened = card.open_endpoint(Process(5, 5, 5), 1, 10)
    fails(errno.EINVAL, card.open_endpoint, Process(5, 5, 5), 1, 11)
    assert card.takes_packet(10)
    assert not card.takes_packet(1), "no endpoint is open on it"
    card.enable(1, DRIVER, enabled=False)
    assert card.takes_packet(10), "what is open stays open"
    card.close(opened)
    card.close(opened)
    assert not card.takes_packet(10)
    assert card.services[1].endpoints == 0


@pytest.mark.parametrize(
    ("what", "code"),
    [
        (ServiceDescription((Member("netns", 1), Member("uid", 1))), errno.EEXIST),
        (ServiceDescription((Member("netns", 1), Member("netns", 2))), errno.EEXIST),
        (ServiceDescription((Member("uid", 1),) * 3), errno.EINVAL),
        (ServiceDescription(vnis=(1, 2, 3, 4, 5)), errno.EINVAL),
        (ServiceDescription(vnis=(0,)), errno.EINVAL),
        (ServiceDescription(vnis=(65536,)), errno.EINVAL),
        (ServiceDescription((Member("uid", -1),)), errno.EINVAL),
        (ServiceDescription(classes=("FAST",)), errno.EINVAL),
        (ServiceDescription(limits={"les": Limit(1, 2)}), errno.EINVAL),
    ],
)
def test_what_the_driver_refuses(what: ServiceDescription, code: int) -> None:
    card = CxiDevice()
    fails(code, card.alloc_service, what, DRIVER)
    assert list(card.services) == [1]


def test_the_sixteenth_reservation_finds_no_pool() -> None:
    card = CxiDevice()
    reserving = ServiceDescription(
        limits={"les": Limit(64, 64), **{name: Limit(8) for name in ("acs", "cts", "eqs", "ptes", "tgqs", "txqs")}}
    )
    made = [card.alloc_service(reserving, DRIVER) for _ in range(15)]
    assert "no LE pool is left" in fails(errno.ENOSPC, card.alloc_service, reserving, DRIVER)
    for service in made:
        card.close(card.open_endpoint(Process(1, 1, 1), service, 5))
    for _ in range(100):
        card.alloc_service(ServiceDescription(vnis=(7,)), DRIVER)
    card.destroy_service(made[3], DRIVER)
    card.alloc_service(reserving, DRIVER)
    tles = ServiceDescription(limits={"tles": Limit(8, 8)})
    for _ in range(4):
        card.alloc_service(tles, DRIVER)
    assert "no TLE pool is left" in fails(errno.ENOSPC, card.alloc_service, tles, DRIVER)


def test_limits_and_reservations_hold() -> None:
    card = CxiDevice()
    two = card.alloc_service(
        ServiceDescription(
            limits={name: Limit(8 if name == "les" else 2) for name in ("acs", "cts", "eqs", "les", "ptes", "tgqs", "txqs")}
        ),
        DRIVER,
    )
    opened = [card.open_endpoint(Process(1, 1, 1), two, 5) for _ in range(2)]
    assert "may use 2" in fails(errno.ENOSPC, card.open_endpoint, Process(1, 1, 1), two, 5)
    card.close(opened[0])
    card.open_endpoint(Process(1, 1, 1), two, 5)
    fails(errno.EBUSY, card.destroy_service, two, DRIVER)
    all_queues = ServiceDescription(limits={"tgqs": Limit(512, 500)})
    card.alloc_service(all_queues, DRIVER)
    assert "cannot be reserved; 12 are left" in fails(errno.ENOSPC, card.alloc_service, all_queues, DRIVER)
    free = card.alloc_service(ServiceDescription(), DRIVER)
    for _ in range(10):
        card.open_endpoint(Process(2, 2, 2), free, 5)
    assert "the card has no tgqs left" in fails(errno.ENOSPC, card.open_endpoint, Process(2, 2, 2), free, 5)


def test_a_traffic_class_may_be_kept_from_a_service() -> None:
    card = CxiDevice()
    slow = card.alloc_service(ServiceDescription(classes=("BULK_DATA",)), DRIVER)
    card.open_endpoint(Process(1, 1, 1), slow, 5, "BULK_DATA")
    fails(errno.EINVAL, card.open_endpoint, Process(1, 1, 1), slow, 5)


def test_a_service_that_stands_for_a_number_that_is_used_again_is_removed() -> None:
    card = CxiDevice()
    first = grant(card, MINE, 137)
    assert grant(card, MINE, 137) == first, "none is made if one stands already"
    second = grant(card, MINE, 138)
    assert [card.services[number].what.vnis for number in card.services_of(MINE)] == [(138,)]
    assert grant(card, MINE, 139, clear_stale=False) == second, "as published"
    grant(card, MINE, None)
    assert card.services_of(MINE) == []
    card.open_endpoint(Process(1, 1, MINE), grant(card, MINE, 140) or 0, 140)
    fails(errno.EBUSY, grant, card, MINE, 141)


# Files


def test_cards_in_a_file_are_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "cards.json"
    card = CxiDevice(default_enabled=True)
    number = card.alloc_service(ServiceDescription((Member("netns", MINE),), (137,), limits={"les": Limit(8, 8)}), DRIVER)
    keep(path, [card, CxiDevice()])
    with kept_devices(path) as (kept, _):
        assert kept.services[number].what == card.services[number].what
        fails(errno.ENOSPC, kept.open_endpoint, Process(1, 1, MINE), number, 137)
        kept.open_endpoint(Process(1, 1, MINE), 1, 10)
    with kept_devices(path) as (kept, _):
        assert kept.services[1].endpoints == 1
        assert kept.services[1].used["les"] == 4
    for content in (
        "[]",
        "{}",
        '{"devices": [{}]}',
        '{"devices": 3}',
        "x",
        '{"devices": [{"next": [2, 1], "services": [], "endpoints": []}]}',
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=r"cards\.json"), kept_devices(path):
            pass


def test_nothing_is_written_if_the_work_on_cards_fails(tmp_path: Path) -> None:
    path = tmp_path / "cards.json"
    keep(path, [CxiDevice()])
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), kept_devices(path) as (card,):
        card.alloc_service(ServiceDescription(), DRIVER)
        raise ZeroDivisionError
    assert path.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["cards.json", "cards.json.lock"]


TEMPLATE = """
resource_limits: 1
restricted_members: 1
restricted_tcs: 1
limits:
  - name: LEs
    max: 9
    res: 3
vnis:
  vni: 2
  vni: 3   # a second one
  vni: 4
members:
  - type: uid
    id: 1
  - type: gid
    id: 2
tcs:
    tc: DEDICATED_ACCESS
    tc: BULK DATA
"""


def test_a_service_in_the_format_of_the_vendors_tool(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(TEMPLATE)
    what = read_service(tmp_path / "service.yaml")
    assert what.vnis == (2, 3, 4), "a key that is repeated counts each time"
    assert what.members == (Member("uid", 1), Member("gid", 2))
    assert what.classes == ("DEDICATED_ACCESS", "BULK_DATA")
    assert what.limits is not None
    assert what.limits["les"] == Limit(9, 3)
    assert what.limits["acs"] == Limit(0, 0), "what is not listed is 0"
    assert parse_service("restricted_members: 0\nvnis:\n  vni_min: 64\n  vni_max: 65\n", "x").vnis == (64, 65)
    again = parse_service(service_yaml(ServiceDescription((Member("netns", MINE),), (137, 138))), "x")
    assert (again.members, again.vnis) == ((Member("netns", MINE),), (137, 138))


@pytest.mark.parametrize(
    "text",
    ["", "a: 1", "kind: Job", "vnis:\n  vni: 0\n", "vnis:\n  vni: x\n", "vnis:\n  vni: 70000\n", "restricted_members: 1\n", "restricted_members: 2\n",
     "restricted_members: 1\nmembers:\n  - type: netns\n    id: -1\n", "restricted_members: 1\nmembers: 3\n", "resource_limits: 1\nlimits:\n  - name: QPs\n    max: 1\n    res: 1\n",
     "vnis:\n  vni_min: 3\n  vni_max: 4\n", "vnis:\n  vni_min: 9\n  vni_max: 8\n", "vnis:\n" + "  vni: 5\n" * 5, "restricted_tcs: 1\ntcs:\n  tc: FAST\n", "--- 1\n--- 2\n",
     "vnis: !!python/object:os.system 1\n", "limits: [1]\nresource_limits: 1\n"],
)  # fmt: skip
def test_what_is_no_service_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"^s\.yaml") as caught:
        parse_service(text, "s.yaml")
    assert "\n" not in str(caught.value)


LISTED = """cxi0
----
 Total Device Resources
 ----------------------
 LEs:  16384
 --------------------------
 ID: 1 (DEFAULT)
   LNIs/RGID          : 1
   Enabled            : No
   Restricted Members : No
   ---> Valid Members : All uids/gids
   VNIs               : 1 10
   Restricted TCs     : No
 --------------------------
 ID: 5
   Enabled            : Yes
   Restricted Members : Yes
   ---> Valid Members : netns=4026532001
   VNIs               : 137
 --------------------------
 ID: 6
   ---> Valid Members : uid=1 gid=2
   VNIs               : 64-127
"""


def test_what_the_vendors_tool_lists_is_read() -> None:
    found = listed(LISTED)
    assert sorted(found) == [1, 5, 6]
    assert found[5].what == ServiceDescription((Member("netns", MINE),), (137,))
    assert found[6].what.members == (Member("uid", 1), Member("gid", 2))


def test_real_cards_go_through_the_vendors_tool(tmp_path: Path) -> None:
    """A stand-in for the tool, which keeps its services in a file and prints the tool's own lines."""
    state = tmp_path / "state"
    state.write_text("")
    tool = tmp_path / "cxi_service"
    tool.write_text(
        "#!/bin/sh\n"
        f"state={state}\n"
        'case "$1" in\n'
        ' list) printf "cxi0\\n"; while read -r id netns vni; do printf " ID: %s\\n   ---> Valid Members : netns=%s\\n   VNIs               : %s\\n" "$id" "$netns" "$vni"; done < "$state";;\n'
        ' create) netns=$(sed -n "s/ *id: //p" "$3"); vni=$(sed -n "s/^ *vni: //p" "$3"); echo "7 $netns $vni" >> "$state"; printf "\\nSuccessfully created service: 7\\n";;\n'
        ' delete) if grep -q "^$3 .* 666$" "$state"; then echo "cxi_service: Could not delete service $3: Device or resource busy" >&2; exit 1; fi; sed -i "/^$3 /d" "$state";;\n'
        "esac\n"
    )
    tool.chmod(0o755)
    card = ToolCard("cxi0", str(tool))
    assert grant(card, MINE, 137) == 7
    assert grant(card, MINE, 137) == 7
    assert ToolCard("cxi0", str(tool)).services_of(MINE) == [7]
    grant(card, MINE, None)
    assert state.read_text() == ""
    grant(card, OTHER, 666)
    fails(errno.EBUSY, grant, card, OTHER, None)
    fails(errno.EIO, ToolCard, "cxi0", str(tmp_path / "missing"))
