{{/* The pod of a hub, with its data on disk or in Redis. */}}
{{- define "rshub.pod" -}}
{{- $v := .Values -}}
{{- $redis := include "rshub.redis" . -}}
{{- $nats := include "rshub.nats" . -}}
{{- $tokens := include "rshub.tokensSecret" . -}}
metadata:
  # Without the version of the chart, which would restart unchanged hubs.
  labels:
    {{- include "rshub.selector" . | nindent 4 }}
    app.kubernetes.io/component: hub
    {{- with merge (dict) $v.podLabels $v.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- $made := and $tokens (not $v.tokens.existingSecret) }}
  {{- $connections := include "rshub.connections" . }}
  {{- if or $made $connections $v.podAnnotations }}
  annotations:
    {{- if $made }}
    checksum/tokens: {{ include "rshub.tokens" . | sha256sum }}
    {{- end }}
    {{- with $connections }}
    checksum/connections: {{ . | sha256sum }}
    {{- end }}
    {{- with $v.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ include "rshub.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add $v.drain.preStopSeconds $v.drain.graceSeconds 10 }}
  {{- with $v.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $v.podSecurityContext | nindent 4 }}
  containers:
    - name: rshub
      image: {{ include "rshub.image" . }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      securityContext:
        {{- toYaml $v.securityContext | nindent 8 }}
      ports:
        - name: http
          containerPort: 8080
        - name: ops
          containerPort: 8081
      env:
        {{- include "rshub.env" . | nindent 8 }}
      startupProbe:
        httpGet:
          path: /healthz
          port: ops
        {{- toYaml $v.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet:
          path: /healthz
          port: ops
        {{- toYaml $v.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet:
          path: {{ $v.probes.readiness.path }}
          port: ops
        {{- omit $v.probes.readiness "path" | toYaml | nindent 8 }}
      {{- if $v.drain.preStopSeconds }}
      lifecycle:
        preStop:
          sleep:
            seconds: {{ $v.drain.preStopSeconds }}
      {{- end }}
      {{- with $v.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        {{- if $redis }}
        - name: tmp # lists of polled sources
          mountPath: /tmp
        {{- else }}
        - name: data
          mountPath: /data
        {{- end }}
        {{- if $tokens }}
        - name: tokens
          mountPath: /etc/rshub/tokens
          readOnly: true
        {{- end }}
        {{- if $v.nats.credentialsSecret }}
        - name: nats-credentials
          mountPath: /etc/rshub/nats-credentials
          readOnly: true
        {{- end }}
        {{- if $v.nats.caSecret }}
        - name: nats-ca
          mountPath: /etc/rshub/nats-ca
          readOnly: true
        {{- end }}
        {{- with $v.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  {{- $disk := and (not $redis) (or $v.persistence.existingClaim (not ($v.persistence).enabled)) }}
  {{- if or $redis $disk $tokens $v.nats.credentialsSecret $v.nats.caSecret $v.extraVolumes }}
  volumes:
    {{- if $redis }}
    - name: tmp
      emptyDir:
        sizeLimit: 5Gi # the hub uses at most 4 GiB
    {{- end }}
    {{- if $disk }}
    - name: data
      {{- if $v.persistence.existingClaim }}
      persistentVolumeClaim:
        claimName: {{ $v.persistence.existingClaim }}
      {{- else }}
      emptyDir: {}
      {{- end }}
    {{- end }}
    {{- if $tokens }}
    - name: tokens
      secret:
        secretName: {{ $tokens }}
        defaultMode: 0440
        items:
          - key: {{ include "rshub.tokensKey" . }}
            path: tokens
    {{- end }}
    {{- with $v.nats.credentialsSecret }}
    - name: nats-credentials
      secret:
        secretName: {{ . }}
        defaultMode: 0440
        items:
          - key: {{ $v.nats.credentialsSecretKey }}
            path: nats.creds
    {{- end }}
    {{- with $v.nats.caSecret }}
    - name: nats-ca
      secret:
        secretName: {{ . }}
        items:
          - key: {{ $v.nats.caSecretKey }}
            path: ca.crt
    {{- end }}
    {{- with $v.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  {{- if $redis }}
  {{- with $v.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{ toYaml . | nindent 6 | trim }}
      {{- if not .labelSelector }}
      labelSelector:
        matchLabels:
          {{- include "rshub.selector" $ | nindent 10 }}
          app.kubernetes.io/component: hub
      {{- if not .matchLabelKeys }}
      matchLabelKeys: [pod-template-hash]
      {{- end }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- end }}
  {{- with $v.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
{{- end -}}

{{/* The environment of a hub. */}}
{{- define "rshub.env" -}}
{{- $v := .Values -}}
- name: RSHUB_LISTEN
  value: ":8080"
- name: RSHUB_OPS_LISTEN
  value: ":8081"
- name: RSHUB_BASE_URL
  value: {{ include "rshub.baseURL" . | quote }}
{{- $named := hasKey $v.config "RSHUB_HOSTS" }}
{{- range $v.extraEnv }}{{ if eq .name "RSHUB_HOSTS" }}{{ $named = true }}{{ end }}{{ end }}
{{- if not $named }}
{{- $name := include "rshub.fullname" . }}
{{- $space := printf "%s.%s" $name .Release.Namespace }}
- name: RSHUB_HOSTS
  value: {{ printf "%s,%s,%s.svc,%s.svc.cluster.local" $name $space $space $space | quote }}
{{- end }}
- name: RSHUB_GRACE
  value: {{ printf "%ds" (int $v.drain.graceSeconds) | quote }}
{{- if include "rshub.tokensSecret" . }}
- name: RSHUB_TOKENS_FILE
  value: /etc/rshub/tokens/tokens
{{- else }}
- name: RSHUB_INSECURE
  value: {{ $v.insecure }}
{{- end }}
{{- if include "rshub.redis" . }}
- name: RSHUB_REDIS_URL
  valueFrom:
    secretKeyRef:
      name: {{ $v.redis.existingSecret | default (printf "%s-connections" (include "rshub.fullname" .)) }}
      key: {{ ternary $v.redis.existingSecretKey "redis-url" (ne $v.redis.existingSecret "") }}
{{- $said := hasKey $v.config "RSHUB_START_TIMEOUT" }}
{{- range $v.extraEnv }}{{ if eq .name "RSHUB_START_TIMEOUT" }}{{ $said = true }}{{ end }}{{ end }}
{{- if not $said }}
{{- /* A hub that exits is restarted with growing delays. One that waits resumes immediately, and is not ready until then. */}}
- name: RSHUB_START_TIMEOUT
  value: 30m
{{- end }}
{{- else }}
- name: RSHUB_DATA
  value: /data
{{- end }}
{{- if include "rshub.nats" . }}
- name: RSHUB_NATS_URL
  valueFrom:
    secretKeyRef:
      name: {{ $v.nats.existingSecret | default (printf "%s-connections" (include "rshub.fullname" .)) }}
      key: {{ ternary $v.nats.existingSecretKey "nats-url" (ne $v.nats.existingSecret "") }}
{{- end }}
{{- if $v.nats.credentialsSecret }}
- name: RSHUB_NATS_CREDENTIALS
  value: /etc/rshub/nats-credentials/nats.creds
{{- end }}
{{- if $v.nats.caSecret }}
- name: RSHUB_NATS_CA_FILE
  value: /etc/rshub/nats-ca/ca.crt
{{- end }}
{{- range $name, $value := $v.config }}
- name: {{ $name }}
  {{- /* A number from a file is a float64, which would be formatted as 1e+06. */}}
  value: {{ ternary (int64 $value | toString) (toString $value) (kindIs "float64" $value) | quote }}
{{- end }}
{{- with include "rshub.goMemory" . }}
- name: GOMEMLIMIT
  value: {{ . }}
{{- end }}
{{- with $v.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
