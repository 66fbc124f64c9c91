{{/* SPDX-License-Identifier: Apache-2.0
agent.yaml, and what is refused before an agent or a metafence-run would. values.schema.json has the names and types. */}}

{{/* A duration in ns. */}}
{{- define "metafence.ns" -}}
{{- $units := dict "ns" 1 "us" 1000 "ms" 1000000 "s" 1000000000 "m" 60000000000 "h" 3600000000000 }}
{{- $number := regexFind "^[0-9]+" . }}
{{- mul (int64 $number) (int64 (get $units (trimPrefix $number .))) }}
{{- end }}

{{/* Argument: dict "context" . "key" KEY: the option as it is given, or the agent's default. */}}
{{- define "metafence.option" -}}
{{- $key := splitList "." .key }}
{{- $default := get (get (include "metafence.options" .context | fromJson) .key) "default" }}
{{- dig (index $key 0) (index $key 1) $default .context.Values.config }}
{{- end }}

{{/* Argument: list PLACE VALUE MIN MAX */}}
{{- define "metafence.checkDuration" -}}
{{- $ns := include "metafence.ns" (index . 1) | int64 }}
{{- if or (lt $ns (include "metafence.ns" (index . 2) | int64)) (gt $ns (include "metafence.ns" (index . 3) | int64)) }}
{{- fail (printf "%s: %s is out of range: %s to %s" (index . 0) (index . 1) (index . 2) (index . 3)) }}
{{- end }}
{{- end }}

{{- define "metafence.checkRanges" -}}
{{- range $key, $option := include "metafence.options" . | fromJson }}
{{- if eq $option.type "duration" }}
{{- $value := include "metafence.option" (dict "context" $ "key" $key) }}
{{- include "metafence.checkDuration" (list (printf "config.%s" $key) $value $option.min $option.max) }}
{{- end }}
{{- end }}
{{- end }}

{{/* The longest time until a leader that lost its lease is dead, against that lease: ARCHITECTURE.md, "The deadline". */}}
{{- define "metafence.checkTiming" -}}
{{- $said := dict }}
{{- $ns := dict }}
{{- range $key := list "postgres.connectTimeout" "postgres.queryTimeout" "timing.poll" "timing.renewGap" "timing.margin" "timing.killBudget" "election.ttl" }}
{{- $value := include "metafence.option" (dict "context" $ "key" $key) }}
{{- $name := splitList "." $key | last }}
{{- $_ := set $said $name (printf "%s %s" $name $value) }}
{{- $_ := set $ns $name (include "metafence.ns" $value | int64) }}
{{- end }}
{{- $sum := add (mul 2 (add $ns.connectTimeout $ns.queryTimeout)) $ns.poll $ns.renewGap $ns.margin $ns.killBudget }}
{{- if ge $sum $ns.ttl }}
{{- $terms := printf "2*(%s + %s) + %s + %s + %s + %s" $said.connectTimeout $said.queryTimeout $said.poll $said.renewGap $said.margin $said.killBudget }}
{{- $seconds := printf "%gs" (divf $sum 1000000000) }}
{{- fail (printf "config: %s = %s is not below %s: shorten these (sections postgres and timing), or raise meta_leader_lease_secs of the metas and config.election.ttl above %s" $terms $seconds $said.ttl $seconds) }}
{{- end }}
{{- end }}

{{/* off, observe or enforce, also where YAML made a boolean of it. */}}
{{- define "metafence.recoveryMode" -}}
{{- $mode := include "metafence.option" (dict "context" . "key" "recovery.mode") }}
{{- eq $mode "false" | ternary "off" $mode }}
{{- end }}

{{/* A start must not wait for resets beyond its own lease, and no reset may be under way when the gate opens. */}}
{{- define "metafence.checkRecovery" -}}
{{- if eq (include "metafence.recoveryMode" .) "enforce" }}
{{- $said := dict }}
{{- $ns := dict }}
{{- range $key := list "recovery.resetBeforeStart" "recovery.initTimeout" "recovery.maxHold" "timing.margin" "timing.killBudget" "election.ttl" }}
{{- $value := include "metafence.option" (dict "context" $ "key" $key) }}
{{- $name := splitList "." $key | last }}
{{- $_ := set $said $name (printf "%s %s" $name $value) }}
{{- $_ := set $ns $name (include "metafence.ns" $value | int64) }}
{{- end }}
{{- $sum := add $ns.resetBeforeStart $ns.margin $ns.killBudget }}
{{- if ge $sum $ns.ttl }}
{{- $seconds := printf "%gs" (divf $sum 1000000000) }}
{{- fail (printf "config: %s + %s + %s = %s is not below %s: shorten config.recovery.resetBeforeStart, or raise meta_leader_lease_secs of the metas and config.election.ttl above %s" $said.resetBeforeStart $said.margin $said.killBudget $seconds $said.ttl $seconds) }}
{{- end }}
{{- if ge (add $ns.initTimeout 1000000000) $ns.maxHold }}
{{- fail (printf "config: %s + 1s is not below %s: shorten config.recovery.initTimeout, or hold for longer" $said.initTimeout $said.maxHold) }}
{{- end }}
{{- end }}
{{- end }}

{{/* metafence-run refuses these and then meta does not start. */}}
{{- define "metafence.checkRun" -}}
{{- $run := .Values.run }}
{{- range $key := list "killWindow" "databaseHold" }}
{{- with get $run $key }}
{{- include "metafence.checkDuration" (list (printf "run.%s" $key) . (eq $key "killWindow" | ternary "1s" "0s") "24h") }}
{{- end }}
{{- end }}
{{- $service := include "metafence.option" (dict "context" . "key" "meta.servicePort") }}
{{- $ports := list $service (default 1250 $run.metricsPort | toString) (default 5691 $run.dashboardPort | toString) }}
{{- if ne (len (uniq $ports)) 3 }}
{{- fail (printf "config.meta.servicePort, run.metricsPort and run.dashboardPort are %s: they must differ, as meta's own do" (join ", " $ports)) }}
{{- end }}
{{- end }}

{{/* Two values that can't both be meant. */}}
{{- define "metafence.checkModes" -}}
{{- $config := .Values.config }}
{{- if and .Values.run (eq (include "metafence.method" .) "pidfd") }}
{{- fail (printf "run: %s is said to metafence-run, which config.fence.method pidfd does without: remove it, or the method" (keys .Values.run | sortAlpha | join ", ")) }}
{{- end }}
{{- $kubernetes := dig "kubernetes" "enabled" "auto" $config | toString }}
{{- if and (has $kubernetes (list "off" "false")) (dig "fence" "deletePod" false $config) }}
{{- fail "config.fence.deletePod and config.kubernetes.enabled off: the pod is deleted through the API: remove one of them" }}
{{- end }}
{{- if and (has $kubernetes (list "off" "false")) (dig "recovery" "killNodes" false $config) }}
{{- fail "config.recovery.killNodes and config.kubernetes.enabled off: the pods are deleted through the API: remove one of them" }}
{{- end }}
{{- if and .Values.passwordSecret.name (dig "postgres" "passwordFile" "" $config) }}
{{- fail "passwordSecret.name and config.postgres.passwordFile: the file would win: remove one of them" }}
{{- end }}
{{- if and .Values.sqlInstall.enabled (dig "postgres" "passwordFile" "" $config) (not .Values.sqlInstall.passwordSecret.name) }}
{{- fail "sqlInstall.passwordSecret.name: the Job can't read config.postgres.passwordFile: name a Secret for it, or set sqlInstall.enabled to false" }}
{{- end }}
{{- if eq (include "metafence.roleLabel" .) "metafence.io/role" }}
{{- fail "config.kubernetes.roleLabel: metafence.io/role is written anyway: name another label, or \"\" for none" }}
{{- end }}
{{- $recovery := include "metafence.recoveryMode" . }}
{{- if and (eq (toString .Values.sqlInstall.recovery) "enforce") (ne $recovery "enforce") }}
{{- fail (printf "sqlInstall.recovery enforce and config.recovery.mode %s: the gate would stay open: set config.recovery.mode to enforce, or sqlInstall.recovery to observe" $recovery) }}
{{- end }}
{{- if and (eq $recovery "enforce") (eq (include "metafence.method" .) "pidfd") }}
{{- fail "config.recovery.mode: enforce does as observe with config.fence.method pidfd, which gives no session tags: use the shim, or observe" }}
{{- end }}
{{- if has (dig "http" "address" "" $config) (list "127.0.0.1" "::1") }}
{{- fail "config.http.address: the kubelet asks the pod's address, not loopback: leave it out" }}
{{- end }}
{{- if and .Values.sqlInstall.user (eq .Values.sqlInstall.user (dig "postgres" "user" "" $config)) }}
{{- fail (printf "sqlInstall.user: %s is the agents' role already (config.postgres.user): leave it out" .Values.sqlInstall.user) }}
{{- end }}
{{- end }}

{{- define "metafence.checkConfig" -}}
{{- $config := .Values.config }}
{{- $directory := include "metafence.directory" . }}
{{- range $key := list "host" "database" "user" }}
{{- $_ := required (printf "config.postgres.%s: say where the meta store is, as RW_SQL_ENDPOINT, RW_SQL_DATABASE and RW_SQL_USERNAME do to the metas" $key) (dig "postgres" $key "" $config) }}
{{- end }}
{{- range $section := list "fence" "control" }}
{{- $socket := dig $section "socket" "" $config }}
{{- if and $socket (ne (dir $socket) $directory) }}
{{- fail (printf "config.%s.socket: %s is not in %s, the directory that the pod's containers share: leave it out" $section $socket $directory) }}
{{- end }}
{{- end }}
{{- include "metafence.checkRanges" . }}
{{- include "metafence.checkTiming" . }}
{{- include "metafence.checkRecovery" . }}
{{- include "metafence.checkRun" . }}
{{- include "metafence.checkModes" . }}
{{- end }}

{{/* config as it is, with the words on and off again that YAML has made booleans of. */}}
{{- define "metafence.config" -}}
{{- $config := deepCopy .Values.config }}
{{- range $key, $option := include "metafence.options" . | fromJson }}
{{- $path := splitList "." $key }}
{{- $section := get $config (first $path) }}
{{- if and (has "off" $option.choices) (kindIs "map" $section) (kindIs "bool" (get $section (last $path))) }}
{{- $_ := set $section (last $path) (ternary "on" "off" (get $section (last $path))) }}
{{- end }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{- define "metafence.agentConfig" -}}
{{- include "metafence.checkConfig" . }}
{{- include "metafence.config" . }}
{{- end }}

{{/* What `metafence sql install` reads: where the database is, in the role that owns the metas' tables. The times of the lease only belong
together: without these it would refuse a short one. */}}
{{- define "metafence.installConfig" -}}
{{- $config := pick (include "metafence.config" . | fromYaml) "postgres" "election" "timing" }}
{{- $_ := unset $config.postgres "passwordFile" }}
{{- with .Values.sqlInstall.user }}
{{- $_ := set $config.postgres "user" . }}
{{- end }}
{{- toYaml $config }}
{{- end }}
