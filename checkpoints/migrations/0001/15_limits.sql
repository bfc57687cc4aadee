-- Limits and automatic budgets. Shares are taken in the claim, under locks in sorted order, and given back only by what
-- certainly had no effect: UNKNOWN keeps its own (F54). What does not fit waits for the window or for a share, or asks.

-- A bucket is one limit for one purpose, subject or for all, in one window: a new window has another bucket, and what the
-- old one holds is not touched. `ends` is company time. `most_*` is what the last claim compared, for listings and wake-ups.
CREATE TABLE limit_usage (
    bucket text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    effect text NOT NULL,
    purpose text NOT NULL,
    subject text NOT NULL,
    window_name text NOT NULL,
    starts timestamptz NOT NULL,
    ends timestamptz NOT NULL,
    currency text,
    automatic boolean NOT NULL,
    most_count bigint,
    most_amount_minor bigint,
    count bigint NOT NULL DEFAULT 0 CHECK (count >= 0),
    amount_minor bigint NOT NULL DEFAULT 0 CHECK (amount_minor >= 0)
);
CREATE INDEX limit_usage_current ON limit_usage (effect, purpose, starts) WHERE subject = '';

CREATE TABLE reservations (
    operation_id bigint NOT NULL REFERENCES operations,
    bucket text COLLATE "C" NOT NULL,
    amount_minor bigint NOT NULL,
    PRIMARY KEY (operation_id, bucket)
);

-- Which bucket the gate `limit` of an operation waits for; the smallest share first, since what it needs comes back first.
CREATE TABLE limit_waits (
    operation_id bigint PRIMARY KEY,
    kind text NOT NULL DEFAULT 'limit' CHECK (kind = 'limit'),
    bucket text COLLATE "C" NOT NULL,
    amount_minor bigint NOT NULL,
    FOREIGN KEY (operation_id, kind) REFERENCES gates ON DELETE CASCADE
);
CREATE INDEX limit_waits_next ON limit_waits (bucket, amount_minor, operation_id);

CREATE TYPE share AS (
    bucket text, name text, scope text, purpose text, subject text, window_name text, starts timestamptz, ends timestamptz,
    count bigint, amount_minor bigint, currency text, automatic boolean);

-- The window that holds a moment, in the installation's zone. Days and months are the calendar's, so a day in which the
-- clocks change has 23 or 25 hours; an hour that the clocks repeat is two windows.
CREATE FUNCTION window_of(p_window text, p_at timestamptz, OUT starts timestamptz, OUT ends timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT CASE p_window WHEN 'ever' THEN '-infinity' WHEN 'hour' THEN date_trunc('hour', p_at, i.zone)
                         ELSE date_trunc(p_window, p_at AT TIME ZONE i.zone) AT TIME ZONE i.zone END,
           CASE p_window WHEN 'ever' THEN 'infinity' WHEN 'hour' THEN date_trunc('hour', p_at, i.zone) + interval '1 hour'
                         ELSE (date_trunc(p_window, p_at AT TIME ZONE i.zone) + ('1 ' || p_window)::interval) AT TIME ZONE i.zone END
    FROM installation i
$$;

-- Every share that an operation needs at a moment. What a person approved needs none of an automatic budget. A scope or
-- window that nobody knows is NULL here, and the row that it would make is refused: nothing is claimed under it.
-- ROWS: with the default of a thousand, Postgres would read all of limit_usage for every action.
CREATE FUNCTION shares_of(o operations, p_at timestamptz) RETURNS SETOF share
LANGUAGE sql STABLE ROWS 8 SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT concat_ws(' ', l.name, nullif(whose.purpose, ''), nullif(whose.subject, ''),
                     CASE WHEN w.starts > '-infinity' THEN to_char(w.starts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"') END),
           l.name, l.scope, whose.purpose, whose.subject, l."window", w.starts, w.ends, l.count, l.amount_minor, l.currency, l.automatic
    FROM (SELECT v.*, false AS automatic FROM jsonb_to_recordset(o.obligations -> 'volume')
                 v (name text, scope text, "window" text, count bigint, amount_minor bigint, currency text)
          UNION ALL
          SELECT v.*, true FROM jsonb_to_recordset(o.obligations -> 'auto_budget')
                 v (name text, scope text, "window" text, count bigint, amount_minor bigint, currency text)
          WHERE o.verdict = 'allow') l
    CROSS JOIN LATERAL (SELECT CASE l.scope WHEN 'effect' THEN '' WHEN 'purpose' THEN o.purpose WHEN 'subject' THEN o.purpose END AS purpose,
                               CASE l.scope WHEN 'subject' THEN o.subject ELSE '' END AS subject) whose
    CROSS JOIN LATERAL window_of(l."window", p_at) w
$$;

-- Buckets of the whole batch are made and locked first and in sorted order: two batches cannot wait for each other in a
-- circle. Where nothing changes, the conflict alone locks the row.
CREATE FUNCTION lock_limits(p_run text, p_ids bigint[], p_at timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    INSERT INTO limit_usage AS u (bucket, name, effect, purpose, subject, window_name, starts, ends, currency, automatic,
                                  most_count, most_amount_minor)
    SELECT DISTINCT ON (s.bucket COLLATE "C") s.bucket, s.name, o.effect, s.purpose, s.subject, s.window_name, s.starts, s.ends,
           s.currency, s.automatic, s.count, s.amount_minor
    FROM operations o CROSS JOIN LATERAL shares_of(o, p_at) s
    WHERE o.id = ANY (p_ids) AND o.run_id = p_run ORDER BY s.bucket COLLATE "C", o.id DESC
    ON CONFLICT (bucket) DO UPDATE SET most_count = excluded.most_count, most_amount_minor = excluded.most_amount_minor
    WHERE (u.most_count, u.most_amount_minor) IS DISTINCT FROM (excluded.most_count, excluded.most_amount_minor)
$$;

CREATE FUNCTION fits(u limit_usage, s share, o operations) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(u.count + 1 <= s.count, s.count IS NULL)
       AND coalesce(u.amount_minor + coalesce(o.amount_minor, 0) <= s.amount_minor, s.amount_minor IS NULL)
       AND (s.currency IS NULL OR s.currency IS NOT DISTINCT FROM o.currency)
       AND u.bucket IS NOT NULL
$$;

-- Takes the operation's share of every limit that policy named, or none: then it waits (`limit`), or policy is asked
-- afresh (`subject_limit`, `auto_budget`), which sees what is in flight by now and denies, asks a person, or allows.
CREATE FUNCTION reserve(o operations, p_at timestamptz) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE lacking share;
BEGIN
    IF EXISTS (SELECT FROM reservations r WHERE r.operation_id = o.id) THEN
        RETURN NULL;
    END IF;
    SELECT s.* INTO lacking FROM shares_of(o, p_at) s LEFT JOIN limit_usage u ON u.bucket = s.bucket WHERE NOT fits(u, s, o)
    ORDER BY s.scope = 'subject' DESC, s.automatic, s.ends DESC, s.bucket COLLATE "C" LIMIT 1;
    IF lacking.scope = 'subject' OR lacking.automatic THEN
        RETURN ask_again(o, CASE lacking.scope WHEN 'subject' THEN 'subject_limit' ELSE 'auto_budget' END);
    ELSIF lacking.bucket IS NOT NULL THEN
        RETURN wait_for(o, lacking);
    END IF;
    DELETE FROM gates WHERE operation_id = o.id AND kind = 'limit';
    WITH taken AS (
        INSERT INTO reservations (operation_id, bucket, amount_minor)
        SELECT o.id, s.bucket, coalesce(o.amount_minor, 0) FROM shares_of(o, p_at) s RETURNING bucket, amount_minor)
    UPDATE limit_usage u SET count = u.count + 1, amount_minor = u.amount_minor + t.amount_minor
    FROM taken t WHERE u.bucket = t.bucket;
    RETURN NULL;
END $$;

CREATE FUNCTION ask_again(o operations, p_code text) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    UPDATE operations SET verdict = NULL, version = version + 1 WHERE id = o.id;
    INSERT INTO gates (operation_id, kind, until, detail) VALUES (o.id, 'policy', clock_timestamp(), p_code)
    ON CONFLICT (operation_id, kind) DO UPDATE SET until = excluded.until, detail = excluded.detail;
    SELECT p_code
$$;

-- Until the window turns, or a share comes back.
CREATE FUNCTION wait_for(o operations, s share) RETURNS text
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    INSERT INTO gates (operation_id, kind, until, detail)
    SELECT o.id, 'limit', least(s.ends - i.clock_offset, '9999-12-31T00:00:00Z'), s.name || ' is used up' FROM installation i
    ON CONFLICT (operation_id, kind) DO UPDATE SET until = excluded.until, detail = excluded.detail;
    INSERT INTO limit_waits (operation_id, bucket, amount_minor) VALUES (o.id, s.bucket, coalesce(o.amount_minor, 0))
    ON CONFLICT (operation_id) DO UPDATE SET bucket = excluded.bucket;
    SELECT 'limit'
$$;

-- What certainly had no effect gives its shares back, and what waited for one is tried again; UNKNOWN keeps its own.
-- Called last, after all operations of a call are locked, with buckets in sorted order.
CREATE FUNCTION release_reservations(p_operations bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
DECLARE touched text[] := ARRAY(SELECT DISTINCT r.bucket FROM reservations r WHERE r.operation_id = ANY (p_operations));
BEGIN
    PERFORM FROM limit_usage u WHERE u.bucket = ANY (touched) ORDER BY u.bucket FOR UPDATE;
    WITH gone AS (
        DELETE FROM reservations WHERE operation_id = ANY (p_operations) RETURNING bucket, amount_minor
    ), shares AS (
        SELECT bucket, count(*) AS count, sum(amount_minor)::bigint AS amount_minor FROM gone GROUP BY 1)
    UPDATE limit_usage u SET count = u.count - s.count, amount_minor = u.amount_minor - s.amount_minor
    FROM shares s WHERE u.bucket = s.bucket AND u.bucket = ANY (touched);
    PERFORM wake_waiting(touched, 100);
END $$;

-- The next that wait for a bucket with room, so many of each. A claim that took shares wakes as many again: all that fits
-- is tried in the end, and no release wakes everybody. A gate that somebody else changes right now is left to them, so
-- that nobody waits here while holding buckets.
CREATE FUNCTION wake_waiting(p_buckets text[], p_most integer) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    WITH next AS (
        SELECT w.operation_id FROM limit_usage u CROSS JOIN LATERAL (
            SELECT x.operation_id FROM limit_waits x JOIN gates y USING (operation_id, kind) WHERE x.bucket = u.bucket
            ORDER BY x.amount_minor, x.operation_id LIMIT p_most FOR UPDATE OF y SKIP LOCKED) w
        WHERE u.bucket = ANY (p_buckets) AND coalesce(u.count < u.most_count, true)
          AND coalesce(u.amount_minor < u.most_amount_minor, true))
    DELETE FROM gates g USING next n WHERE g.operation_id = n.operation_id AND g.kind = 'limit'
$$;

-- Whoever is closed stands in nobody's way: only what may still be sent waits for a share.
CREATE FUNCTION forget_waits() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = remit, pg_temp AS $$
BEGIN
    DELETE FROM gates g USING new_rows n WHERE n.state = 'CLOSED' AND g.operation_id = n.id AND g.kind = 'limit';
    RETURN NULL;
END $$;
CREATE TRIGGER operations_forget_waits AFTER UPDATE ON operations
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION forget_waits();

-- What is used in the windows that hold this moment, of one purpose and over all: by exact ends of windows, so that those
-- that are over are never read.
CREATE FUNCTION limits_in_use(p_purpose text, p_effects text[]) RETURNS SETOF limit_usage
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = remit, pg_temp AS $$
    SELECT u.* FROM (SELECT clock() AS moment OFFSET 0) now
    CROSS JOIN unnest(ARRAY['ever', 'hour', 'day', 'month']) k (kind) CROSS JOIN LATERAL window_of(k.kind, now.moment) w
    JOIN limit_usage u ON u.effect = ANY (p_effects) AND u.purpose IN ('', p_purpose) AND u.starts = w.starts AND u.window_name = k.kind
    WHERE u.subject = ''
$$;

GRANT SELECT ON limit_usage, reservations, limit_waits TO remit_app;
GRANT EXECUTE ON FUNCTION limits_in_use TO remit_app;
