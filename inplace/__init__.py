"""In-place restart for distributed training on Kubernetes; in the source tree, the folders here are links.

A training script imports this package for `progress`, `busy`, `ready`, `save_requested`, `saved`, `resume_step` and
`keep_dir`. They load at their first use, because agents import it too. A worker's process, which has an epoch, also
lets itself be asked where it is.
"""

import os

TYPE_CHECKING = False  # type checkers take a name like this for True; importing typing would cost an agent's start

if TYPE_CHECKING:
    from inplace.rank_file import busy as busy
    from inplace.rank_file import progress as progress
    from inplace.resume import keep_dir as keep_dir
    from inplace.resume import resume_step as resume_step
    from inplace.resume import saved as saved
    from inplace.saving import save_requested as save_requested
    from inplace.standby import ready as ready
else:

    def __getattr__(name):  # noqa: ANN001, ANN202 - the stand-in for the imports above
        if name in ("busy", "progress"):
            from inplace import rank_file as home
        elif name == "ready":
            from inplace import rank_file, resume  # noqa: F401 - a standby loads all that it uses BEFORE it waits
            from inplace import standby as home
        elif name in ("keep_dir", "resume_step", "saved"):
            from inplace import resume as home
        elif name == "save_requested":
            from inplace import saving as home
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from inplace import last_words

        last_words.install()
        globals()[name] = getattr(home, name)  # this name alone: a script may have put its own in another's place
        return globals()[name]


if "INPLACE_EPOCH" in os.environ:
    from inplace.rank_stacks import answer_questions

    answer_questions()
