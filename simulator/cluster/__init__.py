"""
Everything of an embedded Kubernetes but its API server: scheduler, Job controller, kubelets, container runtimes.

`components.Components` has scheduler, Job controller and kubelets; `cluster.Cluster` puts them together with an API
server and a runtime, and so does a campaign's `World`. The agent and the controller that run there are the real ones.
Containers are either local processes in real time (`process`) or timed models in real or virtual time (`model`); the
kubelet's decisions are the same code for both.

Where it differs from the real one:

* Notifications. The built-in components learn of writes from the store in the same instant: no watch lag, no
  informer cache, no lost watch. Our agent and controller do use watches.
* Kubelet. A Pod costs a node nothing: no contention, no serial queues, no image pulls, no eviction, no heartbeats;
  a node never becomes unready by itself. Status writes come when something changed, without the real one's
  queueing. Container deaths are seen at the PLEG's tick; the real kubelet needs a second tick in some paths.
  preStop and postStart hooks and ephemeral containers do not exist; a probe by tcpSocket, grpc or HTTPS only connects,
  and one of HTTP goes to the Pod's address whatever its `host` says. Log files are not rotated.
* Pods. envFrom is ignored. A variable from a ConfigMap, a Secret or a resource is empty. configMap, secret and
  downwardAPI volumes are empty folders. An image has no entrypoint here, so `command` must be given.
* Job controller. No finalizers on Pods: memory holds which Pods were counted, and which never will be because a
  suspension or a smaller size deleted them. A back-off counts from the moment of the count. No successPolicy, no TTL,
  no creation rate limit (the real one's default of 20 requests a second makes 1,000 Pods take 50 s).
* Scheduler. First fit by selector, required affinity, taints, declared features and requests. No spread, no scores.
* Local processes. No namespaces and no cgroups: a container sees the machine and its limits are not enforced. A
  mountPath at the start of a word of an argument or environment value is replaced by the volume's folder. A Pod's
  address is in 127.0.0.0/8, and a hosts file (INPLACE_HOSTS_FILE) stands in for DNS. PATH begins with this
  interpreter's folder. Credentials come as KUBECONFIG. They start faster than containers do: no runtime is in between.
* Models. A worker neither computes nor fails when its peers die; it waits to be killed, and starts from its first
  step each time. An agent is the real coroutine, but it shares one process and one interpreter with all the others,
  so CPU contention is not modelled; `timings` lists the modelled delays.
"""
