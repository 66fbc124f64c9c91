-- SPDX-License-Identifier: Apache-2.0
-- The term trigger on the election's table, always the last step of an installation and alone in its
-- transaction: while CREATE TRIGGER waits for its lock, campaigns queue behind it. The trigger names no
-- column, so that migrations of the table stay possible.
CREATE TRIGGER metafence_term AFTER INSERT OR UPDATE ON @LEADER_TABLE@
    FOR EACH ROW EXECUTE FUNCTION metafence.on_campaign();
