"""
Write the policy that keeps templates as they are: `python -m deploy.immutable`.

A client with Go types writes back another spelling of what it read: `resources: {}`, `creationTimestamp: null`, nothing
for `args: []`, `cpu: "1"` for `cpu: 1000m`. So templates are compared as the API's own types would compare them, field
by field (docs/adr/0012). CEL has no recursion: each level of a template has the same expression, one inside the other,
which this program writes. Only what differs literally goes down a level, so an update that leaves templates alone costs
nothing. Functions that Kubernetes 1.30 lacks, such as flatten, are not used.

Source of the names: k8s.io/api core/v1 and batch/v1 at v0.36.3; tests/cluster/typedclient derives them again.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final

MANIFEST: Final = Path(__file__).parent / "admission" / "immutable.yaml"

LEVELS: Final = 14
"""How deep a template can differ only in spelling; the deepest of today's fields stands at 13."""

FEW: Final = 100
ITEMS_MAX: Final = 1000
"""Items of a list that differs in spelling. A longer one counts as changed: CEL 1.30 has no numbers for its items, so
that the policy makes them of digits, two for the numbers up to FEW, three for all."""

NAME_CHARACTERS_MAX: Final = 100
"""Of a field's name in a path, which grows by it on each level."""

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

FILLED_IN: Final = {
    "[].protocol": "TCP",
    "iscsi.iscsiInterface": "default",
    "rbd.keyring": "/etc/ceph/keyring",
    "rbd.pool": "rbd",
    "rbd.user": "admin",
    "scaleIO.fsType": "xfs",
    "scaleIO.storageMode": "ThinProvisioned",
}
"""Texts that the CRD fills in where a Go type wrote nothing for "": a "" that was stored means the same."""

WHILE_SUSPENDED: Final = (
    "template.spec.template.metadata.labels",
    "template.spec.template.metadata.annotations",
    "template.spec.template.spec.nodeSelector",
    "template.spec.template.spec.tolerations",
    "template.spec.template.spec.schedulingGates",
    *(
        f"template.spec.template.spec.{containers}.[].resources.{amounts}"
        for containers in ("containers", "initContainers")
        for amounts in ("limits", "requests")
    ),
)
"""Fields that a queue sets before it admits a JobSet; a container is the same one in its place and with its name."""

ANY_TIME: Final = ("template.spec.parallelism", "template.spec.completions")
"""The size of Indexed Jobs: its rules are the CRD's."""

_HEADER: Final = """\
# Made by `python -m deploy.immutable`, which says why.
#
# What a JobSet cannot change: its Job templates and claim templates, compared as the API's Go types would, so that
# another spelling of the same is no change. The fields that the CRD's schema names are compared by the CRD.
#
# Needs Kubernetes 1.30. Status writes are not matched, and an update that leaves the spec alone is let through: an
# object older than this policy can be labelled, finished and deleted.
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

_ROOTS: Final = """\
    - name: suspended
      expression: "[object, oldObject].exists(o, has(o.spec.suspend) && o.spec.suspend)"
    - name: olds
      expression: "has(oldObject.spec.replicatedJobs) ? oldObject.spec.replicatedJobs : []"
    # Pairs of what is there and what was there. `parent` and `key` say which field it is, "[]" an item of a list;
    # `path` is the way from the pair above, after a line feed.
    - name: roots
      expression: >-
        (has(object.spec.replicatedJobs) ? object.spec.replicatedJobs : []).filter(j,
        variables.olds.exists(o, o.name == j.name && o.template != j.template)).map(j, {
        'key': dyn('template'), 'parent': dyn(''),
        'path': dyn('\\nspec.replicatedJobs[name="' + j.name + '"].template'),
        'new': dyn(j.template), 'old': dyn(variables.olds.filter(o, o.name == j.name)[0].template)}) + [{
        'key': dyn('volumeClaimPolicies'), 'parent': dyn('spec'), 'path': dyn('\\nspec.volumeClaimPolicies'),
        'new': has(object.spec.volumeClaimPolicies) ? dyn(object.spec.volumeClaimPolicies) : dyn([]),
        'old': has(oldObject.spec.volumeClaimPolicies) ? dyn(oldObject.spec.volumeClaimPolicies) : dyn([])}]
    - name: none
      expression: dyn({})
    - name: nothing
      expression: "[dyn(null), dyn([])]"
    - name: zero
      expression: "[dyn(0), dyn(false)]"
    - name: noDivisor
      expression: "[dyn(0), dyn('0')]"
    # Numbers of a list's items, made of digits.
    - name: digits
      expression: "['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']"
    - name: few
      expression: >-
        variables.digits.map(a, variables.digits.map(b, a + b).join(' ')).join(' ').split(' ').map(n, int(n))
    - name: many
      expression: >-
        variables.digits.map(a, variables.digits.map(b, variables.digits.map(c, a + b + c).join(' ')).join(' '))
        .join(' ').split(' ').map(n, int(n))
    # The paths of what changed, each after a line feed. Of two lists or maps the items or fields that differ are
    # compared, for each level inside the one above; any others are equal when both are empty, or equal quantities.
    - name: changed
      expression: >-
        variables.roots.map(p0, (
"""

_LEVEL: Final = Template("""\
        type($pair.new) == map && type($pair.old) == map || type($pair.new) == list && type($pair.old) == list &&
        size($pair.new) == size($pair.old) && size($pair.new) <= $items_max ? (type($pair.new) == map ?
        $pair.new.map(k, k) + $pair.old.filter(k, !(k in $pair.new)) :
        (size($pair.new) <= $few ? variables.few : variables.many).filter(k, k < size($pair.new))).map(k,
        $free(type($pair.new) == map && !(k in $pair.new && k in $pair.old) || $pair.new[k] != $pair.old[k]),
        type($pair.new) == map ? {'key': dyn(k), 'parent': $pair.key,
        'new': k in $pair.new && $pair.new[k] != null ? $pair.new[k] : k in variables.structs ? variables.none : null,
        'old': k in $pair.old && $pair.old[k] != null ? $pair.old[k] : k in variables.structs ? variables.none : null,
        'path': dyn('\\n.' + (size(k) > $name_max ? k.substring(0, $name_max) : k).replace('\\n', ' '))} : {
        'key': dyn('[]'), 'parent': $pair.key, 'path': dyn('\\n[' + string(k) + ']'),
        'new': $pair.new[k] != null ? $pair.new[k] : variables.none,
        'old': $pair.old[k] != null ? $pair.old[k] : variables.none}).map($next, (
        $deeper
        ).replace('\\n', $next.path)).join('') :
        [$pair.new, $pair.old].all(v, v in variables.nothing ||
        $pair.parent + '.' + $pair.key in variables.filledIn &&
        v in ['', variables.filledIn[$pair.parent + '.' + $pair.key]] ||
        v == variables.none && $pair.key in variables.mayBeEmpty ||
        !($pair.parent in variables.maps) && (v == '' && !($pair.key in variables.meantEmpty) ||
        $pair.key in variables.zeros && v in variables.zero || $pair.key == 'divisor' && v in variables.noDivisor)) ||
        ($pair.parent in variables.quantityMaps || $pair.key in variables.quantities) && [$pair.new, $pair.old].all(v,
        (type(v) == string || type(v) == int || type(v) == double) && isQuantity(string(v))) &&
        quantity(string($pair.new)) == quantity(string($pair.old)) ? '' : '\\n'
""")

_FOOTER: Final = """\
        ).replace('\\n', p0.path)).join('')
    # Three of them, in their order.
    - name: paths
      expression: variables.changed.split('\\n').filter(path, path != '')
    - name: first
      expression: "size(variables.paths) < 1 ? '' : variables.paths.min()"
    - name: second
      expression: "size(variables.paths) < 2 ? '' : variables.paths.filter(path, path > variables.first).min()"
    - name: third
      expression: "size(variables.paths) < 3 ? '' : variables.paths.filter(path, path > variables.second).min()"
  validations:
    - expression: variables.changed == ''
      message: >-
        spec.replicatedJobs: field is immutable: only labels, annotations, nodeSelector, tolerations and schedulingGates
        of a pod template, and requests and limits of its containers, may change while the JobSet is suspended, and
        parallelism with completions at any time; create a new JobSet
      messageExpression: >-
        [variables.first, variables.second, variables.third].filter(path, path != '').join(', ') +
        (size(variables.paths) > 3 ? ' and ' + string(size(variables.paths) - 3) + ' more' : '') +
        (variables.suspended ?
        ': field is immutable, even while suspended: only labels, annotations, nodeSelector, tolerations and ' +
        'schedulingGates of a pod template, and requests and limits of its containers, may change then, and ' +
        'parallelism with completions at any time; create a new JobSet' :
        ': field is immutable while the JobSet is not suspended; create a new JobSet, or set spec.suspend to true ' +
        'first to change labels, annotations, nodeSelector, tolerations and schedulingGates of a pod template, or ' +
        'requests and limits of its containers; parallelism and completions of Indexed Jobs may change, together')
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: immutable.jobset.x-k8s.io
spec:
  policyName: immutable.jobset.x-k8s.io
  validationActions: [Deny]
"""

_LISTS: Final[Mapping[str, Sequence[str]]] = {
    "structs": STRUCTS,
    "mayBeEmpty": STRUCTS + TEXT_MAPS + QUANTITY_MAPS,
    "maps": TEXT_MAPS + QUANTITY_MAPS,
    "quantityMaps": QUANTITY_MAPS,
    "quantities": QUANTITIES,
    "zeros": ZEROS,
    "meantEmpty": MEANT_EMPTY,
}


def render() -> str:
    """Return the manifest."""
    return _HEADER + _variables(_LISTS) + _filled_in() + _ROOTS + _compared(0) + _FOOTER


def _filled_in() -> str:
    """Return the variable that is a map."""
    pairs = ",\n        ".join(f"{name!r}: {value!r}" for name, value in FILLED_IN.items())
    return f"    - name: filledIn\n      expression: >-\n        {{{pairs}}}\n"


def _variables(lists: Mapping[str, Sequence[str]]) -> str:
    """Return variables that are lists."""
    return "".join(f"    - name: {name}\n      expression: {_quoted(values)}\n" for name, values in lists.items())


def _compared(level: int) -> str:
    """Return the comparison of a level's pair, and in it those of all below."""
    if level == LEVELS:
        return "        '\\n'\n"
    pair = f"p{level}"
    return _LEVEL.substitute(
        pair=pair,
        next=f"p{level + 1}",
        few=FEW,
        items_max=ITEMS_MAX,
        name_max=NAME_CHARACTERS_MAX,
        free=_free(level, pair),
        deeper=_compared(level + 1).strip(),
    )


def _free(level: int, pair: str) -> str:
    """Return what leaves out, of the fields of a level's pair, those that may change.

    A list's item does not name its list, so the pair above says which list it is.
    """
    found = ""
    for paths, when in ((ANY_TIME, ""), (WHILE_SUSPENDED, "variables.suspended && ")):
        fields: dict[tuple[str, str], tuple[dict[str, None], dict[str, None]]] = {}
        for path in paths:
            *above, around, key, name = path.split(".")
            if len(above) + 1 == level:
                names, lists = fields.setdefault((around, key), ({}, {}))
                names[f"'{name}'"] = None
                if around == "[]":
                    lists[f"'{above[-1]}'"] = None
        for (around, key), (names, lists) in fields.items():
            here = f"{pair}.parent == '{around}' && {pair}.key == '{key}'"
            if lists:
                here += f" &&\n        p{level - 1}.parent in [{', '.join(lists)}]"
            found += f"!({when}{here} &&\n        k in [{', '.join(names)}]) && "
    return found


def _quoted(values: Sequence[str]) -> str:
    """Return a list in CEL, folded as YAML folds a long text."""
    words = textwrap.wrap(", ".join(map(repr, values)), width=100)
    return "\n        ".join((">-", f"[{words[0]}", *words[1:])) + "]"


def main() -> None:
    """Write the manifest."""
    MANIFEST.write_text(render())


if __name__ == "__main__":
    main()
