"""Protocols with mixed choice: the cost of checks, exploration and monitors, what each part is for, and AMQP beside three other clients.

    python benchmarks/trust_protocols.py [--part check|explore|run|parts|amqp]

Checks and explorations are in CPU seconds. SPIN and RabbitMQ are used where they are installed; so are pika, amqp and aio-pika. All
clients publish to one broker and take each message off its queue again, one after another.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import time
from collections import Counter
from collections.abc import Callable

from armillary.trust.protocols import (
    Machine,
    Machines,
    Token,
    built_in,
    check,
    explore_machines,
    family,
    machines_of,
    play,
    spin,
    violations,
)  # fmt: skip
from armillary.trust.protocols.amqp.broker import Broker
from armillary.trust.protocols.amqp.broker import lacking as no_broker
from armillary.trust.protocols.amqp.client import connect
from armillary.trust.protocols.checking.machine import State, Step, machines
from armillary.trust.protocols.checking.projection import projected
from armillary.trust.protocols.exploring.promela import lacking as no_spin
from armillary.trust.protocols.mixed import MixedChoiceTypes
from armillary.trust.protocols.sessions.rate import messages_per_s, monitor_us
from armillary.trust.protocols.suite.built_in import BROKEN, SOUND

ROUNDS, REPEATS = 2000, 5


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def check_cost() -> None:
    print("check and exploration (queues of 2), CPU ms, and configurations with and without reduction")
    for name, size in (("ring", 8), ("ring", 64), ("fanout", 64), ("nest", 3), ("nest", 8), ("loop", 64)):
        protocol = family(name, size)
        checked = min(seconds(lambda p=protocol: check(p)) for _ in range(3))
        system = machines_of(protocol)
        explored = min(seconds(lambda s=system: explore_machines(s, bound=2)) for _ in range(3))
        many = explore_machines(system, bound=2).configurations
        whole = explore_machines(system, bound=2, most=20_000, reduce=False)
        said = f"{whole.configurations:,}" if whole.complete else "more than 20,000"
        print(f"  {name}({size})  {checked * 1e3:7.1f}  {explored * 1e3:7.1f}  {many:,}  {said}")


def explore_cost() -> None:
    def pair(i: int) -> list[Machine]:
        said = [State((Step(True, f"B{i}", "m", (), j + 1),)) for j in range(9)]
        heard = [State((Step(False, f"A{i}", "m", (), j + 1),)) for j in range(9)]
        return [Machine(f"A{i}", (*said, State((), True))), Machine(f"B{i}", (*heard, State((), True)))]

    system = machines([one for i in range(5) for one in pair(i)])
    took = seconds(lambda: explore_machines(system, bound=2, most=1_000_000, reduce=False))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"a million configurations of five independent pairs: {took:.1f} CPU s, {used:.0f} MiB in all")
    print(f"  with reduction: {explore_machines(system, bound=2).configurations} configurations")
    channel = machines_of(built_in("amqp_channel"))
    for bound in (2, 4, 8):
        found = explore_machines(channel, bound=bound, reduce=False)
        print(f"  AMQP channel, queues of {bound}: {found.configurations:,} configurations, {found.cpu_s:.2f} CPU s")
    if no_spin():
        print(f"  {no_spin()}")
        return
    began = time.perf_counter()
    found = spin(channel, 2, timeout_s=300)
    print(f"  SPIN on the AMQP channel, queues of 2: {found.states:,} states, {time.perf_counter() - began:.1f} s with its compiler")


def running() -> None:
    print("messages per second through queues and TCP (specified and not thrown away), monitor µs per event; medians of five")
    for name in ("request_timeout", "amqp_channel", "ring_of_four", "two_buyers_withdrawal"):
        token = Token().judge(built_in(name))
        assert token.system is not None
        for technique, system, extra in (("mixed", check(built_in(name)), frozenset()), ("token", token.system, token.extra)):
            rates = [
                statistics.median(messages_per_s(system, 0.2, tcp=tcp, extra=extra, seed=i) for i in range(REPEATS))
                for tcp in (False, True)
            ]
            watched = statistics.median(monitor_us(system, 50_000) for _ in range(REPEATS))
            print(f"  {name:22} {technique:6} {rates[0]:8,.0f} {rates[1]:8,.0f}  {watched:.2f} ({1 / watched:.1f} M events/s)")


def parts() -> None:
    print("what each condition alone keeps out: broken protocols that pass without it, and how their endpoints go wrong")
    for condition in ("observer", "commitment", "awareness", "staleness", "merge"):
        passed = [name for name in BROKEN if MixedChoiceTypes(without=condition).judge(built_in(name)).accepted]
        wrong = []
        for name in passed:
            found = explore_machines(machines_of(built_in(name)), bound=2).counterexample
            wrong.append(f"{name} ({found.kind if found else 'nothing goes wrong'})")
        print(f"  without {condition}: {', '.join(wrong) or 'none'}")
    tagged = [name for name in BROKEN if not violations(built_in(name), tags=True)]
    print(f"  with tags: {', '.join(tagged)}")
    print(
        f"    of which exploration refutes {sum(not explore_machines(machines_of(built_in(n), tags=True), bound=2).sound for n in tagged)}"
    )
    print("sessions with random delays, of 500: how those of the job end")
    job = machines_of(built_in("request_timeout"))
    silent = Machines(
        tuple(one.machine for one in projected(built_in("request_timeout"), interrupts=False).values()), False, "", job.observers
    )
    bare = Machines(
        tuple(Machine(m.role, tuple(State(s.steps, s.ended) for s in m.states)) for m in job.machines), False, "", job.observers
    )
    for name, system in (("as projected", job), ("without interrupts", silent), ("without discards", bare)):
        print(f"  {name}: {dict(Counter(one.how for one in play(system, range(500))))}")
    print("a transport that changes the order within a pair, watched by monitors, and unwatched, of 200 sessions")
    for name in ("supervised_worker", "two_sided_close", "amqp_channel"):
        system = machines_of(built_in(name))
        for monitored in (True, False):
            ended = Counter(one.how for one in play(system, range(200), monitored=monitored, reorder=True))
            print(f"  {name} {'watched' if monitored else 'unwatched'}: {dict(ended)}")
    print("per session: messages beyond the specified ones with a permission (mixed choice: none), and stale messages with mixed choice")
    for name in SOUND:
        judged = Token().judge(built_in(name))
        assert judged.system is not None
        ended, ours = play(judged.system, range(200)), play(machines_of(built_in(name)), range(200))
        extra = sum(one.labels[label] for one in ended for label in judged.extra) / len(ended)
        print(f"  {name:22} {extra:.2f}  {sum(one.discarded for one in ours) / len(ours):.2f}")


def ours(port: int) -> float:
    async def rounds() -> float:
        async with await connect(port=port) as connection:
            channel = await connection.channel()
            queue = await channel.queue_declare(exclusive=True)
            began = time.perf_counter()
            for _ in range(ROUNDS):
                await channel.publish("", queue, b"hello")
                assert await channel.get(queue) == b"hello"
            return ROUNDS / (time.perf_counter() - began)

    return asyncio.run(rounds())


def with_pika(port: int) -> float:
    import pika

    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    began = time.perf_counter()
    for _ in range(ROUNDS):
        channel.basic_publish("", queue, b"hello")
        assert channel.basic_get(queue, auto_ack=True)[2] == b"hello"
    took = time.perf_counter() - began
    connection.close()
    return ROUNDS / took


def with_amqp(port: int) -> float:
    import amqp

    with amqp.Connection(f"127.0.0.1:{port}") as connection:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).queue
        began = time.perf_counter()
        for _ in range(ROUNDS):
            channel.basic_publish(amqp.Message("hello"), routing_key=queue)
            assert channel.basic_get(queue, no_ack=True).body in ("hello", b"hello")
        return ROUNDS / (time.perf_counter() - began)


def with_aio_pika(port: int) -> float:
    import aio_pika

    async def rounds() -> float:
        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
        async with connection:
            # Without confirms, as the others publish.
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue("", exclusive=True)
            began = time.perf_counter()
            for _ in range(ROUNDS):
                await channel.default_exchange.publish(aio_pika.Message(b"hello"), routing_key=queue.name)
                found = await queue.get(no_ack=True)
                assert found.body == b"hello"
            return ROUNDS / (time.perf_counter() - began)

    return asyncio.run(rounds())


def amqp() -> None:
    if no_broker():
        print(no_broker())
        return
    clients = {"ours": ours, "pika": with_pika, "amqp": with_amqp, "aio-pika": with_aio_pika}
    rates: dict[str, list[float]] = {}
    with Broker() as broker:
        for _ in range(REPEATS):
            for name, client in clients.items():
                try:
                    rates.setdefault(name, []).append(client(broker.port))
                except ImportError:
                    rates.pop(name, None)
    print(f"{ROUNDS:,} rounds of publish and get with RabbitMQ: rounds per second, and ours over it; medians of {REPEATS}, in turn")
    for name, found in rates.items():
        ratios = [mine / theirs for mine, theirs in zip(rates["ours"], found)]
        print(f"  {name:9} {statistics.median(found):8,.0f}  {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


PARTS = {"check": check_cost, "explore": explore_cost, "run": running, "parts": parts, "amqp": amqp}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=sorted(PARTS), action="append")
    for part in parser.parse_args().part or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    main()
