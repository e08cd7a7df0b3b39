"""
Stories: what a JobSet's user sees, as texts that are their own tests (`tests/transcript.py`).

A file is a family of stories. A story begins at `## ` with its claim. `words.py` has the commands, `sight.py` what is
seen: an answer has each line that is new since the block before. `scenes.py` has the places where a story is played:
the whole controller on the embedded API server, in virtual time and over loopback HTTP; a real kube-apiserver.

    python -m tests.rewrite      write the answers; commit only differences you can explain
"""
