{{- define "leasehold.place" -}}
{{- if ne .Release.Namespace "leasehold-system" -}}
{{- fail "its namespace is fixed: --namespace leasehold-system --create-namespace" -}}
{{- end -}}
{{- end -}}
{{- define "leasehold.config" -}}
{{ toYaml .Values.config | printf "%s\n" }}
{{- end -}}
