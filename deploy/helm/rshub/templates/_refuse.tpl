{{/*
All contradictions between values, as a list. values.schema.json finds misspelled values.
*/}}
{{- define "rshub.problems" -}}
{{- $v := .Values -}}
{{- $redis := include "rshub.redis" . -}}
{{- $nats := include "rshub.nats" . -}}
{{- $open := include "rshub.tokensSecret" . | empty -}}
{{- $outside := or ($v.ingress).enabled ($v.httpRoute).enabled (ne $v.service.type "ClusterIP") -}}

{{- /* the image */ -}}
{{- if not $v.image.repository }}
- image.repository is not set; no image of rshub is published, so build one and load it into the cluster or a registry (docs/kubernetes.md has the commands).
{{- end }}

{{- /* several hubs */ -}}
{{- if hasKey $v "replicas" }}
- replicas is not a value of this chart; use replicaCount.
{{- end }}
{{- if and (gt (int $v.replicaCount) 1) (not $redis) (not ($v.autoscaling).enabled) }}
- replicaCount is {{ $v.replicaCount }}, and several hubs require Redis; set redis.url or redis.existingSecret, or leave replicaCount at 1.
{{- end }}
{{- if and ($v.autoscaling).enabled (not $redis) }}
- autoscaling requires Redis; set redis.url or redis.existingSecret.
{{- end }}
{{- if and $nats (not $redis) }}
- nats requires Redis; set redis.url or redis.existingSecret, or remove nats.
{{- end }}
{{- if and $redis $v.persistence.existingClaim }}
- persistence.existingClaim and redis are both set, and the change memory is in one of them; move it with "rshub copy" (docs/kubernetes.md), and remove persistence.existingClaim.
{{- end }}
{{- if and $v.redis.url $v.redis.existingSecret }}
- redis.url and redis.existingSecret are both set; remove one.
{{- end }}
{{- if and $v.nats.url $v.nats.existingSecret }}
- nats.url and nats.existingSecret are both set; remove one.
{{- end }}
{{- if and (or $v.nats.credentialsSecret $v.nats.caSecret) (not $nats) }}
- nats.credentialsSecret and nats.caSecret require nats.url or nats.existingSecret.
{{- end }}
{{- if and (index $v.config "RSHUB_REDIS_WAIT" | default 0 | int) (not $redis) }}
- config.RSHUB_REDIS_WAIT requires Redis; set redis.url or redis.existingSecret.
{{- end }}

{{- /* scaling */ -}}
{{- with $v.autoscaling }}
{{- if .enabled }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
- autoscaling.minReplicas is {{ .minReplicas }}, want at most autoscaling.maxReplicas, {{ .maxReplicas }}.
{{- end }}
{{- if not (or .targetCPUUtilizationPercentage .targetMemoryUtilizationPercentage .metrics) }}
- autoscaling has no metric; set autoscaling.targetCPUUtilizationPercentage or another one.
{{- end }}
{{- range $name, $target := dict "cpu" .targetCPUUtilizationPercentage "memory" .targetMemoryUtilizationPercentage }}
{{- if and $target (not (dig "requests" $name "" $v.resources)) }}
- autoscaling by {{ $name }} requires resources.requests.{{ $name }}.
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* tokens */ -}}
{{- if and $open (not $v.insecure) }}
- tokens.create is false and tokens.existingSecret is empty, so anyone could publish; set one of them, or insecure to anyone-may-publish.
{{- end }}
{{- if and $v.insecure $v.tokens.existingSecret }}
- insecure and tokens.existingSecret are both set; remove one.
{{- end }}
{{- if and $v.insecure $outside }}
- insecure together with an Ingress, an HTTPRoute or a Service of type {{ $v.service.type }} would let anyone publish; remove insecure, and grant rights without a token with tokens.anyone.
{{- end }}
{{- if and (not $v.tokens.existingSecret) (not $open) (include "rshub.test" .) }}
{{- if not (and $v.tokens.make.publish $v.tokens.make.follow) }}
- helm test requires the tokens publish and follow in tokens.make; keep both, or set test.enabled to false.
{{- else }}
{{- range $act := list "publish" "follow" }}
{{- $rights := printf "%s,%s" (index $v.tokens.make $act).rights $v.tokens.anyone }}
{{- if not (include "rshub.may" (list $rights $act ($v.test).set)) }}
- tokens.make.{{ $act }}.rights do not allow helm test to {{ $act }} {{ ($v.test).set }}; set test.set to a set that they include, or test.enabled to false.
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if or $v.tokens.existingSecret $v.insecure }}
{{- if $v.tokens.anyone }}
- tokens.anyone has no effect with {{ if $v.insecure }}insecure{{ else }}tokens.existingSecret; add a line "anyone - {{ $v.tokens.anyone }}" there{{ end }}.
{{- end }}
{{- range $name, $t := $v.tokens.make }}
{{- if $t.token }}
- tokens.make.{{ $name }}.token has no effect with {{ if $v.insecure }}insecure{{ else }}tokens.existingSecret{{ end }}.
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $t := $v.tokens.make }}
{{- range $other, $u := $v.tokens.make }}
{{- if and $t.token (eq $t.token ($u.token | default "")) (lt $name $other) }}
- tokens.make.{{ $name }} and tokens.make.{{ $other }} have the same token; each name needs its own.
{{- end }}
{{- end }}
{{- end }}

{{- /* Ingress, HTTPRoute and Service */ -}}
{{- if and ($v.ingress).enabled (not ($v.ingress).host) }}
- ingress.enabled requires ingress.host, the host name of the hub.
{{- end }}
{{- if and ($v.ingress).tlsSecret (not ($v.ingress).tls) }}
- ingress.tlsSecret has no effect with ingress.tls=false; set it to true, or remove the certificate.
{{- end }}
{{- if and ($v.httpRoute).enabled (not (and ($v.httpRoute).parentRefs ($v.httpRoute).hostnames)) }}
- httpRoute.enabled requires httpRoute.parentRefs, the Gateways, and httpRoute.hostnames, the host names of the hub.
{{- end }}
{{- if and ($v.ingress).enabled ($v.httpRoute).enabled (not $v.baseURL) ($v.httpRoute).hostnames }}
{{- if ne ($v.ingress).host (first ($v.httpRoute).hostnames) }}
- the Ingress has the host {{ ($v.ingress).host }}, the HTTPRoute {{ first ($v.httpRoute).hostnames }}, and a hub has one URL; set baseURL.
{{- end }}
{{- end }}
{{- if and (ne $v.service.type "ClusterIP") (not $v.baseURL) (not ($v.ingress).enabled) (not ($v.httpRoute).enabled) }}
- service.type {{ $v.service.type }} requires baseURL, the URL that clients use.
{{- end }}
{{- if ne $v.service.type "LoadBalancer" }}
{{- if or $v.service.loadBalancerClass $v.service.loadBalancerSourceRanges }}
- service.loadBalancerClass and service.loadBalancerSourceRanges have no effect with service.type {{ $v.service.type }}; remove them.
{{- end }}
{{- end }}
{{- if and $v.service.externalTrafficPolicy (eq $v.service.type "ClusterIP") }}
- service.externalTrafficPolicy has no effect with service.type ClusterIP; remove it.
{{- end }}

{{- /* network policy and monitoring */ -}}
{{- if ($v.networkPolicy).enabled }}
{{- range $name, $ports := dict "redis" ($v.networkPolicy).redisPorts "nats" ($v.networkPolicy).natsPorts }}
{{- range include "rshub.ports" (index $v $name).url | splitList " " }}
{{- if and . (not (has . (toStrings $ports))) }}
- {{ $name }}.url has the port {{ . }}, and networkPolicy.{{ $name }}Ports allows only {{ join ", " $ports }}; add it there.
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if and ($v.networkPolicy).enabled ($v.serviceMonitor).enabled (not ($v.networkPolicy).opsFrom) }}
- serviceMonitor needs access for Prometheus, and networkPolicy allows none; add Prometheus to networkPolicy.opsFrom.
{{- end }}
{{- if and ($v.prometheusRule).enabled (not ($v.serviceMonitor).enabled) (not ($v.prometheusRule).matchers) }}
- prometheusRule requires the job of the ServiceMonitor; set serviceMonitor.enabled, or prometheusRule.matchers to match the hubs of your own job, such as job="rshub".
{{- end }}

{{- /* variables and alerts */ -}}
{{- range $v.extraEnv }}
{{- if eq .name "RSHUB_DRAIN_DELAY" }}
- extraEnv has RSHUB_DRAIN_DELAY; use drain.preStopSeconds.
{{- else if has .name (include "rshub.ownVariables" $ | splitList " ") }}
- extraEnv has {{ .name }}, which the chart sets from other values; use those.
{{- else if hasKey $v.config .name }}
- extraEnv and config both have {{ .name }}; remove one.
{{- end }}
{{- end }}
{{- range $name, $change := ($v.prometheusRule).alerts }}
{{- if not (has $name (include "rshub.alertNames" $ | splitList " ")) }}
- prometheusRule.alerts.{{ $name }}: no such alert; want one of {{ include "rshub.alertNames" $ | replace " " ", " }}.
{{- end }}
{{- end }}
{{- end -}}

{{/* The ports in a comma-separated list of URLs, separated by spaces. */}}
{{- define "rshub.ports" -}}
{{- $ports := list -}}
{{- range splitList "," . -}}
{{- $host := regexReplaceAll "^[a-z-]+://" (trim .) "" -}}
{{- $host = regexReplaceAll "^.*@" (regexReplaceAll "[/?].*$" $host "") "" -}}
{{- with regexFind ":[0-9]+$" $host }}{{ $ports = append $ports (trimPrefix ":" .) }}{{ end -}}
{{- end -}}
{{- join " " $ports -}}
{{- end -}}

{{/* The variables that the chart sets itself. */}}
{{- define "rshub.ownVariables" -}}
RSHUB_LISTEN RSHUB_OPS_LISTEN RSHUB_BASE_URL RSHUB_DATA RSHUB_GRACE RSHUB_DRAIN_DELAY RSHUB_TOKENS_FILE RSHUB_INSECURE RSHUB_REDIS_URL RSHUB_NATS_URL RSHUB_NATS_CREDENTIALS RSHUB_NATS_CA_FILE GOMEMLIMIT
{{- end -}}

{{/* The names of the alerts in files/alerts.yaml. */}}
{{- define "rshub.alertNames" -}}
{{- $names := list -}}
{{- range (.Files.Get "files/alerts.yaml" | fromYaml).groups -}}
{{- range .rules -}}
{{- with .alert }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- join " " $names -}}
{{- end -}}
