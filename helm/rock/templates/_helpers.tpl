{{- define "rock.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What never changes, so that it can select. */}}
{{- define "rock.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "rock.labels" -}}
{{ include "rock.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "rock.image" -}}
{{- $image := .Values.image -}}
{{- $name := printf "%s/%s" (trimSuffix "/" $image.registry) $image.repository -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default .Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* A backend's NAME:OPTIONS: that of pods gets what the chart knows, then its own. */}}
{{- define "rock.backend" -}}
{{- $v := (index . 0).Values -}}
{{- $given := index . 1 -}}
{{- if and $v.sandboxes.enabled (regexMatch "^kubernetes(:|$)" $given) -}}
{{- $guest := printf "%s/%s:%s" (trimSuffix "/" $v.image.registry) (default "rock-guest" $v.image.guestRepository) (default (index . 0).Chart.AppVersion $v.image.tag) -}}
{{- $options := list (printf "namespace=%s" (include "rock.sandboxNamespace" (index . 0))) (printf "guest=%s" $guest) (printf "port=%v" $v.sandboxes.guestPort) -}}
{{- with $v.server.snapshots -}}
{{- if .enabled -}}
{{- $options = concat $options (list "snapshots=/var/lib/rock-snapshots" (printf "snapshot_room=%d" (mul .roomGiB 1073741824))) -}}
{{- end -}}
{{- end -}}
{{- if not (dig "snapshots" "enabled" false $v.server) -}}
{{- /* Within server.scratchSize. */ -}}
{{- $options = concat $options (list "snapshot_room=1073741824" "snapshot_bytes=268435456") -}}
{{- end -}}
{{- if eq $v.sandboxes.podSecurity "baseline" -}}{{- $options = append $options "profile=image" -}}{{- end -}}
{{- if or $v.sandboxes.internet $v.sandboxes.allow -}}{{- $options = append $options "network=namespace" -}}{{- end -}}
{{- if $v.sandboxes.tenants -}}
{{- $pairs := list -}}
{{- range (include "rock.sandboxNamespaces" (index . 0) | fromJson).all -}}
{{- if .tenant -}}{{- $pairs = append $pairs (printf "%s:%s" .tenant .namespace) -}}{{- end -}}
{{- end -}}
{{- $options = concat $options (list (printf "tenants=%s" (join ";" $pairs)) (printf "others=%s" $v.sandboxes.otherTenants)) -}}
{{- end -}}
{{- with $v.sandboxes.image -}}{{- $options = append $options (printf "image=%s" .) -}}{{- end -}}
{{- with trimPrefix ":" (trimPrefix "kubernetes" $given) -}}{{- $options = append $options . -}}{{- end -}}
{{- printf "kubernetes:%s" (join "," $options) -}}
{{- else -}}
{{- $given -}}
{{- end -}}
{{- end -}}

{{- define "rock.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "rock.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "rock.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "rock.tokensSecret" -}}
{{- default (printf "%s-tokens" (include "rock.fullname" .)) .Values.tokens.existingSecret -}}
{{- end -}}

{{- define "rock.tlsSecret" -}}
{{- default (printf "%s-tls" (include "rock.fullname" .)) .Values.tls.existingSecret -}}
{{- end -}}

{{/* The names in the chart's own certificate, separated by commas. */}}
{{- define "rock.tlsNames" -}}
{{- $name := include "rock.fullname" . -}}
{{- $ns := .Release.Namespace -}}
{{- $own := list "localhost" $name (printf "%s.%s" $name $ns) (printf "%s.%s.svc" $name $ns) (printf "%s.%s.svc.cluster.local" $name $ns) -}}
{{- concat $own .Values.tls.extraNames | join "," -}}
{{- end -}}

{{- define "rock.postgresqlName" -}}
{{- printf "%s-postgresql" (include "rock.fullname" .) -}}
{{- end -}}

{{/* The Secret with the password; empty where an external database needs none. */}}
{{- define "rock.passwordSecret" -}}
{{- $given := .Values.postgresql.existingSecret -}}
{{- if $given -}}{{ $given }}{{- else if .Values.postgresql.enabled -}}{{ include "rock.postgresqlName" . }}{{- end -}}
{{- end -}}

{{- define "rock.store" -}}
{{- if .Values.postgresql.enabled -}}
{{- printf "postgresql://rock@%s:5432/rock" (include "rock.postgresqlName" .) -}}
{{- else -}}
{{- .Values.postgresql.externalUrl -}}
{{- end -}}
{{- end -}}

{{- define "rock.snapshotsClaim" -}}
{{- default (printf "%s-snapshots" (include "rock.fullname" .)) .Values.server.snapshots.existingClaim -}}
{{- end -}}

{{- define "rock.sandboxNamespace" -}}
{{- default (printf "%s-%s-sandboxes" .Release.Namespace (include "rock.fullname" .) | trunc 63 | trimSuffix "-") .Values.sandboxes.namespace -}}
{{- end -}}

{{/* Namespaces of sandboxes as JSON: where those of no tenant's own are, then each listed tenant's; with its quota. */}}
{{- define "rock.sandboxNamespaces" -}}
{{- $sandboxes := .Values.sandboxes -}}
{{- $shared := include "rock.sandboxNamespace" . -}}
{{- $all := list (dict "namespace" $shared "tenant" "" "quota" $sandboxes.quota) -}}
{{- range $sandboxes.tenants -}}
{{- $short := printf "%s-%s" ($shared | trunc 28 | trimSuffix "-") (regexReplaceAll "[^a-z0-9]" .name "-" | trunc 24) -}}
{{- $made := printf "%s-%s" (trimSuffix "-" $short) (sha256sum .name | trunc 8) -}}
{{- $quota := deepCopy $sandboxes.quota -}}
{{- range $name, $value := .quota -}}{{- $_ := set $quota $name $value -}}{{- end -}}
{{- $all = append $all (dict "namespace" (default $made .namespace) "tenant" .name "quota" $quota) -}}
{{- end -}}
{{- dict "all" $all | toJson -}}
{{- end -}}

{{/* A container of ours: no root, no rights, nothing written but to its volumes. */}}
{{- define "rock.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  privileged: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* A pod of ours, run as the given user and group. */}}
{{- define "rock.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ . }}
  runAsGroup: {{ . }}
  fsGroup: {{ . }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{/* Base64 of the bytes that are given in hexadecimal; a template has no function for it. Three bytes at a time. */}}
{{- define "rock.base64OfHex" -}}
{{- $digits := "0123456789abcdef" -}}
{{- $letters := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" -}}
{{- $bytes := div (len .) 2 | int -}}
{{- $missing := mod (sub 3 (mod $bytes 3)) 3 | int -}}
{{- $hex := printf "%s%s" . (repeat (mul 2 $missing | int) "0") -}}
{{- $out := "" -}}
{{- range $i := until (div (len $hex) 6 | int) -}}
{{- $value := 0 -}}
{{- range $digit := splitList "" (substr (mul 6 $i | int) (add 6 (mul 6 $i) | int) $hex) -}}
{{- $value = add (mul 16 $value) (len (index (splitList $digit $digits) 0)) -}}
{{- end -}}
{{- range $unit := list 262144 4096 64 1 -}}
{{- $at := mod (div $value $unit) 64 | int -}}
{{- $out = printf "%s%s" $out (substr $at (add1 $at | int) $letters) -}}
{{- end -}}
{{- end -}}
{{- printf "%s%s" (substr 0 (sub (len $out) $missing | int) $out) (repeat $missing "=") -}}
{{- end -}}

{{/* Refuses what cannot work, with what to do. */}}
{{- define "rock.check" -}}
{{- $v := .Values -}}
{{- if not $v.image.registry -}}
{{- fail "\n\nimage.registry is not set: nobody publishes ROCK's images yet. Build and push them to a registry that the cluster pulls from,\n\n    ale rock image push REGISTRY\n\nand install with --set image.registry=REGISTRY\n" -}}
{{- end -}}
{{- if and $v.postgresql.enabled $v.postgresql.externalUrl -}}
{{- fail "\n\npostgresql.externalUrl is set, and postgresql.enabled too: expected one database. Set postgresql.enabled=false to use yours.\n" -}}
{{- end -}}
{{- if not (or $v.postgresql.enabled $v.postgresql.externalUrl) -}}
{{- fail "\n\npostgresql.enabled is false and postgresql.externalUrl empty: the server has no database. Set postgresql.externalUrl=postgresql://USER@HOST:PORT/DATABASE, and postgresql.existingSecret for the password.\n" -}}
{{- end -}}
{{- if and $v.sandboxes.enabled (eq (include "rock.sandboxNamespace" .) .Release.Namespace) -}}
{{- fail (printf "\n\nsandboxes.namespace is the release's own namespace %q: who may make pods there can read its Secrets. Name another one, or leave it empty.\n" .Release.Namespace) -}}
{{- end -}}
{{- if $v.sandboxes.enabled -}}
{{- $seen := dict .Release.Namespace "the release" -}}
{{- $tenants := dict -}}
{{- range (include "rock.sandboxNamespaces" . | fromJson).all -}}
{{- $who := .tenant | empty | ternary "sandboxes of no tenant's own" (printf "the tenant %s" .tenant) -}}
{{- if hasKey $tenants .tenant -}}
{{- fail (printf "\n\nsandboxes.tenants names the tenant %s twice. Leave one out.\n" .tenant) -}}
{{- end -}}
{{- if hasKey $seen .namespace -}}
{{- fail (printf "\n\nthe namespace %s would be that of %s and of %s: they would share its quota and its rights. Set another sandboxes.tenants[].namespace, or leave it empty.\n" .namespace (get $seen .namespace) $who) -}}
{{- end -}}
{{- $_ := set $seen .namespace $who -}}
{{- $_ := set $tenants .tenant true -}}
{{- end -}}
{{- end -}}
{{- if and $v.ingress.enabled (not (and $v.ingress.grpcHost $v.ingress.tlsSecret)) -}}
{{- fail (printf "\n\ningress.enabled needs ingress.grpcHost and ingress.tlsSecret, got %q and %q: controllers speak gRPC over TLS only.\n" $v.ingress.grpcHost $v.ingress.tlsSecret) -}}
{{- end -}}
{{- if and $v.metrics.serviceMonitor.enabled (not $v.metrics.enabled) -}}
{{- fail "\n\nmetrics.serviceMonitor.enabled needs metrics.enabled=true: there is nothing to scrape otherwise.\n" -}}
{{- end -}}
{{- end -}}
