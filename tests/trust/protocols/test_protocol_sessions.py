"""Endpoints that run: generated source, monitors, transports, and what happens when somebody misbehaves."""

from __future__ import annotations

import asyncio
import random
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from armillary import comm
from armillary.trust.protocols import (
    Broken,
    Message,
    Monitor,
    Monitored,
    Queues,
    RankTransport,
    Reused,
    Session,
    TcpTransport,
    Violation,
    WrongPayload,
    built_in,
    check,
    endpoint,
    machines_of,
    play,
    table_of,
)  # fmt: skip
from armillary.trust.protocols.sessions import virtual_time
from armillary.trust.protocols.sessions.tcp import Disconnected
from armillary.trust.protocols.sessions.wire import BadMessage, decode, encode
from armillary.trust.protocols.suite.built_in import DIRECTED, SOUND

JOB = built_in("request_timeout")


def modules(style: str = "states") -> dict[str, Any]:
    return {role: endpoint(JOB, role, style).module() for role in JOB.roles}


def test_a_crossing_ends_in_agreement_and_one_request_is_thrown_away() -> None:
    made, queues = modules(), Queues(JOB.roles)

    async def client() -> Any:
        state = await made["Client"].begin(queues.of("Client")).send_req(7, b"body")
        heard = await state.receive()
        return type(heard).__name__, heard.id, await heard.state.send_ack()

    async def server() -> Any:
        waiting = await made["Server"].begin(queues.of("Server")).send_expired(7)
        heard = await waiting.receive()
        end = await heard.state.send_gaveup(7)
        return end._session

    async def log() -> Any:
        return type(await made["Log"].begin(queues.of("Log")).receive()).__name__

    async def all_three() -> Any:
        return await asyncio.gather(client(), server(), log())

    (name, number, _), session, heard = asyncio.run(all_three())
    assert (name, number, heard) == ("Client1_expired", 7, "Log0_gaveup")
    assert session.discarded == 1


def test_every_delay_schedule_of_the_job_ends_in_agreement() -> None:
    ended = play(check(JOB), range(1000))
    assert {one.how for one in ended} == {"agreement"}
    assert sum(one.races for one in ended) > 300
    assert sum(one.agreed for one in ended) == sum(one.races for one in ended)


@pytest.mark.slow
@pytest.mark.parametrize("tags", [False, True])
def test_twenty_thousand_delay_schedules_of_the_job_end_in_agreement(tags: bool) -> None:
    assert {one.how for one in play(check(JOB, tags=tags), range(20_000))} == {"agreement"}


@pytest.mark.parametrize("name", SOUND + DIRECTED)
@pytest.mark.parametrize("tags", [False, True])
def test_sessions_of_sound_protocols_agree_and_their_monitors_say_nothing(name: str, tags: bool) -> None:
    assert {one.how for one in play(machines_of(built_in(name), tags=tags), range(15), monitored=True)} == {"agreement"}


@pytest.mark.parametrize("name", ["supervised_worker", "two_sided_close", "amqp_channel"])
def test_a_transport_that_changes_the_order_is_reported_by_the_monitor_and_never_agreed_to(name: str) -> None:
    system = check(built_in(name))
    watched = Counter(one.how for one in play(system, range(60), monitored=True, reorder=True))
    # No session gets stuck or takes one message for another before its monitor speaks.
    assert watched.keys() == {"agreement", "violation"}
    ended = play(system, range(60), monitored=True, reorder=True)
    assert all("the order was changed" in one.said for one in ended if one.how == "violation")
    assert {one.how for one in play(system, range(60), reorder=True)} - {"agreement"}
    assert {one.how for one in play(system, range(60), monitored=True)} == {"agreement"}


def test_an_unchecked_deadlock_is_seen_at_once() -> None:
    ended = play(machines_of(built_in("awareness_one_side")), range(20))
    assert {one.how for one in ended} == {"agreement", "stuck"}


def test_virtual_time_jumps_and_a_wait_without_end_is_stuck() -> None:
    async def sleepy() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert virtual_time.run(sleepy()) == pytest.approx(3600)
    with pytest.raises(virtual_time.Stuck):
        virtual_time.run(asyncio.Event().wait())


def test_a_state_is_used_once_and_a_wrong_payload_is_refused_before_it_is_sent() -> None:
    made, queues = modules(), Queues(JOB.roles)

    async def wrong() -> None:
        state = made["Client"].begin(queues.of("Client"))
        for bad in (("7", b""), (True, b""), (7, "text"), (7.0, b"")):
            with pytest.raises(WrongPayload):
                await state.send_req(*bad)
        assert queues.queues["Server"].empty()
        await state.send_req(7, b"")
        with pytest.raises(Reused):
            await state.send_req(8, b"")
        assert queues.queues["Server"].qsize() == 1

    asyncio.run(wrong())


def test_a_timeout_sends_the_right_branch() -> None:
    made, queues = modules(), Queues(JOB.roles)

    async def server() -> str:
        state = made["Server"].begin(queues.of("Server"))
        assert await state.receive_within(0.5) is None
        return type(await state.receive_or_expired(3, after=0.5)).__name__

    assert virtual_time.run(server()) == "Server1"
    assert queues.queues["Client"].get_nowait().label == "expired"


def test_handlers_follow_the_protocol() -> None:
    made, queues = modules("handlers"), Queues(JOB.roles)
    heard: list[Any] = []

    class Client(made["Client"].ClientHandler):  # type: ignore[name-defined,misc]
        rounds = 2

        async def at_0(self) -> Any:
            self.rounds -= 1
            return made["Client"].Say0_req(self.rounds, b"x") if self.rounds >= 0 else None

        async def at_2(self) -> Any:
            return made["Client"].Say2_ack()

        async def on_ok(self, id: int) -> None:
            heard.append(id)

    class Server(made["Server"].ServerHandler):  # type: ignore[name-defined,misc]
        async def at_0(self) -> Any:
            return made["Server"].After(1.0, made["Server"].Say0_expired(99))

        async def at_2(self) -> Any:
            return made["Server"].Say2_ok(5)

        async def at_3(self) -> Any:
            return made["Server"].Say3_gaveup(1)

        async def at_4(self) -> Any:
            return made["Server"].Say4_done(1)

    class Log(made["Log"].LogHandler):  # type: ignore[name-defined,misc]
        async def on_gaveup(self, id: int) -> None:
            heard.append("gave up")

    async def run() -> None:
        await asyncio.gather(Client(queues.of("Client")).run(), Server(queues.of("Server")).run(), Log(queues.of("Log")).run())

    virtual_time.run(run())
    assert heard == [5, 5, "gave up"]


def test_generated_source_is_deterministic_and_strictly_typed(tmp_path: Path) -> None:
    for role in JOB.roles:
        for style in ("states", "handlers"):
            text = endpoint(JOB, role, style).source()
            assert text == endpoint(JOB, role, style).source()
            (tmp_path / f"{role}_{style}.py".lower()).write_text(text)
    code = "import client_states; from client_states import begin; print(begin.__name__)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "begin\n"


@pytest.mark.slow
def test_all_generated_source_passes_mypy_strict(tmp_path: Path) -> None:
    for name in SOUND + DIRECTED:
        for role in built_in(name).roles:
            for style in ("states", "handlers"):
                (tmp_path / f"{name}_{role}_{style}.py".lower()).write_text(endpoint(built_in(name), role, style).source())
    ran = subprocess.run([sys.executable, "-m", "mypy", "--strict", *map(str, tmp_path.glob("*.py"))], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-2000:]


def test_a_monitor_takes_legal_traces_and_refuses_each_mutation() -> None:
    rng = random.Random(4)
    tried = 0
    for name in ("request_timeout", "amqp_channel", "nested_mixed", "supervised_worker"):
        for machine in check(built_in(name)).machines:
            for _ in range(60):
                monitor, table = Monitor(machine), table_of(machine)
                state = 0
                while table.states[state].steps and rng.random() < 0.93:
                    steps = table.states[state].steps
                    legal = {("send" if s.send else "receive", s.peer, s.label) for s in steps}
                    legal |= {("receive", *one) for one in table.states[state].discards}
                    wrong = (
                        rng.choice(("send", "receive")),
                        rng.choice(built_in(name).roles),
                        rng.choice([*"xyz", *(s.label for s in steps)]),
                    )
                    if wrong not in legal:
                        before = monitor.state
                        said = monitor.feed(*wrong)
                        assert isinstance(said, Violation)
                        assert not said
                        assert said.state == before == monitor.state
                        tried += 1
                    step = rng.choice(steps)
                    assert monitor.feed("send" if step.send else "receive", step.peer, step.label)
                    state = step.target
    assert tried > 1000


def test_a_monitor_sees_payloads_instances_and_numbers() -> None:
    monitor = Monitor(JOB, "Server")
    tags = ((0, 1, "left"),)
    assert monitor.feed_message("receive", Message("Client", "Server", "req", (1, b""), tags, 0))
    assert "payload" in str(Monitor(JOB, "Server").feed_message("receive", Message("Client", "Server", "req", ("1", b""), tags, 0)))
    assert "instance" in str(
        Monitor(JOB, "Server").feed_message("receive", Message("Client", "Server", "req", (1, b""), ((0, 2, "left"),), 0))
    )
    assert "number 0 is due" in str(Monitor(JOB, "Server").feed_message("receive", Message("Client", "Server", "req", (1, b""), tags, 1)))


def test_sessions_over_tcp_agree() -> None:
    from armillary.trust.protocols.sessions.rate import messages_per_s

    assert messages_per_s(check(JOB), 0.01, tcp=True) > 0


def test_a_tcp_server_bounds_what_strangers_send() -> None:
    table = table_of(check(JOB).of("Server"))

    async def strangers() -> dict[str, int]:
        async with TcpTransport(table, most_bytes=1000, hello_s=0.05, idle_s=0.1) as server:
            assert server.address[0] == "127.0.0.1"

            kept = []

            async def send(data: bytes) -> asyncio.StreamWriter:
                _, writer = await asyncio.open_connection(*server.address)
                kept.append(writer)  # A writer that nobody keeps is closed.
                writer.write(data)
                await writer.drain()
                return writer

            async def until(reason: str, many: int) -> None:
                async with asyncio.timeout(20):
                    while server.refused.get(reason, 0) < many:
                        await asyncio.sleep(0.001)

            async def empty() -> None:
                async with asyncio.timeout(20):
                    while server._open:
                        await asyncio.sleep(0.001)

            hello = struct.pack(">I", 6) + b"Client"
            for _ in range(12):
                await send(b"")
            await until("too many connections", 1)
            await until("silent for too long", 1)
            await empty()
            await send(struct.pack(">I", 6) + b"Nobody")
            await until("unknown or second sender", 1)
            await send(struct.pack(">I", 1 << 31))
            await until("bad message", 1)
            await send(hello + struct.pack(">I", 1001))
            with pytest.raises(Exception, match="expected at most 1,000"):
                await server.receive()
            await empty()
            await send(hello + struct.pack(">I", 2) + b"{}")
            with pytest.raises(Exception, match="no message"):
                await server.receive()
            await empty()
            silent = server.refused["silent for too long"]
            await send(hello)
            await until("silent for too long", silent + 1)
            await empty()
            return dict(server.refused)

    refused = asyncio.run(strangers())
    assert refused["unknown or second sender"] == 1
    assert refused["bad message"] == 3


def test_whoever_waits_over_tcp_is_told_when_the_other_dies_or_is_silent() -> None:
    server_table, client_table = (table_of(check(JOB).of(role)) for role in ("Server", "Client"))

    async def waiting(idle_s: float, leave: bool) -> str:
        async with TcpTransport(server_table, idle_s=idle_s) as server:
            client = TcpTransport(client_table, {"Server": server.address})
            async with client:
                await client.send(Message("Client", "Server", "req", (1, b""), ((0, 1, "left"),), 0))
                assert (await server.receive()).label == "req"
                if leave:
                    client._writers["Server"].close()
                async with asyncio.timeout(20):
                    with pytest.raises(Disconnected) as told:
                        await server.receive()
                return str(told.value)

    assert "all who speak to Server went away (Client)" in asyncio.run(waiting(20, True))
    assert "heard nothing for 0.05 s" in asyncio.run(waiting(0.05, False))

    async def unreachable() -> None:
        async with TcpTransport(client_table, {"Server": ("127.0.0.1", 1)}) as client:
            with pytest.raises(Disconnected, match="Server cannot be reached"):
                await client.send(Message("Client", "Server", "req", (1, b""), (), 0))

    asyncio.run(unreachable())


def test_a_full_session_says_so_and_a_full_queue_makes_its_sender_wait() -> None:
    table = table_of(check(built_in("amqp_channel")).of("Broker"))
    queues = Queues(("App", "Client", "Broker"), most=4)

    async def flood() -> None:
        session = Session(table, queues.of("Broker"), tags=False, most_waiting=3)
        for i in range(4):
            await queues.of("Client").send(Message("Client", "Broker", "channel_close", (200, ""), (), i))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await queues.of("Client").send(Message("Client", "Broker", "channel_close", (200, ""), (), 5))
        with pytest.raises(Exception, match="more than 3 messages"):
            await session.receive()

    asyncio.run(flood())


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'["a","b","c",[],[],"x"]', b'["a","b","c",[1],[[0]],1]', b"[" * 5000, b"\xff\xfe", b'["a","b","c",["*"],[],0]'],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(data, {("a", "c"): ("bytes",)})


def test_a_message_survives_the_wire() -> None:
    message = Message("Client", "Server", "req", (7, b"\0\xff"), ((0, 3, "left"),), 9)
    assert decode(encode(message)[4:], {("Client", "req"): ("int", "bytes")}) == message
    with pytest.raises(BadMessage, match="expected at most 10"):
        encode(message, 10)


def program(ranks: Any, cheat: bool) -> str:
    """Each rank plays its role of the job, watched by a monitor; a cheating client sends its acknowledgement at once."""
    roles = ("Client", "Server", "Log")
    table = table_of(check(JOB).of(roles[ranks.rank]))
    transport = RankTransport(ranks, roles, table)
    session = Monitored.session(table, transport)

    async def run() -> str:
        steps = table.states
        if roles[ranks.rank] == "Client":
            if cheat:
                await transport.send(Message("Client", "Server", "ack", (), (), 0))
                return "cheated"
            await session.send(steps[0].steps[0], (1, b"x"))
            assert (await session.receive())[1].label == "expired"
            await session.send(steps[session.state].steps[0], ())
            return "right"
        if roles[ranks.rank] == "Server":
            await session.send(next(s for s in steps[0].steps if s.label == "expired"), (1,))
            try:
                heard = (await session.receive())[1].label
            except Broken as broken:
                heard = "" if "instance" in str(broken) or "order" in str(broken) else str(broken)
            except Exception as problem:
                heard = type(problem).__name__
            await session.send(steps[session.state].steps[0], (1,)) if heard == "ack" else await transport.send(
                Message("Server", "Log", "gaveup", (1,), ((0, 1, "right"),), 0)
            )
            return heard
        return (await session.receive())[1].label

    said = asyncio.run(run())
    transport.finish()
    return said


@pytest.mark.parametrize(("cheat", "expected"), [(False, ["right", "ack", "gaveup"]), (True, ["cheated", "Unexpected", "gaveup"])])
def test_sessions_and_monitors_run_on_ranks(cheat: bool, expected: list[str]) -> None:
    values = comm.run(program, cheat, ranks=3, backend="threads").values
    assert values[0] == expected[0]
    assert values[2] == "gaveup"
    assert values[1] == expected[1]
