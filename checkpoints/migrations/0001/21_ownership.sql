-- Whose a run is: knowing its id is not enough to read it, to carry it on or to decide about it (F18). Whoever may not
-- see a run or a mandate by name is told that there is none, and the try is kept.

CREATE TABLE refused_looks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    name text NOT NULL,
    -- Where there is such a run: then its own trace shows who tried.
    run_id text,
    person text NOT NULL,
    token_id text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER refused_looks_journal_insert AFTER INSERT ON refused_looks REFERENCING NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION journal_rows();

-- Who leads or makes identities answers for every run.
CREATE FUNCTION leads(t tokens) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$ SELECT t.role IN ('finance_lead', 'administrator') $$;

-- Its people, as natural persons; who leads; and a role that was asked to decide about it.
CREATE FUNCTION sees_run(t tokens, r runs) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT leads(t)
        OR t.natural_person IN (natural_person_of(r.owner, NULL), natural_person_of(r.requester, NULL))
        OR t.natural_person = (SELECT natural_person_of(m.grantor, NULL) FROM mandates m WHERE m.hash = r.mandate_hash)
        OR EXISTS (SELECT FROM approvals a WHERE a.run_id = r.id AND t.role = ANY (a.roles))
$$;

-- Its grantor, who leads, and whoever may see a run under it.
CREATE FUNCTION sees_mandate(t tokens, m mandates) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT leads(t) OR t.natural_person = natural_person_of(m.grantor, NULL)
        OR EXISTS (SELECT FROM runs r WHERE r.mandate_hash = m.hash AND sees_run(t, r))
$$;

-- Those of `p_names` that this token may see; `p_kind` is run, mandate (by hash), purpose, or hold (an operation's id, which
-- a role that may send it now sees too). Without a token: all of them in
-- a sandbox, where whoever sits at the keyboard plays every part, and an error elsewhere. `p_named`: somebody asked for
-- exactly these, so where none of them may be seen, or exists, the try is kept. It is no error here, since an error would
-- undo that.
CREATE FUNCTION may_see(p_secret text, p_kind text, p_names text[], p_named boolean) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE t tokens; place text; seen text[];
BEGIN
    IF p_secret IS NULL THEN
        SELECT i.environment INTO place FROM installation i;
        IF place IS DISTINCT FROM 'sandbox' THEN
            RAISE EXCEPTION 'This database is %, and there nobody looks at runs without saying who they are. Pass --token FILE, or set REMIT_TOKEN_FILE.', place
                USING ERRCODE = 'RM010';
        END IF;
        RETURN QUERY SELECT unnest(p_names);
        RETURN;
    END IF;
    t := token_of(p_secret);
    CASE p_kind
        WHEN 'run' THEN
            seen := ARRAY(SELECT r.id FROM runs r WHERE r.id = ANY (p_names) AND sees_run(t, r));
        WHEN 'mandate' THEN
            seen := ARRAY(SELECT m.hash FROM mandates m WHERE m.hash = ANY (p_names) AND sees_mandate(t, m));
        WHEN 'hold' THEN
            seen := ARRAY(SELECT o.id::text FROM operations o JOIN runs r ON r.id = o.run_id
                          WHERE o.id = ANY (p_names::bigint[]) AND (o.obligations -> 'release_by' ? t.role OR sees_run(t, r)));
        WHEN 'purpose' THEN
            seen := ARRAY(SELECT DISTINCT m.purpose FROM mandates m WHERE m.purpose = ANY (p_names) AND sees_mandate(t, m));
    END CASE;
    IF p_named AND seen = '{}' THEN
        INSERT INTO refused_looks (kind, name, run_id, person, token_id)
        SELECT p_kind, left(n, 100), r.id, t.person, t.id
        FROM unnest(p_names) n LEFT JOIN runs r ON p_kind = 'run' AND r.id = n;
    END IF;
    RETURN QUERY SELECT unnest(seen);
END $$;

REVOKE EXECUTE ON FUNCTION leads, sees_run, sees_mandate FROM PUBLIC;
GRANT SELECT ON refused_looks TO remit_app;
GRANT EXECUTE ON FUNCTION may_see TO remit_app;
