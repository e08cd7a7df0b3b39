"""
Build Kueue and Kubeflow Trainer once, as kubelab is built.

Usage: python -m testbed.clients.build      (prints the path of each program)
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Final

from testbed.go_module import MOD_FLAGS, MOD_SOURCES, GoBuild, GoModule, Replacement, module_folder, print_made

FOLDER: Final = Path(__file__).parent
FLAGS: Final = ("-trimpath", "-mod=readonly", *MOD_FLAGS, "-ldflags=-s -w")
ENVIRONMENT: Final = {"CGO_ENABLED": "0"}

KUEUE_MODULE: Final = "sigs.k8s.io/kueue"
TRAINER_MODULE: Final = "github.com/kubeflow/trainer/v2"

METRICS_FOLDER: Final = "metrics-certificate-here"
"""Where this Kueue looks for its metrics certificate, in its working directory; its own folder is one of /etc."""

KUEUE: Final = GoModule(
    name="kueue",
    directory=FOLDER / "kueue",
    sources=MOD_SOURCES,
    builds=(GoBuild((f"{KUEUE_MODULE}/cmd/kueue",), FLAGS, ENVIRONMENT),),
    cost="first time: 4 minutes of CPU",
    replacements=(Replacement("kueue", "/etc/kueue/metrics/certs", METRICS_FOLDER),),
)

TRAINER: Final = GoModule(
    name="trainer",
    directory=FOLDER / "trainer",
    sources=MOD_SOURCES,
    builds=(GoBuild((f"{TRAINER_MODULE}/cmd/trainer-controller-manager",), FLAGS, ENVIRONMENT),),
    cost="first time: 90 seconds of CPU after Kueue",
)


def kueue() -> Path:
    """Return Kueue's program, after building it when it is not cached."""
    return KUEUE.build() / "kueue"


def trainer() -> Path:
    """Return Trainer's program, after building it when it is not cached."""
    return TRAINER.build() / "trainer-controller-manager"


def kueue_sources() -> Path:
    """Return the folder of Kueue's module."""
    return module_folder(KUEUE.directory, KUEUE_MODULE, MOD_FLAGS)


@cache
def trainer_sources() -> Path:
    """Return the folder of Trainer's module."""
    return module_folder(TRAINER.directory, TRAINER_MODULE, MOD_FLAGS)


if __name__ == "__main__":
    sys.exit(print_made("clients", kueue, trainer))
