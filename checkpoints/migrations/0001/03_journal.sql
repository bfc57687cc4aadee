-- The journal is written by the database alone (I9): statement-level triggers, one row per changed row.

CREATE FUNCTION journal_operations() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO journal (kind, run_id, operation_id, data)
        SELECT 'operation.proposed', run_id, id, to_jsonb(n) - '{due_at,checks,changed_at}'::text[] FROM new_rows n;
    ELSE
        INSERT INTO journal (kind, run_id, operation_id, data)
        SELECT 'operation.' || lower(n.state), n.run_id, n.id, jsonb_strip_nulls(jsonb_build_object(
                   'from', o.state, 'to', n.state, 'closed', n.closed, 'detail', n.closed_detail, 'fact', n.fact,
                   'version', n.version, 'doubt', n.doubt, 'resend', n.resend, 'keep_back', n.keep_back, 'attempts', n.attempts,
                   'generation', n.generation, 'verdict', n.verdict,
                   'reasons', CASE WHEN n.reasons <> o.reasons THEN n.reasons END,
                   'policy_revision', n.policy_revision, 'decision_id', n.decision_id, 'hold_until', n.hold_until))
        FROM new_rows n JOIN old_rows o USING (id)
        WHERE n.version <> o.version;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER operations_journal_insert AFTER INSERT ON operations
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION journal_operations();
CREATE TRIGGER operations_journal_update AFTER UPDATE ON operations
    REFERENCING NEW TABLE AS new_rows OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION journal_operations();

-- One function for all other tables: the whole row, without secrets, under `table.event`.
CREATE FUNCTION journal_rows() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    INSERT INTO journal (kind, run_id, operation_id, data)
    SELECT TG_TABLE_NAME || CASE TG_OP WHEN 'INSERT' THEN '.added' ELSE '.changed' END,
           coalesce(row ->> 'run_id', CASE TG_TABLE_NAME WHEN 'runs' THEN row ->> 'id' END),
           (row ->> 'operation_id')::bigint, row - '{secret_hash,waits}'::text[]
    FROM (SELECT to_jsonb(n) AS row FROM new_rows n) rows;
    RETURN NULL;
END $$;

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['installation', 'tokens', 'mandates', 'runs', 'threads', 'plans', 'cohorts', 'attempts', 'evidence',
                                'approvals', 'approval_items', 'votes', 'refused_decisions', 'orders', 'cases', 'statements'] LOOP
        EXECUTE format('CREATE TRIGGER %1$I_journal_insert AFTER INSERT ON %1$I REFERENCING NEW TABLE AS new_rows '
                       'FOR EACH STATEMENT EXECUTE FUNCTION remit.journal_rows()', name);
        EXECUTE format('CREATE TRIGGER %1$I_journal_update AFTER UPDATE ON %1$I REFERENCING NEW TABLE AS new_rows '
                       'FOR EACH STATEMENT EXECUTE FUNCTION remit.journal_rows()', name);
    END LOOP;
END $$;

CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'RM003';
END $$;
CREATE TRIGGER journal_append_only BEFORE UPDATE OR DELETE ON journal
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER journal_no_truncate BEFORE TRUNCATE ON journal
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
