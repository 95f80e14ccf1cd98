"""Seeded logs of seven kinds with 20 to 25 fields each, whose marginals have the usual shapes.

Hosts and servers are Zipf, the service is a function of the server, bytes and durations are log-normal, packets follow bytes, ports are
uniform, ids are random base 62, timestamps increase. `constant_share` is the share of the rows on which the nearly constant fields keep
their usual value. `order` 0 writes the fields as the vendor does, and any other number shuffles them by that seed; the values do not
depend on the order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from armillary.errors import InputError, unknown

from .records.formats import Format, detect

Columns = dict[str, list[bytes]]
_BASE62 = np.frombuffer(b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", np.uint8)
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_BLOCK = 20_000
_WORDS = (
    b"alpha beta gamma delta omega index search media static assets image video cart login account news sport weather report cloud edge"
    b" update mirror sync backup portal mail docs wiki forge build stage metric event trace billing order product review profile session"
).split()
_AGENTS = [
    b"Mozilla/5.0 (%s) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.%d.%d Safari/537.36"
    % (system, major, 4000 + 7 * major, 50 + major)
    for system in (
        b"Windows NT 10.0; Win64; x64",
        b"X11; Linux x86_64",
        b"Macintosh; Intel Mac OS X 10_15_7",
        b"Linux; Android 13; Pixel 7",
    )
    for major in range(104, 124, 2)
] + [b"curl/7.88.1", b"python-requests/2.31.0", b"Go-http-client/1.1"]


class _Draw:
    """Draws random columns of `rows` rows."""

    def __init__(self, rng: np.random.Generator, rows: int, constant_share: float, second: float) -> None:
        self.rng, self.rows, self.constant_share, self.second = rng, rows, constant_share, second

    def zipf(self, count: int, exponent: float) -> np.ndarray:
        """Draws Zipf ranks below `count`."""
        weights = np.arange(1, count + 1, dtype=float) ** -exponent
        return self.rng.choice(count, self.rows, p=weights / weights.sum())

    def nearly(self, usual: bytes, *others: bytes) -> list[bytes]:
        """Draws a nearly constant column."""
        if not others:
            return [usual] * self.rows
        odd = self.rng.random(self.rows) >= self.constant_share
        which = self.rng.integers(len(others), size=self.rows)
        return [others[w] if o else usual for o, w in zip(odd.tolist(), which.tolist(), strict=True)]

    def choice(self, values: list[bytes], exponent: float = 1.0) -> list[bytes]:
        """Draws values, Zipf by their place in the list."""
        return [values[i] for i in self.zipf(len(values), exponent).tolist()]

    def ids(self, length: int, alphabet: np.ndarray = _BASE62, prefix: bytes = b"") -> list[bytes]:
        """Draws random words."""
        letters = alphabet[self.rng.integers(len(alphabet), size=(self.rows, length))]
        return [prefix + row.tobytes() for row in letters]

    def integers(self, values: np.ndarray) -> list[bytes]:
        """Writes numbers as decimal text."""
        return [b"%d" % v for v in values.tolist()]

    def lognormal(self, mean: float, sigma: float) -> np.ndarray:
        """Draws log-normal whole numbers."""
        return self.rng.lognormal(mean, sigma, self.rows).astype(np.int64)

    def seconds(self, mean_gap: float) -> np.ndarray:
        """Draws increasing seconds."""
        return self.second + np.cumsum(self.rng.exponential(mean_gap, self.rows))

    def hosts(self, count: int, exponent: float, net: bytes) -> list[bytes]:
        """Draws addresses of one network."""
        return [net + b"%d.%d" % (rank // 200, rank % 200 + 10) for rank in self.zipf(count, exponent).tolist()]


def _server(draw: _Draw, count: int = 300) -> tuple[np.ndarray, list[bytes]]:
    ranks = draw.zipf(count, 1.0)
    return ranks, [b"%d.%d.%d.%d" % (23 + r % 150, r * 7 % 251, r * 31 % 253, r * 17 % 241 + 1) for r in ranks.tolist()]


_SERVICES = [(b"http", 80), (b"ssl", 443), (b"dns", 53), (b"ssh", 22), (b"smtp", 25), (b"ntp", 123), (b"-", 8080)]


def zeek_conn(draw: _Draw) -> Columns:
    """Draws Zeek's conn.log with its MAC and VLAN extension."""
    ranks, servers = _server(draw)
    service = [_SERVICES[r % 7] for r in ranks.tolist()]
    sent, got = draw.lognormal(6.5, 1.6), draw.lognormal(8.0, 2.0)
    packets, back = 1 + sent // 700, 1 + got // 1200
    took = draw.rng.lognormal(-1.5, 1.8, draw.rows)
    udp = [name in (b"dns", b"ntp") for name, _ in service]
    states = draw.choice([b"SF", b"S0", b"REJ", b"RSTO", b"S1", b"OTH"], 2.2)
    history = {
        b"SF": b"ShADadFf", b"S0": b"S", b"REJ": b"Sr", b"RSTO": b"ShADdaR", b"S1": b"ShADad", b"OTH": b"Cc",
    }  # fmt: skip
    return {
        "ts": [b"%.6f" % t for t in draw.seconds(0.02).tolist()],
        "uid": draw.ids(17, prefix=b"C"),
        "id.orig_h": draw.hosts(800, 0.9, b"10.20."),
        "id.orig_p": draw.integers(draw.rng.integers(1024, 65536, draw.rows)),
        "id.resp_h": servers,
        "id.resp_p": [b"%d" % port for _, port in service],
        "proto": [b"udp" if u else b"tcp" for u in udp],
        "service": [name for name, _ in service],
        "duration": [b"%.6f" % t for t in took.tolist()],
        "orig_bytes": draw.integers(sent),
        "resp_bytes": draw.integers(got),
        "conn_state": [b"SF" if u else s for u, s in zip(udp, states, strict=True)],
        "local_orig": draw.nearly(b"T", b"F"),
        "local_resp": draw.nearly(b"F", b"T"),
        "missed_bytes": draw.nearly(b"0", b"1460", b"2920"),
        "history": [b"Dd" if u else history[s] for u, s in zip(udp, states, strict=True)],
        "orig_pkts": draw.integers(packets),
        "orig_ip_bytes": draw.integers(sent + 40 * packets),
        "resp_pkts": draw.integers(back),
        "resp_ip_bytes": draw.integers(got + 40 * back),
        "tunnel_parents": draw.nearly(b"-"),
        "vlan": draw.nearly(b"100", b"200", b"300"),
        "sensor": draw.nearly(b"sensor-dc1-worker-3"),
    }


def firewall_kv(draw: _Draw) -> Columns:
    """Draws a firewall's traffic log as key=value pairs."""
    ranks, servers = _server(draw)
    service = [_SERVICES[r % 7] for r in ranks.tolist()]
    when = draw.seconds(0.02)
    clock = np.datetime_as_string(when.astype("datetime64[s]")).tolist()
    sent, got = draw.lognormal(6.5, 1.6), draw.lognormal(8.0, 2.0)
    policy = draw.zipf(40, 1.0).tolist()
    values: Columns = {
        "date": [c[:10].encode() for c in clock],
        "time": [c[11:].encode() for c in clock],
        "devname": draw.nearly(b'"FW-EDGE-01"'),
        "devid": draw.nearly(b'"FG100E4Q16004478"'),
        "eventtime": [b"%d" % t for t in (when * 1e9).astype(np.int64).tolist()],
        "logid": draw.nearly(b'"0000000013"', b'"0000000020"'),
        "type": draw.nearly(b'"traffic"'),
        "subtype": draw.nearly(b'"forward"', b'"local"'),
        "level": draw.nearly(b'"notice"', b'"warning"'),
        "vd": draw.nearly(b'"root"'),
        "srcip": draw.hosts(800, 0.9, b"10.20."),
        "srcport": draw.integers(draw.rng.integers(1024, 65536, draw.rows)),
        "srcintf": draw.nearly(b'"port1"', b'"port3"'),
        "dstip": servers,
        "dstport": [b"%d" % port for _, port in service],
        "dstintf": draw.nearly(b'"wan1"', b'"wan2"'),
        "sessionid": draw.integers(draw.rng.integers(10**7, 10**8, draw.rows)),
        "proto": [b"17" if name in (b"dns", b"ntp") else b"6" for name, _ in service],
        "action": draw.choice([b'"accept"', b'"close"', b'"deny"', b'"timeout"'], 2.0),
        "policyid": [b"%d" % p for p in policy],
        "policyname": [b'"allow %s %02d"' % (_WORDS[p], p) for p in policy],
        "service": [b'"%s"' % name.upper() for name, _ in service],
        "sentbyte": draw.integers(sent),
        "rcvdbyte": draw.integers(got),
        "sentpkt": draw.integers(1 + sent // 700),
    }
    return {key: [key.encode() + b"=" + v for v in column] for key, column in values.items()}


def _pages(draw: _Draw, sites: list[int]) -> tuple[list[bytes], list[bytes]]:
    """Draws URLs and referrers that share their beginnings."""
    depth = draw.rng.integers(1, 4, draw.rows).tolist()
    words = draw.zipf(len(_WORDS), 0.9 if draw.rows else 1.0).tolist()
    tails = draw.rng.integers(0, 100000, draw.rows).tolist()
    urls, referrers = [], []
    for site, deep, word, tail in zip(sites, depth, words, tails, strict=True):
        home = b"http://%s-%d.example.%s/" % (_WORDS[site % len(_WORDS)], site, (b"com", b"org", b"net")[site % 3])
        path = b"/".join(_WORDS[(word + 5 * d) % len(_WORDS)] for d in range(deep))
        urls.append(home + path + (b"/%d.html" % (tail % 900) if tail % 3 else b"?id=%d" % tail))
        referrers.append(b"-" if tail % 4 == 0 else home + path)
    return urls, referrers


def proxy(draw: _Draw) -> Columns:
    """Draws a web proxy's access log in W3C's extended format."""
    sites = draw.zipf(400, 1.0).tolist()
    urls, referrers = _pages(draw, sites)
    clock = np.datetime_as_string(draw.seconds(0.05).astype("datetime64[s]")).tolist()
    status = draw.choice([b"200", b"304", b"302", b"404", b"403", b"500"], 1.8)
    users = draw.zipf(500, 0.9).tolist()
    return {
        "date": [c[:10].encode() for c in clock],
        "time": [c[11:].encode() for c in clock],
        "time-taken": draw.integers(draw.lognormal(4.5, 1.2)),
        "c-ip": [b"10.31.%d.%d" % (u // 200, u % 200 + 10) for u in users],
        "cs-username": [b"user%03d" % u for u in users],
        "cs-auth-group": [b"staff" if u % 5 else b"guests" for u in users],
        "x-exception-id": draw.nearly(b"-", b"dns_unresolved_hostname", b"tcp_error"),
        "sc-filter-result": draw.nearly(b"OBSERVED", b"DENIED"),
        "cs-categories": [b'"%s/%s"' % (_WORDS[s % 11].title(), _WORDS[s % 13].title()) for s in sites],
        "cs-referer": referrers,
        "sc-status": status,
        "s-action": [b"TCP_HIT" if s == b"304" else b"TCP_NC_MISS" for s in status],
        "cs-method": draw.choice([b"GET", b"POST", b"HEAD"], 2.5),
        "rs-content-type": draw.choice(
            [b"text/html;%20charset=utf-8", b"image/png", b"application/json", b"text/css", b"application/javascript"], 1.0
        ),
        "cs-uri": urls,
        "cs-host": [url.split(b"/")[2] for url in urls],
        "cs-user-agent": [b'"%s"' % agent for agent in draw.choice(_AGENTS, 1.0)],
        "s-ip": draw.nearly(b"10.31.255.4"),
        "sc-bytes": draw.integers(draw.lognormal(8.5, 1.6)),
        "cs-bytes": draw.integers(draw.lognormal(6.5, 0.6)),
        "x-virus-id": draw.nearly(b"-"),
        "x-application": draw.nearly(b"none", b"web_mail"),
    }


def netflow(draw: _Draw) -> Columns:
    """Draws nfdump's CSV."""
    ranks, servers = _server(draw)
    when = draw.seconds(0.02)
    took = draw.rng.lognormal(-0.5, 1.5, draw.rows)
    first = np.datetime_as_string(when.astype("datetime64[s]")).tolist()
    last = np.datetime_as_string((when + took).astype("datetime64[s]")).tolist()
    sent = draw.lognormal(7.5, 2.0)
    port = [_SERVICES[r % 7] for r in ranks.tolist()]
    return {
        "ts": [c.replace("T", " ").encode() for c in first],
        "te": [c.replace("T", " ").encode() for c in last],
        "td": [b"%.3f" % t for t in took.tolist()],
        "sa": draw.hosts(800, 0.9, b"10.20."),
        "da": servers,
        "sp": draw.integers(draw.rng.integers(1024, 65536, draw.rows)),
        "dp": [b"%d" % p for _, p in port],
        "pr": [b"UDP" if name in (b"dns", b"ntp") else b"TCP" for name, _ in port],
        "flg": [
            b"......" if name in (b"dns", b"ntp") else f
            for (name, _), f in zip(port, draw.choice([b".AP.SF", b".A..S.", b"....S.", b".A.R.."], 1.6), strict=True)
        ],
        "fwd": draw.nearly(b"0"),
        "stos": draw.nearly(b"0", b"8", b"32"),
        "ipkt": draw.integers(1 + sent // 900),
        "ibyt": draw.integers(sent),
        "opkt": draw.nearly(b"0"),
        "obyt": draw.nearly(b"0"),
        "in": [b"%d" % (3 + r % 2) for r in draw.zipf(2, 1.0).tolist()],
        "out": draw.nearly(b"5", b"6"),
        "sas": draw.nearly(b"64512"),
        "das": [b"%d" % (1000 + r * 37 % 64000) for r in ranks.tolist()],
        "smk": draw.nearly(b"16"),
        "dmk": [b"%d" % (16 + r % 8) for r in ranks.tolist()],
        "nh": draw.nearly(b"10.0.0.1", b"10.0.0.2"),
        "ra": draw.nearly(b"10.0.255.1"),
        "exid": draw.nearly(b"1"),
    }


def dns(draw: _Draw) -> Columns:
    """Draws Zeek's dns.log."""
    names = draw.zipf(600, 1.0).tolist()
    kinds = draw.choice([b"A", b"AAAA", b"PTR", b"HTTPS", b"TXT"], 1.3)
    number = {b"A": b"1", b"AAAA": b"28", b"PTR": b"12", b"HTTPS": b"65", b"TXT": b"16"}
    failed = (draw.rng.random(draw.rows) < 0.08).tolist()
    ttl = [(60, 300, 3600, 86400)[r % 4] for r in names]
    return {
        "ts": [b"%.6f" % t for t in draw.seconds(0.01).tolist()],
        "uid": draw.ids(17, prefix=b"C"),
        "id.orig_h": draw.hosts(800, 0.9, b"10.20."),
        "id.orig_p": draw.integers(draw.rng.integers(1024, 65536, draw.rows)),
        "id.resp_h": draw.choice([b"10.20.0.2", b"10.20.0.3", b"8.8.8.8"], 1.5),
        "id.resp_p": draw.nearly(b"53"),
        "proto": draw.nearly(b"udp", b"tcp"),
        "trans_id": draw.integers(draw.rng.integers(0, 65536, draw.rows)),
        "rtt": [b"%.6f" % t for t in draw.rng.lognormal(-4, 1, draw.rows).tolist()],
        "query": [b"%s%d.%s.example.com" % (_WORDS[r % len(_WORDS)], r, _WORDS[r * 7 % len(_WORDS)]) for r in names],
        "qclass": draw.nearly(b"1"),
        "qclass_name": draw.nearly(b"C_INTERNET"),
        "qtype": [number[k] for k in kinds],
        "qtype_name": kinds,
        "rcode": [b"3" if f else b"0" for f in failed],
        "rcode_name": [b"NXDOMAIN" if f else b"NOERROR" for f in failed],
        "AA": draw.nearly(b"F", b"T"),
        "TC": draw.nearly(b"F"),
        "RD": draw.nearly(b"T", b"F"),
        "RA": draw.nearly(b"T", b"F"),
        "Z": draw.nearly(b"0"),
        "answers": [
            b"-" if f else b"%d.%d.%d.%d" % (23 + r % 150, r * 7 % 251, r * 31 % 253, r % 240) for f, r in zip(failed, names, strict=True)
        ],
        "TTLs": [b"-" if f else b"%d.000000" % t for f, t in zip(failed, ttl, strict=True)],
        "rejected": draw.nearly(b"F"),
    }


def access_log(draw: _Draw) -> Columns:
    """Draws nginx's combined format, with the fields that operators add behind it."""
    sites = draw.zipf(60, 1.0).tolist()
    urls, referrers = _pages(draw, sites)
    clock = np.datetime_as_string(draw.seconds(0.05).astype("datetime64[s]")).tolist()
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    took = draw.rng.lognormal(-2.5, 1.0, draw.rows)
    backend = draw.zipf(8, 0.5).tolist()
    return {
        "host": draw.hosts(3000, 0.9, b"81.44."),
        "ident": draw.nearly(b"-"),
        "user": draw.nearly(b"-", b"admin", b"monitor"),
        "time": [f"[{c[8:10]}/{months[int(c[5:7]) - 1]}/{c[:4]}:{c[11:]} +0000]".encode() for c in clock],
        "request": [b'"GET /%s HTTP/1.1"' % url.split(b"/", 3)[3] for url in urls],
        "status": draw.choice([b"200", b"304", b"302", b"404", b"403", b"500"], 1.8),
        "bytes": draw.integers(draw.lognormal(8.5, 1.6)),
        "referer": [b'"%s"' % r for r in referrers],
        "agent": [b'"%s"' % a for a in draw.choice(_AGENTS, 1.0)],
        "forwarded": draw.nearly(b'"-"', b'"10.1.2.3"'),
        "vhost": [url.split(b"/")[2] for url in urls],
        "request_time": [b"%.3f" % t for t in took.tolist()],
        "upstream_time": [b"%.3f" % (0.9 * t) for t in took.tolist()],
        "upstream": [b"10.9.0.%d:8080" % (b + 11) for b in backend],
        "upstream_status": draw.nearly(b"200", b"502"),
        "cache": draw.choice([b"MISS", b"HIT", b"BYPASS", b"EXPIRED"], 1.2),
        "tls": draw.nearly(b"TLSv1.3", b"TLSv1.2"),
        "cipher": draw.nearly(b"TLS_AES_256_GCM_SHA384", b"ECDHE-RSA-AES128-GCM-SHA256"),
        "request_id": draw.ids(32, _HEX),
        "connection": draw.integers(draw.rng.integers(10**6, 10**7, draw.rows)),
        "pipe": draw.nearly(b".", b"p"),
        "country": [(b"US", b"DE", b"FR", b"BR", b"IN", b"JP")[min(5, i)] for i in draw.zipf(6, 1.0).tolist()],
    }


def json_events(draw: _Draw) -> Columns:
    """Draws application events, one flat JSON object per line."""
    clock = np.datetime_as_string(draw.seconds(0.02).astype("datetime64[ms]")).tolist()
    users = draw.zipf(2000, 1.0).tolist()
    services = draw.zipf(30, 1.0).tolist()
    status = draw.choice([b"200", b"201", b"404", b"500", b"401"], 1.6)
    text: Columns = {
        "@timestamp": [f'"{c}Z"'.encode() for c in clock],
        "level": draw.choice([b'"INFO"', b'"WARN"', b'"ERROR"', b'"DEBUG"'], 2.0),
        "trace_id": [b'"%s"' % i for i in draw.ids(32, _HEX)],
        "service": [b'"%s-api"' % _WORDS[s] for s in services],
        "span_id": [b'"%s"' % i for i in draw.ids(16, _HEX)],
        "logger": [b'"com.example.%s.RequestHandler"' % _WORDS[s] for s in services],
        "thread": [b'"http-nio-8080-exec-%d"' % t for t in draw.rng.integers(1, 64, draw.rows).tolist()],
        "host": [b'"%s-7d9f-%d"' % (_WORDS[s], n) for s, n in zip(services, draw.rng.integers(0, 6, draw.rows).tolist(), strict=True)],
        "environment": draw.nearly(b'"production"', b'"canary"'),
        "region": draw.nearly(b'"eu-central-1"', b'"us-east-1"'),
        "version": draw.nearly(b'"2.14.3"', b'"2.15.0"'),
        "user_id": [b"%d" % (100000 + 37 * u) for u in users],
        "tenant": [b'"tenant-%03d"' % (u % 90) for u in users],
        "method": draw.choice([b'"GET"', b'"POST"', b'"PUT"'], 1.6),
        "path": [
            b'"/v1/%s/%d"' % (_WORDS[(s * 3 + t) % 40], t * 7919 % 100000)
            for s, t in zip(services, draw.zipf(300, 0.8).tolist(), strict=True)
        ],
        "status": status,
        "ok": [b"true" if s[:1] == b"2" else b"false" for s in status],
        "duration_ms": draw.integers(draw.lognormal(3.0, 1.2)),
        "bytes_in": draw.integers(draw.lognormal(6.0, 0.8)),
        "bytes_out": draw.integers(draw.lognormal(8.0, 1.5)),
        "retry": draw.nearly(b"0", b"1", b"2"),
        "schema": draw.nearly(b'"ecs/8.6"'),
    }
    return {key: [b'"%s":%s' % (key.encode(), v) for v in column] for key, column in text.items()}


@dataclass(frozen=True)
class Kind:
    """A generator, how it writes a row, and the format that reads it."""

    columns: Callable[[_Draw], Columns]
    separator: bytes
    format: str


KINDS: dict[str, Kind] = {
    "zeek-conn": Kind(zeek_conn, b"\t", "zeek"),
    "firewall-kv": Kind(firewall_kv, b" ", "key-value"),
    "proxy": Kind(proxy, b" ", "w3c"),
    "netflow": Kind(netflow, b",", "netflow"),
    "dns": Kind(dns, b"\t", "zeek"),
    "access-log": Kind(access_log, b" ", "combined"),
    "json-events": Kind(json_events, b",", "jsonl"),
}


def generate(name: str, size: int, rng: np.random.Generator, *, constant_share: float = 0.97, order: int = 0) -> tuple[bytes, Format]:
    """Generates about `size` bytes of a log of this kind, and its format.

    The rows depend on `rng` alone; `order` only decides where their fields stand.
    """
    if name not in KINDS:
        raise unknown("log", name, KINDS)
    if not 0 <= constant_share <= 1:
        raise InputError(f"constant_share: found {constant_share}; expected 0 to 1")
    if size < 1 or order < 0:
        raise InputError(f"found size {size} and order {order}; expected at least 1 and 0")
    kind = KINDS[name]
    pieces: list[bytes] = []
    # The first block has few rows, because the length of a row is not known yet.
    written, second, per_row = 0, 1_700_000_000.0, 1000.0
    permutation: np.ndarray | None = None
    while written < size:
        rows = max(1, min(_BLOCK, int((size - written) / per_row) + 1))
        columns = kind.columns(_Draw(rng, rows, constant_share, second))
        names = list(columns)
        if permutation is None:
            permutation = np.arange(len(names))
            if order:
                permutation = np.random.Generator(np.random.PCG64([order, len(names)])).permutation(len(names))
            pieces.append(_header(name, [names[i] for i in permutation]))
        body = b"\n".join(map(kind.separator.join, zip(*(columns[names[i]] for i in permutation), strict=True)))
        if kind.format == "jsonl":
            body = b"{" + body.replace(b"\n", b"}\n{") + b"}"
        pieces.append(body + b"\n")
        second += 0.06 * rows
        per_row = len(body) / rows
        written += len(body) + 1
    data = b"".join(pieces)
    found = detect(data, kind.format)
    assert found is not None
    return data, found


def _header(name: str, names: list[str]) -> bytes:
    if KINDS[name].format == "zeek":
        head = ["#separator \\x09", "#set_separator\t,", "#empty_field\t(empty)", "#unset_field\t-", f"#path\t{name.removeprefix('zeek-')}"]
        types = {"ts": "time", "duration": "interval", "rtt": "interval"}
        head += ["\t".join(["#fields", *names]), "\t".join(["#types", *(types.get(n, "string") for n in names)])]
        return "\n".join(head).encode() + b"\n"
    if name == "proxy":
        return f"#Software: proxy\n#Version: 1.0\n#Fields: {' '.join(names)}\n".encode()
    return (",".join(names) + "\n").encode() if name == "netflow" else b""
