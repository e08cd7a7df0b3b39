"""
`inplace lint`: say what keeps a JobSet from restarting in place, in its manifest and, if one is named, in a cluster.

Exit codes: 0 no errors (with `strict`: no warnings either), 1 errors, 2 bad usage, a file that is not a manifest, or a
cluster that does not answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import TYPE_CHECKING, Literal

from inplace.cli.lint.agent_policies import check_unwatched
from inplace.cli.lint.catalogue import RULES
from inplace.cli.lint.difference import TEMPLATE_BROKEN, TEMPLATE_DIFFERS
from inplace.cli.lint.jobset import check_annotations, check_group, check_jobset, check_placeholders, check_sizes
from inplace.cli.lint.pod import check_containers, check_pod, check_queue
from inplace.cli.lint.policy import policy_sentences
from inplace.cli.lint.subjects import subjects
from inplace.cli.manifests.documents import Stream, StreamError, read_stream
from inplace.cli.refusal import RefusalError
from inplace.cli.terminal.visible import one_line
from inplace.common.injection.as_made import as_made
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import group_of, is_in_place, members
from inplace.common.kube.resources import KubeObject

if TYPE_CHECKING:
    from inplace.cli.documents import LintDocument, LintFinding

PROBLEMS = 1
UNUSABLE = 2


@dataclass(frozen=True, slots=True)
class LintOptions:
    """The command's options, see `cli.local_commands.lint`."""

    output: Literal["text", "json"] = "text"
    strict: bool = False
    cluster: bool = False
    context: str | None = None
    kubeconfig: str | None = None
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class LintReport:
    """What was found in one JobSet; its name is for people.

    Args:
        jobset: as it is, or as Trainer makes it.
        policy: sentences that say what it does about failures; none where the JobSet cannot be read.
    """

    name: str
    findings: tuple[Finding, ...]
    jobset: KubeObject = field(repr=False)
    policy: tuple[str, ...]

    @property
    def in_place(self) -> bool:
        """Say whether it asks for restarts in place."""
        return is_in_place(self.jobset)


def run_lint(file: str, options: LintOptions) -> int:
    """Print the findings; return the exit code."""
    try:
        stream = read_stream(file)
        reports = _judged(lint(stream))
        if options.cluster:
            found = asyncio.run(_ask(stream, reports, options))
            reports = [_with(report, more) for report, more in zip(reports, found, strict=True)]
    except (StreamError, RefusalError) as error:
        print(f"inplace lint: {error}", file=sys.stderr)
        return UNUSABLE
    if options.output == "json":
        print(json.dumps(_document(reports), indent=2, ensure_ascii=False))
    else:
        _print(reports)
    severities = {RULES[finding.rule].severity for report in reports for finding in report.findings}
    return PROBLEMS if "error" in severities or (options.strict and severities) else 0


async def _ask(stream: Stream, reports: Sequence[LintReport], options: LintOptions) -> list[list[Finding]]:
    """Check the cluster; the modules for that are loaded only here."""
    from inplace.cli.connection import Target, connected
    from inplace.cli.lint.cluster import lint_cluster

    objects, jobsets = list(stream.objects()), [report.jobset for report in reports]
    async with connected(Target(options.context, options.kubeconfig)) as connection:
        return await lint_cluster(connection.client, objects, jobsets, namespace=options.namespace)


def lint(stream: Stream) -> list[LintReport]:
    """Return the findings about each JobSet of a stream, from the manifest alone."""
    objects = list(stream.objects())
    return [
        LintReport(
            subject.name,
            (*subject.findings, *_findings(subject.jobset, objects)),
            subject.jobset,
            policy_sentences(as_made(subject.jobset).jobset) if subject.is_whole else (),
        )
        for subject in subjects(objects)
    ]


def _judged(reports: Sequence[LintReport]) -> list[LintReport]:
    """Add the embedded API server's refusals of JobSets without an error so far; the rules above explain better."""
    from inplace.cli.lint.admission import judge

    sound = [not any(RULES[one.rule].severity == "error" for one in report.findings) for report in reports]
    refused = iter(judge(list(compress((report.jobset for report in reports), sound))))
    return [
        _with(report, next(refused)) if is_sound else report for report, is_sound in zip(reports, sound, strict=True)
    ]


def _with(report: LintReport, more: Sequence[Finding]) -> LintReport:
    """Return a report with further findings, each once."""
    return replace(report, findings=tuple(dict.fromkeys((*report.findings, *more))))


def _findings(jobset: KubeObject, objects: Sequence[KubeObject]) -> Iterator[Finding]:
    unexpanded = list(check_placeholders(jobset))
    if unexpanded:  # no rule can judge what is not there yet
        yield from unexpanded
        return
    made = as_made(jobset)
    yield from made.findings
    jobset = made.jobset
    yield from check_jobset(jobset)
    yield from check_annotations(jobset)
    group = group_of(jobset) if is_in_place(jobset) else []
    if is_in_place(jobset):
        yield from check_sizes(jobset)
        yield from check_group(jobset)
        yield from check_unwatched(jobset)
        yield from check_queue(jobset, group) if made.is_added else ()
    size = sum(member.pods for member in group)
    inside = {member.path for member in group}
    for member in members(jobset):
        if member.path in inside:
            found = check_pod(member, size, objects, has_rights=made.is_added)
            yield from (one for one in found if not (made.findings and one.rule == "agent-missing"))
        else:
            yield from check_containers(member)


def _document(reports: Iterable[LintReport]) -> LintDocument:
    """Return the reports for programs."""
    findings: list[LintFinding] = [
        {
            "object": report.name,
            "rule": finding.rule,
            "severity": RULES[finding.rule].severity,
            "path": finding.path,
            "found": finding.found,
            "needed": finding.needed,
            "why": RULES[finding.rule].why,
            "fix": finding.fix,
        }
        for report in reports
        for finding in report.findings
    ]
    policies = {report.name: list(report.policy) for report in reports if report.policy}
    document: LintDocument = {
        "jobsets": [report.name for report in reports],
        "errors": sum(one["severity"] == "error" for one in findings),
        "warnings": sum(one["severity"] == "warning" for one in findings),
        "findings": findings,
    }
    if policies:
        document["policies"] = policies
    return document


def _print(reports: Sequence[LintReport]) -> None:
    """Print the reports for people; colours are for terminals."""
    from inplace.cli.terminal.console import VisibleConsole

    console = VisibleConsole(highlight=False, markup=False, soft_wrap=True)
    for report in reports:
        if not report.findings:
            found = "clean" if report.in_place else "no mistake found, and nothing restarts in place"
            console.print(f"{one_line(report.name)}: {found}")
        for finding in report.findings:
            rule = RULES[finding.rule]
            console.print(rule.severity, style="bold red" if rule.severity == "error" else "bold yellow", end=" ")
            console.print(finding.rule, style="bold", end="")
            console.print(f" in {one_line(report.name)}")
            fields = (("at", finding.path), ("found", finding.found), ("needed", finding.needed))
            differs = finding.rule in (TEMPLATE_BROKEN, TEMPLATE_DIFFERS)
            for word, text in (*fields, ("why", rule.why), ("fix", finding.fix)):
                for number, line in enumerate(text.split("\n") if differs and word == "found" else [text]):
                    console.print(f"  {'' if number else word:<7}", style="dim", end="")
                    console.print(one_line(line))
        for sentence in report.policy:
            console.print("policy", style="bold", end=" ")
            console.print(one_line(sentence))
