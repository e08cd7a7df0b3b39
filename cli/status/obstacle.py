"""One thing that keeps a JobSet from training, as `inplace explain` shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that keeps the JobSet from training.

    Args:
        kind: one word, for programs.
        pods: names, where it is about Pods.
        advice: what to do.
    """

    kind: str
    text: str
    advice: str
    pods: tuple[str, ...] = ()
