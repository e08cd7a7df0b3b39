"""
Write the Helm chart's templates and page from the manifests and values: `python -m deploy.chart`.

The manifests are the one source. A template is the file of the same name with its comments. The table below lists texts
that a value replaces; each text must occur exactly as often as the table says. So a manifest that changes such a text
stops this program, and any other change goes into the chart. One test compares the files with this program's output,
another compares Helm's output with kustomize's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

DEPLOY: Final = Path(__file__).parent
CHART: Final = DEPLOY / "helm" / "inplace"
TEMPLATES: Final = CHART / "templates"
DASHBOARDS: Final = CHART / "dashboards"  # copies: Helm reads no file outside of the chart
_INSTALLED_IN: Final = "{{ .Release.Namespace }}"
_HEADER: Final = "{{- /* Made from deploy/%s by `python -m deploy.chart`. */ -}}\n"


@dataclass(frozen=True, slots=True)
class Template:
    """How a manifest becomes a template.

    Args:
        source: under deploy/.
        condition: a value that leaves the whole file out when it is false; "" never does.
        values: the manifest's texts (each occurs once), by their replacement in the template.
        each: a list of namespaces; each gets a copy of the objects, below one copy of the comment above them.
        namespaces: how often the installation's namespace is named, or one of `each`.
        check: what stands in front of it, to refuse values that do not fit the cluster.
        has_braces: it holds another program's templates, which Helm leaves as they are.
    """

    source: str
    condition: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    each: str = ""
    namespaces: int = 0
    check: str = ""
    has_braces: bool = False

    @property
    def name(self) -> str:
        """Return the template's file name: folders become prefixes."""
        return self.source.removeprefix("overlays/").replace("/", "-")

    def render(self) -> str:
        """Return the template.

        Raises:
            AssertionError: the manifest is not what this table was written for.
        """
        text = (DEPLOY / self.source).read_text()
        assert ("{{" in text) is self.has_braces, f"{self.source}: Helm would take {{{{ for its own"
        text = text.replace("{{", '{{ "{{" }}')
        for old, new in self.values.items():
            assert text.count(old) == 1, f"{self.source}: expected {old!r} once, saw it {text.count(old)} times"
            text = text.replace(old, new)
        old, new = ("namespace: default", "namespace: {{ . }}") if self.each else ("inplace-system", _INSTALLED_IN)
        seen = text.count(old)
        assert seen == self.namespaces, f"{self.source}: expected {self.namespaces} times the namespace, saw {seen}"
        text = text.replace(old, new)
        if self.each:
            comment, start, objects = text.partition("apiVersion:")
            text = f"{comment}{{{{- range .Values.{self.each} }}}}\n---\n{start}{objects}{{{{- end }}}}\n"
        if self.condition:
            text = f"{{{{- if .Values.{self.condition} }}}}\n{self.check}{text}{{{{- end }}}}\n"
        return _HEADER % self.source + text


_NAMESPACE: Final = """\
apiVersion: v1
kind: Namespace
metadata:
  name: inplace-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
---
"""
_SCHEDULING: Final = """\
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . | quote }}
      {{- end }}
      containers:
"""
_IMAGE: Final = """\
          {{- with .Values.image }}
          {{- $version := .tag | default $.Chart.AppVersion | toString }}
          {{- $suffix := ternary "" (printf ":%s" $version) (contains "@" .repository) }}
          image: {{ .repository }}{{ with .digest }}@{{ . }}{{ else }}{{ $suffix }}{{ end }}
          imagePullPolicy: {{ .pullPolicy }}
          {{- end }}
"""
_AGENT_IMAGE: Final = (
    "            - --agent-image=inplace-agent # as your nodes pull it; without this line no Pod gets an agent\n"
)
_AGENT_ARGS: Final = """\
            {{- with .Values.agent.image }}
            - --agent-image={{ . }}
            {{- end }}
            {{- if .Values.agent.copy }}
            - --agent-copy
            {{- end }}
            {{- if ne .Values.agent.restartRule "auto" }}
            - --agent-restart-rule={{ .Values.agent.restartRule }}
            {{- end }}
            {{- if .Values.agent.optIn }}
            - --agent-opt-in
            {{- end }}
"""
_ARGS: Final = """\
            {{- if .Values.beside }}
            - --beside
            {{- end }}
            {{- with .Values.taintBadNodes }}
            - --taint-bad-nodes={{ . }}
            {{- end }}
            {{- if ne .Values.logLevel "info" }}
            - --log-level={{ .Values.logLevel }}
            {{- end }}
          env:
"""
_ANNOTATIONS: Final = """\
  {{- with .Values.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
"""
_POD_ANNOTATIONS: Final = """\
      {{- with .Values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
"""
_SINCE_1_36: Final = """\
{{- if semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version }}
{{- $words := "mutatingAdmissionPolicy: expected Kubernetes 1.36 or newer, saw %s; set it to false" }}
{{- fail (printf $words .Capabilities.KubeVersion.Version) }}
{{- end }}
"""
_DASHBOARDS: Final = """\
{{- /* Made by `python -m deploy.chart`. Grafana's sidecar for dashboards finds ConfigMaps by their label. */ -}}
{{- if .Values.dashboards.install }}
{{- range $path, $_ := .Files.Glob "dashboards/*.json" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: dashboard-{{ base $path | trimSuffix ".json" }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- toYaml $.Values.dashboards.labels | nindent 4 }}
data:
  {{ base $path }}: {{ $.Files.Get $path | quote }}
{{- end }}
{{- end }}
"""
_RESOURCES: Final = """\
          resources:
            requests:
              cpu: 100m
              memory: 128Mi
            limits:
              memory: 512Mi # 10,000 Pods need less than half. No CPU limit: a group restart is a burst of work
"""
_EGRESS: Final = """\
        - protocol: TCP
          port: 443
        - protocol: TCP
          port: 6443
        - protocol: TCP
          port: 8443
"""

TABLE: Final = (
    Template(
        "crd/jobsets.yaml",
        condition="crd.install",
        values={
            "metadata:\n  name: jobsets.jobset.x-k8s.io\n": (
                "metadata:\n  name: jobsets.jobset.x-k8s.io\n  annotations:\n"
                "    helm.sh/resource-policy: keep # with it every JobSet would go\n"
            )
        },
    ),
    Template(
        "rbac/controller.yaml",
        values={_NAMESPACE: "{{- if .Values.namespace.create }}\n" + _NAMESPACE + "{{- end }}\n"},
        namespaces=6,
    ),
    Template("rbac/agents.yaml"),
    Template("rbac/users.yaml"),
    Template("admission/jobsets.yaml"),
    Template("admission/immutable.yaml"),
    Template("admission/agents.yaml"),
    Template("admission/controller.yaml", namespaces=2),
    Template("admission/defaults.yaml", condition="mutatingAdmissionPolicy", check=_SINCE_1_36),
    Template("apf/flowcontrol.yaml", namespaces=3),
    Template(
        "controller/deployment.yaml",
        values={
            "spec:\n  replicas: 2\n": _ANNOTATIONS + "spec:\n  replicas: {{ .Values.replicas }}\n",
            "    spec:\n      serviceAccountName": _POD_ANNOTATIONS + "    spec:\n      serviceAccountName",
            "      containers:\n": _SCHEDULING,
            "          image: inplace-controller\n          imagePullPolicy: IfNotPresent\n": _IMAGE,
            _AGENT_IMAGE: _AGENT_ARGS,
            "          env:\n": _ARGS,
            _RESOURCES: "          resources:\n            {{- toYaml .Values.resources | nindent 12 }}\n",
        },
        namespaces=2,
    ),
    Template(
        "controller/network.yaml",
        values={
            _EGRESS: (
                "        {{- range .Values.apiServerPorts }}\n        - protocol: TCP\n          port: {{ . }}\n"
                "        {{- end }}\n"
            )
        },
        namespaces=2,
    ),
    Template("workers/network.yaml", each="workerNamespaces", namespaces=1),
    Template("overlays/taints/taints.yaml", condition="taintBadNodes", namespaces=2),
    Template("overlays/podmonitor/podmonitor.yaml", condition="podMonitor", namespaces=1),
    Template("overlays/servicemonitor/servicemonitor.yaml", condition="serviceMonitor", namespaces=1),
    Template("overlays/prometheusrule/prometheusrule.yaml", condition="prometheusRule", namespaces=5, has_braces=True),
)


def templates() -> dict[str, str]:
    """Return the text of each template by its file name."""
    return {each.name: each.render() for each in TABLE} | {"dashboards.yaml": _DASHBOARDS}


def dashboards() -> dict[str, str]:
    """Return the text of each dashboard by its file name."""
    return {
        path.name: path.read_text()
        for path in sorted((DEPLOY.resolve().parent / "grafana" / "dashboards").glob("*.json"))
    }


_README: Final = """\
# inplace

In-place restart for distributed training: when one worker dies, all restart inside the Pods that exist. The chart
installs the controller, the CRD JobSet, admission policies and rights.

    helm install inplace FILE --namespace inplace-system --create-namespace

Made from values.yaml and values.schema.json by `python -m deploy.chart`. An unknown value is refused.

| value | type | default |
|---|---|---|
"""


def readme() -> str:
    """Return the chart's page: each value with its type and default."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    return _README + "".join(f"| `{name}` | {kind} | `{value}` |\n" for name, kind, value in _rows(values, schema))


def _rows(values: Mapping[str, Any], schema: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str, str]]:
    for name, value in values.items():
        known = schema.get("properties", {}).get(name, {})
        if "properties" in known:
            yield from _rows(value, known, f"{above}{name}.")
            continue
        kind = known.get("type") or " or ".join(map(str, known.get("enum", ())))
        yield f"{above}{name}", str(kind), json.dumps(value)


def main() -> None:
    """Write templates, dashboards and the page, and remove files without a source."""
    (CHART / "README.md").write_text(readme())
    for folder, pattern, wanted in ((TEMPLATES, "*.yaml", templates()), (DASHBOARDS, "*.json", dashboards())):
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob(pattern):
            if path.name not in wanted:
                path.unlink()
        for name, text in wanted.items():
            (folder / name).write_text(text)


if __name__ == "__main__":
    main()
