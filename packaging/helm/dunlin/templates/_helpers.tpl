{{- define "dunlin.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "dunlin.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dunlin.labels" -}}
{{ include "dunlin.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* dunlin.toml: keys of the whole first, then tables. */}}
{{- define "dunlin.config" -}}
data_dir = "/var/lib/dunlin"
metrics = { address = "0.0.0.0:9464" }
{{- with .Values.auth }}
{{- if .secretName }}
auth = { password_file = "/etc/dunlin/users/{{ .passwords }}"{{ if .rules }}, acl_file = "/etc/dunlin/users/{{ .rules }}"{{ end }} }
{{- end }}
{{- end }}
{{- if .Values.tls.secretName }}
{{- $tls := `tls = { cert = "/etc/dunlin/tls/tls.crt", key = "/etc/dunlin/tls/tls.key" }` }}
listener = [
    { transport = "tcp" },
    { transport = "tls", {{ $tls }} },
    { transport = "quic", {{ $tls }} },
    { transport = "ws" },
    { transport = "wss", {{ $tls }} },
    { transport = "tcp", address = "*:5672", protocols = ["amqp"] },
    { transport = "tls", address = "*:5671", protocols = ["amqp"], {{ $tls }} },
    { transport = "quic", address = "*:5671", protocols = ["amqp"], {{ $tls }} },
]
{{- end }}
{{ .Values.config }}
{{- end }}
