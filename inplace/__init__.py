"""In-place restart for distributed training on Kubernetes; in the source tree, the folders here are links.

A training script imports this package for `progress` and `busy`. They load at their first use: agents import it too.
"""

TYPE_CHECKING = False  # type checkers take a name like this for True; importing typing would cost an agent's start

if TYPE_CHECKING:
    from inplace.rank_file import busy as busy
    from inplace.rank_file import progress as progress
else:

    def __getattr__(name):  # noqa: ANN001, ANN202 - the stand-in for the imports above
        if name not in ("busy", "progress"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from inplace import rank_file

        globals().update(busy=rank_file.busy, progress=rank_file.progress)
        return globals()[name]
