"""The content of the agent's image: its programs, run from this installation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import inplace

_ROOT: Final = Path(inplace.__file__).parents[1]
_MAIN: Final = "from inplace.agent.main import main\n"
# Python's options beyond -I, and what a program does (images/agent_root.py has the real ones).
_PROGRAMS: Final = {
    "inplace-agent": ("", f"{_MAIN}sys.exit(main())\n"),
    "guard": ("S", f'{_MAIN}sys.argv.insert(1, "guard")\nsys.exit(main())\n'),
    "copy": ("S", "import shutil\nshutil.copytree({image!r}, sys.argv[1], dirs_exist_ok=True)\n"),
}


def make_agent_image(folder: Path) -> None:
    """Fill a new folder."""
    (folder / "bin").mkdir(parents=True)
    for name, (options, body) in _PROGRAMS.items():
        program = folder / "bin" / name
        head = f"#!{sys.executable} -I{options}\nimport sys\nsys.path.insert(0, {str(_ROOT)!r})\n"
        program.write_text(head + body.replace("{image!r}", repr(str(folder))))
        program.chmod(0o755)
