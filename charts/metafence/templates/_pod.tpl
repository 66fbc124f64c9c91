{{/* SPDX-License-Identifier: Apache-2.0

What a meta's pod needs, for the template of any StatefulSet. Their argument is the context of this chart: `.` in it,
`.Subcharts.metafence` in a chart that depends on it. README.md shows all of them in one StatefulSet.

  metafence.pod          settings of the pod: service account, PID namespace
  metafence.sidecar      the agent's container, first of initContainers
  metafence.volumes      of the pod
  metafence.metaCommand  meta's command, wrapped: dict "context" CONTEXT "command" LIST; meta's args stay as they are
  metafence.metaEnv      of meta's container, behind its POD_NAME
  metafence.metaMounts   of meta's container
  metafence.metaProbes   of meta's container, in place of its own
*/}}

{{- define "metafence.pod" -}}
serviceAccountName: {{ include "metafence.serviceAccountName" . }}
{{- if eq (include "metafence.method" .) "pidfd" }}
shareProcessNamespace: true
{{- end }}
{{- end }}

{{- define "metafence.id" -}}
{{- required "id: meta's advertise address as the metas say it, such as $(POD_NAME).NAME-OF-THE-HEADLESS-SERVICE:5690" .Values.id }}
{{- end }}

{{/* By environment, never by argument. Its argument: a Secret's name and key; without a name nothing. */}}
{{- define "metafence.password" -}}
{{- if .name }}
- name: PGPASSWORD
  valueFrom: {secretKeyRef: {name: {{ .name }}, key: {{ .key }}}}
{{- end }}
{{- end }}

{{/* Argument: dict "context" CONTEXT "id" ID */}}
{{- define "metafence.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: METAFENCE_ID
  value: {{ .id | quote }}
# By environment, not by agent.yaml: without these a broken configuration would keep meta from starting.
- name: METAFENCE_HTTP_PORT
  value: {{ include "metafence.httpPort" .context | quote }}
{{- if eq (include "metafence.method" .context) "shim" }}
- name: METAFENCE_RUN
  value: {{ include "metafence.run" .context }}
{{- end }}
# What a pod's own annotations say; without them these are empty, which is none.
{{- range $key, $option := include "metafence.options" .context | fromJson }}
{{- with $option.annotation }}
- name: {{ $option.env }}
  valueFrom: {fieldRef: {fieldPath: "metadata.annotations['{{ . }}']"}}
{{- end }}
{{- end }}
{{- include "metafence.password" .context.Values.passwordSecret }}
{{- with .context.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Argument: dict "context" CONTEXT "kind" startup|readiness|liveness "path" PATH */}}
{{- define "metafence.sidecarProbe" -}}
{{- $timing := get .context.Values.probes.sidecar .kind -}}
httpGet:
  path: {{ .path }}
  port: {{ include "metafence.httpPort" .context }}
{{ toYaml $timing }}
{{- end }}

{{- define "metafence.checkReadiness" -}}
{{- $readiness := .Values.probes.sidecar.readiness }}
{{- $seconds := mul $readiness.periodSeconds $readiness.failureThreshold }}
{{- if lt $seconds 30 }}
{{- fail (printf "probes.sidecar.readiness: periodSeconds %d x failureThreshold %d = %d s take a meta out of DNS before a restart of the agent is over: make it 30 s or more" (int $readiness.periodSeconds) (int $readiness.failureThreshold) (int $seconds)) }}
{{- end }}
{{- end }}

{{- define "metafence.sidecar" -}}
{{- include "metafence.sidecarOf" (dict "context" . "id" (include "metafence.id" .)) }}
{{- end }}

{{/* Argument: dict "context" CONTEXT "id" ID */}}
{{- define "metafence.sidecarOf" -}}
{{- $id := .id }}
{{- with .context }}
{{- include "metafence.checkReadiness" . -}}
- name: metafence
  image: {{ include "metafence.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  restartPolicy: Always
  args: [agent, --config, /etc/metafence/agent.yaml]
  env:
    {{- include "metafence.env" (dict "context" . "id" $id) | nindent 4 }}
  ports:
  - name: metafence
    containerPort: {{ include "metafence.httpPort" . }}
  startupProbe:
    {{- include "metafence.sidecarProbe" (dict "context" . "kind" "startup" "path" "/startupz") | nindent 4 }}
  readinessProbe:
    {{- include "metafence.sidecarProbe" (dict "context" . "kind" "readiness" "path" "/readyz") | nindent 4 }}
  livenessProbe:
    {{- include "metafence.sidecarProbe" (dict "context" . "kind" "liveness" "path" "/livez") | nindent 4 }}
  volumeMounts:
  - name: metafence
    mountPath: {{ include "metafence.directory" . }}
  - name: metafence-config
    mountPath: /etc/metafence
    readOnly: true
  - name: metafence-token
    mountPath: /var/run/secrets/kubernetes.io/serviceaccount
    readOnly: true
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.securityContext | nindent 4 }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
{{- end }}
{{- end }}

{{/* In memory: it ends with the pod, and no disk can hold up the fence. */}}
{{- define "metafence.volumes" -}}
- name: metafence
  emptyDir:
    medium: Memory
    sizeLimit: {{ .Values.sharedVolume.sizeLimit }}
- name: metafence-config
  configMap:
    name: {{ include "metafence.configMapName" . }}
# The sidecar's own, also where the pod or its account gives none to its containers.
- name: metafence-token
  projected:
    sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3600}
    - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
    - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}

{{/* metafence-run's options as a JSON list, without the id. What stands in config is said to both, the rest is its default. */}}
{{- define "metafence.runOptions" -}}
{{- $directory := include "metafence.directory" . }}
{{- $flags := list (printf "--socket=%s" (include "metafence.fenceSocket" .)) (printf "--state=%s/state" $directory) }}
{{- $flags = append $flags "--pod-uid=$(POD_UID)" }}
{{- $shared := list (list "election" "ttl" "ttl") (list "timing" "margin" "margin") }}
{{- $shared = concat $shared (list (list "timing" "killBudget" "kill-budget") (list "meta" "servicePort" "service-port")) }}
{{- range $shared }}
{{- $value := dig (index . 0) (index . 1) "" $.Values.config }}
{{- if $value }}
{{- $flags = append $flags (printf "--%s=%v" (index . 2) $value) }}
{{- end }}
{{- end }}
{{- range $key, $value := .Values.run }}
{{- if eq $key "requireAgent" }}
{{- if $value }}
{{- $flags = append $flags "--require-agent" }}
{{- end }}
{{- else }}
{{- $flags = append $flags (printf "--%s=%v" (kebabcase $key) $value) }}
{{- end }}
{{- end }}
{{- toJson $flags }}
{{- end }}

{{- define "metafence.run" -}}
{{- include "metafence.directory" . }}/metafence-run
{{- end }}

{{- define "metafence.metaCommand" -}}
{{- if eq (include "metafence.method" .context) "shim" }}
{{- $run := list (include "metafence.run" .context) (printf "--host-id=%s" (include "metafence.id" .context)) }}
{{- with .context.Values.securityContext.runAsUser }}
{{- $run = append $run (printf "--peer-uid=%d" (int64 .)) }}
{{- end }}
{{- concat $run (include "metafence.runOptions" .context | fromJsonArray) (list "--") .command | toJson }}
{{- else }}
{{- toJson .command }}
{{- end }}
{{- end }}

{{- define "metafence.metaEnv" -}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
{{- end }}

{{- define "metafence.metaMounts" -}}
- name: metafence
  mountPath: {{ include "metafence.directory" . }}
{{- end }}

{{/* Argument: dict "context" CONTEXT "kind" startup|readiness|liveness "defaults" MAP */}}
{{- define "metafence.probeTiming" -}}
{{- mergeOverwrite .defaults (get .context.Values.probes.meta .kind) | toYaml }}
{{- end }}

{{- define "metafence.metaProbes" -}}
{{- if eq (include "metafence.method" .) "shim" }}
{{- include "metafence.shimProbes" . }}
{{- else }}
{{- include "metafence.pidfdProbes" . }}
{{- end }}
{{- end }}

{{/* Of the state file alone: no agent and no network is asked. Startup and liveness fail only when meta has to be dead. */}}
{{- define "metafence.shimProbes" -}}
{{- $state := printf "%s/state" (include "metafence.directory" .) }}
{{- $run := include "metafence.run" . -}}
startupProbe:
  exec: {command: [{{ $run }}, probe, startup, --state, {{ $state }}]}
  {{- include "metafence.probeTiming" (dict "context" . "kind" "startup" "defaults" (dict "periodSeconds" 1 "timeoutSeconds" 3 "failureThreshold" 60)) | nindent 2 }}
readinessProbe:
  exec: {command: [{{ $run }}, probe, readiness, --state, {{ $state }}]}
  {{- include "metafence.probeTiming" (dict "context" . "kind" "readiness" "defaults" (dict "periodSeconds" 5 "timeoutSeconds" 3 "failureThreshold" 3)) | nindent 2 }}
livenessProbe:
  exec: {command: [{{ $run }}, probe, liveness, --state, {{ $state }}]}
  {{- include "metafence.probeTiming" (dict "context" . "kind" "liveness" "defaults" (dict "periodSeconds" 5 "timeoutSeconds" 3 "failureThreshold" 3)) | nindent 2 }}
  terminationGracePeriodSeconds: 1
{{- end }}

{{/* Startup and readiness as without metafence; liveness asks the agent, through the pod's address, whether meta has to be dead. */}}
{{- define "metafence.pidfdProbes" -}}
{{- $service := dig "meta" "servicePort" 5690 .Values.config | int -}}
startupProbe:
  tcpSocket: {port: {{ $service }}}
  {{- include "metafence.probeTiming" (dict "context" . "kind" "startup" "defaults" (dict "periodSeconds" 1 "timeoutSeconds" 5 "failureThreshold" 60)) | nindent 2 }}
readinessProbe:
  tcpSocket: {port: {{ $service }}}
  {{- include "metafence.probeTiming" (dict "context" . "kind" "readiness" "defaults" (dict "periodSeconds" 10 "timeoutSeconds" 1 "failureThreshold" 3)) | nindent 2 }}
livenessProbe:
  httpGet: {path: /meta/livez, port: {{ include "metafence.httpPort" . }}}
  {{- include "metafence.probeTiming" (dict "context" . "kind" "liveness" "defaults" (dict "periodSeconds" 1 "timeoutSeconds" 1 "failureThreshold" 3)) | nindent 2 }}
  terminationGracePeriodSeconds: 1
{{- end }}
