"""Build the client with Go types once, as kubelab is built."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from testbed.go_module import GoBuild, GoModule

FOLDER: Final = Path(__file__).parent
SPELLINGS: Final = FOLDER / "spellings.yaml"
TYPED_CLIENT: Final = GoModule(
    name="typedclient",
    directory=FOLDER,
    sources=("go.mod", "go.sum", *sorted(path.name for path in FOLDER.glob("*.go"))),
    # The flags of kubelab: so their common packages are compiled once.
    builds=(GoBuild((".",), ("-trimpath", "-mod=readonly"), {"CGO_ENABLED": "0"}),),
    cost="first time: seconds after kubelab, else a minute",
)


def typed_client() -> Path:
    """Return the program, after building it when it is not cached.

    Raises:
        MissingComponent: Go is absent or too old.
        BuildFailed: the compiler refused; its output went to stderr.
    """
    return TYPED_CLIENT.build() / "typedclient"
