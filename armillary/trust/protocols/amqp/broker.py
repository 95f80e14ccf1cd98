"""A RabbitMQ server of one's own, for scenarios and tests: started as an ordinary user, on private ports and in a folder of its own.

It listens on the loopback only. epmd, Erlang's name server, is started first, on a private port too, and both end with the `with` block.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

LOOPBACK = "127.0.0.1"
#: Where Debian has the server's own script; the one in PATH wants to be root.
SCRIPTS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "/usr/local/lib/rabbitmq/bin/rabbitmq-server")
START_S = 90.0


def script() -> str:
    """The server's own script, or "": Debian's, or one in PATH that lies in a folder of the server and so is no wrapper."""
    found = shutil.which("rabbitmq-server") or ""
    own = Path(found).resolve().parent.parent.name.startswith("rabbitmq_server") if found else False
    return next((one for one in SCRIPTS if os.access(one, os.X_OK)), found if own else "")


def lacking() -> str:
    """What is missing to run a server here, or ""."""
    if not script():
        return "RabbitMQ is not installed (Debian: apt-get install rabbitmq-server)"
    return "" if shutil.which("epmd") else "Erlang's epmd is not installed (Debian: apt-get install erlang-base)"


def _free_ports(many: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(many)]
        for one in sockets:
            one.bind((LOOPBACK, 0))
        return [one.getsockname()[1] for one in sockets]


class Broker:
    """`with Broker() as broker: connect(port=broker.port)`; `kill` ends the server as a fault would, `start` starts it again."""

    def __init__(self) -> None:
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._epmd: subprocess.Popen[bytes] | None = None
        self._folder = ""

    def __enter__(self) -> Broker:
        self._folder = tempfile.mkdtemp(prefix="armillary-broker-")
        try:
            epmd_port, self.port, self._distribution = _free_ports(3)
            here = Path(self._folder)
            (here / "plugins").write_text("[].\n")
            (here / "rabbitmq.conf").write_text(f"listeners.tcp.1 = {LOOPBACK}:{self.port}\nheartbeat = 10\n")
            self._environment = {
                "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": self._folder, "LANG": "C.UTF-8",
                "ERL_EPMD_PORT": str(epmd_port), "ERL_EPMD_ADDRESS": LOOPBACK, "RABBITMQ_NODENAME": "x@localhost",
                "RABBITMQ_NODE_IP_ADDRESS": LOOPBACK, "RABBITMQ_NODE_PORT": str(self.port), "RABBITMQ_DIST_PORT": str(self._distribution),
                "RABBITMQ_MNESIA_BASE": str(here / "mnesia"), "RABBITMQ_LOG_BASE": str(here / "log"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"), "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
                "RABBITMQ_CONF_ENV_FILE": "/dev/null", "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
            }  # fmt: skip
            epmd = shutil.which("epmd") or "epmd"
            command = [epmd, "-port", str(epmd_port), "-address", LOOPBACK]
            self._epmd = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self._environment)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        log = Path(self._folder, "said")
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                [script()], stdout=said, stderr=said, env=self._environment, start_new_session=True, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, self.port), timeout=1) as one:
                one.sendall(b"AMQP\x00\x00\x09\x01")
                one.settimeout(5)
                if one.recv(1) == b"\x01":
                    return
            time.sleep(0.2)
        tail = log.read_text(errors="replace")[-400:]
        raise RuntimeError(f"RabbitMQ did not answer within {START_S:g} s: {tail}")

    def signal(self, number: int) -> None:
        """Sends a signal to the server and all that it started."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """Ends the server at once."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def __exit__(self, *error: object) -> None:
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
