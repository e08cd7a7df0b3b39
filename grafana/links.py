"""
The targets of links in panels and alerts.

The documentation's address stands only here: the one of `mkdocs serve`, because the project does not know where you
publish it. `python -m grafana.build --docs-url URL --to FOLDER` writes the same files with your address
(docs/operations.md). Grafana's own address is not known either, so links between dashboards are paths.
"""

from __future__ import annotations

from typing import Final

DOCS_URL: Final = "http://127.0.0.1:8000"
_JOBSET: Final = "/d/inplace-jobset?${datasource:queryparam}&${cluster:queryparam}&${__url_time_range}"
JOBSET_ROW: Final = f"{_JOBSET}&var-namespace=${{__data.fields.namespace}}&var-jobset=${{__data.fields.jobset}}"
JOBSET_SERIES: Final = f"{_JOBSET}&var-namespace=${{__field.labels.namespace}}&var-jobset=${{__field.labels.jobset}}"
"""From a row of a table, and from a series, that have these two labels: data source, cluster and range go along."""


def runbook_url(alert: str) -> str:
    """Return the page that docs/runbooks/ALERT.md becomes."""
    return f"{DOCS_URL}/runbooks/{alert}.html"
