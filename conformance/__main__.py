"""
Ask a controller, or an agent, whether it keeps the contract of KEP-467; README.md has more.

    python -m conformance --kubeconfig K                        # the controller that is installed there
    python -m conformance --kubeconfig K --agent 'COMMAND'      # an agent, as a process of this machine
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

from conformance import agents, controllers
from conformance.group import CaseFailedError, Group
from inplace.cli.connection import Target, connected
from inplace.cli.refusal import CliExit, RefusalError
from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import ApiError
from inplace.common.kube.kubeconfig import Kubeconfig
from inplace.common.kube.resources import NAMESPACES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS

RIGHTS: Final = [
    {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
]
"""What KEP-467 gives an agent's account."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a case.

    Args:
        case: its name.
        problem: what was expected and seen; "" if it passed.
        took_s: seconds.
    """

    case: str
    problem: str
    took_s: float


async def run(options: argparse.Namespace) -> list[Result]:
    """Run the cases one after the other, in a namespace of their own that goes afterwards."""
    async with connected(Target(kubeconfig=options.kubeconfig)) as connection:
        client, namespace = connection.client, f"kep467-{uuid4().hex[:8]}"
        await client.create(NAMESPACES, None, {"metadata": {"name": namespace}})
        try:
            cases = await _cases(options, client, namespace)
            return [await _result(name, case, client, namespace, options.patience) for name, case in cases.items()]
        finally:
            await client.delete(NAMESPACES, None, namespace)


async def _cases(
    options: argparse.Namespace, client: KubeClient, namespace: str
) -> dict[str, Callable[[Group], Awaitable[None]]]:
    if options.agent is None:
        found = dict(controllers.CASES)
    else:
        await _make_account(client, namespace)
        access = Kubeconfig(options.kubeconfig).access().credentials()
        ca_pem = access.ca_pem or Path(access.ca_file).read_text()  # noqa: ASYNC240 - once
        asked = agents.Agents(tuple(shlex.split(options.agent)), access.host, access.port, ca_pem)
        found = {name: partial(case, asked) for name, case in agents.CASES.items()}
    return {name: case for name, case in found.items() if not options.case or name in options.case}


async def _make_account(client: KubeClient, namespace: str) -> None:
    subject = {"kind": "ServiceAccount", "name": "agent", "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "agent"}
    await client.create(SERVICE_ACCOUNTS, namespace, {"metadata": {"name": "agent"}})
    await client.create(ROLES, namespace, {"metadata": {"name": "agent"}, "rules": RIGHTS})
    await client.create(
        ROLE_BINDINGS, namespace, {"metadata": {"name": "agent"}, "roleRef": role, "subjects": [subject]}
    )


async def _result(
    name: str, case: Callable[[Group], Awaitable[None]], client: KubeClient, namespace: str, patience_s: float
) -> Result:
    began_s, group = time.monotonic(), Group(client, namespace, f"case-{uuid4().hex[:6]}", patience_s)
    try:
        await case(group)
        problem = ""
    except (CaseFailedError, ApiError) as error:
        problem = str(error)
    await group.delete()
    result = Result(name, problem, round(time.monotonic() - began_s, 1))
    print(f"{'FAILED' if problem else 'passed'}  {name}  {result.took_s} s  {problem}".rstrip(), file=sys.stderr)
    return result


def main() -> int:
    """Run what the command line asks for; 0 if every case passed, 1 if one failed, 3 if there is no cluster."""
    parser = argparse.ArgumentParser("python -m conformance", description=__doc__)
    parser.add_argument("--kubeconfig", required=True, help="of an account that may make namespaces")
    parser.add_argument(
        "--agent", metavar="COMMAND", help="ask this agent, not the controller; needs Linux and unshare"
    )
    parser.add_argument("--case", action="append", choices=(*controllers.CASES, *agents.CASES), help="only this one")
    parser.add_argument("--patience", type=float, default=30.0, help="seconds after which nothing more is expected")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    asked, half = (controllers.CASES, "a controller") if options.agent is None else (agents.CASES, "an agent")
    if others := [name for name in options.case or () if name not in asked]:
        parser.error(f"--case: expected cases of {half}, saw {', '.join(others)}; --agent chooses which half is asked")
    try:
        results = asyncio.run(run(options))
    except RefusalError as refusal:
        print(f"conformance: {refusal}", file=sys.stderr)
        return refusal.code
    if options.json:
        print(json.dumps([asdict(result) for result in results]))
    failed = [result.case for result in results if result.problem]
    print(
        f"{len(results) - len(failed)} of {len(results)} cases passed"
        + (f"; failed: {', '.join(failed)}" if failed else "")
    )
    return CliExit.NOT_DONE if failed else CliExit.DONE


if __name__ == "__main__":
    sys.exit(main())
