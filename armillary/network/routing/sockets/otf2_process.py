"""The process that reads one OTF2 archive and writes its messages as CSV: python -m … ANCHOR BYTES SECONDS OUTPUT MESSAGES."""

from __future__ import annotations

import resource
import sys


def main(anchor: str, most_bytes: int, most_s: int, most_output: int, most_messages: int) -> int:
    """Writes `time_ns,source,destination,bytes` to the standard output."""
    import otf2  # type: ignore[import-untyped, import-not-found, unused-ignore]

    for what, most in ((resource.RLIMIT_AS, most_bytes), (resource.RLIMIT_CPU, most_s), (resource.RLIMIT_FSIZE, most_output)):
        resource.setrlimit(what, (most, most))
    write = sys.stdout.write
    write("time_ns,source,destination,bytes\n")
    sends = (otf2.events.MpiSend, otf2.events.MpiIsend)
    with otf2.reader.open(anchor) as trace:
        scale = 1e9 / trace.timer_resolution
        processes = [group for group in trace.definitions.location_groups if group.location_group_type == otf2.LocationGroupType.PROCESS]
        rank = {group: i for i, group in enumerate(processes)}
        first, count = None, 0
        for location, event in trace.events:
            if isinstance(event, sends):
                count += 1
                if count > most_messages:
                    sys.stderr.write(f"found more than {most_messages:,} messages\n")
                    return 1
                first = event.time if first is None else first
                target = rank[event.communicator.location(event.receiver).group]
                write(f"{(event.time - first) * scale:.3f},{rank[location.group]},{target},{event.msg_length}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], *map(int, sys.argv[2:])))
