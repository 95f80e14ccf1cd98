"""The service of the backend `dragon`, run by Dragon's launcher: `dragon dragon_service.py SOCKET WORKERS`. It imports nothing of ours.

Messages are a length of four bytes and a pickle, at most 64 MiB: batches [(number, pickled call or words of a command)] come in, and lists
[(number, ok, pickled result, began, ended)] go out. The result of a command is its exit status.
"""

# mypy: ignore-errors
import pickle
import socket
import struct
import sys
import threading
import time

HEAD = struct.Struct("<I")
MOST = 1 << 26
#: Tasks of one call to the pool.
CHUNK = 64


def run_chunk(chunk):
    """Results of pickled calls."""
    found = []
    for number, pickled in chunk:
        began = time.monotonic_ns()
        try:
            function, args, kwargs, many = pickle.loads(pickled)  # noqa: S301
            value = list(map(function, *args)) if many else function(*args, **kwargs)
            result, ok = pickle.dumps(value, 5), True
        except BaseException as error:
            ok = False
            try:
                result = pickle.dumps(error, 5)
                pickle.loads(result)  # noqa: S301
            except Exception:
                result = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"[:2000]), 5)
        found.append((number, ok, result, began, time.monotonic_ns()))
    return found


def read_exactly(peer, size):
    pieces = []
    while size:
        piece = peer.recv(min(size, 1 << 20))
        if not piece:
            return None
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def main():
    import multiprocessing

    import dragon  # noqa: F401
    from dragon.native.process import Popen, ProcessTemplate
    from dragon.native.process_group import ProcessGroup

    multiprocessing.set_start_method("dragon")
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(sys.argv[1])
    workers = int(sys.argv[2])
    sending = threading.Lock()

    def send(results):
        frame = pickle.dumps(results, 5)
        with sending:
            peer.sendall(HEAD.pack(len(frame)) + frame)

    def execute(commands):
        group = ProcessGroup(restart=False, ignore_error_on_exit=True)
        for _, words in commands:
            group.add_process(nproc=1, template=ProcessTemplate(target=words[0], args=tuple(words[1:]), cwd="/", stdout=Popen.DEVNULL))
        began = time.monotonic_ns()
        group.init()
        group.start()
        order = list(group.puids)
        group.join()
        codes = dict(group.inactive_puids)
        group.close()
        ended = time.monotonic_ns()
        send([(number, True, pickle.dumps(codes.get(puid, 1)), began, ended) for (number, _), puid in zip(commands, order)])

    with multiprocessing.Pool(workers) as pool:
        pool.map(len, [()] * workers)
        send([])
        while (head := read_exactly(peer, 4)) is not None:
            (size,) = HEAD.unpack(head)
            if size > MOST:
                break
            batch = pickle.loads(read_exactly(peer, size))  # noqa: S301
            calls = [task for task in batch if isinstance(task[1], bytes)]
            commands = [task for task in batch if not isinstance(task[1], bytes)]
            size = max(1, min(CHUNK, -(-len(calls) // workers)))
            for at in range(0, len(calls), size):
                pool.apply_async(run_chunk, (calls[at : at + size],), callback=send)
            if commands:
                threading.Thread(target=execute, args=(commands,), daemon=True).start()
        pool.terminate()


if __name__ == "__main__":
    main()
