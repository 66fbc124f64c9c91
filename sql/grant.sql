-- SPDX-License-Identifier: Apache-2.0
-- What an agent's role needs when it does not own the schema. Repeatable.
GRANT USAGE ON SCHEMA metafence TO @ROLE@;
GRANT SELECT ON metafence.term, metafence.tag, metafence.renewal, metafence.death, metafence.setting
    TO @ROLE@;
GRANT EXECUTE ON FUNCTION metafence.end_sessions(text) TO @ROLE@;
GRANT EXECUTE ON FUNCTION metafence.record_death(text, text, text, text) TO @ROLE@;
GRANT EXECUTE ON FUNCTION metafence.drop_phantom(text, text, timestamptz) TO @ROLE@;
GRANT SELECT ON @LEADER_TABLE@ TO @ROLE@;
