{{- /* The pod of a service: its configuration files from a ConfigMap, whatever is secret by reference. */ -}}
{{- define "windlass.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.user }}
  runAsGroup: {{ .Values.user }}
  fsGroup: {{ .Values.user }}
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: tmp
    emptyDir: {}
  - name: config
    configMap:
      name: {{ .Values.config.name | quote }}
{{- range $number, $secret := .Values.secrets }}
  - name: secret-{{ $number }}
    secret:
      secretName: {{ $secret.name | quote }}
      defaultMode: 288
{{- end }}
containers:
  - name: {{ .Values.container | quote }}
    image: {{ .Values.image | quote }}
    command: {{ toJson .Values.command }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
    env:
{{- range $name, $value := .Values.environment }}
      - name: {{ $name | quote }}
{{- if kindIs "map" $value }}
        valueFrom: {secretKeyRef: {name: {{ $value.secret | quote }}, key: {{ $value.key | quote }}}}
{{- else }}
        value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- with .Values.port }}
    ports:
      - name: api
        containerPort: {{ . }}
    readinessProbe:
      httpGet: {path: {{ $.Values.path | quote }}, port: api}
      periodSeconds: 2
      timeoutSeconds: 10
      failureThreshold: 5
    livenessProbe:
      tcpSocket: {port: api}
      initialDelaySeconds: 30
      periodSeconds: 10
      failureThreshold: 6
{{- end }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      - {name: config, mountPath: {{ .Values.config.directory | quote }}, readOnly: true}
{{- range $number, $secret := .Values.secrets }}
      - {name: secret-{{ $number }}, mountPath: {{ $secret.directory | quote }}, readOnly: true}
{{- end }}
{{- end -}}
