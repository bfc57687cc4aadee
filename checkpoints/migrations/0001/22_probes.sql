-- Whether a receiver was seen to enforce its keys: one row per probe, of an operation that was sent like any other.

CREATE TABLE probes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_id bigint NOT NULL REFERENCES operations,
    tool text NOT NULL,
    tool_version text NOT NULL,
    receiver text NOT NULL,
    shown boolean NOT NULL,
    evidence jsonb NOT NULL,
    by text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock()
);

CREATE TRIGGER probes_journal_insert AFTER INSERT ON probes REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION journal_rows();

-- Tool, version and receiver are the operation's own, and it has to have been sent under a probe's mandate that the same
-- person granted: a word alone shows nothing.
CREATE FUNCTION store_probe(p_secret text, p_operation bigint, p_shown boolean, p_evidence jsonb) RETURNS SETOF probes
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE actor tokens := token_of(p_secret);
BEGIN
    IF actor.role NOT IN ('administrator', 'finance_lead') THEN
        RAISE EXCEPTION '% is %, and a probe is kept on the word of an administrator or a finance_lead. Ask one.',
            actor.person, actor.role USING ERRCODE = 'RM011';
    END IF;
    RETURN QUERY INSERT INTO probes (operation_id, tool, tool_version, receiver, shown, evidence, by)
        SELECT o.id, o.tool, o.tool_version, o.receivers[1], p_shown, p_evidence, actor.person
        FROM operations o JOIN mandates m ON m.hash = o.mandate_hash
        WHERE o.id = p_operation AND o.state = 'SETTLED' AND o.purpose LIKE 'probe-%' AND m.grantor = actor.person
        RETURNING *;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'Operation % is no settled probe of %, so it shows nothing. Probe again: `remit catalogue --probe SUBJECT`.',
            p_operation, actor.person USING ERRCODE = 'RM012';
    END IF;
END $$;

GRANT SELECT ON probes TO remit_app;
GRANT EXECUTE ON FUNCTION store_probe TO remit_app;
