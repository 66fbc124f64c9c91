-- SPDX-License-Identifier: Apache-2.0
-- What a user of LISTEN installs beside the election: who leads now, when that is another.
CREATE FUNCTION peer_leader_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('peer_leader', NEW.id);
    RETURN NULL;
END $$;
CREATE TRIGGER peer_leader_changed AFTER UPDATE ON election_leader FOR EACH ROW
    WHEN (OLD.id IS DISTINCT FROM NEW.id) EXECUTE FUNCTION peer_leader_changed();
