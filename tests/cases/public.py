"""
Print what each tool does with the manifests that JobSet and Kubeflow Trainer publish: `python -m tests.cases.public`.

They are read from the Go modules and copied nowhere. What upstream added later is among the files of `manifests/`.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.go_module import module_folder
from testbed.go_programs import UPSTREAM, UPSTREAM_MODULE, trainer_sources, upstream_sources
from tests.cases.case import COLUMNS, seen, table

REFUSED = dict.fromkeys(("rbac.yaml", "workflow.yaml", "prometheus.yaml"), "expected a JobSet")
REFUSED["batch_v1alpha2_jobset.yaml"] = "expected spec.replicatedJobs with at least one entry"
GOOD = {"clean", "warnings", "changed", "accepted", "restarts"}
LEFT_OUT = {"kustomization.yaml", "jobset_v1alpha1_configuration.yaml"}


def files() -> list[Path]:
    """Return the files; Go downloads what is in no cache."""
    trainer = trainer_sources()
    folders = (
        module_folder(UPSTREAM.directory / "examples", UPSTREAM_MODULE) / "site/static/examples",
        *(trainer / "manifests/base/runtimes", trainer / "examples/flux", upstream_sources() / "config/samples"),
    )
    found = (file for folder in folders for file in sorted(folder.rglob("*.yaml")))
    return [file for file in found if file.name not in LEFT_OUT]


def report() -> tuple[str, list[str]]:
    """Return the table, and what is wrong: each file restarts, or the demo says in one sentence why not."""
    rows, wrong = [["file", *COLUMNS]], list[str]()
    with TemporaryDirectory() as folder:
        for file in files():
            found = seen(file, Path(folder))
            rows.append([file.name, *(one.word for one in found.values())])
            demo = found["demo"]
            says_why = (
                demo.word == "refused" and REFUSED.get(file.name, "?") in demo.text and demo.text.count("\n") == 1
            )
            if not says_why and not {one.word for one in found.values()} <= GOOD:
                wrong.append(f"{file.name}: {found}")
    return table(rows), wrong


if __name__ == "__main__":
    print(*report(), sep="\n")
