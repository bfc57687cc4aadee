-- The company's database: one file is one world. Times are microseconds since 1970 in company time,
-- so that they compare as numbers. A status is never stored: it follows from the times beside it,
-- which is why the company goes on settling and delivering while its process is down.

CREATE TABLE company (
    name  TEXT PRIMARY KEY,
    value REAL NOT NULL
) STRICT;

CREATE TABLE credentials (
    holder TEXT PRIMARY KEY,
    digest TEXT NOT NULL
) STRICT;

CREATE TABLE accounts (
    id           TEXT PRIMARY KEY,
    name         TEXT NOT NULL,
    email        TEXT NOT NULL,
    plan         TEXT NOT NULL,
    renewal_date TEXT NOT NULL,
    version      INTEGER NOT NULL
) STRICT;

CREATE TABLE notes (
    seq       INTEGER PRIMARY KEY,
    account   TEXT NOT NULL REFERENCES accounts,
    text      TEXT NOT NULL,
    actor     TEXT NOT NULL CHECK (actor IN ('agent', 'employee')),
    reference TEXT,
    at        INTEGER NOT NULL
) STRICT;
CREATE INDEX notes_by_account ON notes (account);

CREATE TABLE changes (
    seq        INTEGER PRIMARY KEY,
    account    TEXT NOT NULL REFERENCES accounts,
    version    INTEGER NOT NULL,
    field      TEXT NOT NULL,
    old        TEXT,
    new        TEXT,
    actor      TEXT NOT NULL CHECK (actor IN ('agent', 'employee')),
    reference  TEXT,
    at         INTEGER NOT NULL,
    visible_at INTEGER NOT NULL
) STRICT;
CREATE INDEX changes_by_account ON changes (account);
CREATE INDEX changes_by_reference ON changes (reference);

CREATE TABLE incidents (
    id           TEXT PRIMARY KEY,
    title        TEXT NOT NULL,
    amount_minor INTEGER NOT NULL,
    currency     TEXT NOT NULL,
    template     TEXT NOT NULL REFERENCES templates
) STRICT;

CREATE TABLE affected (
    incident TEXT NOT NULL REFERENCES incidents,
    account  TEXT NOT NULL REFERENCES accounts,
    PRIMARY KEY (incident, account)
) STRICT;

CREATE TABLE credits (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    customer     TEXT NOT NULL REFERENCES accounts,
    amount_minor INTEGER NOT NULL CHECK (amount_minor > 0),
    currency     TEXT NOT NULL,
    reason       TEXT NOT NULL,
    reference    TEXT,
    path         TEXT NOT NULL CHECK (path IN ('credits', 'legacy')),
    accepted_at  INTEGER NOT NULL,
    settle_at    INTEGER,
    withdrawn_at INTEGER,
    spent        INTEGER NOT NULL DEFAULT 0,
    visible_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX credits_by_reference ON credits (reference);
CREATE INDEX credits_by_customer ON credits (customer);

CREATE TABLE reversals (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    credit       TEXT NOT NULL REFERENCES credits (id),
    amount_minor INTEGER NOT NULL CHECK (amount_minor > 0),
    reference    TEXT,
    at           INTEGER NOT NULL,
    visible_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX reversals_by_reference ON reversals (reference);
CREATE INDEX reversals_by_credit ON reversals (credit);

-- The key, what it was used for, and the stored answer, side by side.
CREATE TABLE keys (
    key     TEXT PRIMARY KEY,
    request TEXT NOT NULL,
    status  INTEGER NOT NULL,
    body    TEXT NOT NULL,
    at      INTEGER NOT NULL
) STRICT;

CREATE TABLE templates (
    id      TEXT PRIMARY KEY,
    promise TEXT NOT NULL CHECK (promise IN ('one_time_credit', 'month_extension', 'none')),
    subject TEXT NOT NULL,
    body    TEXT NOT NULL
) STRICT;

CREATE TABLE messages (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    customer     TEXT NOT NULL REFERENCES accounts,
    template     TEXT NOT NULL REFERENCES templates,
    promise      TEXT NOT NULL,
    fill         TEXT NOT NULL,
    reference    TEXT,
    queued_at    INTEGER NOT NULL,
    deliver_at   INTEGER,
    withdrawn_at INTEGER,
    visible_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_by_reference ON messages (reference);

CREATE TABLE model_calls (
    seq     INTEGER PRIMARY KEY,
    at      INTEGER NOT NULL,
    model   TEXT,
    turn    INTEGER,
    request TEXT NOT NULL
) STRICT;

CREATE TABLE faults (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    service TEXT NOT NULL,
    route   TEXT NOT NULL,
    match   TEXT NOT NULL,
    kind    TEXT NOT NULL,
    times   INTEGER,
    skip    INTEGER NOT NULL,
    seconds REAL,
    stored  INTEGER NOT NULL,
    seen    INTEGER NOT NULL DEFAULT 0,
    hits    INTEGER NOT NULL DEFAULT 0,
    until   INTEGER
) STRICT;

-- Where a service posts its events, and from which moment on it has something to tell.
CREATE TABLE webhooks (
    service TEXT PRIMARY KEY CHECK (service IN ('payments', 'mail')),
    url     TEXT NOT NULL,
    since   INTEGER NOT NULL
) STRICT;

-- What happens to each effect, and when: like a status, it follows from the times and is never written down.
CREATE VIEW happenings AS
    SELECT 'payments' AS service, id AS effect, 'credit.accepted' AS type, reference, accepted_at AS at FROM credits
    UNION ALL
    SELECT 'payments', id, 'credit.settled', reference, settle_at FROM credits
    WHERE settle_at IS NOT NULL AND withdrawn_at IS NULL
    UNION ALL
    SELECT 'payments', id, 'credit.withdrawn', reference, withdrawn_at FROM credits WHERE withdrawn_at IS NOT NULL
    UNION ALL
    SELECT 'payments', r.id, 'credit.reversed', coalesce(r.reference, c.reference), r.at
    FROM reversals r JOIN credits c ON c.id = r.credit
    UNION ALL
    SELECT 'mail', id, 'message.queued', reference, queued_at FROM messages
    UNION ALL
    SELECT 'mail', id, 'message.delivered', reference, deliver_at FROM messages
    WHERE deliver_at IS NOT NULL AND withdrawn_at IS NULL
    UNION ALL
    SELECT 'mail', id, 'message.withdrawn', reference, withdrawn_at FROM messages WHERE withdrawn_at IS NOT NULL;

-- One row is one post of one event, and a duplicate is a row of its own. `next_at` is real time, and null where
-- nothing is to be done now. `signed_at` is set where the very same bytes are to be posted again.
CREATE TABLE outbox (
    seq       INTEGER PRIMARY KEY,
    event     TEXT NOT NULL,
    service   TEXT NOT NULL,
    effect    TEXT NOT NULL,
    body      TEXT NOT NULL,
    forged    INTEGER NOT NULL,
    signed_at INTEGER,
    next_at   INTEGER,
    tries     INTEGER NOT NULL DEFAULT 0,
    status    INTEGER,
    outcome   TEXT CHECK (outcome IN ('held', 'lost', 'delivered', 'given_up'))
) STRICT;
CREATE INDEX outbox_by_event ON outbox (event);
CREATE INDEX outbox_by_time ON outbox (next_at);
