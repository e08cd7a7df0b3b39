"""Say how to start each component: from a folder that the user names, or from kubelab.

KUBEBUILDER_ASSETS is the field's convention (controller-runtime's envtest) for such a folder; whoever has
one needs no Go. It wins over kubelab, whatever its version: the user asked for it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from images.build_once import MissingComponent
from testbed.go_programs import kubelab

SERVERS = ("etcd", "kube-apiserver")
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")


@dataclass(frozen=True, slots=True)
class Binaries:
    """Know how to start a component by its name: one binary for all, or a folder with one for each."""

    path: Path

    def command(self, component: str) -> tuple[str, ...]:
        """Return the first words of the command line that runs `component`.

        Raises:
            MissingComponent: the folder does not hold it.
        """
        if self.path.is_file():
            return (str(self.path), component)
        if not (self.path / component).is_file():
            raise MissingComponent(
                f"expected an executable {self.path / component}, found none. Unset KUBEBUILDER_ASSETS to "
                "build all components from source (needs Go 1.26), or add the missing one to that folder."
            )
        return (str(self.path / component),)


def find_binaries() -> Binaries:
    """Return the components of KUBEBUILDER_ASSETS when that is set, else kubelab, built when not cached.

    Raises:
        MissingComponent: neither is possible here.
        BuildFailed: the compiler refused; its output went to stderr.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets:
        return Binaries(kubelab())
    binaries = Binaries(Path(assets))
    for component in SERVERS:
        binaries.command(component)
    return binaries
