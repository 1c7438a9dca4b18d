{{- define "dlxctl.selector" -}}
app.kubernetes.io/name: dlxctl
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "dlxctl.labels" -}}
{{ include "dlxctl.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
