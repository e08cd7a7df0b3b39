"""
Parts of a Job: a value that the API takes, one that it refuses, and words of the refusal.

tests/cluster/test_templates_real.py tries each row on the real kube-apiserver.
"""

from __future__ import annotations

from typing import Any, Final

Row = tuple[str, Any, Any, str]

TERM: Final = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
EXISTS: Final = {"key": "a", "operator": "Exists"}
HTTP: Final = {"httpGet": {"port": 80}}
CLAIM: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def nodes(**one: Any) -> dict[str, Any]:
    """Return a nodeAffinity with one expression."""
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [one]}]}}}


def spread(**fields: Any) -> list[dict[str, Any]]:
    """Return a topologySpreadConstraint."""
    return [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"} | fields]


def host_process(value: bool) -> dict[str, Any]:
    """Return a security context that says whether a container of Windows is a process of its host."""
    return {"windowsOptions": {"hostProcess": value}}


POD: Final[tuple[Row, ...]] = (
    ("dnsPolicy", "Default", "ClusterFirstWithHost", 'dnsPolicy: Unsupported value: "ClusterFirstWithHost": supported'),
    ("dnsPolicy", "", "None", "dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"),
    ("dnsConfig", {"nameservers": ["8.8.8.8", "::1"]}, {"nameservers": ["dns"]}, "must be a valid IP address"),
    ("dnsConfig", {"searches": ["a_b.c.", "."]}, {"searches": ["A"]}, "dnsConfig.searches[0]: Invalid value"),
    ("dnsConfig", {"options": [{"name": "a"}]}, {"options": [{"value": "1"}]}, "dnsConfig.options[0]: Required value"),
    ("nodeSelector", {"example.com/a": ""}, {"<key>": "a"}, 'nodeSelector: Invalid value: "<key>": name part must'),
    ("nodeSelector", {"a": "b"}, {"a": "<accelerator>"}, 'nodeSelector: Invalid value: "<accelerator>": a valid label'),
    ("nodeSelector", {"a": "b"}, {"a": 1}, "cannot unmarshal number into Go struct field PodSpec.spec.template.spec"),
    ("serviceAccountName", "a.b", "A", "serviceAccountName: Invalid value"),
    ("serviceAccount", "a.b", "A", "serviceAccountName: Invalid value"),
    ("nodeName", "a.b", "<node>", "nodeName: Invalid value"),
    ("priorityClassName", "high", "High", "priorityClassName: Invalid value"),
    ("preemptionPolicy", "Never", "never", "preemptionPolicy: Unsupported value"),
    ("runtimeClassName", "a", "", "runtimeClassName: Invalid value"),
    ("hostname", "a", "a.b", 'hostname: Invalid value: "a.b": must not contain dots'),
    ("subdomain", "a", "a_b", "subdomain: Invalid value"),
    ("hostnameOverride", "a.b", "", "hostnameOverride: Invalid value"),
    ("activeDeadlineSeconds", 1, 0, "must be between 1 and 2147483647, inclusive"),
    ("terminationGracePeriodSeconds", 0, "30", "cannot unmarshal string into Go struct field"),
    ("hostAliases", [{"ip": "10.0.0.1"}], [{"ip": "010.0.0.1"}], "hostAliases[0].ip: Invalid value"),
    ("os", {"name": "linux"}, {"name": "darwin"}, "os"),
    ("overhead", {"cpu": "1"}, {"gpu": "1"}, "must be a standard resource"),
    ("readinessGates", [{"conditionType": "a/b"}], [{"conditionType": "<a>"}], "readinessGates[0].conditionType"),
    ("schedulingGates", [{"name": "a/b"}], [{"name": "a"}, {"name": "a"}], 'schedulingGates[1]: Duplicate value: "a"'),
    ("tolerations", [EXISTS], [{"key": "a", "operator": "Exist"}], 'operator: Unsupported value: "Exist"'),
    ("tolerations", [{"operator": "Exists"}], [{"value": "a"}], "operator must be Exists when `key` is empty"),
    ("tolerations", [EXISTS | {"effect": "NoExecute"}], [EXISTS | {"effect": "NoSchedul"}], "effect: Unsupported"),
    ("tolerations", [{"key": "a", "value": "b"}], [EXISTS | {"value": "b"}], "value must be empty when `operator`"),
    ("tolerations", [EXISTS], [EXISTS | {"tolerationSeconds": 1}], "effect must be 'NoExecute'"),
    ("tolerations", [EXISTS], [{"key": "<key>", "operator": "Exists"}], "tolerations[0].key: Invalid value"),
    ("tolerations", [EXISTS], [{"key": "a", "operator": "Gt", "value": "1"}], 'operator: Unsupported value: "Gt"'),
    (
        "imagePullSecrets",
        [{"name": "<a>"}],
        [{"nam": "a"}],
        'unknown field "spec.template.spec.imagePullSecrets[0].nam"',
    ),
    ("affinity", nodes(**EXISTS), nodes(key="a", operator="In"), "values: Required value"),
    ("affinity", nodes(key="a", operator="Gt", values=["1"]), nodes(key="a", operator="in"), "not a valid selector"),
    ("affinity", nodes(**EXISTS), nodes(key="a", operator="In", values=["<a>"]), "values[0]: Invalid value"),
    ("affinity", {"podAffinity": {REQUIRED: [TERM]}}, {"podAffinity": {REQUIRED: [{}]}}, "topologyKey: Required value"),
    (
        "affinity",
        {"podAntiAffinity": {PREFERRED: [{"weight": 1, "podAffinityTerm": TERM}]}},
        {"podAntiAffinity": {PREFERRED: [{"weight": 0, "podAffinityTerm": TERM}]}},
        "weight: Invalid value: 0: must be in the range 1-100",
    ),
    (
        "affinity",
        {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [EXISTS]}}]}},
        {"nodeAffinity": {PREFERRED: [{"weight": 101, "preference": {"matchFields": [EXISTS]}}]}},
        "not a valid field selector key",
    ),
    ("affinity", {"nodeAffinity": {}}, {"nodeAffinity": {REQUIRED: {}}}, "must have at least one node selector term"),
    (
        "affinity",
        {"podAffinity": {REQUIRED: [TERM | {"matchLabelKeys": ["c"]}]}},
        {"podAffinity": {REQUIRED: [{"topologyKey": "a", "matchLabelKeys": ["c"]}]}},
        "matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
    ),
    (
        "affinity",
        {"podAffinity": {REQUIRED: [TERM | {"labelSelector": {"matchExpressions": [EXISTS]}}]}},
        {"podAffinity": {REQUIRED: [TERM | {"labelSelector": {"matchExpressions": [EXISTS | {"values": ["a"]}]}}]}},
        "values: Forbidden: may not be specified when `operator` is 'Exists'",
    ),
    ("topologySpreadConstraints", spread(), spread(maxSkew=0), "maxSkew: Invalid value: 0: must be greater than zero"),
    ("topologySpreadConstraints", spread(), spread(topologyKey=""), "topologyKey: Required value: can not be empty"),
    ("topologySpreadConstraints", spread(), spread(whenUnsatisfiable=""), "whenUnsatisfiable: Unsupported value"),
    ("topologySpreadConstraints", spread(minDomains=1), spread(minDomains=0), "minDomains: Invalid value"),
    ("topologySpreadConstraints", spread(), spread(nodeTaintsPolicy="no"), "nodeTaintsPolicy: Unsupported value"),
    ("topologySpreadConstraints", spread(), spread() * 2, 'Duplicate value: "{zone, DoNotSchedule}"'),
    ("securityContext", {"fsGroup": 0}, {"fsGroup": -1}, "fsGroup: Invalid value: -1: must be between 0"),
    ("securityContext", {"supplementalGroups": [1]}, {"supplementalGroups": [2**31]}, "supplementalGroups[0]"),
    ("securityContext", {"fsGroupChangePolicy": "Always"}, {"fsGroupChangePolicy": "no"}, "fsGroupChangePolicy"),
    ("securityContext", {"seLinuxChangePolicy": "MountOption"}, {"seLinuxChangePolicy": "Mount"}, "Unsupported"),
    ("securityContext", {"sysctls": [{"name": "net.a"}]}, {"sysctls": [{"name": "NET"}]}, "sysctls[0].name: Invalid"),
    (
        "securityContext",
        {"seccompProfile": {"type": "RuntimeDefault"}},
        {"seccompProfile": {}},
        "type is required when",
    ),
    (
        "securityContext",
        {"seccompProfile": {"type": "Localhost", "localhostProfile": "a"}},
        {"seccompProfile": {"type": "Localhost", "localhostProfile": "/a"}},
        'localhostProfile: Invalid value: "/a": must be a relative path',
    ),
    (
        "securityContext",
        {"windowsOptions": {"runAsUserName": "A\\b"}},
        {"windowsOptions": {"runAsUserName": ""}},
        "runAsUserName cannot be an empty string",
    ),
    (
        "securityContext",
        host_process(False),
        host_process(True),
        "hostNetwork must be true if pod contains any hostProcess",
    ),
    (
        "initContainers",
        [{"name": "i", "image": "i:1", "securityContext": host_process(False)}],
        [{"name": "i", "image": "i:1", "securityContext": host_process(True)}],
        "If pod contains any hostProcess containers then all containers must be HostProcess containers",
    ),
    ("hostUsers", False, "no", "cannot unmarshal string into Go struct field PodSpec.spec.template.spec.hostUsers"),
    ("resources", {"requests": {"cpu": "1"}}, {"requests": {"example.com/gpu": "1"}}, "Unsupported value"),
    ("resourceClaims", [{"name": "a", "resourceClaimName": "b"}], [{"name": "a"}], "must specify one of"),
    ("ephemeralContainers", [], [{"name": "e", "image": "e:1"}], "ephemeral containers not allowed in pod template"),
    ("initContainers", [{"name": "i", "image": "i:1"}], [{"name": "t", "image": "i:1"}], 'Duplicate value: "t"'),
    (
        "initContainers",
        [{"name": "i", "image": "i:1"}],
        [{"name": "i", "image": "i:1", "startupProbe": HTTP}],
        "may not",
    ),
    ("containers", [{"name": "a", "image": "a:1"}], [], "containers: Required value"),
    ("setHostnameAsFQDN", True, {}, "cannot unmarshal object into Go struct field"),
)

CONTAINER: Final[tuple[Row, ...]] = (
    ("name", "a-1", "a_1", "containers[0].name: Invalid value"),
    ("image", " ", "", "containers[0].image: Required value"),
    ("imagePullPolicy", "", "always", "imagePullPolicy: Unsupported value"),
    ("terminationMessagePolicy", "File", "file", "terminationMessagePolicy: Unsupported value"),
    ("command", ["a"], "a", "cannot unmarshal string into Go struct field Container.spec.template.spec.containers"),
    ("env", [{"name": "1 -"}], [{"name": "A=B"}], "env[0].name: Invalid value"),
    ("env", [{"name": "A"}], [{"name": "A", "value": 1}], "cannot unmarshal number into Go struct field EnvVar.spec"),
    (
        "env",
        [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}}],
        [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.foo"}}}],
        "error converting fieldPath: field label not supported: metadata.foo",
    ),
    (
        "env",
        [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}}],
        [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}}],
        "only divisor's values 1m and 1 are supported with the cpu resource",
    ),
    (
        "env",
        [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}],
        [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a"}}}],
        "secretKeyRef.key: Required value",
    ),
    (
        "env",
        [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}],
        [{"name": "A", "value": "a", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}],
        "may not be specified when `value` is not empty",
    ),
    (
        "env",
        [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "a", "key": "K"}}}],
        [{"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "../a", "key": "K"}}}],
        "must not contain '..'",
    ),
    ("envFrom", [{"secretRef": {"name": "a"}}], [{"secretRef": {}}], "secretRef.name: Required value"),
    ("envFrom", [{"configMapRef": {"name": "a"}}], [{"prefix": "A_"}], "must specify one of: `configMapRef`"),
    (
        "envFrom",
        [{"configMapRef": {"name": "a"}}],
        [{"configMapRef": {"name": "A"}}],
        "configMapRef.name: Invalid value",
    ),
    ("ports", [{"containerPort": 80}], [{"containerPort": 65536}], "must be between 1 and 65535, inclusive"),
    (
        "ports",
        [{"containerPort": 80, "name": "http"}],
        [{"containerPort": 80, "name": "HTTP"}],
        "ports[0].name: Invalid",
    ),
    ("ports", [{"containerPort": 80}], [{"containerPort": 80, "protocol": "tcp"}], "protocol: Unsupported value"),
    (
        "ports",
        [{"containerPort": 80}],
        [{"containerPort": 80, "hostPort": 8}, {"containerPort": 1, "hostPort": 8}],
        "TCP//8",
    ),
    ("resources", {"limits": {"cpu": "1"}}, {"limits": {"cpu": "1gb"}}, "quantities must match the regular expression"),
    ("resources", {"limits": {"cpu": "1E"}}, {"limits": {"cpu": "1mi"}}, "unable to parse quantity's suffix"),
    ("resources", {"limits": {"a.b/c": 1}}, {"limits": {"a.b/c": "500m"}}, "must be an integer"),
    ("resources", {"limits": {"a.b/c": 1}}, {"limits": {"a.b/c": "1n"}}, "must be an integer"),
    ("resources", {"limits": {"a.b/c": 1}}, {"requests": {"a.b/c": 1}}, "Limit must be set for non overcommitable"),
    (
        "resources",
        {"limits": {"cpu": 1}},
        {"limits": {"cpu": 1}, "requests": {"cpu": 2}},
        "less than or equal to cpu limit",
    ),
    ("resources", {"limits": {"cpu": 1}}, {"limits": {"gpu": 1}}, "must be a standard resource for containers"),
    ("resources", {"limits": {"cpu": 1}}, {"limits": {"hugepages-2Mi": "2Mi"}}, "HugePages require cpu or memory"),
    ("resources", {"limits": {"cpu": 1}}, {"limits": {"cpu": -1}}, "must be greater than or equal to 0"),
    ("resources", {}, {"claims": [{"name": "a"}]}, "must be one of the names in pod.spec.resourceClaims"),
    ("volumeMounts", [{"name": "v", "mountPath": "a"}], [{"name": "w", "mountPath": "/a"}], 'Not found: "w"'),
    ("volumeMounts", [{"name": "v", "mountPath": "/a"}], [{"name": "v"}], "mountPath: Required value"),
    ("volumeMounts", [{"name": "v", "mountPath": "/a"}], [{"name": "v", "mountPath": "/a"}] * 2, "must be unique"),
    (
        "volumeMounts",
        [{"name": "v", "mountPath": "/a", "subPath": "a/b"}],
        [{"name": "v", "mountPath": "/a", "subPath": "/a"}],
        "must be a relative path",
    ),
    (
        "volumeMounts",
        [{"name": "v", "mountPath": "/a", "readOnly": True, "recursiveReadOnly": "Enabled"}],
        [{"name": "v", "mountPath": "/a", "recursiveReadOnly": "Enabled"}],
        "may only be specified when readOnly is true",
    ),
    ("volumeDevices", [], [{"name": "v", "devicePath": "/dev/a"}], "can only use volume source type of"),
    ("livenessProbe", HTTP, {}, "livenessProbe: Required value: must specify a handler type"),
    ("livenessProbe", HTTP, HTTP | {"successThreshold": 2}, "successThreshold: Invalid value: 2: must be 1"),
    (
        "readinessProbe",
        HTTP | {"successThreshold": 2},
        HTTP | {"periodSeconds": -1},
        "must be greater than or equal to 0",
    ),
    ("startupProbe", {"tcpSocket": {"port": "http"}}, {"tcpSocket": {"port": 0}}, "tcpSocket.port: Invalid value: 0"),
    ("startupProbe", {"exec": {"command": ["a"]}}, {"exec": {}}, "exec.command: Required value"),
    (
        "startupProbe",
        {"grpc": {"port": 1}},
        {"grpc": {"port": 1}, "exec": {"command": ["a"]}},
        "more than 1 handler type",
    ),
    ("startupProbe", HTTP, {"httpGet": {"port": 80, "scheme": "http"}}, "scheme: Unsupported value"),
    ("startupProbe", HTTP, {"httpGet": {"port": 80, "httpHeaders": [{"name": "a b"}]}}, "httpHeaders"),
    (
        "lifecycle",
        {"preStop": {"sleep": {"seconds": 30}}},
        {"preStop": {"sleep": {"seconds": 31}}},
        "must be non-negative",
    ),
    ("lifecycle", {"postStart": HTTP}, {"postStart": {}}, "must specify a handler type"),
    ("securityContext", {"runAsUser": 1}, {"runAsUser": -1}, "runAsUser: Invalid value"),
    ("securityContext", {"procMount": "Default"}, {"procMount": "Unmasked"}, "`hostUsers` must be false to use"),
    (
        "securityContext",
        {"privileged": True},
        {"privileged": True, "allowPrivilegeEscalation": False},
        "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
    ),
    (
        "securityContext",
        {"appArmorProfile": {"type": "Unconfined"}},
        {"appArmorProfile": {"type": "Localhost"}},
        "must be set when AppArmor type is Localhost",
    ),
    (
        "resizePolicy",
        [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
        "must be 'NotRequired' when pod `restartPolicy` is 'Never'",
    ),
    ("restartPolicyRules", [], [{}], "must specify restartPolicy when restart rules are used"),
)


def trusted(**fields: Any) -> dict[str, Any]:
    """Return a projected volume with a bundle of trusted certificates."""
    return {"sources": [{"clusterTrustBundle": {"path": "a"} | fields}]}


def certified(**fields: Any) -> dict[str, Any]:
    """Return a projected volume with a certificate of the Pod's own."""
    own = {"signerName": "a.b/c", "keyType": "ED25519", "credentialBundlePath": "a"} | fields
    return {"sources": [{"podCertificate": own}]}


VOLUME: Final[tuple[Row, ...]] = (
    ("emptyDir", {"sizeLimit": "1Gi", "medium": "any"}, {"sizeLimit": "-1"}, "must be a valid resource quantity"),
    ("hostPath", {"path": "/a", "type": ""}, {"path": "/a", "type": "Dir"}, "hostPath"),
    ("hostPath", {"path": "a"}, {"path": "/a/../b"}, "must not contain '..'"),
    ("configMap", {"name": "A"}, {}, "configMap.name: Required value"),
    ("secret", {"secretName": "a", "defaultMode": 0o400}, {"secretName": "a", "defaultMode": 1000}, "0777 (octal)"),
    (
        "secret",
        {"secretName": "a", "items": [{"key": "a", "path": "b/c"}]},
        {"secretName": "a", "items": [{"key": "a", "path": "../b"}]},
        "must not contain '..'",
    ),
    ("projected", {"sources": [{"configMap": {"name": "a"}}]}, {"sources": [{"secret": {}}]}, "name: Required value"),
    ("projected", trusted(name="a"), trusted(), "clusterTrustBundle: Required value: either name or signerName must"),
    (
        "projected",
        trusted(name="a.b:c:d"),
        trusted(name="a/b:c"),
        "ClusterTrustBundle for signerName a/b must be named",
    ),
    (
        "projected",
        trusted(signerName="a.b/c"),
        trusted(name="a", signerName="a.b/c"),
        "only one of name and signerName",
    ),
    ("projected", trusted(name="a"), trusted(name="a", labelSelector={}), "labelSelector must be unset if name is"),
    ("projected", trusted(name="a", path="b/c"), trusted(name="a", path="/c"), "path: Invalid value"),
    ("projected", certified(), certified(signerName="a/c"), "a domain with at least two segments separated by dots"),
    ("projected", certified(), certified(signerName="a.b"), "must be a fully qualified domain and path of the form"),
    ("projected", certified(), certified(keyType="RSA1024"), 'keyType: Unsupported value: "RSA1024"'),
    ("projected", certified(keyPath="b"), certified(keyPath="a"), "conflicting duplicate paths"),
    ("projected", certified(), certified(credentialBundlePath=""), "specify at least one of credentialBundlePath"),
    ("projected", certified(), certified(maxExpirationSeconds=3599), "maxExpirationSeconds must be >= 3600"),
    (
        "projected",
        certified(maxExpirationSeconds=86401),
        certified(signerName="kubernetes.io/a", maxExpirationSeconds=86401),
        "maxExpirationSeconds must be <= 86400",
    ),
    (
        "projected",
        certified(userAnnotations={"A.b/c": "d"}),
        certified(userAnnotations={"c": "d"}),
        "domain-prefixed key",
    ),
    (
        "projected",
        {"sources": [{"serviceAccountToken": {"path": "token"}}]},
        {"sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 599}}]},
        "may not specify a duration less than 10 minutes",
    ),
    (
        "downwardAPI",
        {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}}]},
        {"items": [{"path": "a", "fieldRef": {"fieldPath": "status.podIP"}}]},
        "fieldPath: Unsupported value",
    ),
    ("downwardAPI", {}, {"items": [{"path": "a"}]}, "one of fieldRef and resourceFieldRef is required"),
    ("csi", {"driver": "A.b"}, {"driver": "a_b"}, "csi.driver: Invalid value"),
    ("csi", {"driver": "a"}, {"driver": "a", "nodePublishSecretRef": {}}, "nodePublishSecretRef.name: Required value"),
    ("ephemeral", {"volumeClaimTemplate": {"spec": CLAIM}}, {}, "volumeClaimTemplate: Required value"),
    (
        "ephemeral",
        {"volumeClaimTemplate": {"spec": CLAIM}},
        {"volumeClaimTemplate": {"spec": CLAIM | {"accessModes": ["RWO"]}}},
        'accessModes: Unsupported value: "RWO"',
    ),
    (
        "ephemeral",
        {"volumeClaimTemplate": {"spec": CLAIM}},
        {"volumeClaimTemplate": {"spec": CLAIM, "metadata": {"name": "a"}}},
        "cannot be set",
    ),
    ("image", {"reference": "a"}, {"pullPolicy": "Never"}, "image.reference: Required value"),
    (
        "image",
        {"reference": "a", "pullPolicy": "Never"},
        {"reference": "a", "pullPolicy": "never"},
        "pullPolicy: Unsupported value",
    ),
    ("persistentVolumeClaim", {"claimName": "A"}, {}, "claimName: Required value"),
    ("nfs", {"server": "a", "path": "/a"}, {"server": "a", "path": "a"}, "must be an absolute path"),
    ("awsElasticBlockStore", {"volumeID": "a"}, {"volumeID": "a", "partition": 256}, "partition: Invalid value"),
    ("gcePersistentDisk", {"pdName": "a"}, {}, "pdName: Required value"),
    ("azureFile", {"secretName": "a", "shareName": "b"}, {"secretName": "a"}, "shareName: Required value"),
    (
        "azureDisk",
        {"diskName": "a", "diskURI": "https://b"},
        {"diskName": "a", "diskURI": "b", "kind": "Managed"},
        "diskURI: Unsupported value",
    ),
    ("cephfs", {"monitors": ["a"]}, {}, "monitors: Required value"),
    ("cinder", {"volumeID": "a"}, {"volumeID": "a", "secretRef": {}}, "secretRef.name: Required value"),
    ("fc", {"wwids": ["a"]}, {"targetWWNs": ["a"]}, "lun is required if targetWWNs is specified"),
    ("flexVolume", {"driver": "a"}, {"driver": "a", "options": {"kubernetes.io/a": "b"}}, "namespaces are reserved"),
    ("flocker", {"datasetName": "a"}, {"datasetName": "a/b"}, "must not contain '/'"),
    ("gitRepo", {"repository": "a"}, {"repository": "a", "directory": "/a"}, "must be a relative path"),
    ("glusterfs", {"endpoints": "a", "path": "b"}, {"path": "b"}, "endpoints: Required value"),
    (
        "iscsi",
        {"targetPortal": "a", "iqn": "iqn.2000-01.a.b:c", "lun": 0},
        {"targetPortal": "a", "iqn": "b", "lun": 0},
        "must be valid format starting with iqn, eui, or naa",
    ),
    ("photonPersistentDisk", {"pdID": "a"}, {}, "pdID: Required value"),
    ("portworxVolume", {"volumeID": "a"}, {}, "volumeID: Required value"),
    ("quobyte", {"registry": "a:1", "volume": "b"}, {"registry": "a", "volume": "b"}, "must be a host:port pair"),
    ("rbd", {"monitors": ["a"], "image": "b"}, {"monitors": ["a"]}, "image: Required value"),
    ("scaleIO", {"gateway": "a", "system": "b", "volumeName": "c"}, {"gateway": "a", "system": "b"}, "volumeName"),
    ("storageos", {"volumeName": "a"}, {"volumeName": "a_b"}, "volumeName: Invalid value"),
    ("vsphereVolume", {"volumePath": "a"}, {}, "volumePath: Required value"),
)

INDEXED: Final = {"completionMode": "Indexed", "completions": 3}


def rule(**fields: Any) -> dict[str, Any]:
    """Return the fields of an Indexed Job with a successPolicy of one rule."""
    return INDEXED | {"successPolicy": {"rules": [fields]}}


def failure(**fields: Any) -> dict[str, Any]:
    """Return the fields of a Job with a podFailurePolicy of one rule."""
    return {"podFailurePolicy": {"rules": [{"action": "Ignore"} | fields]}}


READY: Final = {"type": "Ready", "status": "True"}


def scheduling(basic: Any) -> dict[str, Any]:
    """Return a Job's scheduling, a field of Kubernetes 1.37, whose type `basic` has no fields."""
    return {"scheduling": {"schedulingPolicy": {"basic": basic}}}


JOB: Final[tuple[Row, ...]] = (
    ("", {"backoffLimit": 0}, {"backoffLimit": -1}, "spec.backoffLimit: Invalid value: -1"),
    ("", scheduling({}), scheduling(1), "json: cannot unmarshal number into Go struct field"),
    ("", INDEXED, {"completionMode": "indexed"}, "spec.completionMode: Unsupported value"),
    ("", INDEXED, {"completionMode": "Indexed", "parallelism": 1}, "when completion mode is Indexed"),
    ("", INDEXED, INDEXED | {"parallelism": 100_001}, "must be less than or equal to 100000"),
    ("", INDEXED | {"backoffLimitPerIndex": 1}, {"backoffLimitPerIndex": 1}, "requires indexed completion mode"),
    ("", INDEXED, INDEXED | {"maxFailedIndexes": 1}, "backoffLimitPerIndex: Required value"),
    ("", {"managedBy": "a.b/c"}, {"managedBy": "a"}, "must be a domain-prefixed path"),
    (
        "",
        {"podReplacementPolicy": "Failed"},
        {"podReplacementPolicy": "Never"},
        "podReplacementPolicy: Unsupported value",
    ),
    ("", rule(succeededIndexes="0-1"), rule(succeededIndexes="1,0"), "non-increasing order"),
    ("", rule(succeededCount=3), rule(succeededCount=4), "must be less than or equal to 3"),
    ("", rule(succeededCount=1), rule(), "at least one of succeededCount or succeededIndexes"),
    ("", failure(onPodConditions=[READY]), failure(onPodConditions=[READY | {"status": "Yes"}]), "status: Unsupported"),
    (
        "",
        {"parallelism": 2},
        {"parallelism": "2"},
        "cannot unmarshal string into Go struct field JobSpec.spec.parallelism",
    ),
    ("", {"suspend": True}, {"suspended": True}, 'strict decoding error: unknown field "spec.suspended"'),
    ("", {}, {"selector": {"matchLabels": {"a": "b"}}}, "`selector` not auto-generated"),
)

ANNOTATIONS: Final[tuple[Row, ...]] = (
    ("controller.kubernetes.io/pod-deletion-cost", "-10", "+10", "must be a 32bit integer"),
    ("scheduler.alpha.kubernetes.io/tolerations", "[]", '[{"key": "a", "operator": "Exist"}]', 'value: "Exist"'),
    ("kubernetes.io/config.mirror", None, "a", "must set spec.nodeName if mirror pod annotation is set"),
    ("seccomp.security.alpha.kubernetes.io/pod", "runtime/default", "default", "must be a valid seccomp profile"),
    ("container.apparmor.security.beta.kubernetes.io/t", "unconfined", "off", "invalid AppArmor profile name"),
    ("container.apparmor.security.beta.kubernetes.io/u", None, "unconfined", "container not found"),
    ("a b", None, "c", 'spec.template.annotations: Invalid value: "a b"'),
)
