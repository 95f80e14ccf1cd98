"""Every eviction policy once more, slow and obvious: with lists, dictionaries and sums, and without any code of the kernels.

Lists run from old to young. `request` returns whether it was a hit, `evictions` holds the evicted objects in order, and `size` holds the
cached objects with their sizes.
"""

from __future__ import annotations

import itertools

LOOKUP, INSERT, DELETE = 0, 1, 2


class Obvious:
    #: The lists among which the cached objects are spread, for policies that have some.
    queues = ()

    def __init__(self, capacity):
        self.capacity = capacity
        self.size = {}
        self.evictions = []
        self.begin()

    def begin(self): ...

    def use(self, o): ...

    def remove(self, o):
        for queue in self.queues:
            if o in queue:
                queue.remove(o)

    def request(self, o, size=1, operation=LOOKUP):
        cached = o in self.size
        if operation == DELETE:
            if cached:
                self.remove(o)
                del self.size[o]
            return False
        self.asked(o)
        if cached and (operation == LOOKUP or self.size[o] == size):
            self.use(o)
            return operation == LOOKUP
        if cached:
            self.remove(o)
            del self.size[o]
        if self.takes(size):
            self.admit(o, size)
        return False

    def asked(self, o): ...

    def takes(self, size):
        return size <= self.capacity

    @property
    def used(self):
        return sum(self.size.values())

    def evict(self, o):
        del self.size[o]
        self.evictions.append(o)

    def bytes(self, objects):
        return sum(self.size[o] for o in objects)


class Fifo(Obvious):
    def begin(self):
        self.queue = []
        self.queues = [self.queue]

    def admit(self, o, size):
        while self.used + size > self.capacity:
            self.evict(self.queue.pop(0))
        self.queue.append(o)
        self.size[o] = size


class Lru(Fifo):
    def use(self, o):
        self.queue.remove(o)
        self.queue.append(o)


class Clock(Fifo):
    cap = 1

    def begin(self):
        super().begin()
        self.uses = {}

    def use(self, o):
        self.uses[o] = min(self.cap, self.uses[o] + 1)

    def admit(self, o, size):
        while self.used + size > self.capacity:
            v = self.queue.pop(0)
            if self.uses[v]:
                self.uses[v] -= 1
                self.queue.append(v)
            else:
                self.evict(v)
        self.queue.append(o)
        self.size[o] = size
        self.uses[o] = 0


class Sieve(Fifo):
    def begin(self):
        super().begin()
        self.visited = {}
        self.hand = None

    def use(self, o):
        self.visited[o] = True

    def next_younger(self, o):
        at = self.queue.index(o) + 1
        return self.queue[at] if at < len(self.queue) else None

    def remove(self, o):
        if self.hand == o:
            self.hand = self.next_younger(o)
        self.queue.remove(o)

    def admit(self, o, size):
        while self.used + size > self.capacity:
            if self.hand is None:
                self.hand = self.queue[0]
            v = self.hand
            self.hand = self.next_younger(v)
            if self.visited[v]:
                self.visited[v] = False
            else:
                self.queue.remove(v)
                self.evict(v)
        self.queue.append(o)
        self.size[o] = size
        self.visited[o] = False


class Random(Obvious):
    """Makes the same draws (SplitMix64) in the same order of places; the last object takes the place of the evicted one."""

    seed = 0

    def begin(self):
        self.cached = []
        self.state = self.seed

    def remove(self, o):
        at = self.cached.index(o)
        self.cached[at] = self.cached[-1]
        self.cached.pop()

    def admit(self, o, size):
        while self.used + size > self.capacity:
            v = self.cached[self.draw() * len(self.cached) >> 32]
            self.remove(v)
            self.evict(v)
        self.cached.append(o)
        self.size[o] = size

    def draw(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return (z ^ (z >> 31)) >> 32


class Lfu(Obvious):
    def begin(self):
        self.rank = {}
        self.clock = 0

    def use(self, o):
        self.clock += 1
        self.rank[o] = (self.rank[o][0] + 1, self.clock)

    def remove(self, o):
        del self.rank[o]

    def admit(self, o, size):
        while self.used + size > self.capacity:
            v = min(self.rank, key=self.rank.get)
            self.remove(v)
            self.evict(v)
        self.clock += 1
        self.rank[o] = (1, self.clock)
        self.size[o] = size


class Belady(Obvious):
    """Takes unit sizes only; `future` is the list of all objects to come, the present one first."""

    def begin(self):
        self.future = []

    def request(self, o, size=1, operation=LOOKUP):
        hit = super().request(o, size, operation)
        self.future.pop(0)
        return hit

    def admit(self, o, size):
        while self.used + size > self.capacity:
            self.evict(max(self.size, key=lambda v: self.future.index(v) if v in self.future else len(self.future)))
        self.size[o] = size


class Slru(Obvious):
    segments = 4

    def begin(self):
        self.queues = self.segment = [[] for _ in range(min(self.segments, self.capacity))]
        self.share = self.capacity // len(self.segment)

    def takes(self, size):
        return size <= self.share

    def use(self, o):
        level = next(k for k, segment in enumerate(self.segment) if o in segment)
        self.remove(o)
        up = min(level + 1, len(self.segment) - 1)
        self.segment[up].append(o)
        self.cool(up)

    def cool(self, level):
        while level > 0 and self.bytes(self.segment[level]) > self.share:
            self.segment[level - 1].append(self.segment[level].pop(0))
            if level > 1:
                self.cool(level - 1)
            else:
                while self.bytes(self.segment[0]) > self.share:
                    self.evict(self.segment[0].pop(0))

    def admit(self, o, size):
        while self.used + size > self.capacity:
            self.evict(next(segment for segment in self.segment if segment).pop(0))
        roomy = [segment for segment in self.segment if self.bytes(segment) + size <= self.share]
        (roomy or self.segment)[0].append(o)
        self.size[o] = size


class WithGhost(Obvious):
    """Remembers evicted objects with the size that they had."""

    def remember(self, ghost, o, size, most):
        if size <= most:
            while sum(ghost.values()) + size > most:
                del ghost[next(iter(ghost))]
            ghost[o] = size


class TwoQ(WithGhost):
    def begin(self):
        self.queues = self.a1in, self.am = [], []
        self.a1out = {}
        self.in_size, self.out_size = max(1, int(0.25 * self.capacity)), int(0.5 * self.capacity)

    def takes(self, size):
        self.fits = size <= self.in_size
        return True

    def use(self, o):
        if o in self.am:
            self.am.remove(o)
            self.am.append(o)

    def admit(self, o, size):
        remembered = self.a1out.pop(o, None) is not None
        if not self.fits:
            return
        while self.used + size > self.capacity:
            if self.bytes(self.a1in) > self.in_size or not self.am:
                v = self.a1in.pop(0)
                self.remember(self.a1out, v, self.size[v], self.out_size)
                self.evict(v)
            else:
                self.evict(self.am.pop(0))
        main = self.capacity - self.in_size
        if remembered and size <= main:
            while self.bytes(self.am) + size > main:
                self.evict(self.am.pop(0))
            self.am.append(o)
        else:
            self.a1in.append(o)
        self.size[o] = size


class Arc(Obvious):
    def begin(self):
        self.queues = self.t1, self.t2 = [], []
        self.b1, self.b2, self.p = {}, {}, 0.0

    def use(self, o):
        self.remove(o)
        self.t2.append(o)

    def replace(self, from_b2):
        t1 = self.bytes(self.t1)
        if (t1 and (t1 > self.p or (from_b2 and t1 == self.p))) or not self.t2:
            v, ghost = self.t1.pop(0), self.b1
        else:
            v, ghost = self.t2.pop(0), self.b2
        ghost[v] = self.size[v]
        self.evict(v)

    def admit(self, o, size):
        b1, b2 = sum(self.b1.values()), sum(self.b2.values())
        returned = o in self.b1 or o in self.b2
        from_b2 = o in self.b2
        if o in self.b1:
            self.p = min(self.capacity, self.p + max(b2 / b1, 1))
            del self.b1[o]
        elif o in self.b2:
            self.p = max(0, self.p - max(b1 / b2, 1))
            del self.b2[o]
        while self.used + size > self.capacity:
            if not returned:
                l1 = self.bytes(self.t1) + sum(self.b1.values())
                if l1 + size > self.capacity:
                    if not self.b1:
                        self.evict(self.t1.pop(0))
                        continue
                    del self.b1[next(iter(self.b1))]
                elif l1 + self.bytes(self.t2) + sum(self.b2.values()) >= 2 * self.capacity and self.b2:
                    del self.b2[next(iter(self.b2))]
            self.replace(from_b2)
        (self.t2 if returned else self.t1).append(o)
        self.size[o] = size


class Lirs(Obvious):
    demote = False

    def begin(self):
        self.queue_size = max(1, int(0.01 * self.capacity))
        self.lir_size = self.capacity - self.queue_size
        self.stack, self.queue, self.gone, self.lir = [], [], [], set()
        #: The size of everything in the stack, cached or not.
        self.known = {}

    def takes(self, size):
        return size <= self.queue_size and (size <= self.lir_size or self.lir_size == 0)

    def remove(self, o):
        if o in self.stack:
            self.stack.remove(o)
        if o in self.queue:
            self.queue.remove(o)
        self.lir.discard(o)
        self.prune()

    def prune(self):
        while self.lir and self.stack[0] not in self.lir:
            v = self.stack.pop(0)
            if v in self.gone:
                self.gone.remove(v)

    def evict_from_queue(self):
        v = self.queue.pop(0)
        if v in self.stack:
            self.gone.append(v)
        self.evict(v)

    def join_queue(self, o):
        while self.bytes(self.queue) + self.size[o] > self.queue_size:
            self.evict_from_queue()
        self.queue.append(o)

    def demote_until(self, room):
        while self.lir and self.bytes(self.lir) > room:
            self.prune()
            v = self.stack.pop(0)
            self.lir.remove(v)
            if self.size[v] <= self.queue_size:
                self.join_queue(v)
            else:
                self.evict(v)

    def use(self, o):
        in_stack = o in self.stack
        if in_stack:
            self.stack.remove(o)
        self.stack.append(o)
        if o in self.lir:
            pass
        elif in_stack and self.size[o] <= self.lir_size:
            self.queue.remove(o)
            self.lir.add(o)
            self.demote_until(self.lir_size)
        else:
            self.queue.remove(o)
            self.queue.append(o)
            if self.demote and not in_stack:
                self.demote_until(max(0, self.lir_size - self.size[o]))
        self.prune()
        self.limit()

    def admit(self, o, size):
        remembered = o in self.gone
        if remembered:
            self.gone.remove(o)
            self.stack.remove(o)
        self.stack.append(o)
        self.size[o] = self.known[o] = size
        if size <= self.lir_size and (remembered or self.bytes(self.lir) + size <= self.lir_size):
            self.lir.add(o)
            self.demote_until(self.lir_size)
        else:
            del self.size[o]
            while self.bytes(self.queue) + size > self.queue_size:
                self.evict_from_queue()
            self.size[o] = size
            self.queue.append(o)
        self.prune()
        self.limit()

    def limit(self):
        while sum(self.known[o] for o in self.stack) > 2 * self.capacity and self.gone:
            self.stack.remove(self.gone.pop(0))


class S3Fifo(WithGhost):
    threshold = 2

    def begin(self):
        self.queues = self.small, self.main = [], []
        self.ghost, self.uses = {}, {}
        self.small_size, self.ghost_size = max(1, int(0.1 * self.capacity)), int(0.9 * self.capacity)
        self.has_evicted = False

    def takes(self, size):
        self.fits = size <= self.small_size
        return True

    def use(self, o):
        self.uses[o] += 1

    def admit(self, o, size):
        remembered = self.ghost.pop(o, None) is not None
        if not self.fits:
            return
        while self.used + size > self.capacity:
            self.has_evicted = True
            if self.bytes(self.main) > self.capacity - self.small_size or not self.small:
                self.evict_main()
            else:
                self.evict_small()
        if remembered or (not self.has_evicted and self.bytes(self.small) >= self.small_size):
            self.main.append(o)
        else:
            self.small.append(o)
        self.size[o] = size
        self.uses[o] = 0

    def evict_main(self):
        while True:
            v = self.main.pop(0)
            if not self.uses[v]:
                return self.evict(v)
            self.uses[v] = min(self.uses[v], 3) - 1
            self.main.append(v)

    def evict_small(self):
        while self.small:
            v = self.small.pop(0)
            if self.uses[v] < self.threshold:
                self.remember(self.ghost, v, self.size[v], self.ghost_size)
                return self.evict(v)
            self.uses[v] = 0
            self.main.append(v)
        return None


class FifoMep(Obvious):
    points, cap, ghost, reinsert = (0.1, 0.2), 3, 0.9, "body"

    def begin(self):
        at = []
        for p in self.points:
            at.append(max((at[-1] if at else 0) + 1, int(p * self.capacity)))
        ends = [0, *(p for p in at if p < self.capacity), self.capacity]
        self.share = [b - a for a, b in itertools.pairwise(ends)]
        self.queues = self.segment = [[] for _ in self.share]
        self.uses, self.place = {}, []
        #: (object, size) of every point eviction; None where the object has returned.
        self.pointed = []

    def use(self, o):
        self.uses[o] = min(self.cap, self.uses[o] + 1)

    def in_ghost(self, o):
        since = 0
        for v, size in reversed(self.pointed):
            if since >= int(self.ghost * self.capacity):
                return False
            if v == o:
                return True
            since += size
        return False

    def admit(self, o, size):
        body = len(self.segment) - 1
        remembered = self.in_ghost(o)
        self.pointed = [(None if v == o else v, s) for v, s in self.pointed]
        self.size[o] = size
        self.uses[o] = 0
        direct = not remembered and (body == 0 or size > self.share[0])
        if not direct:
            self.segment[body if remembered else 0].append(o)
        self.restore(o, body)
        if direct:
            self.segment[body].append(o)

    def restore(self, o, body):
        while True:
            overfull = [j for j in range(body) if self.bytes(self.segment[j]) > self.share[j]]
            full = self.used > self.capacity
            if overfull:
                self.inspect(overfull[0], full)
            elif full:
                self.tail(o, body)
            else:
                return

    def inspect(self, j, full):
        v = self.segment[j].pop(0)
        if full and self.uses[v] == 0:
            self.pointed.append((v, self.size[v]))
            self.place.append(j)
            self.evict(v)
            return
        if full:
            self.uses[v] = 0
        self.segment[j + 1].append(v)

    def tail(self, o, body):
        source = self.segment[body]
        if source in ([], [o]):
            source = next(segment for segment in reversed(self.segment[:body]) if segment)
        v = source.pop(0)
        if v == o:
            self.segment[body].append(v)
        elif self.uses[v] == 0:
            self.place.append(body)
            self.evict(v)
        else:
            self.uses[v] -= 1
            head = self.reinsert == "head" and self.size[v] <= self.share[0]
            self.segment[0 if head else body].append(v)


class WTinyLfu(Obvious):
    objects = None  # the number of expected objects; None stands for the capacity, with unit sizes

    def begin(self):
        self.queues = self.window, self.probation, self.protected = [], [], []
        self.window_size = max(1, int(0.01 * self.capacity))
        self.main_size = self.capacity - self.window_size
        self.protected_size = int(0.8 * self.main_size)
        objects = max(16, self.objects or self.capacity)
        self.width = 1
        while self.width < 4 * objects:
            self.width *= 2
        self.period = 10 * objects
        self.rows = [[0] * self.width for _ in range(4)]
        self.counted = 0

    def places(self, o):
        for row in range(4):
            h = (o + 1 + row * 0x9E3779B97F4A7C15) * 0xD6E8FEB86659FD93 % 2**64
            h = (h ^ (h >> 32)) * 0xD6E8FEB86659FD93 % 2**64
            yield row, (h >> 32) % self.width

    def asked(self, o):
        for row, at in self.places(o):
            self.rows[row][at] = min(15, self.rows[row][at] + 1)
        self.counted += 1
        if self.counted >= self.period:
            self.counted = 0
            self.rows = [[count // 2 for count in row] for row in self.rows]

    def often(self, o):
        return min(self.rows[row][at] for row, at in self.places(o))

    def takes(self, size):
        return size <= max(self.window_size, self.main_size)

    def use(self, o):
        queue = self.window if o in self.window else self.protected
        self.remove(o)
        queue.append(o)
        while self.bytes(self.protected) > self.protected_size:
            self.probation.append(self.protected.pop(0))

    def admit(self, o, size):
        self.size[o] = size
        if size > self.window_size:
            self.compete(o)
            return
        self.window.append(o)
        while self.bytes(self.window) > self.window_size:
            self.compete(self.window.pop(0))

    def compete(self, candidate):
        size = self.size[candidate]
        fits = lambda: self.bytes(self.probation) + self.bytes(self.protected) + size <= self.main_size  # noqa: E731
        while size <= self.main_size and not fits():
            queue = self.probation or self.protected
            if self.often(candidate) <= self.often(queue[0]):
                break
            self.evict(queue.pop(0))
        if fits():
            self.probation.append(candidate)
        else:
            self.evict(candidate)
