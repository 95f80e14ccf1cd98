-- Results of studies. Only the coordinating process writes; a finished unit is one transaction.
CREATE TABLE study (
    id INTEGER PRIMARY KEY, identity TEXT UNIQUE NOT NULL, created REAL NOT NULL, seed INTEGER NOT NULL,
    command TEXT NOT NULL, plan_json TEXT NOT NULL, note TEXT NOT NULL DEFAULT ''
);
CREATE TABLE environment (id INTEGER PRIMARY KEY, host TEXT NOT NULL, json TEXT UNIQUE NOT NULL);
CREATE TABLE unit (
    key INTEGER PRIMARY KEY, id BLOB UNIQUE NOT NULL, arena TEXT NOT NULL, technique TEXT NOT NULL, parameters TEXT NOT NULL,
    case_name TEXT NOT NULL, case_digest BLOB NOT NULL, repeat INTEGER NOT NULL, seed INTEGER NOT NULL, code_digest BLOB NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('planned', 'running', 'done', 'failed', 'declined')),
    attempt INTEGER NOT NULL DEFAULT 0, worker TEXT, environment INTEGER REFERENCES environment, started REAL, seconds REAL,
    noisy INTEGER NOT NULL DEFAULT 0, slowdown REAL, load REAL, reason TEXT, error TEXT, traceback TEXT
);
CREATE INDEX unit_by_technique ON unit (arena, technique);
-- Which units a study is made of; equal units of two studies are stored once.
CREATE TABLE member (study INTEGER NOT NULL REFERENCES study, unit INTEGER NOT NULL REFERENCES unit, PRIMARY KEY (study, unit)) WITHOUT ROWID;
CREATE TABLE metric (
    key INTEGER PRIMARY KEY, name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('measured', 'simulated', 'modelled')), UNIQUE (name, kind)
);
CREATE TABLE value (
    unit INTEGER NOT NULL REFERENCES unit ON DELETE CASCADE, metric INTEGER NOT NULL REFERENCES metric, value REAL NOT NULL,
    PRIMARY KEY (unit, metric)
) WITHOUT ROWID;
CREATE TABLE artifact (
    unit INTEGER NOT NULL REFERENCES unit ON DELETE CASCADE, name TEXT NOT NULL, media TEXT NOT NULL, sha256 TEXT NOT NULL,
    bytes BLOB NOT NULL, PRIMARY KEY (unit, name)
);
CREATE TABLE verdict (
    study INTEGER NOT NULL REFERENCES study, claim TEXT NOT NULL, state TEXT NOT NULL, figure REAL, low REAL, high REAL,
    n INTEGER NOT NULL, json TEXT NOT NULL, judged REAL NOT NULL, PRIMARY KEY (study, claim)
);
CREATE INDEX verdict_by_claim ON verdict (claim, judged);
-- The coordinator that is writing now.
CREATE TABLE coordinator (one INTEGER PRIMARY KEY CHECK (one = 1), pid INTEGER NOT NULL, host TEXT NOT NULL, beat REAL NOT NULL);
-- Everything in one table, for people who look with sqlite3.
CREATE VIEW result AS
    SELECT member.study, hex(unit.id) AS unit, arena, technique, parameters, case_name, repeat, state, noisy, metric.name AS metric,
           metric.kind, value.value
    FROM member JOIN unit ON unit.key = member.unit
    LEFT JOIN value ON value.unit = unit.key LEFT JOIN metric ON metric.key = value.metric;
