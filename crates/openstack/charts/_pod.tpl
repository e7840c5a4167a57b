{{- /* The pod of a service: its configuration files from a ConfigMap, whatever is secret by reference. */ -}}
{{- define "windlass.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.grace }}
terminationGracePeriodSeconds: {{ . }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toJson . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.user }}
  runAsGroup: {{ .Values.user }}
  fsGroup: {{ .Values.user }}
{{- with .Values.kolla }}
  supplementalGroups: [{{ .group }}]
{{- end }}
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: tmp
    emptyDir: {}
  - name: config
{{- with .Values.kolla }}
    projected:
      sources:
        - configMap: {name: {{ $.Values.config.name | quote }}}
        - downwardAPI:
            items:
              - {path: config.json, fieldRef: {fieldPath: "metadata.annotations['openstack.windlass.dev/kolla-config']"}}
{{- if .script }}
              - {path: command, fieldRef: {fieldPath: "metadata.annotations['openstack.windlass.dev/kolla-command']"}}
{{- end }}
{{- else }}
    configMap:
      name: {{ .Values.config.name | quote }}
{{- end }}
{{- if .Values.files }}
  - name: files
    configMap:
      name: {{ printf "%s-%s" .Release.Name .Values.digest | quote }}
      defaultMode: 365
{{- end }}
{{- with .Values.volume }}
  - name: data
{{- if .storage }}
    persistentVolumeClaim: {claimName: {{ .claim | default $.Release.Name | quote }}}
{{- else }}
    emptyDir: {}
{{- end }}
{{- end }}
{{- range $number, $secret := .Values.secrets }}
  - name: secret-{{ $number }}
    secret:
      secretName: {{ $secret.name | quote }}
      defaultMode: 288
{{- end }}
containers:
  - name: {{ .Values.container | quote }}
    image: {{ .Values.image | quote }}
{{- with .Values.command }}
    command: {{ toJson . }}
{{- end }}
{{- with .Values.args }}
    args: {{ toJson . }}
{{- end }}
    securityContext:
{{- if .Values.kolla }}
      # By sudo it copies its files, gives them to its user, and brings certificates to where the image has them.
      allowPrivilegeEscalation: true
      readOnlyRootFilesystem: false
      capabilities: {drop: [ALL], add: [AUDIT_WRITE, CHOWN, DAC_OVERRIDE, FOWNER, SETGID, SETUID]}
{{- else }}
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL]}
{{- end }}
    env:
{{- range $name, $value := .Values.environment }}
      - name: {{ $name | quote }}
{{- if kindIs "map" $value }}
        valueFrom: {secretKeyRef: {name: {{ $value.secret | quote }}, key: {{ $value.key | quote }}}}
{{- else }}
        value: {{ toJson $value }}
{{- end }}
{{- end }}
{{- with .Values.port }}
    # Whoever was sent here before everybody knew that the pod goes is answered still.
    lifecycle: {preStop: {exec: {command: [sleep, "5"]}}}
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
{{- with .Values.kolla }}
      - {name: config, mountPath: {{ .directory | quote }}, readOnly: true}
{{- else }}
{{- /* One by one: what else the image has there stays. */}}
{{- range .Values.config.files }}
      - {name: config, mountPath: {{ printf "%s/%s" $.Values.config.directory . | quote }}, subPath: {{ . | quote }}, readOnly: true}
{{- end }}
{{- end }}
{{- if .Values.files }}
      - {name: files, mountPath: /run/windlass/hook, readOnly: true}
{{- end }}
{{- with .Values.volume }}
      - {name: data, mountPath: {{ .directory | quote }}}
{{- end }}
{{- range $number, $secret := .Values.secrets }}
      - {name: secret-{{ $number }}, mountPath: {{ $secret.directory | quote }}, readOnly: true}
{{- end }}
{{- end -}}

{{- /* What the contract of Kolla's images has in files: annotations of the pod. */ -}}
{{- define "windlass.kolla" -}}
openstack.windlass.dev/kolla-config: {{ toJson .config }}
{{- with .script }}
openstack.windlass.dev/kolla-command: {{ toJson . }}
{{- end }}
{{- end -}}
