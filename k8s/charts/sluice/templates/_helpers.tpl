{{- define "sluice.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default (printf "v%s" .Chart.AppVersion) }}
{{- end }}

{{- define "sluice.natsUrl" -}}
{{- if eq .Values.nats.mode "external" -}}
{{ .Values.nats.external.url }}
{{- else if gt (int .Values.nats.embedded.replicas) 1 -}}
{{- $urls := list }}
{{- range until (int .Values.nats.embedded.replicas) }}
{{- $urls = append $urls (printf "tls://sluice-nats-%d.sluice-nats-servers.%s.svc:4222" . $.Release.Namespace) }}
{{- end }}
{{- join "," $urls }}
{{- else -}}
nats://sluice-nats.{{ .Release.Namespace }}.svc:4222
{{- end }}
{{- end }}

{{- /* The Secret with the authorities that services trust; empty: none is mounted. */}}
{{- define "sluice.natsCaSecret" -}}
{{- if eq .Values.nats.mode "external" }}
{{- if contains "tls://" .Values.nats.external.url }}{{ .Values.nats.external.caSecret }}{{ end }}
{{- else if gt (int .Values.nats.embedded.replicas) 1 -}}
sluice-nats-ca
{{- end }}
{{- end }}

{{- define "sluice.natsCaFile" -}}
{{- if include "sluice.natsCaSecret" . -}}
/etc/sluice/nats-ca/ca.crt
{{- else if and (eq .Values.nats.mode "external") (contains "tls://" .Values.nats.external.url) -}}
/etc/ssl/certs/ca-certificates.crt
{{- end }}
{{- end }}

{{- define "sluice.secretPrefix" -}}
{{- if eq .Values.nats.mode "external" }}{{ .Values.nats.external.secretPrefix }}{{ else }}sluice-nats{{ end }}
{{- end }}

{{- define "sluice.featureGates" -}}
{{- $gates := list }}
{{- range $name, $state := .Values.featureGates }}
{{- $gates = append $gates (printf "%s=%t" $name $state) }}
{{- end }}
{{- join "," $gates }}
{{- end }}

{{- define "sluice.failureRecovery" -}}
{{- $file := .Values.managerConfig.controllerManagerConfigYaml | fromYaml }}
{{- $gates := mergeOverwrite (dict) (dig "featureGates" (dict) $file) .Values.featureGates }}
{{- if dig "FailureRecoveryPolicy" (dig "AllAlpha" false $gates) $gates }}true{{ end }}
{{- end }}

{{- define "sluice.egressPorts" -}}
{{- range .Values.networkPolicies.egressPorts }}
- port: {{ . }}
{{- end }}
{{- end }}
