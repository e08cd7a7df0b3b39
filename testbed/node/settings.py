"""Spell the configuration of containerd, CNI and kubelet; pure, so that every choice can be read in one place.

What differs from a production node, and why: cgroups are version 1 and ours are below a path of the test run; nothing
is evicted and no image collected, because the test machine's disk is not the node's; no NAT and no iptables, because
the Pods' addresses are routed; images come from files and are never pulled.

TUNED names what else is set otherwise than by default, as the owner of any node could: it costs CPU that group restarts
want, and 16 Pods that restart on two cores are bound by CPU.
"""

import json
import os
from pathlib import Path
from typing import Any

from testbed.node import names

PAUSE = "docker.io/inplace/pause:1"
SOCKET = "/run/containerd/containerd.sock"

TUNED = {
    "containerd: no_sync": "its database does not wait for the disk; after a power cut a node like this is made anew",
    "containerd: stats_collect_period 10s": "looks at each container's cgroups less often than every second",
    "containerd, kubelet: GOGC=400": "collect garbage less often, for some 100 MB",
}

OWN_FOLDERS = ("/var/lib", "/var/log")
"""What programs of a node write to by default; each node sees its own there."""


def environment(programs: Path) -> tuple[str, ...]:
    """Return the first words of a program's command line.

    Containerd looks for its shim on PATH, and the machine's own, of another version, does not understand it.
    """
    return "env", "GOGC=400", f"PATH={programs}{os.pathsep}{os.environ['PATH']}"


def containerd(programs: Path, folder: Path) -> str:
    """Return containerd's configuration (version 3, containerd 2)."""
    return f"""
version = 3
[plugins.'io.containerd.internal.v1.opt']
  path = '{folder}/opt'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '{folder}/registries'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{PAUSE}'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true # a sandbox may not lower it
  stats_collect_period = '10s'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '{programs}/runc'
  SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['{programs}']
  conf_dir = '{folder}/cni'
  use_internal_loopback = true
[plugins.'io.containerd.metadata.v1.bolt']
  no_sync = true
[plugins.'io.containerd.nri.v1.nri']
  disable = true
"""


def cni(pod_cidr: str) -> str:
    """Return the one network: a bridge in the node's namespace, addresses counted upwards."""
    return json.dumps(
        {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": pod_cidr}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
    )


def kubelet(folder: Path, cgroup: str, client_ca: Path, dns: str) -> str:
    """Return kubelet's configuration; JSON is YAML."""
    never: dict[str, str] = dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available"), "0%")
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(client_ca)}},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "clusterDNS": [dns],
        "clusterDomain": names.DOMAIN,
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "enforceNodeAllocatable": [],
        "evictionHard": never | {"nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": str(folder / "resolv.conf"),
        "volumePluginDir": str(folder / "volume-plugins"),
    }
    return json.dumps(config, indent=2)


def tunables() -> dict[str, str]:
    """Return the kernel settings that kubelet insists on; files with these values hide the machine's own from it."""
    return {
        "kernel/keys/root_maxbytes": "25000000",
        "kernel/keys/root_maxkeys": "1000000",
        "kernel/panic": "10",
        "kernel/panic_on_oops": "1",
        "vm/overcommit_memory": "1",
        "vm/panic_on_oom": "0",
    }
