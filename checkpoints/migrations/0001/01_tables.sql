-- The ledger's tables. Every row that can matter after an incident is kept; only gates and reservations, which say
-- what holds right now, are ever deleted.
-- Real time is clock_timestamp(); company time is remit.clock() (see 02_clock_and_transitions.sql).

CREATE TABLE installation (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    id text NOT NULL CHECK (id ~ '^[a-z0-9-]{4,40}$'),
    tenant text NOT NULL,
    environment text NOT NULL CHECK (environment IN ('sandbox', 'staging', 'production')),
    -- An IANA name: days and months of limits are this zone's.
    zone text NOT NULL DEFAULT 'UTC',
    clock_offset interval NOT NULL DEFAULT '0' CHECK (clock_offset >= '0'),
    -- Of the server that this ledger was last known to be on; another one has it from a backup (16_restores.sql).
    system_identifier text NOT NULL,
    timeline text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What made these tables, as a digest over the files of each revision: a build that has others cannot work with them.
CREATE TABLE builds (
    revision text PRIMARY KEY,
    digest text NOT NULL
);

CREATE TABLE tokens (
    id text PRIMARY KEY,
    person text NOT NULL CHECK (person ~ '^[a-z0-9][a-z0-9._-]{1,60}$'),
    -- Who that is outside of here: several identities of one human being are one voice, and stand in a chain together.
    natural_person text NOT NULL CHECK (natural_person ~ '^[a-z0-9][a-z0-9._-]{1,60}$'),
    role text NOT NULL CHECK (role ~ '^[a-z][a-z_]{1,40}$'),
    secret_hash bytea NOT NULL UNIQUE,
    minted_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL,
    revoked_at timestamptz
);

CREATE TABLE mandates (
    hash text PRIMARY KEY CHECK (hash ~ '^v1:[0-9a-f]{64}$'),
    purpose text NOT NULL,
    document jsonb NOT NULL,
    agent text NOT NULL,
    valid_from timestamptz NOT NULL,
    valid_until timestamptz NOT NULL,
    grantor text NOT NULL,
    grantor_role text NOT NULL,
    token_id text NOT NULL REFERENCES tokens,
    granted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    superseded_at timestamptz,
    superseded_by text REFERENCES mandates,
    revoked_at timestamptz,
    revoked_by text
);
-- One live mandate per purpose: a corrected one supersedes the earlier, so two agents never work from two versions.
CREATE UNIQUE INDEX mandates_live ON mandates (purpose) WHERE superseded_at IS NULL AND revoked_at IS NULL;

CREATE TABLE mandate_subjects (
    mandate_hash text NOT NULL REFERENCES mandates,
    subject text NOT NULL,
    PRIMARY KEY (mandate_hash, subject)
);
CREATE INDEX mandate_subjects_subject ON mandate_subjects (subject);

CREATE TABLE workers (
    id text PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    lock_path text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sweeps bigint NOT NULL DEFAULT 0,
    dead_at timestamptz
);

CREATE TABLE runs (
    id text PRIMARY KEY CHECK (id ~ '^run-[a-z0-9]{6,20}$'),
    mandate_hash text NOT NULL REFERENCES mandates,
    purpose text NOT NULL,
    owner text NOT NULL,
    requester text NOT NULL,
    agent text NOT NULL,
    agent_version text NOT NULL,
    status text NOT NULL DEFAULT 'RUNNING' CHECK (status IN
        ('RUNNING', 'PAUSED_AWAITING_APPROVAL', 'PAUSED', 'STOPPED', 'COMPLETED', 'INCOMPLETE', 'BLOCKED')),
    reason text NOT NULL DEFAULT '',
    waits jsonb NOT NULL DEFAULT '{}',
    thread integer NOT NULL DEFAULT 1,
    fingerprint text NOT NULL DEFAULT '',
    tokens_used bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at timestamptz
);
CREATE INDEX runs_open ON runs (created_at) WHERE ended_at IS NULL;

-- The lease stands apart from the run, so that heartbeats leave the journal alone.
CREATE TABLE leases (
    run_id text PRIMARY KEY REFERENCES runs,
    token bigint NOT NULL DEFAULT 0,
    worker text REFERENCES workers,
    lease_until timestamptz NOT NULL DEFAULT 'epoch',
    heartbeat_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE threads (
    thread_id text PRIMARY KEY,
    run_id text NOT NULL REFERENCES runs,
    number integer NOT NULL,
    state text NOT NULL DEFAULT 'LIVE' CHECK (state IN ('LIVE', 'LEFT', 'QUARANTINED')),
    why text NOT NULL DEFAULT '',
    UNIQUE (run_id, number)
);

CREATE TABLE plans (
    run_id text NOT NULL REFERENCES runs,
    number integer NOT NULL,
    hash text NOT NULL,
    calls jsonb NOT NULL,
    content text NOT NULL,
    results jsonb,
    tokens integer NOT NULL,
    movement bigint NOT NULL,
    agent_version text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, number)
);

CREATE TABLE cohorts (
    run_id text NOT NULL REFERENCES runs,
    handle text NOT NULL,
    tool text NOT NULL,
    arguments jsonb NOT NULL,
    subjects text[] NOT NULL,
    sample jsonb NOT NULL,
    as_of timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, handle)
);

CREATE TABLE operations (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key text NOT NULL,
    revision integer NOT NULL,
    purpose text NOT NULL,
    step text NOT NULL,
    subject text NOT NULL,
    effect text NOT NULL,
    tool text NOT NULL,
    tool_version text NOT NULL,
    -- Where it is sent, and then whose records are read before it is.
    receivers text[] NOT NULL CHECK (cardinality(receivers) > 0),
    run_id text NOT NULL REFERENCES runs,
    plan integer NOT NULL,
    mandate_hash text NOT NULL REFERENCES mandates,
    agent text NOT NULL,
    agent_version text NOT NULL,
    intent jsonb NOT NULL,
    intent_hash text NOT NULL,
    request jsonb NOT NULL,
    relied_on jsonb NOT NULL,
    action_hash text NOT NULL,
    snapshot jsonb NOT NULL,
    requires text[] NOT NULL,
    amount_minor bigint CHECK (amount_minor BETWEEN 0 AND 1000000000000),
    currency text,
    reversibility text NOT NULL,
    consequence text NOT NULL,
    verdict text CHECK (verdict IN ('allow', 'needs_approval', 'deny')),
    reasons jsonb NOT NULL DEFAULT '[]',
    obligations jsonb NOT NULL DEFAULT '{}',
    policy_engine text,
    policy_revision text,
    decision_id text,
    state text NOT NULL DEFAULT 'PENDING' CHECK (state IN
        ('PENDING', 'SENDING', 'UNKNOWN', 'ACCEPTED', 'SETTLED', 'CLOSED')),
    closed text CHECK (closed IN ('denied', 'rejected', 'expired', 'stale', 'cancelled', 'superseded',
                                  'refused', 'withdrawn', 'by_person')),
    closed_detail text,
    -- True while an earlier attempt is not proved to be without effect: nothing a later attempt answers hides it.
    doubt boolean NOT NULL DEFAULT false,
    resend boolean NOT NULL DEFAULT false,
    -- A person wanted it back when it was with a sender already: what was begun is followed, and nothing is sent again.
    keep_back boolean NOT NULL DEFAULT false,
    generation integer NOT NULL DEFAULT 1,
    attempts integer NOT NULL DEFAULT 0,
    checks integer NOT NULL DEFAULT 0,
    hold_until timestamptz,
    due_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    version integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    fact text NOT NULL GENERATED ALWAYS AS (
        CASE WHEN state IN ('PENDING', 'CLOSED') THEN 'NOT_SENT'
             WHEN state = 'SETTLED' THEN 'COMPLETED'
             WHEN state = 'UNKNOWN' OR doubt THEN 'UNKNOWN'
             ELSE 'IN_PROGRESS' END) STORED,
    CHECK ((state = 'CLOSED') = (closed IS NOT NULL)),
    -- I1 rests on the key being the business identity, so no caller makes one up.
    CHECK (starts_with(key, purpose || '/' || step || '/' || subject || '/')),
    UNIQUE (key, revision)
);
-- I1: one revision per key that is not closed, whichever run, tool, plan or process proposes it.
CREATE UNIQUE INDEX operations_live ON operations (key) WHERE state <> 'CLOSED';
CREATE INDEX operations_run ON operations (run_id, state);
CREATE INDEX operations_purpose ON operations (purpose, effect) WHERE state IN ('SENDING', 'UNKNOWN', 'ACCEPTED', 'SETTLED');
CREATE INDEX operations_due ON operations (due_at) WHERE state IN ('SENDING', 'UNKNOWN', 'ACCEPTED');
CREATE INDEX operations_pending ON operations (run_id, id) WHERE state = 'PENDING';
CREATE INDEX operations_mandate ON operations (mandate_hash, id) WHERE state = 'PENDING';
CREATE INDEX operations_subject ON operations (subject, id);

-- `until` is real time: these are pauses of machines, not terms of the business.
CREATE TABLE gates (
    operation_id bigint NOT NULL REFERENCES operations,
    kind text NOT NULL CHECK (kind IN ('policy', 'limit', 'backoff')),
    until timestamptz NOT NULL DEFAULT '9999-12-31T00:00:00Z',
    detail text NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (operation_id, kind)
);

CREATE TABLE proposals (
    run_id text NOT NULL REFERENCES runs,
    plan integer NOT NULL,
    call integer NOT NULL,
    subject text NOT NULL,
    tool text NOT NULL,
    step text,
    intent jsonb NOT NULL,
    amount_minor bigint,
    currency text,
    outcome text CHECK (outcome IN ('operation', 'same', 'done', 'conflict', 'refused')),
    code text,
    operation_id bigint REFERENCES operations,
    PRIMARY KEY (run_id, plan, call, subject)
);
CREATE INDEX proposals_open ON proposals (run_id, plan) WHERE outcome IS NULL;
CREATE INDEX proposals_operation ON proposals (operation_id) WHERE operation_id IS NOT NULL;

CREATE TABLE attempts (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_id bigint NOT NULL REFERENCES operations,
    number integer NOT NULL,
    wire_key text NOT NULL,
    worker text NOT NULL REFERENCES workers,
    run_token bigint NOT NULL,
    agent_version text NOT NULL,
    claimed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    company_time timestamptz NOT NULL,
    send_by timestamptz NOT NULL,
    timeout interval NOT NULL,
    seen text,
    response jsonb,
    ended_at timestamptz,
    late boolean NOT NULL DEFAULT false,
    no_effect boolean NOT NULL DEFAULT false,
    UNIQUE (operation_id, number)
);

CREATE TABLE evidence (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_id bigint NOT NULL REFERENCES operations,
    attempt integer NOT NULL,
    version integer NOT NULL,
    sight text NOT NULL,
    source text NOT NULL,
    as_of text NOT NULL,
    complete boolean NOT NULL,
    read_began_at timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    records jsonb NOT NULL
);
CREATE INDEX evidence_operation ON evidence (operation_id, id);

CREATE TABLE approvals (
    id text PRIMARY KEY CHECK (id ~ '^ap-[a-z0-9]{6,20}$'),
    run_id text NOT NULL REFERENCES runs,
    mandate_hash text NOT NULL REFERENCES mandates,
    set_hash text NOT NULL,
    roles text[] NOT NULL CHECK (cardinality(roles) > 0),
    quorum integer NOT NULL CHECK (quorum >= 1),
    -- How many of which role at least: {"finance_lead": 1}; the quorum's other voices may be of any of the roles.
    quorum_of jsonb NOT NULL,
    -- Who is asked when nobody decided in time: {approvers, quorum, decide_within}; NULL: nobody, it expires.
    on_expiry jsonb,
    -- As policy said it; what others are asked after an escalation is still compared with this.
    terms jsonb NOT NULL,
    escalated_from text REFERENCES approvals,
    asked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    decide_by timestamptz NOT NULL,
    -- When a tenth of the time to decide is left: people are told that nobody has decided yet.
    remind_at timestamptz NOT NULL,
    execute_within interval NOT NULL,
    status text NOT NULL DEFAULT 'OPEN' CHECK (status IN ('OPEN', 'DECIDED', 'EXPIRED', 'ESCALATED', 'CANCELLED')),
    closed_at timestamptz
);
CREATE INDEX approvals_open ON approvals (mandate_hash) WHERE status = 'OPEN';

CREATE TABLE approval_items (
    approval_id text NOT NULL REFERENCES approvals,
    operation_id bigint NOT NULL REFERENCES operations,
    action_hash text NOT NULL,
    decision text CHECK (decision IN ('granted', 'rejected', 'voided')),
    decided_at timestamptz,
    execute_by timestamptz,
    bound_at timestamptz,
    voided_why text,
    PRIMARY KEY (approval_id, operation_id),
    CHECK ((decision = 'voided') = (voided_why IS NOT NULL))
);
CREATE INDEX approval_items_operation ON approval_items (operation_id);

CREATE TABLE votes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    approval_id text NOT NULL,
    operation_id bigint NOT NULL,
    person text NOT NULL,
    natural_person text NOT NULL,
    role text NOT NULL,
    token_id text NOT NULL REFERENCES tokens,
    decision text NOT NULL CHECK (decision IN ('granted', 'rejected')),
    rationale text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    taken_back_at timestamptz,
    taken_back_why text,
    FOREIGN KEY (approval_id, operation_id) REFERENCES approval_items
);
CREATE UNIQUE INDEX votes_once ON votes (approval_id, operation_id, natural_person) WHERE taken_back_at IS NULL;
CREATE INDEX votes_token ON votes (token_id) WHERE taken_back_at IS NULL;

-- Refused tries to decide are evidence too: who tried, with which token, and why it did not count.
CREATE TABLE refused_decisions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    approval_id text NOT NULL,
    run_id text,
    person text,
    token_id text,
    code text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('stop', 'freeze', 'restore')),
    scope text NOT NULL CHECK (scope IN ('all', 'mandate', 'run', 'agent', 'version', 'tool', 'effect', 'subject')),
    value text NOT NULL DEFAULT '',
    reason text NOT NULL,
    issued_by text NOT NULL,
    issued_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Kept, since a sandbox's clock may move on afterwards: what records show is compared with it.
    company_time timestamptz NOT NULL,
    lifted_at timestamptz,
    lifted_by text,
    CHECK ((scope = 'all') = (value = ''))
);
CREATE UNIQUE INDEX orders_standing ON orders (kind, scope, value) WHERE lifted_at IS NULL;

CREATE TABLE cases (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_id bigint REFERENCES operations,
    run_id text NOT NULL REFERENCES runs,
    code text NOT NULL,
    detail text NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A person had it replayed: open still, and no gate before its own operation any more.
    released_at timestamptz,
    closed_at timestamptz,
    closed_by text,
    resolution text
);
CREATE UNIQUE INDEX cases_open ON cases (operation_id, code) WHERE closed_at IS NULL AND operation_id IS NOT NULL;
CREATE INDEX cases_run ON cases (run_id) WHERE closed_at IS NULL;
CREATE INDEX cases_standing ON cases (id) WHERE closed_at IS NULL;
CREATE INDEX cases_opened ON cases (opened_at);
CREATE INDEX cases_operation ON cases (operation_id);

CREATE TABLE statements (
    run_id text NOT NULL REFERENCES runs,
    plan integer NOT NULL,
    number integer NOT NULL,
    text text NOT NULL,
    step text,
    count integer,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, plan, number)
);

CREATE TABLE journal (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind text NOT NULL,
    run_id text,
    operation_id bigint,
    data jsonb NOT NULL
);
CREATE INDEX journal_operation ON journal (operation_id, id);
CREATE INDEX journal_run ON journal (run_id, id);
