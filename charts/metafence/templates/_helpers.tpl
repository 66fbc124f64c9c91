{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "metafence.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "metafence.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "metafence.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where the metas are. */}}
{{- define "metafence.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{/* Name of what is not in a namespace: unique, as a namespace has no dot. */}}
{{- define "metafence.clusterName" -}}
{{- printf "metafence.%s.%s" (include "metafence.namespace" .) (include "metafence.fullname" .) }}
{{- end }}

{{- define "metafence.selectorLabels" -}}
app.kubernetes.io/name: {{ include "metafence.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "metafence.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "metafence.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: fencing
app.kubernetes.io/part-of: metafence
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The metadata of every object; argument: dict "context" . "name" NAME ["labels" MAP] ["annotations" MAP] ["cluster" true] */}}
{{- define "metafence.metadata" -}}
name: {{ .name }}
{{- if not .cluster }}
namespace: {{ include "metafence.namespace" .context }}
{{- end }}
labels:
  {{- include "metafence.labels" .context | nindent 2 }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default (dict) .annotations) .context.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "metafence.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "metafence.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: with serviceAccount.create false, name the service account of the meta pods (not \"default\": the policy binds whoever uses it)" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* Argument: list CONTEXT PART */}}
{{- define "metafence.partName" -}}
{{- $room := sub 62 (len (last .)) | int }}
{{- printf "%s-%s" (include "metafence.fullname" (first .) | trunc $room | trimSuffix "-") (last .) }}
{{- end }}

{{- define "metafence.configMapName" -}}
{{- include "metafence.partName" (list . "agent") }}
{{- end }}

{{- define "metafence.image" -}}
{{- with .Values.image }}
{{- $name := printf "%s/%s" .registry .repository }}
{{- if .digest }}
{{- printf "%s@%s" $name .digest }}
{{- else }}
{{- printf "%s:%s" $name (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "metafence.method" -}}
{{- dig "fence" "method" "shim" .Values.config }}
{{- end }}

{{/* What the agent may write besides metafence.io/role; empty: nothing. */}}
{{- define "metafence.roleLabel" -}}
{{- dig "kubernetes" "roleLabel" "risingwave/meta-role" .Values.config }}
{{- end }}

{{- define "metafence.mayDeletePod" -}}
{{- if dig "fence" "deletePod" true .Values.config }}true{{ end }}
{{- end }}

{{/* Compute nodes' pods: opt-in. */}}
{{- define "metafence.mayKillNodes" -}}
{{- if and (dig "recovery" "killNodes" false .Values.config) (eq (dig "recovery" "mode" "observe" .Values.config | toString) "enforce") }}true{{ end }}
{{- end }}

{{- define "metafence.directory" -}}
/run/metafence
{{- end }}

{{- define "metafence.httpPort" -}}
{{- $port := dig "http" "port" 9690 .Values.config | int }}
{{- if not $port }}
{{- fail "config.http.port: 0 leaves the pod without probes; leave it out for 9690, or give another port" }}
{{- end }}
{{- $port }}
{{- end }}

{{/* Of the chart's own account and of those that pods have already. */}}
{{- define "metafence.accounts" -}}
{{- concat (list (include "metafence.serviceAccountName" .)) .Values.serviceAccount.others | uniq | toJson }}
{{- end }}

{{- define "metafence.fenceSocket" -}}
{{- dig "fence" "socket" (printf "%s/fence.sock" (include "metafence.directory" .)) .Values.config }}
{{- end }}

{{/* The API is there from 1.30 on and can't be turned off; `helm template` without a server knows only the version. */}}
{{- define "metafence.policyInForce" -}}
{{- $served := or (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}
{{- if and .Values.admissionPolicy.enabled $served }}true{{ end }}
{{- end }}

{{/* The apiVersion of MutatingAdmissionPolicy here, or nothing: in v1 from 1.36 on, always; before that where v1beta1 is served. */}}
{{- define "metafence.injectionVersion" -}}
{{- $group := "admissionregistration.k8s.io" }}
{{- $apis := .Capabilities.APIVersions }}
{{- if or ($apis.Has (printf "%s/v1/MutatingAdmissionPolicy" $group)) (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) }}
{{- printf "%s/v1" $group }}
{{- else if $apis.Has (printf "%s/v1beta1/MutatingAdmissionPolicy" $group) }}
{{- printf "%s/v1beta1" $group }}
{{- end }}
{{- end }}

{{- define "metafence.injects" -}}
{{- if and .Values.injection.enabled (include "metafence.injectionVersion" .) }}true{{ end }}
{{- end }}

{{- define "metafence.podLabels" -}}
metafence.io/inject: "true"
{{- with .Values.injection.selector }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Argument: dict "context" . "value" PATH "enabled" auto|always|never "kind" KIND: "true" or nothing. */}}
{{- define "metafence.monitored" -}}
{{- $served := .context.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" .kind) }}
{{- if and (eq .enabled "always") (not $served) }}
{{- fail (printf "%s.enabled: always, but this cluster has no %s (monitoring.coreos.com/v1): install the Prometheus operator first, or say auto; `helm template` needs --api-versions monitoring.coreos.com/v1/%s" .value .kind .kind) }}
{{- end }}
{{- if and (ne .enabled "never") $served }}true{{ end }}
{{- end }}
