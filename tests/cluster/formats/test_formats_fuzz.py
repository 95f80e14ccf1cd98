"""Files of other tools, mutated: each is read or refused with an InputError, quickly and in little memory.

Each may take a second of processor time and 200 MB more memory than the process had; a clock on the wall is not asked.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from test_format_hwloc import WHOLE
from test_format_kubernetes import node, nodes
from test_format_nvidia_smi import matrix
from test_format_simgrid import HEAD, cluster
from test_format_slurm import CONF, TOPOLOGY

SEEDS = {
    "slurm.conf": CONF + TOPOLOGY,
    "hwloc.xml": WHOLE,
    "simgrid.xml": HEAD
    + cluster("FAT_TREE", "2;4,4;1,2;1,2", "0-15")
    + cluster("DRAGONFLY", "3,4;4,3;5,1;2", "0-119")
    + cluster("TORUS", "3,2,2", "0-11")
    + '<host id="a" speed="1Gf"/></zone></platform>',
    "topo.txt": matrix({"GPU0": "X NV2 PIX", "GPU1": "NV2 X SYS", "NIC0": "PIX SYS X"}),
    "nodes.json": json.dumps(nodes(node(gpus="8"), node("2", "1Gi"))),
}
INSERTS = (
    "9" * 30,
    "-1",
    "0",
    "n[1-999999999]",
    "n[0-999][0-999]",
    "[",
    "]",
    '"',
    "<",
    ">",
    "&a;",
    "<!DOCTYPE a [<!ENTITY a 'b'>]>",
    "\0",
    "\n",
    "\\\n",
    "=",
    "é",
    "1e308",
    "1000000000",
    "{" * 200,
    "<a>" * 300,
    "Include /dev/zero\n",
)


VALUES = (
    "",
    "-1",
    "0",
    "1",
    "9" * 30,
    "1e308",
    "0x",
    "0xffffffff," * 40 + "0x1",
    "x",
    "0-999999999",
    "3;1,1;1,1;1,1",
    "DRAGONFLY",
    "PU",
    "Package",
    "3Gf",
)


def with_other_values(text: str, random_: random.Random) -> str:
    """The same structure with some quoted values replaced, by nasty ones or by other values of the file: still well formed."""
    parts = text.split('"')
    inside = [k for k in range(1, len(parts) - 1, 2) if "hwloc2.dtd" not in parts[k]]
    for _ in range(random_.randint(1, 6)):
        parts[random_.choice(inside)] = random_.choice(VALUES) if random_.random() < 0.6 else parts[random_.choice(inside)]
    return '"'.join(parts)


def mutated(text: str, random_: random.Random) -> bytes:
    """A few edits: values replaced, or pieces cut, doubled, shuffled, overwritten, something nasty put in; sometimes raw bytes."""
    if text.lstrip()[:1] in ("<", "{") and random_.random() < 0.5:
        return with_other_values(text, random_).encode()
    for _ in range(random_.randint(1, 5)):
        a, b = sorted(random_.randrange(len(text) + 1) for _ in range(2))
        b = min(b, a + 200)
        edit = random_.randrange(6)
        if edit == 0:
            text = text[:a] + text[b:]
        elif edit == 1:
            text = text[:b] + text[a:b] * random_.randint(1, 20) + text[b:]
        elif edit == 2:
            text = text[:a] + random_.choice(INSERTS) + text[a:]
        elif edit == 3:
            digits = [k for k, c in enumerate(text) if c.isdecimal()]
            if digits:
                k = random_.choice(digits)
                text = text[:k] + random_.choice(INSERTS[:4]) + text[k + 1 :]
        elif edit == 4:
            text = text[:a] + "".join(random_.sample(text[a:b], b - a)) + text[b:]
        else:
            text = text[: max(a, 1)]
    data = text.encode()
    if random_.random() < 0.1:
        k = random_.randrange(len(data) + 1)
        data = data[:k] + random_.randbytes(random_.randint(1, 8)) + data[k:]
    return data


# The second limit only keeps a mistake from taking the machine with it; the one that counts is checked in `rounds`.
CHILD = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
sys.path.insert(0, sys.argv[1])
from test_formats_fuzz import rounds
rounds(Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
"""


def rounds(folder: Path, first: int, count: int) -> None:
    """Reads `count` mutated files of every kind; anything but success or InputError ends the process with a traceback."""
    from armillary.cluster import Cluster, formats
    from armillary.errors import InputError

    Cluster.from_dict({"armillary": 1, "name": "x", "group": [{"name": "x", "count": 1}]})  # imports what reading imports
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, text in SEEDS.items():
        for seed in range(first, first + count):
            file = folder / name
            file.write_bytes(mutated(text, random.Random(f"{name} {seed}")))
            before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
            try:
                data = formats.read(file)
                if data is not None:
                    Cluster.from_dict(data, where=str(file))
            except InputError as error:
                bad_lines = [fault for fault in error.faults if not fault or not fault.isprintable()]
                if bad_lines:
                    raise AssertionError(f"{name}, seed {seed}: {bad_lines[0]!r} is no line to show") from None
            except BaseException as error:
                raise AssertionError(f"{name}, seed {seed}: {type(error).__name__}: {error}") from error
            used = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
            assert used < 1.0, f"{name}, seed {seed}: {used:.2f} s of processor time"
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
            assert grown < 200_000, f"{name}, seed {seed}: {grown:,} KiB more memory"


def run(folder: Path, first: int, count: int) -> None:
    """The rounds in a process of their own, so that memory counts from a known start."""
    here = str(Path(__file__).parent)
    arguments = [sys.executable, "-c", CHILD, here, str(folder), str(first), str(count)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    run(tmp_path, 0, 50)


@pytest.mark.slow
def test_ten_thousand_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    run(tmp_path, 50, 2_950)
