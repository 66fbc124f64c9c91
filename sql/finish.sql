-- SPDX-License-Identifier: Apache-2.0
-- The end of the schema's transaction: nobody has a right by default, and what this version is.
REVOKE ALL ON ALL TABLES IN SCHEMA metafence FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA metafence FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA metafence FROM PUBLIC;

INSERT INTO metafence.setting (name, value) VALUES ('guard', 'enforce'), ('recovery', 'observe')
ON CONFLICT (name) DO NOTHING;
INSERT INTO metafence.setting (name, value) VALUES ('schema_version', '2')
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
