{{/*
What contradicts itself, all of it at once, as a list of sentences. What is only
misspelt values.schema.json finds.
*/}}
{{- define "rshub.problems" -}}
{{- $v := .Values -}}
{{- $redis := include "rshub.redis" . -}}
{{- $nats := include "rshub.nats" . -}}
{{- $open := include "rshub.tokensSecret" . | empty -}}
{{- $outside := or ($v.ingress).enabled ($v.httpRoute).enabled (ne $v.service.type "ClusterIP") -}}

{{- /* the image */ -}}
{{- if not $v.image.repository }}
- image.repository is not set: no image of rshub is published, so build it, load it where the cluster finds it, and say where that is. docs/kubernetes.md has the commands.
{{- end }}

{{- /* several hubs */ -}}
{{- if hasKey $v "replicas" }}
- replicas is not a value of this chart: how many hubs there are is replicaCount.
{{- end }}
{{- if and (gt (int $v.replicaCount) 1) (not $redis) (not ($v.autoscaling).enabled) }}
- replicaCount is {{ $v.replicaCount }}, and hubs share a memory only in Redis: set redis.url or redis.existingSecret, or leave replicaCount at 1.
{{- end }}
{{- if and ($v.autoscaling).enabled (not $redis) }}
- autoscaling makes several hubs, and they share a memory only in Redis: set redis.url or redis.existingSecret.
{{- end }}
{{- if and $nats (not $redis) }}
- nats tells other hubs of changes, and there are others only with Redis: set redis.url or redis.existingSecret, or leave nats out.
{{- end }}
{{- if and $redis $v.persistence.existingClaim }}
- persistence.existingClaim has a memory on disk, and redis says that it is in Redis: move it with "rshub copy" (docs/kubernetes.md), and leave persistence.existingClaim out.
{{- end }}
{{- if and $v.redis.url $v.redis.existingSecret }}
- redis.url and redis.existingSecret both say where Redis is: leave one out.
{{- end }}
{{- if and $v.nats.url $v.nats.existingSecret }}
- nats.url and nats.existingSecret both say where NATS is: leave one out.
{{- end }}
{{- if and (or $v.nats.credentialsSecret $v.nats.caSecret) (not $nats) }}
- nats.credentialsSecret and nats.caSecret are for nats.url or nats.existingSecret, and neither is set.
{{- end }}
{{- if and (index $v.config "RSHUB_REDIS_WAIT" | default 0 | int) (not $redis) }}
- config.RSHUB_REDIS_WAIT counts replicas of Redis: set redis.url or redis.existingSecret.
{{- end }}

{{- /* scaling */ -}}
{{- with $v.autoscaling }}
{{- if .enabled }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
- autoscaling.minReplicas is {{ .minReplicas }}, more than autoscaling.maxReplicas, {{ .maxReplicas }}.
{{- end }}
{{- if not (or .targetCPUUtilizationPercentage .targetMemoryUtilizationPercentage .metrics) }}
- autoscaling has no reason to scale: set autoscaling.targetCPUUtilizationPercentage or one of the others.
{{- end }}
{{- range $name, $target := dict "cpu" .targetCPUUtilizationPercentage "memory" .targetMemoryUtilizationPercentage }}
{{- if and $target (not (dig "requests" $name "" $v.resources)) }}
- autoscaling measures {{ $name }} in percent of resources.requests.{{ $name }}, which is not set.
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* who may do what */ -}}
{{- if and $open (not $v.insecure) }}
- tokens.create is false and there is no tokens.existingSecret, so anyone could publish: set one of them, or insecure to anyone-may-publish.
{{- end }}
{{- if and $v.insecure $v.tokens.existingSecret }}
- insecure says that nobody needs a token, and tokens.existingSecret has tokens: leave one out.
{{- end }}
{{- if and $v.insecure $outside }}
- insecure together with an Ingress, an HTTPRoute or a Service of type {{ $v.service.type }} would let anyone out there publish: leave insecure out; tokens.anyone says what needs no token.
{{- end }}
{{- if and (not $v.tokens.existingSecret) (not $open) (include "rshub.test" .) }}
{{- if not (and $v.tokens.make.publish $v.tokens.make.follow) }}
- helm test publishes and follows with the tokens.make named publish and follow: keep both, or set test.enabled to false.
{{- else }}
{{- range $act := list "publish" "follow" }}
{{- $rights := printf "%s,%s" (index $v.tokens.make $act).rights $v.tokens.anyone }}
{{- if not (include "rshub.may" (list $rights $act ($v.test).set)) }}
- helm test may not {{ $act }} {{ ($v.test).set }} by tokens.make.{{ $act }}.rights: set test.set to a set that they name, or test.enabled to false.
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if or $v.tokens.existingSecret $v.insecure }}
{{- if $v.tokens.anyone }}
- tokens.anyone is for the tokens file that the chart makes, and {{ if $v.insecure }}insecure{{ else }}tokens.existingSecret{{ end }} is in place of that{{ if not $v.insecure }}: write a line "anyone - {{ $v.tokens.anyone }}" there{{ end }}.
{{- end }}
{{- range $name, $t := $v.tokens.make }}
{{- if $t.token }}
- tokens.make.{{ $name }}.token is for the tokens file that the chart makes, and {{ if $v.insecure }}insecure{{ else }}tokens.existingSecret{{ end }} is in place of that.
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $t := $v.tokens.make }}
{{- range $other, $u := $v.tokens.make }}
{{- if and $t.token (eq $t.token ($u.token | default "")) (lt $name $other) }}
- tokens.make.{{ $name }} and tokens.make.{{ $other }} are the same token: each name has its own.
{{- end }}
{{- end }}
{{- end }}

{{- /* how others reach it */ -}}
{{- if and ($v.ingress).enabled (not ($v.ingress).host) }}
- ingress.enabled needs ingress.host, the host name of the hub.
{{- end }}
{{- if and ($v.ingress).tlsSecret (not ($v.ingress).tls) }}
- ingress.tlsSecret has a certificate, and ingress.tls is false: set it to true, or leave the certificate out.
{{- end }}
{{- if and ($v.httpRoute).enabled (not (and ($v.httpRoute).parentRefs ($v.httpRoute).hostnames)) }}
- httpRoute.enabled needs httpRoute.parentRefs, the Gateways, and httpRoute.hostnames, the host names of the hub.
{{- end }}
{{- if and ($v.ingress).enabled ($v.httpRoute).enabled (not $v.baseURL) ($v.httpRoute).hostnames }}
{{- if ne ($v.ingress).host (first ($v.httpRoute).hostnames) }}
- the Ingress has the host {{ ($v.ingress).host }}, the HTTPRoute {{ first ($v.httpRoute).hostnames }}, and a hub has one URL: set baseURL.
{{- end }}
{{- end }}
{{- if and (ne $v.service.type "ClusterIP") (not $v.baseURL) (not ($v.ingress).enabled) (not ($v.httpRoute).enabled) }}
- service.type is {{ $v.service.type }}, so others reach the hub from outside: set baseURL to the URL that they use.
{{- end }}
{{- if ne $v.service.type "LoadBalancer" }}
{{- if or $v.service.loadBalancerClass $v.service.loadBalancerSourceRanges }}
- service.loadBalancerClass and service.loadBalancerSourceRanges are of a LoadBalancer, and service.type is {{ $v.service.type }}: leave them out.
{{- end }}
{{- end }}
{{- if and $v.service.externalTrafficPolicy (eq $v.service.type "ClusterIP") }}
- service.externalTrafficPolicy is of a LoadBalancer or NodePort, and service.type is ClusterIP: leave it out.
{{- end }}

{{- /* whom it may reach */ -}}
{{- if ($v.networkPolicy).enabled }}
{{- range $name, $ports := dict "redis" ($v.networkPolicy).redisPorts "nats" ($v.networkPolicy).natsPorts }}
{{- range include "rshub.ports" (index $v $name).url | splitList " " }}
{{- if and . (not (has . (toStrings $ports))) }}
- {{ $name }}.url has the port {{ . }}, and networkPolicy.{{ $name }}Ports lets the hub reach only {{ join ", " $ports }}: add it there.
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if and ($v.networkPolicy).enabled ($v.serviceMonitor).enabled (not ($v.networkPolicy).opsFrom) }}
- serviceMonitor lets Prometheus read the metrics, and networkPolicy lets nobody: name it in networkPolicy.opsFrom.
{{- end }}
{{- if and ($v.prometheusRule).enabled (not ($v.serviceMonitor).enabled) (not ($v.prometheusRule).matchers) }}
- prometheusRule has alerts of the job that the ServiceMonitor makes, and there is none: set serviceMonitor.enabled, or prometheusRule.matchers to what your own job's hubs have, such as job="rshub".
{{- end }}

{{- /* what the chart sets itself */ -}}
{{- range $v.extraEnv }}
{{- if eq .name "RSHUB_DRAIN_DELAY" }}
- extraEnv has RSHUB_DRAIN_DELAY, and drain.preStopSeconds is for that: the hub goes on meanwhile.
{{- else if has .name (include "rshub.ownVariables" $ | splitList " ") }}
- extraEnv has {{ .name }}, which the chart sets from other values; README.md says which.
{{- else if hasKey $v.config .name }}
- extraEnv and config both have {{ .name }}: leave one out.
{{- end }}
{{- end }}
{{- range $name, $change := ($v.prometheusRule).alerts }}
{{- if not (has $name (include "rshub.alertNames" $ | splitList " ")) }}
- prometheusRule.alerts.{{ $name }}: there is no such alert; there are {{ include "rshub.alertNames" $ | replace " " ", " }}.
{{- end }}
{{- end }}
{{- end -}}

{{/* The ports that are said in a URL, or in several, separated by a comma and a space. */}}
{{- define "rshub.ports" -}}
{{- $ports := list -}}
{{- range splitList "," . -}}
{{- $host := regexReplaceAll "^[a-z-]+://" (trim .) "" -}}
{{- $host = regexReplaceAll "^.*@" (regexReplaceAll "[/?].*$" $host "") "" -}}
{{- with regexFind ":[0-9]+$" $host }}{{ $ports = append $ports (trimPrefix ":" .) }}{{ end -}}
{{- end -}}
{{- join " " $ports -}}
{{- end -}}

{{/* The variables that the chart sets, and config cannot. */}}
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
