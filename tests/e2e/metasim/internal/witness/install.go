// SPDX-License-Identifier: Apache-2.0

package witness

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// installSQL never raises inside a campaign: a witness must not be a fault of its own.
const installSQL = `CREATE TABLE IF NOT EXISTS election_member (service VARCHAR, id VARCHAR,
    last_heartbeat TIMESTAMPTZ, PRIMARY KEY (service, id));
CREATE TABLE IF NOT EXISTS election_leader (service VARCHAR, id VARCHAR,
    last_heartbeat TIMESTAMPTZ, PRIMARY KEY (service));
CREATE SCHEMA IF NOT EXISTS witness;
CREATE TABLE IF NOT EXISTS witness.renewal (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    op text NOT NULL, id text, tag text, heartbeat timestamptz,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE OR REPLACE FUNCTION witness.log_renewal() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, witness AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO witness.renewal (op, id, tag, heartbeat)
        VALUES ('delete', OLD.id, current_setting('application_name'), OLD.last_heartbeat);
    ELSIF TG_OP = 'INSERT' OR NEW.id IS DISTINCT FROM OLD.id
        OR NEW.last_heartbeat IS DISTINCT FROM OLD.last_heartbeat THEN
        INSERT INTO witness.renewal (op, id, tag, heartbeat)
        VALUES (lower(TG_OP), NEW.id, current_setting('application_name'), NEW.last_heartbeat);
    END IF;
    RETURN NULL;
EXCEPTION WHEN OTHERS OR query_canceled THEN
    RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS witness_renewal ON election_leader;
CREATE TRIGGER witness_renewal AFTER INSERT OR UPDATE OR DELETE ON election_leader
    FOR EACH ROW EXECUTE FUNCTION witness.log_renewal();
`

// Install creates the test schema; it may be repeated.
func Install(ctx context.Context, c *pgx.Conn) error {
	_, err := c.Exec(ctx, installSQL)
	return err
}
