"""
Where links of panels and alerts lead.

The documentation's address stands here once; whoever serves it elsewhere replaces the text in the files
(docs/observability.md). Grafana's own address is not known to us, so links between dashboards are paths.
"""

from __future__ import annotations

from typing import Final

DOCS_URL: Final = "https://inplace.dev/docs"
JOBSET_ROW: Final = (  # from a row of a table that has these two labels
    "/d/inplace-jobset?${datasource:queryparam}&${cluster:queryparam}&${__url_time_range}"
    "&var-namespace=${__data.fields.namespace}&var-jobset=${__data.fields.jobset}"
)


def runbook_url(alert: str) -> str:
    """Return the page that docs/runbooks/ALERT.md becomes."""
    return f"{DOCS_URL}/runbooks/{alert}.html"
