"""How fast user interrupts are modelled, how fast scenarios are played, and what a wake-up costs beside Python's own threads.

    python benchmarks/network_notification.py [--iterations 10000]

Seconds are CPU seconds of this process, except those of wake-ups. The peer for wake-ups is what a Python program would use: a
`threading.Event` per side, in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time

from armillary.network.notification import Scenario, UserInterrupts, measure_wakeups, play, policy, search


def main() -> None:
    """Prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=10_000)
    wanted = parser.parse_args()
    _descriptors()
    start = time.process_time()
    found = search()
    print(f"search: {found.states} states in {time.process_time() - start:.2f} s")
    for technique in ("poll-in-wait", "uintr"):
        scenario = Scenario("rendezvous", ranks=64, iterations=wanted.iterations)
        start = time.process_time()
        play(scenario, policy(technique), 130e-6)
        print(f"{technique}: 64 ranks x {wanted.iterations} iterations of rendezvous in {time.process_time() - start:.1f} s")
    rows = measure_wakeups()
    event = statistics.median(_events() for _ in range(5))
    for row in rows:
        ours = row["one_way_us"]
        print(f"{row['mechanism']:9} {ours:8.2f} us one way, {row['over_polling']:6.1f} x polling, {event / ours:6.1f} x faster than Event")
    print(f"Event     {event:8.2f} us one way")


def _descriptors() -> None:
    """Sends, deliveries and returns, with few and with many vectors pending: the cost must be the same."""
    for pending in (1, 60):
        machine = UserInterrupts()
        thread = machine.register(0)
        senders = [machine.sender(thread, vector) for vector in range(pending)]
        start = time.process_time()
        rounds = 60_000 // pending
        for _ in range(rounds):
            for sender in senders:
                machine.send(sender)
            machine.deliver()
            for _ in senders:
                machine.uiret(thread)
        seconds = time.process_time() - start
        print(f"descriptor: {1e6 * seconds / (rounds * pending):.2f} us per interrupt with {pending} pending")


def _events(exchanges: int = 2000) -> float:
    """Microseconds one way between two Python threads that wake each other with `threading.Event`."""
    here, there = threading.Event(), threading.Event()

    def answer() -> None:
        for _ in range(exchanges):
            there.wait()
            there.clear()
            here.set()

    other = threading.Thread(target=answer, daemon=True)
    other.start()
    start = time.perf_counter()
    for _ in range(exchanges):
        there.set()
        here.wait()
        here.clear()
    seconds = time.perf_counter() - start
    other.join()
    return 1e6 * seconds / (2 * exchanges)


if __name__ == "__main__":
    main()
