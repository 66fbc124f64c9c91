{{/* SPDX-License-Identifier: Apache-2.0
What the MutatingAdmissionPolicy does, as CEL. The same parts as in _pod.tpl, written as literals. CEL's maps have values of one type:
each value is dyn(). */}}

{{- define "metafence.cel" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $key := keys . | sortAlpha }}{{ if $i }}, {{ end }}{{ toJson $key }}: dyn({{ include "metafence.cel" (get $ $key) }}){{ end -}} }
{{- else if kindIs "slice" . -}}
[ {{- range $i, $item := . }}{{ if $i }}, {{ end }}dyn({{ include "metafence.cel" $item }}){{ end -}} ]
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ int64 . }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{/* A pod's own image for the sidecar. What is no reference to one is not taken: the pod would never start. */}}
{{- define "metafence.celImage" -}}
{{- $reference := "^[a-z0-9][A-Za-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)+(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(@sha256:[a-f0-9]{64})?$" }}
{{- $said := "object.metadata.?annotations.orValue({})" }}
{{- $key := "\"metafence.io/image\"" -}}
{{ $key }} in {{ $said }} && {{ $said }}[{{ $key }}].matches({{ toJson $reference }}) ?
{{ $said }}[{{ $key }}] : {{ include "metafence.image" . | toJson }}
{{- end }}

{{/* Without a user, whether one that is not root is wanted all the same: then meta's is its image's, which nobody here can see, and a
sidecar of injection.user would be refused by pod security, or by metafence-run. */}}
{{- define "metafence.celUserIsKnown" -}}
object.spec.?securityContext.?runAsUser.hasValue() || object.spec.containers.filter(c, c.name == {{ toJson .Values.injection.container }}).all(c,
c.?securityContext.?runAsUser.hasValue() ||
!c.?securityContext.?runAsNonRoot.orValue(object.spec.?securityContext.?runAsNonRoot.orValue(false)))
{{- end }}

{{/* The sidecar, with meta's id and user. */}}
{{- define "metafence.celSidecar" -}}
{{- $sidecar := include "metafence.sidecarOf" (dict "context" . "id" "@ID@") | fromYamlArray | first }}
{{- $_ := set $sidecar "image" "@IMAGE@" }}
{{- $user := dict "runAsUser" "@USER@" "runAsGroup" "@GROUP@" "runAsNonRoot" "@NONROOT@" }}
{{- $_ := set $sidecar "securityContext" (mergeOverwrite $sidecar.securityContext $user) }}
{{- $cel := include "metafence.cel" $sidecar | replace "\"@ID@\"" "variables.id" | replace "\"@NONROOT@\"" "variables.user != 0" | replace "\"@IMAGE@\"" "variables.image" }}
{{- $cel | replace "\"@USER@\"" "variables.user" | replace "\"@GROUP@\"" "variables.group" }}
{{- end }}

{{/* Patches that put items into a list, which may not be there. What the pod has is not written anew: the API server has it in a form
that is no JSON once a condition has looked at it (1.37). Argument: dict "path" CEL "list" CEL "items" LIST ["at" INDEX] */}}
{{- define "metafence.celInto" -}}
({{ .list }}.orValue([]).size() > 0 ? [] : [JSONPatch{op: "add", path: {{ .path }}, value: []}]) + [
{{- range $i, $item := .items }}{{ if $i }}, {{ end -}}
JSONPatch{op: "add", path: {{ $.path }} + "/{{ default "-" $.at }}", value: {{ include "metafence.cel" $item }}}
{{- end -}}
]
{{- end }}

{{/* POD_UID is the pod's, whatever said something else; else first, so that others may refer to it. */}}
{{- define "metafence.celEnv" -}}
{{- $entry := include "metafence.metaEnv" . | fromYamlArray | first }}
{{- $list := "variables.meta.?env" -}}
({{ $list }}.orValue([]).exists(e, e.name == "POD_UID") ?
[JSONPatch{op: "replace", path: variables.path + "/env/" + string({{ $list }}.orValue([]).map(e, e.name).indexOf("POD_UID")), value: {{ include "metafence.cel" $entry }}}] :
{{ include "metafence.celInto" (dict "path" "variables.path + \"/env\"" "list" $list "items" (list $entry) "at" "0") }})
{{- end }}

{{/* meta's command behind metafence-run's. */}}
{{- define "metafence.celCommand" -}}
{{- $run := concat (list (include "metafence.run" .)) (include "metafence.runOptions" . | fromJsonArray) -}}
{{ toJson $run }} + (variables.id == "" ? [] : ["--host-id=" + variables.id]) + ["--"] + variables.command
{{- end }}

{{/* JSON patches of meta's container; those of one method. */}}
{{- define "metafence.celProbes" -}}
{{- $probes := include "metafence.metaProbes" . | fromYaml }}
{{- if eq (include "metafence.method" .) "pidfd" }}
{{- $probes = pick $probes "livenessProbe" }}
{{- end }}
{{- range $name := keys $probes | sortAlpha }}
 + [JSONPatch{op: "add", path: variables.path + "/{{ $name }}", value: {{ include "metafence.cel" (get $probes $name) }}}]
{{- end }}
{{- end }}
