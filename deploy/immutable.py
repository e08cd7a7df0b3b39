"""
Write the policy that keeps templates as they are: `python -m deploy.immutable`.

A client with Go types writes back another spelling of what it read: `resources: {}`, `creationTimestamp: null`, nothing
for `args: []`, `cpu: "1"` for `cpu: 1000m`. So templates are compared as the API's own types would compare them, field
by field (docs/adr/0050). CEL has no recursion: each level of a template is one variable, and all have the same
expression, which this program writes. Only what differs literally goes down a level, so an update that leaves templates
alone costs nothing.

Source of the names: k8s.io/api core/v1 and batch/v1 at v0.36.3; tests/cluster/typedclient derives them again.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Final

MANIFEST: Final = Path(__file__).parent / "admission" / "immutable.yaml"

LEVELS: Final = 14
"""How deep a template can differ only in spelling; the deepest of today's fields stands at 13."""

FIELDS_MAX: Final = 2000
"""Fields and items below what differs on one level, of all templates together. Where there are more, they count as
changed unseen: the server gives a policy seconds and a budget, and its refusal at their end would be in CEL's words."""

STRUCTS: Final = ("[]", "metadata", "podAffinityTerm", "preference", "resources", "spec", "status", "template")
"""Fields that a Go type writes even when empty; "[]" is an item of a list. Elsewhere {} is not the same as none."""

TEXT_MAPS: Final = (
    *("allocatedResourceStatuses", "annotations", "labels", "matchLabels", "nodeSelector", "options"),
    *("userAnnotations", "volumeAttributes"),
)
"""Fields whose keys are the user's: an empty value there is a value."""

QUANTITY_MAPS: Final = ("allocatedResources", "capacity", "limits", "overhead", "requests")
QUANTITIES: Final = ("divisor", "sizeLimit")

ZEROS: Final = (
    *("chapAuthDiscovery", "chapAuthSession", "containerPort", "failureThreshold", "generation", "hostIPC"),
    *("hostNetwork", "hostPID", "hostPort", "initialDelaySeconds", "lun", "maxSkew", "partition", "periodSeconds"),
    *("port", "readOnly", "seconds", "sslEnabled", "stdin", "stdinOnce", "successThreshold", "timeoutSeconds"),
    *("tty", "weight"),
)
"""Numbers and booleans that a Go type does not write when they are zero. Of all others zero is not the same as none."""

MEANT_EMPTY: Final = ("hostnameOverride", "storageClassName", "volumeAttributesClassName")
"""Texts of which "" is not the same as none."""

WHILE_SUSPENDED: Final = (
    "template.spec.template.metadata.labels",
    "template.spec.template.metadata.annotations",
    "template.spec.template.spec.nodeSelector",
    "template.spec.template.spec.tolerations",
    "template.spec.template.spec.schedulingGates",
)
"""What a queue sets before it admits a JobSet."""

ANY_TIME: Final = ("template.spec.parallelism", "template.spec.completions")
"""The size of Indexed Jobs: its rules are the CRD's."""

_HEADER: Final = """\
# Made by `python -m deploy.immutable`, which says why.
#
# What a JobSet cannot change: its Job templates and claim templates, compared as the API's Go types would, so that
# another spelling of the same is no change. The fields that the CRD's schema names are compared by the CRD.
#
# Needs Kubernetes 1.35 (CEL's flatten). Status writes are not matched, and an update that leaves the spec alone is let
# through: an object older than this policy can be labelled, finished and deleted.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: immutable.jobset.x-k8s.io
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [jobset.x-k8s.io]
        apiVersions: [v1alpha2]
        operations: [UPDATE]
        resources: [jobsets]
  matchConditions:
    - name: spec-changes
      expression: object.spec != oldObject.spec
  variables:
"""

_PAIRS: Final = """\
    - name: suspended
      expression: "[object, oldObject].exists(o, has(o.spec.suspend) && o.spec.suspend)"
    - name: free
      expression: >-
        variables.freeAtAnyTime + (variables.suspended ? variables.freeWhileSuspended : [])
    - name: olds
      expression: "has(oldObject.spec.replicatedJobs) ? oldObject.spec.replicatedJobs : []"
    # Pairs of what is there and what was there. `parent` and `key` say which field it is, "[]" an item of a list.
    - name: level0
      expression: >-
        (has(object.spec.replicatedJobs) ? object.spec.replicatedJobs : []).filter(j,
        variables.olds.exists(o, o.name == j.name && o.template != j.template)).map(j, {
        'root': dyn('spec.replicatedJobs[name="' + j.name + '"].'), 'path': dyn('template'), 'parent': dyn(''),
        'key': dyn('template'), 'new': j.template, 'old': variables.olds.filter(o, o.name == j.name)[0].template}) + [{
        'root': dyn('spec.'), 'path': dyn('volumeClaimPolicies'), 'parent': dyn(''), 'key': dyn('volumeClaimPolicies'),
        'new': has(object.spec.volumeClaimPolicies) ? dyn(object.spec.volumeClaimPolicies) : dyn([]),
        'old': has(oldObject.spec.volumeClaimPolicies) ? dyn(oldObject.spec.volumeClaimPolicies) : dyn([])}]
"""

_LEVEL: Final = """\
    - name: levelNEXT
      expression: >-
        variables.levelLAST.map(d, type(d.new) == list || type(d.new) == map ? size(d.new) : 1).sum() > MAX ?
        variables.levelLAST : variables.levelLAST.map(d,
        [d.new, d.old].all(v, type(v) == list) && size(d.new) == size(d.old) ? lists.range(size(d.new)).map(i, {
        'root': d.root, 'path': dyn(d.path + '[' + string(i) + ']'), 'parent': d.key, 'key': dyn('[]'),
        'new': d.new[i], 'old': d.old[i]}) :
        [d.new, d.old].all(v, type(v) == map || v == null && d.key in variables.structs) ?
        ((type(d.new) == map ? d.new.map(k, k) : []) +
        (type(d.old) == map ? d.old.filter(k, !(type(d.new) == map && k in d.new)) : [])).map(k, {
        'root': d.root, 'path': dyn(d.path + '.' + k), 'parent': d.key, 'key': dyn(k),
        'new': type(d.new) == map && k in d.new ? d.new[k] : null,
        'old': type(d.old) == map && k in d.old ? d.old[k] : null}) :
        [d]).flatten().filter(d, d.new != d.old && !(d.path in variables.free) &&
        ![d.new, d.old].all(v, v == null || v == [] ||
        v == {} && (d.key in variables.structs || d.key in variables.maps) ||
        !(d.parent in variables.maps) && (v == '' && !(d.key in variables.meantEmpty) ||
        (v == 0 || v == false) && d.key in variables.zeros ||
        d.key == 'divisor' && (v == '0' || v == 0))) &&
        !((d.parent in variables.quantityMaps || d.key in variables.quantities) && [d.new, d.old].all(v,
        (type(v) == string || type(v) == int || type(v) == double) && isQuantity(string(v))) &&
        quantity(string(d.new)) == quantity(string(d.old))))
"""

_FOOTER: Final = """\
    - name: changed
      expression: variables.levelLAST
    # Some of them: the cost of sorting them all is their number, squared.
    - name: named
      expression: >-
        variables.changed.slice(0, size(variables.changed) > 3 ? 3 : size(variables.changed))
        .map(d, string(d.root + d.path)).sort()
  validations:
    - expression: size(variables.changed) == 0
      message: >-
        spec.replicatedJobs: field is immutable: only labels, annotations, nodeSelector, tolerations and schedulingGates
        of a pod template may change while the JobSet is suspended, and parallelism with completions at any time; create
        a new JobSet
      messageExpression: >-
        variables.named.join(', ') +
        (size(variables.changed) > 3 ? ' and ' + string(size(variables.changed) - 3) + ' more' : '') +
        (variables.suspended ?
        ': field is immutable, even while suspended: only labels, annotations, nodeSelector, tolerations and ' +
        'schedulingGates of a pod template may change then, and parallelism with completions at any time; create a ' +
        'new JobSet' :
        ': field is immutable while the JobSet is not suspended; create a new JobSet, or set spec.suspend to true ' +
        'first to change labels, annotations, nodeSelector, tolerations and schedulingGates of a pod template; ' +
        'parallelism and completions of Indexed Jobs may change, together')
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: immutable.jobset.x-k8s.io
spec:
  policyName: immutable.jobset.x-k8s.io
  validationActions: [Deny]
"""

_LISTS: Final = {
    "structs": STRUCTS,
    "maps": TEXT_MAPS + QUANTITY_MAPS,
    "quantityMaps": QUANTITY_MAPS,
    "quantities": QUANTITIES,
    "zeros": ZEROS,
    "meantEmpty": MEANT_EMPTY,
    "freeWhileSuspended": WHILE_SUSPENDED,
    "freeAtAnyTime": ANY_TIME,
}


def render() -> str:
    """Return the manifest."""
    lists = "".join(f"    - name: {name}\n      expression: {_quoted(values)}\n" for name, values in _LISTS.items())
    levels = "".join(
        _LEVEL.replace("NEXT", str(level + 1)).replace("LAST", str(level)).replace("MAX", str(FIELDS_MAX))
        for level in range(LEVELS)
    )
    return _HEADER + lists + _PAIRS + levels + _FOOTER.replace("LAST", str(LEVELS))


def _quoted(values: tuple[str, ...]) -> str:
    """Return a list in CEL, folded as YAML folds a long text."""
    words = textwrap.wrap(", ".join(f"'{value}'" for value in values), width=100)
    return "\n        ".join((">-", f"[{words[0]}", *words[1:])) + "]"


def main() -> None:
    """Write the manifest."""
    MANIFEST.write_text(render())


if __name__ == "__main__":
    main()
