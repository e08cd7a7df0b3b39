"""The agent's image as a volume at /inplace, in the images of strangers: what a worker is given stays as it was.

Each root has a worker of another kind in it, and runs as a container does: in a mount and a PID namespace of its own,
with the guard as process 1 and the volume read-only.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

import pytest
import trustme

from images.own_python import libraries_of
from tests.agent.process import environment_in_cluster, finished, process, server_tls
from tests.agent.scripted_server import SYNC_THEN_RESTART, ScriptedServer, jobset
from tests.agent.test_guard import agent_at

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]  # the image's root is made for them

WITNESS: Final = Path(__file__).parent / "witness.c"
EXIT_CODE: Final = 7  # the witness's
PATH: Final = "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# What a container's runtime does; then the command line is the container's.
ENTER: Final = """
mount --bind "$1" "$2/inplace" && mount -o remount,bind,ro "$2/inplace" && mount -t proc proc "$2/proc" || exit 99
root=$2; shift 2; cd /; exec chroot "$root" "$@" 9< /dev/null
"""
UNSHARE: Final = ("unshare", "--mount", "--pid", "--fork", "--kill-child")


def unavailable(reason: str) -> NoReturn:
    """Skip the test; under CI=true fail it instead."""
    if os.environ.get("CI") == "true" and os.geteuid() == 0:
        pytest.fail(f"CI=true, but {reason}", pytrace=False)
    pytest.skip(reason)


def compiled(target: Path, compiler: str, *options: str) -> Path:
    """Return the witness as a program."""
    if shutil.which(compiler) is None:
        unavailable(f"expected {compiler} on PATH, found none: apt-get install gcc libc6-dev musl-tools")
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run((compiler, "-Os", *options, "-o", str(target), str(WITNESS)), check=True)
    return target


def with_files(root: Path, names: dict[str, Path]) -> None:
    """Copy files into a root."""
    for name, path in names.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / name)


def distroless(root: Path) -> list[str]:
    """Make an image of one static program, as one from Go is."""
    compiled(root / "worker", "gcc", "-static")
    return ["/worker"]


def glibc(root: Path) -> list[str]:
    """Make an image of one program and the C library that it links to."""
    program = compiled(root / "worker", "gcc")
    listed = subprocess.run(("ldd", str(program)), capture_output=True, text=True, check=True)
    with_files(root, {str(path)[1:]: path for path in libraries_of(listed.stdout).values()})
    return ["/worker"]


def musl(root: Path) -> list[str]:
    """Make an image with musl as its C library, as Alpine's is."""
    compiled(root / "worker", "musl-gcc")
    loader = f"lib/ld-musl-{platform.machine()}.so.1"
    with_files(root, {loader: Path("/", loader)})
    return ["/worker"]


def busybox_program() -> str:
    """Return where the machine has a static busybox."""
    program = shutil.which("busybox")
    if program is None:
        unavailable("expected a static busybox on PATH, found none: apt-get install busybox-static")
    return program


def busybox(root: Path) -> list[str]:
    """Make an image of busybox alone."""
    with_files(root, {"bin/busybox": Path(busybox_program())})
    show = "tr '\\0' '\\n' < /proc/$$/environ; ls /proc/$$/fd; grep -E 'Sig(Blk|Ign)' /proc/$$/status; exit 7"
    return ["/bin/busybox", "sh", "-c", show.replace("tr ", "busybox tr ").replace("ls ", "busybox ls ")]


ROOTS: Final[dict[str, Callable[[Path], list[str]]]] = {
    each.__name__: each for each in (distroless, glibc, musl, busybox)
}
HOSTILE: Final = {
    "LD_LIBRARY_PATH": "/other",
    "PYTHONHOME": "/other",
    "PYTHONPATH": "/other",
    "PYTHONUTF8": "0",
    "LC_CTYPE": "POSIX",
    "SSL_CERT_FILE": "/other/nothing",
}


class Container:
    """A root with a worker in it, and the agent's image at /inplace."""

    def __init__(self, image: Path, root: Path) -> None:
        if os.geteuid() != 0:
            unavailable("expected root, because a container needs namespaces and mounts")
        self.image, self.root = image, root
        self.first = ":"  # what a shell does in the container's namespaces, before all else
        for name in ("inplace", "proc", "run", "bin"):
            (root / name).mkdir(parents=True, exist_ok=True)

    def words(self, *command: str) -> list[str]:
        """Return the command that runs one in the container."""
        return [*UNSHARE, "sh", "-c", self.first + ENTER, "sh", str(self.image), str(self.root), *command]

    def output(self, *command: str, **environment: str) -> str:
        """Return what a command prints in the container; it ends with the witness's code."""
        done = subprocess.run(
            self.words(*command), env={"PATH": PATH, **environment}, capture_output=True, text=True, check=False
        )
        assert done.returncode == EXIT_CODE, done.stderr
        return done.stdout


@pytest.fixture
def container(root: Path, tmp_path: Path) -> Container:
    """Return a container whose root is empty."""
    return Container(root, tmp_path / "rootfs")


async def guarded(container: Container, command: list[str], **environment: str) -> str:
    """Return what a guarded command prints in the container."""
    return await lifted(container, ["/inplace/bin/guard", "--", *command], **environment)


async def lifted(container: Container, command: list[str], **environment: str) -> str:
    """Return what a command whose first program is a guard, or becomes one, prints in the container."""
    environment = {"PATH": PATH, "LINK_FILE": "/run/link", **environment}
    async with agent_at(container.root / "run" / "link") as agent:
        async with process(environment, *container.words(*command)) as child:
            agent.lift(3)
            async with asyncio.timeout(20):
                output, errors = await child.communicate()
        assert child.returncode == EXIT_CODE, errors.decode()
        assert agent.deaths == [(3, EXIT_CODE)]
    return output.decode()


OWN: Final = {
    "INPLACE_EPOCH=3",
    "INPLACE_RESTART_COUNT=2",
    "INPLACE_PROGRESS_DIR=/run/progress",
    "TORCHELASTIC_ERROR_FILE=/run/progress/.torchelastic.error",
}


INTERNAL: Final = 0b11 << 31
"""Signals 32 and 33. posix_spawn of glibc ignores them, and each C library sets them when it needs them."""


def without_own(said: str) -> list[str]:
    """Return the lines that a guard does not add, without the C library's own signals."""
    lines = (re.sub(r"(?<=SigIgn:\t)\w+", lambda found: f"{int(found[0], 16) & ~INTERNAL:x}", said)).splitlines()
    return sorted(line for line in lines if line.removeprefix("variable ") not in OWN)


@pytest.mark.parametrize("hostile", [False, True], ids=["plain", "hostile"])
@pytest.mark.parametrize("kind", ROOTS)
async def test_a_worker_is_given_what_it_was_given_before(container: Container, kind: str, hostile: bool) -> None:
    """Arguments, environment, descriptors and signals are the same without a guard, whatever its container is made of.

    The guard runs although LD_LIBRARY_PATH names a folder with other libraries, and PYTHONPATH one with other modules.
    """
    command = [*ROOTS[kind](container.root), "one two", "--"]
    environment = {"A": "b c"}
    if hostile:
        environment |= HOSTILE
        other = container.root / "other"
        other.mkdir()
        for path in (container.image / "lib").glob("*.so*"):
            (other / path.name).write_text("no library")
        for name in ("os", "encodings", "site", "sitecustomize", "inplace"):
            (other / f"{name}.py").write_text("raise SystemExit(98)")
        if kind in ("glibc", "musl"):
            environment["LD_LIBRARY_PATH"] = "/inplace/nothing"  # the worker itself would not start
    before = container.output(*command, LINK_FILE="/run/link", **environment)
    after = await guarded(container, command, **environment)
    assert without_own(after) == without_own(before)
    assert "A=b c" in after
    assert re.search("^(descriptor )?9$", after, re.MULTILINE)
    assert {line for each in OWN for line in after.splitlines() if line.endswith(each)}


ENTRYPOINT: Final = {"LD_AUDIT": "/inplace/lib/entrypoint.so", "ENTRYPOINT_GUARD": "/inplace/bin/guard --fail-on 3,4"}
"""What a worker without a command is given."""


@pytest.mark.parametrize("form", ["a path", "a name on PATH"])
async def test_an_entrypoint_of_glibc_gets_a_guard(container: Container, form: str) -> None:
    """Its arguments, environment, descriptors and signals are what they were, and nothing of the loader's is left."""
    (program,) = glibc(container.root)
    if form == "a name on PATH":
        (container.root / "bin" / "worker").symlink_to(program)
        program = "worker"
    command = [program, "one two", "--", ""]
    before = container.output(*command, LINK_FILE="/run/link", A="b c")
    after = await lifted(container, command, A="b c", **ENTRYPOINT)
    assert without_own(after) == without_own(before)
    assert {line for each in OWN for line in after.splitlines() if line.endswith(each)}


@pytest.mark.parametrize("kind", ["distroless", "musl"])
async def test_an_entrypoint_without_glibc_runs_by_itself(container: Container, kind: str) -> None:
    """No loader of glibc's is in its container; the agent then knows by the guard that does not come."""
    command = ROOTS[kind](container.root)
    assert "variable ENTRYPOINT_GUARD=" in container.output(*command, **ENTRYPOINT)


async def test_only_the_first_program_of_a_container_gets_a_guard(container: Container) -> None:
    """A program that somebody executes there later has the variables, too, and runs as it is."""
    (program,) = glibc(container.root)
    with_files(container.root, {"bin/busybox": Path(busybox_program())})
    said = container.output("/bin/busybox", "sh", "-c", f"{program}; exit $?", **ENTRYPOINT)
    assert "variable LD_AUDIT=/inplace/lib/entrypoint.so" in said


@pytest.mark.parametrize("lacks", ["the volume", "the variable"])
async def test_an_entrypoint_runs_by_itself_where_something_is_missing(container: Container, lacks: str) -> None:
    """A guard that cannot be had costs the worker nothing but its guard."""
    command = glibc(container.root)
    environment = dict(ENTRYPOINT)
    if lacks == "the variable":
        del environment["ENTRYPOINT_GUARD"]
    else:
        environment["ENTRYPOINT_GUARD"] = "/inplace/bin/nothing"
    assert "variable LD_AUDIT=" in container.output(*command, **environment)


async def test_an_entrypoint_with_many_arguments_gets_a_guard(container: Container) -> None:
    """As many as Linux takes."""
    (program,) = glibc(container.root)
    words = ["x" * 1000] * 1000
    assert (await lifted(container, [program, *words], **ENTRYPOINT)).count("argument xxx") == 1000


def linked_copy(root: Path, target: Path) -> Path:
    """Return a copy of a root to which folders can be added; its files are the same."""
    subprocess.run(("cp", "-al", str(root), str(target)), check=True)
    return target


async def test_a_worker_finds_its_own_python(container: Container) -> None:
    """A worker that is another Python has its own library and modules; nothing of /inplace is on its paths."""
    python = Path("/usr/bin/python3")
    if not python.exists():
        unavailable("expected Debian's python3, found none")
    root = container.root
    (root / "usr").mkdir()
    for name in ("bin", "lib", "lib64"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).symlink_to(f"usr/{name}")
    (root / "modules").mkdir()
    (root / "modules" / "mine.py").write_text("import sys; print(sys.prefix, *sys.path, sep='\\n'); sys.exit(7)\n")
    container.first = 'mount --rbind /usr "$2/usr" || exit 99'
    environment = {"PYTHONPATH": "/modules", "LD_LIBRARY_PATH": "/modules"}
    command = ["/usr/bin/python3", "-m", "mine"]
    before = container.output(*command, **environment)
    after = await guarded(container, command, **environment)
    assert after == before
    assert "/inplace" not in after


async def test_the_image_runs_the_agent_by_itself(root: Path, tmp_path: Path) -> None:
    """In a container of the image alone the agent speaks TLS, announces, and ends with the restart's code."""
    if os.geteuid() != 0:
        unavailable("expected root, because a container needs namespaces and mounts")
    rootfs = linked_copy(root, tmp_path / "rootfs")
    (rootfs / "run").mkdir()
    authority = trustme.CA()
    async with ScriptedServer(lists=[jobset(0)], watches=[SYNC_THEN_RESTART], tls=server_tls(authority)) as server:
        env = environment_in_cluster(rootfs / "run", server, authority) | {"INPLACE_SERVICE_ACCOUNT_DIR": "/run"}
        env = env | {"PATH": PATH, "RESTART_POD_IN_PLACE_EXIT_CODE": "77"}
        async with process(env, "chroot", str(rootfs), "/inplace/bin/inplace-agent") as child:
            code, lines = await finished(child)
    assert code == 77, lines
    assert [request.method for request in server.received] == ["GET", "PATCH", "GET"]


async def test_an_init_container_copies_the_image(root: Path, container: Container) -> None:
    """Where there is no image volume, `copy` of the image's container fills one, and a guard runs from it."""
    rootfs, volume = linked_copy(root, container.root.parent / "agent"), container.root.parent / "volume"
    for folder in (volume, rootfs / "copy", rootfs / "proc"):
        folder.mkdir()
    inside = 'mount --bind "$1" "$2/copy" && exec chroot "$2" /inplace/bin/copy /copy'
    copy = (*UNSHARE, "sh", "-c", inside, "sh", str(volume), str(rootfs))
    for _ in range(2):  # an init container runs again at every restart
        async with process({"PATH": PATH}, *copy) as child:
            assert await child.wait() == 0
    container.image = volume
    assert "variable INPLACE_EPOCH=3" in await guarded(container, distroless(container.root))
