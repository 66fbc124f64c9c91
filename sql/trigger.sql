-- SPDX-License-Identifier: Apache-2.0
-- The triggers on the election's table, always the last step of an installation and alone in their
-- transaction: while CREATE TRIGGER waits for its lock, campaigns queue behind it. They name no column, so
-- that migrations of the table stay possible.
CREATE TRIGGER metafence_hold BEFORE INSERT OR UPDATE ON @LEADER_TABLE@
    FOR EACH ROW EXECUTE FUNCTION metafence.on_hold();
CREATE TRIGGER metafence_term AFTER INSERT OR UPDATE ON @LEADER_TABLE@
    FOR EACH ROW EXECUTE FUNCTION metafence.on_campaign();
