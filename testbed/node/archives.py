"""Build what the node runs, once per change of its sources: our two images, a worker's, JAX's, and the pause image.

Each is a file that containerd imports. The storage of buildah is in the cache, so nothing of the machine's own is
touched. The sources are the files that git knows or could know: what is ignored is not part of an image.
"""

import hashlib
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from images import debian
from images.build import REPOSITORY, TARGETS, Buildah, build_debian_bases, build_image
from images.build_once import MissingComponent, build_once, cache_dir, run_nicely
from images.own_python import libraries_of
from testbed.frameworks.venv import environment
from testbed.go_programs import AGENT, UPSTREAM
from testbed.node import host, settings

WORKER_IMAGE = "inplace-lab-worker"
JAX_IMAGE = "inplace-jax-example"
UPSTREAM_AGENT_IMAGE = "inplace-lab-upstream-agent"
BUSYBOX_IMAGE = "inplace-lab-busybox"
MUSL_IMAGE = "inplace-lab-musl"
GLIBC_IMAGE = "inplace-lab-glibc"
_WORKER_TAG = f"localhost/{WORKER_IMAGE}"
_HERE = Path(__file__).parent
_SOURCES = (
    "Containerfile",
    ".containerignore",
    "LICENSE",
    "requirements.lock",
    "agent",
    "common",
    "controller",
    "examples",
    "images/*.py",
    "images/*.c",
    "inplace/*.py",
    "inplace/integrations/*.py",
    "testbed/frameworks/jax.lock",
)
_LOCAL_SOURCES = ("archives.py", "pause", "worker")


def build() -> list[Path]:
    """
    Return the archives, after building them when the sources changed.

    Raises:
        MissingComponent: a tool is not here.
        BuildFailed: what the tool said went to stderr.
    """
    folder = build_once(cache_dir() / "images" / _digest() / "archives", _make)
    return sorted(folder.glob("*.tar"))


def build_jax() -> Path:
    """
    Return the archive of the image that examples/jax.yaml names, from examples/Containerfile.

    It has 170 MB, and a node unpacks 0.6 GB: only who needs it loads it.

    Raises:
        MissingComponent: a tool is not here.
        BuildFailed: what the tool said went to stderr.
    """
    return build_once(cache_dir() / "images" / _digest() / "jax", _make_jax) / "jax.tar"


def torch_packages() -> Path:
    """
    Return the folder of PyTorch's packages, after installing them when they are not cached.

    They are mounted into the image that has JAX. An image with PyTorch takes 1.4 GB more, anew for each change of our
    sources, and each node unpacks it; a mount takes nothing.

    Raises:
        MissingComponent: the disk or the compiler is missing, or this Python is not the version that the image has.
        BuildFailed: pip failed; what it said went to stderr.
    """
    _, python = debian.roots()
    (library,) = (python / "usr/lib").glob("python3.*")
    folder = environment("torch")
    packages = folder / "lib" / library.name / "site-packages"
    if not packages.is_dir():
        seen = ", ".join(path.name for path in folder.glob("lib/python3.*"))
        raise MissingComponent(f"torch is left out on nodes: expected {library.name} as in our images, saw {seen}")
    return packages


def build_upstream_agent() -> Path:
    """
    Return the archive of upstream's in-place agent: its program and nothing else, as in upstream's own image.

    Raises:
        MissingComponent: a tool is not here.
        BuildFailed: what the tool said went to stderr.
    """
    folder = cache_dir() / "images" / f"upstream-{UPSTREAM.build().parent.name}" / "archive"
    return build_once(folder, _make_upstream_agent) / "upstream-agent.tar"


def _digest() -> str:
    local = tuple(str(_HERE.relative_to(REPOSITORY) / name) for name in _LOCAL_SOURCES)
    words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *_SOURCES, *local)
    names = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split("\0")
    digest = hashlib.sha256(f"{debian.SUITE} {debian.PACKAGES} {debian.REVISION}".encode())
    for name in sorted(set(filter(None, names))):
        path = REPOSITORY / name
        if path.exists():
            digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _make(folder: Path) -> None:
    print("images: building the agent's, the controller's, a worker's and pause", file=sys.stderr, flush=True)
    buildah = _buildah()
    bases = build_debian_bases(buildah)
    for target in TARGETS:
        tag = build_image(buildah, target, bases)
        buildah.archive(tag, _whole(f"inplace-{target}"), folder / f"{target}.tar")
    containerfile = _HERE / "worker/Containerfile"
    buildah.build(_WORKER_TAG, context=REPOSITORY, containerfile=containerfile, arguments=bases.arguments())
    buildah.archive(_WORKER_TAG, _whole(WORKER_IMAGE), folder / "worker.tar")
    _make_pause(buildah, folder)
    _make_strangers(buildah, folder)


def _make_jax(folder: Path) -> None:
    print("images: building JAX's", file=sys.stderr, flush=True)
    buildah = _buildah()
    bases = build_debian_bases(buildah)
    build_image(buildah, "agent", bases)
    containerfile = REPOSITORY / "examples" / "Containerfile"
    tag = f"localhost/{JAX_IMAGE}"
    buildah.build(tag, context=REPOSITORY, containerfile=containerfile, arguments=bases.arguments())
    # zstd takes a tenth of gzip's time.
    buildah.archive(tag, _whole(JAX_IMAGE), folder / "jax.tar", compression="zstd")


def _make_upstream_agent(folder: Path) -> None:
    buildah, tag = _buildah(), f"localhost/{UPSTREAM_AGENT_IMAGE}"
    with tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch)
        shutil.copy(UPSTREAM.build() / AGENT, context)
        containerfile = context / "Containerfile"
        containerfile.write_text(f'FROM scratch\nCOPY {AGENT} /\nUSER 65532:65532\nENTRYPOINT ["/{AGENT}"]\n')
        buildah.build(tag, context=context, containerfile=containerfile)
    buildah.archive(tag, _whole(UPSTREAM_AGENT_IMAGE), folder / "upstream-agent.tar")


def _buildah() -> Buildah:
    """
    Return a storage of images in the cache.

    Raises:
        MissingComponent: a tool is not here.
    """
    host.check()
    storage = cache_dir() / "buildah"
    flags = ("--storage-driver=overlay", f"--root={storage}/root", f"--runroot={storage}/run")
    return Buildah(flags, private_mounts=True)


def _make_pause(buildah: Buildah, folder: Path) -> None:
    """Compile pause and make it an image; nothing else is in it."""
    context = folder / "pause"
    context.mkdir()
    source = _HERE / "pause" / "pause.c"
    run_nicely(("gcc", "-Os", "-static", "-o", str(context / "pause"), str(source)), directory=context)
    (context / "Containerfile").write_text('FROM scratch\nCOPY pause /\nENTRYPOINT ["/pause"]\n')
    buildah.build(settings.PAUSE, context=context, containerfile=context / "Containerfile")
    buildah.archive(settings.PAUSE, settings.PAUSE, folder / "pause.tar")


def _make_strangers(buildah: Buildah, folder: Path) -> None:
    """Make images that know nothing of us: busybox alone, a program linked to musl, and one to glibc as ENTRYPOINT."""
    context = folder / "strangers"
    context.mkdir()
    shutil.copy("/bin/busybox", context / "busybox")
    source = _HERE / "pause" / "pause.c"
    for compiler, name in (("musl-gcc", "pause"), ("gcc", "worker")):
        run_nicely((compiler, "-Os", "-o", str(context / name), str(source)), directory=context)
    loader = Path("/lib", f"ld-musl-{platform.machine()}.so.1")
    listed = subprocess.run(("ldd", str(context / "worker")), capture_output=True, text=True, check=True)
    libraries = libraries_of(listed.stdout).values()
    for path in (loader, *libraries):
        shutil.copy(path.resolve(), context / path.name)
    files = {
        BUSYBOX_IMAGE: 'COPY busybox /bin/busybox\nRUN ["/bin/busybox", "--install", "/bin"]\nENV PATH=/bin\n',
        MUSL_IMAGE: f"COPY pause /pause\nCOPY {loader.name} {loader}\n",
        GLIBC_IMAGE: "COPY worker /worker\n"
        + "".join(f"COPY {path.name} {path}\n" for path in libraries)
        + 'ENTRYPOINT ["/worker"]\n',
    }
    for image, steps in files.items():
        containerfile = context / f"Containerfile.{image}"
        containerfile.write_text(f"FROM scratch\n{steps}USER 65532:65532\n")
        buildah.build(f"localhost/{image}", context=context, containerfile=containerfile)
        buildah.archive(f"localhost/{image}", _whole(image), folder / f"{image}.tar")


def _whole(name: str) -> str:
    """Return what a short name in a manifest stands for."""
    return f"docker.io/library/{name}:latest"
