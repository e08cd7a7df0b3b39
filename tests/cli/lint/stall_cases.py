"""Limits of the watchdog, and times to save, in the examples, and the findings about them."""

from __future__ import annotations

from inplace.cli.lint.pieces import Reason
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.cli.lint.cases import (
    COMMAND,
    POD,
    RULES_OF_WORKER,
    WORKER,
    Break,
    Rule,
    annotation,
    at,
    both,
    env,
    metadata,
    pod,
    put,
    template,
    worker,
)


def limits(stall: str | None = None, start: str | None = None) -> Break:
    """Annotate the JobSet with the watchdog's limits."""
    texts = {"after": stall, "start": start}
    text = ",".join(f"{name}={text}" for name, text in texts.items() if text is not None)
    return put(metadata, annotations={wire.STALL: text})


def run_with(*options: str) -> Break:
    """Give the supervisor, or the guard, options."""

    def change(document: KubeObject) -> None:
        words = worker(document)["command"]
        place = words.index("--")
        words[place:place] = options

    return change


def request(text: str) -> Break:
    """Annotate the JobSet with a request for a restart."""
    return put(metadata, annotations={wire.RESTART_REQUESTED: text})


_STALL_VARIABLE = at("STALL_AFTER_S")
SAVE_S = "SAVE_WITHIN_S"
STALL = annotation(wire.STALL)
_LONG = put(pod, terminationGracePeriodSeconds=90)
_SAVES = put(metadata, annotations={wire.RESTART: "save-within=60"})
_SAVING = f"metadata.annotations[{wire.RESTART}].save-within"
_GRACE = f"{POD}.terminationGracePeriodSeconds"
_REQUEST = f"metadata.annotations[{wire.RESTART_REQUESTED}]"
SAVINGS: list[tuple[str, Break, Rule, str]] = [  # as STALLS
    ("train-supervisor", both(_LONG, _SAVES), "", ""),
    ("train-supervisor", _SAVES, "save-grace", _GRACE),
    ("train-supervisor", env("SAVE_WITHIN_S", of=worker, value="60"), "save-grace", _GRACE),
    ("train-supervisor", put(metadata, annotations={wire.RESTART: "save-within=soon"}), "spec-problem", _SAVING),
    ("train", both(_LONG, _SAVES), "", ""),
    ("train", _SAVES, "save-grace", _GRACE),
    ("train", both(_LONG, both(_SAVES, env(SAVE_S, value="60"))), "", ""),
    ("train", both(_LONG, both(_SAVES, env(SAVE_S, value="30"))), Reason.SETTING, at(SAVE_S)),
    ("train", both(_LONG, both(_SAVES, env(SAVE_S))), Reason.SETTING, at(SAVE_S)),
    ("train", both(_LONG, both(_SAVES, env(SAVE_S, of=worker))), Reason.SETTING, at(SAVE_S, WORKER)),
    ("train", both(_SAVES, env(SAVE_S, valueFrom={"configMapKeyRef": {"name": "x", "key": "y"}})), "", ""),
    ("train", put(template, metadata={"annotations": {wire.SAVE_WITHIN: "60"}}), "save-grace", _GRACE),
    ("train", env("SAVE_WITHIN_S", value="-1"), "agent-env", at("SAVE_WITHIN_S")),
    ("train", request("7,save=60"), "", ""),
    ("train", request("7,save=0"), "spec-problem", _REQUEST),
    ("train", request("7, save=60"), "spec-problem", _REQUEST),
]
_CHECKS = run_with("--before-announce", "true")
_AWAITED = env("CHECKS_BEFORE_ANNOUNCE", value="1")


def _final(document: KubeObject) -> None:
    worker(document)["restartPolicyRules"][0]["exitCodes"]["values"].append(6)


SAVINGS += [
    ("train-supervisor", _CHECKS, "", ""),
    ("train", both(both(_CHECKS, _AWAITED), _final), "", ""),
    ("train", both(_CHECKS, _AWAITED), Reason.CHECK, RULES_OF_WORKER),
    ("train", both(_CHECKS, _final), Reason.AWAITED, at("CHECKS_BEFORE_ANNOUNCE")),
    ("train", _AWAITED, Reason.AWAITED, at("CHECKS_BEFORE_ANNOUNCE")),
]
_DEADLINE = put(metadata, annotations={wire.BARRIER: "30"})
SAVINGS += [
    ("train-supervisor", both(_CHECKS, _DEADLINE), "check-deadline", COMMAND),
    ("train-supervisor", both(run_with("--before-announce-timeout", "29"), both(_CHECKS, _DEADLINE)), "", ""),
]
FENCE_VARIABLE = at("FENCE_AFTER_S")
_FENCED = put(metadata, annotations={wire.FENCE_AFTER: "60"})
_SUPERVISORS_LEASE = at("FENCE_AFTER_S", WORKER)
_LEASED = env("FENCE_AFTER_S", value="60")
_ENDS = env("RESTART_DEPTH", value="containers")
FENCES: list[tuple[str, Break, Rule, str]] = [  # as STALLS
    ("train-supervisor", env("FENCE_AFTER_S", of=worker, value="60"), "", ""),
    ("train-supervisor", _FENCED, "", ""),
    ("train-supervisor", both(_FENCED, env("FENCE_AFTER_S", of=worker)), Reason.SETTING, _SUPERVISORS_LEASE),
    ("train", _FENCED, "", ""),
    ("train", both(_FENCED, _ENDS), "fence", FENCE_VARIABLE),
    ("train", both(_LEASED, _ENDS), "fence", FENCE_VARIABLE),
    ("train", both(_LEASED, run_with("--grace", "30")), "fence", COMMAND),
    ("train-supervisor", env("FENCE_AFTER_S", of=worker, value="14"), "agent-env", _SUPERVISORS_LEASE),
]
_LIMIT = put(metadata, annotations={wire.FAILURES: "3"})
_BAD_NOTICES = put(metadata, annotations={wire.RESTART_ON: "loss+busy"})
_NOTICES = put(metadata, annotations={wire.RESTART_ON: "loss+slow"})
STALLS: list[tuple[str, Break, Rule, str]] = [  # example, change, rule, path
    ("train", limits("120", "900"), "", ""),
    ("train", limits("0"), "", ""),
    ("train", env("STALL_AFTER_S", value="120"), "", ""),
    ("train", limits("soon"), "spec-problem", f"metadata.annotations[{wire.STALL}].after"),
    ("train", limits("120", "0.1"), "spec-problem", f"metadata.annotations[{wire.STALL}].start"),
    ("train", limits("5"), "stall-limits", STALL),
    ("train", both(limits("120"), env("STALL_AFTER_S", value="5")), "stall-limits", _STALL_VARIABLE),
    ("train", both(limits("5"), env("STALL_AFTER_S", value="0")), "", ""),
    ("train", limits("120", "60"), "stall-limits", STALL),
    ("train", _LIMIT, "", ""),
    ("train", both(_LIMIT, limits("120")), "", ""),
    ("train", _NOTICES, "", ""),
    ("train-supervisor", both(_NOTICES, env("EPOCH_FILE", of=worker)), "no-effect", annotation(wire.RESTART_ON)),
    ("train", _BAD_NOTICES, "spec-problem", f"metadata.annotations[{wire.RESTART_ON}].kinds"),
    ("train", env("STALL_AFTER_S", value="soon"), "agent-env", _STALL_VARIABLE),
    ("train-supervisor", limits("120"), "", ""),
    ("train-supervisor", both(limits("120"), env("EPOCH_FILE", of=worker)), "stall-unwatched", STALL),
    (
        "train-supervisor",
        both(limits("120"), env("EPOCH_FILE", of=worker), env("PROGRESS_FILE", of=worker, value="/logs/*.log")),
        "",
        "",
    ),
]

UNWATCHED: list[tuple[Break, Rule, str]] = [  # a startup probe instead of guards
    (_NOTICES, "no-effect", annotation(wire.RESTART_ON)),
    (limits("120"), "stall-unwatched", STALL),
    (limits(start="120"), "stall-unwatched", STALL),
    (env("STALL_AFTER_S", value="120"), "stall-unwatched", _STALL_VARIABLE),
    (put(metadata, annotations={wire.RESTART: "save-within=60"}), "agent-env", at(SAVE_S)),
]
