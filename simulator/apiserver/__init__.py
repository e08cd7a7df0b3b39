"""
An embedded Kubernetes API server: good enough to run the real agent, the real controller and kubectl unchanged.

Where clients of this project depend on a behaviour, this server behaves like kube-apiserver 1.37. tests/conformance
checks that: the same cases run against both servers. Other behaviour may differ.

Where it differs from the real one:

* Storage. One process, no etcd. resourceVersions are one counter starting near 1. A crash loses everything. History is
  bounded by count, not time, and paging reads it, so a continue token lives as long as the history window.
* Kinds. The kinds of `builtin_kinds` only. Of those, Pods, Jobs, Services, Namespaces, Leases, claims and CRDs have
  defaults and some validation (each check decides as the real one, many checks are missing); the other kinds are
  stored as they come. Unknown fields of built-in kinds are kept; most wrong types in them are accepted.
* Admission. No webhooks, no MutatingAdmissionPolicy, no quota, no LimitRange, no ServiceAccount admission, no default
  PriorityClass. A
  ValidatingAdmissionPolicy acts at once and knows resource rules, conditions, variables and messages, no parameters,
  selectors or warnings. RBAC objects are stored and not enforced: everybody may do everything. A token is its
  user's name.
* Custom resources. Established at once. Versions convert by apiVersion only. A CRD's new defaults do not reach stored
  objects. CEL runs on a library with format, join and sum of the Kubernetes extensions (a rule that needs another
  extension warns and passes), without cost limits.
* Server-side apply. Ownership is tracked for all writes, but `metadata.managedFields` is shown only on objects that a
  client has applied. Merge keys of built-in kinds go by field name.
* Watch. Bookmarks come at their interval even when there is no news to mark. The cache trails the store only if an
  option says so. A slow watcher is cut off by count of events, not by time, and AFTER the buffered events.
* Priority and fairness. Off unless levels are given; one seat per request, no borrowing, no width estimation.
* Deletion. Evictions ignore disruption budgets. `pods/binding` does not check that the node exists.
* Protocol. JSON and YAML, no protobuf, no CBOR, no HTTP/2, no TLS, no exec/attach/port-forward/proxy, no metrics.
  OpenAPI has no schemas for built-in kinds, so `kubectl explain` does not work for them.
"""

from inplace.simulator.apiserver.apf import PriorityLevel
from inplace.simulator.apiserver.http_front import HttpFront
from inplace.simulator.apiserver.memory import InMemoryTransport
from inplace.simulator.apiserver.options import ApiServerOptions, LogRequest
from inplace.simulator.apiserver.reads import StreamingResponse
from inplace.simulator.apiserver.server import ApiServer
from inplace.simulator.apiserver.store import Store

__all__ = [
    "ApiServer",
    "ApiServerOptions",
    "HttpFront",
    "InMemoryTransport",
    "LogRequest",
    "PriorityLevel",
    "Store",
    "StreamingResponse",
]
