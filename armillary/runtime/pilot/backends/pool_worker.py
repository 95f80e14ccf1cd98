"""A warm interpreter, and the keeper of one node's interpreters. Run as a script; it imports nothing of Armillary.

    pool_worker.py --worker DATA CONTROL CELL     a worker with its sockets and its cell of shared memory, by file descriptor
    pool_worker.py --node WORKERS                 the workers of a node, whose frames pass its standard input and output

Frames are a length of four bytes and a pickle. A worker takes chunks [(number, call, devices)] and answers [(number, ok, result, began,
ended)]. Before each call it writes the number into its cell, so that it is known what was begun when it dies. `recall` on the control
socket makes it answer at once with what it has finished and give back what it has not begun, even while a call is running.
"""

# mypy: ignore-errors
import base64
import contextlib
import mmap
import os
import pickle
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque

HEAD = struct.Struct("<I")
#: Bytes of the longest frame.
MOST = 1 << 30
#: Seconds after which finished results are sent although the chunk is not done.
FLUSH_S = 0.001


def read_frame(sock):
    head = read_exactly(sock, 4)
    return None if head is None else read_exactly(sock, HEAD.unpack(head)[0])


def read_exactly(sock, size):
    pieces = []
    while size:
        piece = sock.recv(min(size, 1 << 20))
        if not piece:
            return None
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def call(pickled, devices):
    function, args, kwargs, many = pickle.loads(pickled)  # noqa: S301
    if devices:
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["ROCR_VISIBLE_DEVICES"] = devices
    if many:
        return list(map(function, *args))
    return function(*args, **kwargs) if kwargs else function(*args)


def failure(error):
    """A pickle of the exception with its traceback as a note, or of one that says the same."""
    import traceback

    error.add_note("".join(traceback.format_exception(error)[1:]).rstrip()[-4000:])
    try:
        made = pickle.dumps(error, 5)
        pickle.loads(made)  # noqa: S301
        return made
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"[:2000]), 5)


class Worker:
    def __init__(self, data, control, cell):
        self.data, self.control = socket.socket(fileno=data), socket.socket(fileno=control)
        self.cell = memoryview(mmap.mmap(cell, 8)).cast("Q")
        self.waiting = deque()
        self.finished = deque()
        self.sending = threading.Lock()
        #: Held while a frame is read: by the main thread between calls, by the other one during a call.
        self.reading = threading.Lock()

    def run(self):
        first = read_frame(self.data)
        if first is None:
            return
        sys.path[:] = pickle.loads(first)  # noqa: S301
        # Threads that wait for the interpreter give way to the one that computes, except the one that answers a recall.
        threading.Thread(target=self.answer_recalls, daemon=True).start()
        self.send([], [])
        while True:
            with self.reading:
                frame = read_frame(self.data)
                if frame is None:
                    return
                self.waiting.extend(pickle.loads(frame))  # noqa: S301
            self.work()

    def work(self):
        clock, sent = time.monotonic_ns, time.monotonic()
        waiting, finished, cell = self.waiting, self.finished, self.cell
        while True:
            try:
                number, pickled, devices = waiting.popleft()
            except IndexError:
                break
            cell[0] = number
            began = clock()
            try:
                result, ok = pickle.dumps(call(pickled, devices), 5), True
            except BaseException as error:
                result, ok = failure(error), False
            finished.append((number, ok, result, began, clock()))
            if time.monotonic() - sent > FLUSH_S and waiting:
                self.flush()
                sent = time.monotonic()
        self.flush()

    def flush(self, back=()):
        out = []
        while True:
            try:
                out.append(self.finished.popleft())
            except IndexError:
                break
        if out or back:
            self.send(out, back)

    def send(self, out, back):
        frame = pickle.dumps((out, back), 5)
        with self.sending:
            self.data.sendall(HEAD.pack(len(frame)) + frame)

    def answer_recalls(self):
        while self.control.recv(1):
            back = []
            # Chunks that have come during the call that is running are still in the socket.
            if self.reading.acquire(blocking=False):
                try:
                    while select.select([self.data], [], [], 0)[0] and (frame := read_frame(self.data)) is not None:
                        self.waiting.extend(pickle.loads(frame))  # noqa: S301
                finally:
                    self.reading.release()
            while True:
                try:
                    back.append(self.waiting.pop()[0])
                except IndexError:
                    break
            self.flush(back[::-1])


def start_worker(
    python: str, environment: dict[str, str] | None = None
) -> tuple[subprocess.Popen[bytes], socket.socket, socket.socket, memoryview]:
    """(process, its data socket, its control socket, its cell) of a new worker."""
    ours, theirs = socket.socketpair()
    our_control, their_control = socket.socketpair()
    fd = os.memfd_create("cell", os.MFD_CLOEXEC)
    os.ftruncate(fd, 8)
    cell = mmap.mmap(fd, 8)
    passed = (theirs.fileno(), their_control.fileno(), fd)
    command = [python, os.path.abspath(__file__), "--worker", *map(str, passed)]
    process = subprocess.Popen(command, pass_fds=passed, stdin=subprocess.DEVNULL, env=environment, start_new_session=True)
    theirs.close()
    their_control.close()
    os.close(fd)
    return process, ours, our_control, memoryview(cell).cast("Q")


def keep_node(count):
    """Starts the workers of this node and passes their frames on, one per line of text, because `srun` passes lines."""
    workers = [start_worker(sys.executable) for _ in range(count)]
    poll = select.poll()
    of = {}
    for number, (_, data, _, _) in enumerate(workers):
        of[data.fileno()] = number
        poll.register(data, select.POLLIN)
    poll.register(0, select.POLLIN)
    pending = b""
    say(len(workers), b"")
    while True:
        for fd, _ in poll.poll():
            if fd == 0:
                piece = os.read(0, 1 << 20)
                if not piece:
                    return [process.kill() for process, *_ in workers]
                *lines, pending = (pending + piece).split(b"\n")
                for line in lines:
                    number, what, text = line.split(b" ", 2)
                    worker = workers[int(number)]
                    try:
                        if what == b"r":
                            worker[2].send(b"r")
                        else:
                            payload = base64.b64decode(text)
                            worker[1].sendall(HEAD.pack(len(payload)) + payload)
                    except OSError:
                        pass
            else:
                number = of[fd]
                frame = read_frame(workers[number][1])
                if frame is not None:
                    say(number, frame)
                    continue
                poll.unregister(fd)
                process, data, control, cell = workers[number]
                data.close()
                control.close()
                code = process.wait()
                say(number, b"", f"{cell[0]} {code}")
                workers[number] = start_worker(sys.executable)
                of[workers[number][1].fileno()] = number
                poll.register(workers[number][1], select.POLLIN)


def say(number, frame, dead=""):
    sys.stdout.buffer.write(b"%d %s %s\n" % (number, dead.replace(" ", ",").encode() or b"-", base64.b64encode(frame)))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    if sys.argv[1] == "--worker":
        with contextlib.suppress(KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
            Worker(*map(int, sys.argv[2:5])).run()
        os._exit(0)
    keep_node(int(sys.argv[2]))
