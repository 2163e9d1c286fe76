{{- define "leasehold.place" -}}
{{- if ne .Release.Namespace "leasehold-system" -}}
{{- fail "its namespace is fixed: --namespace leasehold-system --create-namespace" -}}
{{- end -}}
{{- if and .Values.pages (not (dig "web" "identityHeader" "" .Values.config)) -}}
{{- fail "pages: set config.web.identityHeader and config.web.clientCA" -}}
{{- end -}}
{{- end -}}
{{- define "leasehold.config" -}}
{{ toYaml .Values.config | printf "%s\n" }}
{{- end -}}
