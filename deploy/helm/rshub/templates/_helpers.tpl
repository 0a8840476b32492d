{{/* The first part of all names. */}}
{{- define "rshub.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels that select the objects of this release. They are immutable in a StatefulSet. */}}
{{- define "rshub.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The labels of all objects. */}}
{{- define "rshub.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "rshub.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rshub.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "rshub.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "rshub.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "redis" if the change memory is in Redis, "" if it is on disk. */}}
{{- define "rshub.redis" -}}
{{- if or .Values.redis.url .Values.redis.existingSecret }}redis{{ end -}}
{{- end -}}

{{/* "nats", or "" without NATS. */}}
{{- define "rshub.nats" -}}
{{- if or .Values.nats.url .Values.nats.existingSecret }}nats{{ end -}}
{{- end -}}

{{/* The URL of the Service within the cluster. */}}
{{- define "rshub.inside" -}}
{{ ternary "https" "http" (hasKey .Values.config "RSHUB_TLS_CERT_FILE") }}://{{ include "rshub.fullname" . }}.{{ .Release.Namespace }}.svc
{{- if ne (int .Values.service.port) 80 }}:{{ .Values.service.port }}{{ end -}}
{{- end -}}

{{/* The public URL of the hub. */}}
{{- define "rshub.baseURL" -}}
{{- if .Values.baseURL -}}
{{ .Values.baseURL | trimSuffix "/" }}
{{- else if (.Values.ingress).enabled -}}
{{ ternary "https" "http" (.Values.ingress).tls }}://{{ (.Values.ingress).host }}
{{- else if (.Values.httpRoute).enabled -}}
{{ ternary "https" "http" (.Values.httpRoute).tls }}://{{ first (.Values.httpRoute).hostnames }}
{{- else -}}
{{ include "rshub.inside" . }}
{{- end -}}
{{- end -}}

{{/* The Secret with the tokens file; "" without tokens. */}}
{{- define "rshub.tokensSecret" -}}
{{- if .Values.tokens.existingSecret -}}
{{ .Values.tokens.existingSecret }}
{{- else if and .Values.tokens.create (not .Values.insecure) -}}
{{ include "rshub.fullname" . }}-tokens
{{- end -}}
{{- end -}}

{{- define "rshub.tokensKey" -}}
{{- if .Values.tokens.existingSecret }}{{ .Values.tokens.existingSecretKey }}{{ else }}tokens{{ end -}}
{{- end -}}

{{/*
The data of the Secret that the chart makes, as YAML: each token under its name,
and under "tokens" the file that the hub reads. A token is what the values say,
else what the Secret in the cluster has, else a new one. A new one has to be the
same for all who include this, so it is kept in the values of this rendering.
*/}}
{{- define "rshub.tokens" -}}
{{- if not .Values.made -}}
{{- $old := (lookup "v1" "Secret" .Release.Namespace (printf "%s-tokens" (include "rshub.fullname" .))).data | default dict -}}
{{- $made := dict -}}
{{- range $name, $t := .Values.tokens.make -}}
{{- $token := $t.token | default (index $old $name | default "" | b64dec) | default (printf "rshub_%s" (randAlphaNum 32)) -}}
{{- $_ := set $made $name $token -}}
{{- end -}}
{{- $_ := set .Values "made" $made -}}
{{- end -}}
{{- toYaml .Values.made }}
tokens: |
  # NAME sha256:HEX RIGHTS
{{- range $name, $t := .Values.tokens.make }}
  {{ $name }} sha256:{{ index $.Values.made $name | sha256sum }} {{ $t.rights }}
{{- end }}
{{- with .Values.tokens.anyone }}
  anyone - {{ . }}
{{- end }}
{{- end -}}

{{/* The data of the Secret with the URLs of Redis and NATS, which may contain passwords. */}}
{{- define "rshub.connections" -}}
{{- with .Values.redis.url }}
redis-url: {{ . | quote }}
{{- end }}
{{- with .Values.nats.url }}
nats-url: {{ . | quote }}
{{- end }}
{{- end -}}

{{/*
Nine tenths of the memory limit, for the garbage collector; "" where the limit is
written in something else than Mi or Gi.
*/}}
{{- define "rshub.goMemory" -}}
{{- $limit := dig "limits" "memory" "" .Values.resources | toString -}}
{{- if regexMatch "^[0-9]+[MG]i$" $limit -}}
{{- $mi := mul (regexFind "^[0-9]+" $limit | int) (ternary 1024 1 (hasSuffix "Gi" $limit)) -}}
{{ div (mul $mi 9) 10 }}MiB
{{- end -}}
{{- end -}}

{{/* The allowed sets, separated by commas; "" if all are. */}}
{{- define "rshub.sets" -}}
{{- range $i, $set := index .Values.config "RSHUB_SETS" | default "" | toString | splitList "," -}}
{{- if $i }},{{ end }}{{ trim $set -}}
{{- end -}}
{{- end -}}

{{/* "test" if helm test has a set and tokens. */}}
{{- define "rshub.test" -}}
{{- $sets := include "rshub.sets" . | default (.Values.test).set | default "" | splitList "," -}}
{{- if and (.Values.test).enabled (has (.Values.test).set $sets) }}test{{ end -}}
{{- end -}}

{{/* "may" if the rights allow an action on a set. The argument is the list rights, action, set. */}}
{{- define "rshub.may" -}}
{{- $rights := index . 0 -}}
{{- $act := index . 1 -}}
{{- $set := index . 2 -}}
{{- $may := false -}}
{{- range regexSplit "[, ]+" $rights -1 -}}
{{- $right := . -}}
{{- if eq $right (printf "%s:%s" $act $set) }}{{ $may = true }}{{ end -}}
{{- if and (hasSuffix "*" $right) (hasPrefix (trimSuffix "*" $right) (printf "%s:%s" $act $set)) }}{{ $may = true }}{{ end -}}
{{- end -}}
{{- if $may }}may{{ end -}}
{{- end -}}
