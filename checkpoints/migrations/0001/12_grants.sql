-- The role of the agent's processes reads, and calls functions. It writes no table: every change goes through a
-- function that checks token, lease and transition. What is not named here is an internal step and stays out of reach.

GRANT USAGE ON SCHEMA remit TO remit_app;
GRANT SELECT ON ALL TABLES IN SCHEMA remit TO remit_app;
REVOKE SELECT ON tokens FROM remit_app;
GRANT SELECT (id, person, natural_person, role, minted_by, created_at, expires_at, revoked_at) ON tokens TO remit_app;

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA remit FROM PUBLIC;
-- Whoever adds a function later has to say who may call it.
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;

DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        -- what queries and views read by
        'clock', 'obstacle', 'requirement_obstacle', 'order_over', 'covers', 'stop_of_run', 'mandate_live', 'granted_until', 'movement', 'key_standing', 'stuck',
        'run_ready', 'unread', 'asked_lately', 'ready_runs', 'lease_free',
        -- what people say, with a token that is checked inside
        'whoami', 'mint_token', 'revoke_token', 'grant_mandate', 'revoke_mandate', 'decide', 'stop', 'freeze', 'lift', 'start_run',
        -- what a worker does; what belongs to a run is checked against its lease
        'register_worker', 'worker_dead', 'acquire_lease', 'heartbeat', 'release_run', 'carry_version', 'new_thread', 'advance_clock',
        'store_plan', 'store_results', 'store_cohort', 'store_statements', 'store_proposals', 'resolve_proposals', 'propose',
        'judge', 'reopen_stale', 'policy_silent', 'put_off', 'fall_back', 'clear_gates', 'close_pending', 'ask_approvals', 'start_holds',
        'claim', 'may_send', 'record', 'unsend', 'due', 'settle', 'swept', 'tidy', 'cancel_stopped'] LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION remit.%I TO remit_app', name);
    END LOOP;
END $$;
