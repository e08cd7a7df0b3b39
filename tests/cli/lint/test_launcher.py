"""`inplace lint` warns of a torchrun that restarts workers by itself beside an agent."""

from __future__ import annotations

import pytest

from tests.cli.injecting import documents_of, findings_of
from tests.cli.lint.cases import worker

COMMAND = ".command"
WAITING = "import inplace, torch.distributed.run as launcher; inplace.ready(); launcher.main()"  # docs/worker.md
VARIABLE = '.env[name="PET_MAX_RESTARTS"]'
CASES = [  # torchrun's words, variables, the end of the finding's path, restarts
    (["torchrun", "--max-restarts=3", "train.py"], {}, COMMAND, 3),
    (["torchrun", "--max-restarts", "3", "train.py"], {}, COMMAND, 3),
    (["/opt/venv/bin/torchrun", "--max_restarts=3", "train.py"], {}, COMMAND, 3),
    (["python3", "-m", "torch.distributed.run", "--max_restarts", "2", "-m", "train"], {}, COMMAND, 2),
    (["sh", "-c", "cd /x && exec torchrun --nnodes=2 \\\n --max-restarts 3 train.py"], {}, COMMAND, 3),
    (["bash", "-c", 'torchrun --max-restarts="$N" train.py'], {"N": "4"}, COMMAND, 4),
    (["torchrun", "--max-restarts=$(N)", "train.py"], {"N": "4"}, COMMAND, 4),
    (["python3", "-c", WAITING, "--max-restarts=3", "train.py"], {}, COMMAND, 3),
    (["python3", "-c", WAITING, "--nnodes=4", "train.py", "--max-restarts=3"], {}, "", 0),
    (["torchrun", "--max-rest=1", "train.py"], {}, COMMAND, 1),
    (["torchrun", "--max-restarts=0", "--max-restarts=5", "train.py"], {}, COMMAND, 5),
    (["torchrun", "train.py"], {"PET_MAX_RESTARTS": "3"}, VARIABLE, 3),
    (["torchrun", "--max-restarts=0", "train.py"], {"PET_MAX_RESTARTS": "3"}, "", 0),
    (["torchrun", "--max-restarts=0", "train.py"], {}, "", 0),
    (["torchrun", "train.py"], {}, "", 0),
    (["torchrun", "train.py", "--max-restarts=3"], {}, "", 0),
    (["torchrun", "-m", "train", "--max-restarts=3"], {}, "", 0),
    (["torchrun", "--no-python", "./train.sh", "--max-restarts=3"], {}, "", 0),
    (["torchrun", "--max-restarts=3", "--no_python", "./train.sh"], {}, COMMAND, 3),
    (["torchrun", "--max-restarts"], {}, "", 0),
    (["torchrun", "--max-restarts=many", "train.py"], {}, "", 0),
    (["python3", "train.py", "--max-restarts=3"], {"PET_MAX_RESTARTS": "3"}, "", 0),
]


@pytest.mark.parametrize("manifest", ["train-supervisor.yaml", "train.yaml"])
@pytest.mark.parametrize(("words", "variables", "path", "restarts"), CASES, ids=range(len(CASES)))
def test_a_torchrun_that_restarts_is_a_warning(
    manifest: str, words: list[str], variables: dict[str, str], path: str, restarts: int
) -> None:
    """Each spelling of the option is found, in command, args or a shell's text; the script's own options are not."""
    documents = documents_of(manifest)
    container = worker(documents[-1])
    place = container["command"].index("--") + 1
    container["command"], container["args"] = container["command"][:place], words
    container["env"] += [{"name": name, "value": value} for name, value in variables.items()]

    found = findings_of(*documents)

    assert [(one.rule, one.found) for one in found] == (
        [("torchrun-restarts", f"torchrun --max-restarts={restarts}")] if restarts else []
    )
    assert all(one.path.endswith(path) for one in found)
