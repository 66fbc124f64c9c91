{{/* SPDX-License-Identifier: Apache-2.0
Pods of the chart's own that run one command of metafence and end: the SQL install, the tests. */}}

{{- define "metafence.onceSpec" -}}
automountServiceAccountToken: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
- name: metafence-config
  configMap:
    name: {{ include "metafence.configMapName" . }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Argument: dict "context" CONTEXT "args" LIST "secret" MAP */}}
{{- define "metafence.onceContainer" -}}
{{- $context := .context }}
image: {{ include "metafence.image" $context }}
imagePullPolicy: {{ $context.Values.image.pullPolicy }}
args: {{ toJson .args }}
env:
- {name: METAFENCE_ID, value: "none:0"} # that of no meta
{{- include "metafence.password" .secret }}
{{- with $context.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
volumeMounts:
- name: metafence-config
  mountPath: /etc/metafence
  readOnly: true
{{- with $context.Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
securityContext:
  {{- toYaml $context.Values.securityContext | nindent 2 }}
resources:
  requests: {cpu: 10m, memory: 32Mi}
  limits: {memory: 64Mi}
{{- end }}

{{/* A pod of `helm test`. Argument: dict "context" CONTEXT "name" NAME "args" LIST */}}
{{- define "metafence.test" -}}
{{- $hook := dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" }}
apiVersion: v1
kind: Pod
metadata:
  {{- include "metafence.metadata" (dict "context" .context "name" (include "metafence.partName" (list .context .name)) "annotations" $hook) | nindent 2 }}
spec:
  restartPolicy: Never
  {{- include "metafence.onceSpec" .context | nindent 2 }}
  containers:
  - name: test
    {{- include "metafence.onceContainer" (dict "context" .context "args" .args "secret" .context.Values.passwordSecret) | nindent 4 }}
{{- end }}
