{{/* The environment that the RisingWave operator gives to a meta, in its order. */}}
{{- define "metasim.env" -}}
{{- $postgres := .context.Values.metafence.config.postgres -}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: RUST_BACKTRACE, value: full}
- {name: RW_META_ADDR, value: "http://127.0.0.1:{{ .service }}"}
- {name: RW_LISTEN_ADDR, value: "0.0.0.0:{{ .service }}"}
- {name: RW_ADVERTISE_ADDR, value: "$(POD_NAME).{{ .context.Values.name }}:{{ .service }}"}
- {name: RW_PROMETHEUS_HOST, value: "0.0.0.0:1250"}
- {name: RW_DASHBOARD_HOST, value: "0.0.0.0:5691"}
- {name: RW_BACKEND, value: postgres}
- {name: RW_SQL_ENDPOINT, value: "{{ $postgres.host }}:{{ default 5432 $postgres.port | int }}"}
- {name: RW_SQL_DATABASE, value: {{ $postgres.database | quote }}}
- {name: RW_POSTGRES_USERNAME, valueFrom: {secretKeyRef: {name: {{ .secret }}, key: username}}}
- {name: RW_POSTGRES_PASSWORD, valueFrom: {secretKeyRef: {name: {{ .secret }}, key: password}}}
- {name: RW_SQL_USERNAME, value: $(RW_POSTGRES_USERNAME)}
- {name: RW_SQL_PASSWORD, value: $(RW_POSTGRES_PASSWORD)}
# The tests' own: each pod writes a witness file of its own, also twins of a name.
- {name: RW_WITNESS_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
{{- end }}
