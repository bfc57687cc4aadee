-- What policy was asked, so that a decision can be explained as it was made, and how often it gave no answer.

-- What a batch of questions has in common, once: who asks, and the context without its mandate, which is stored already.
CREATE TABLE contexts (
    hash text PRIMARY KEY CHECK (hash ~ '^v1:[0-9a-f]{64}$'),
    document jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row for each decision about an operation: what was said about it. The answer is the operation's own.
CREATE TABLE questions (
    operation_id bigint NOT NULL REFERENCES operations,
    decision_id text NOT NULL,
    context_hash text NOT NULL REFERENCES contexts,
    evaluation jsonb NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (operation_id, decision_id)
);

-- Never a verdict, and counted apart from denials: by run and code, how often and for how many actions.
CREATE TABLE silences (
    run_id text NOT NULL REFERENCES runs,
    code text NOT NULL CHECK (code ~ '^[a-z][a-z_]{2,40}$'),
    detail text NOT NULL,
    times bigint NOT NULL DEFAULT 1,
    actions bigint NOT NULL,
    first_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (run_id, code)
);

-- The first of its kind in a run is journaled; a policy that stays silent for a night is a count, not a flood.
CREATE TRIGGER silences_journal_insert AFTER INSERT ON silences REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION journal_rows();

-- I3: no allow and no request for approval without the engine, the revision and the answer that it came in, and a reason.
-- Whoever wrote an allow because there was no answer would have to make all of these up.
ALTER TABLE operations ADD CONSTRAINT operations_verdict_has_its_source CHECK (
    coalesce(verdict, 'deny') = 'deny'
    OR (policy_engine <> '' AND policy_revision <> '' AND decision_id <> '' AND jsonb_array_length(reasons) > 0) IS TRUE);

-- What identifies anything is printable ASCII without blanks, so that no two names look alike and are not.
ALTER TABLE operations ADD CONSTRAINT operations_names_are_ascii CHECK (
    (key || effect || tool || tool_version || agent || coalesce(currency, '')) ~ '^[!-~]+$');

CREATE FUNCTION keep_context(p_run text, p_token bigint, p_hash text, p_document jsonb) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_lease(p_run, p_token);
    INSERT INTO contexts (hash, document) VALUES (p_hash, p_document) ON CONFLICT DO NOTHING;
END $$;

-- With the verdicts, in their transaction: the questions of those rows whose decision an operation of this run now has.
CREATE FUNCTION keep_questions(p_run text, p_rows jsonb) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    INSERT INTO questions (operation_id, decision_id, context_hash, evaluation)
    SELECT o.id, o.decision_id, r.question ->> 'context', r.question -> 'evaluation'
    FROM jsonb_to_recordset(p_rows) r (key text, decision_id text, question jsonb)
    JOIN operations o ON o.key = r.key AND o.decision_id = r.decision_id AND o.run_id = p_run
    WHERE r.question IS NOT NULL
    ON CONFLICT DO NOTHING
$$;

CREATE FUNCTION count_silence(p_run text, p_token bigint, p_code text, p_detail text, p_actions bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    PERFORM check_lease(p_run, p_token);
    INSERT INTO silences AS s (run_id, code, detail, actions) VALUES (p_run, p_code, p_detail, p_actions)
    ON CONFLICT (run_id, code) DO UPDATE
    SET times = s.times + 1, actions = s.actions + excluded.actions, detail = excluded.detail, last_at = excluded.last_at;
END $$;

GRANT SELECT ON contexts, questions, silences TO remit_app;
REVOKE EXECUTE ON FUNCTION keep_context, keep_questions, count_silence FROM PUBLIC;
GRANT EXECUTE ON FUNCTION keep_context, count_silence TO remit_app;
