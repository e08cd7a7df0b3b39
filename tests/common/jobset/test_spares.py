"""How many spares an annotation asks for."""

from __future__ import annotations

import pytest

from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.form import TemplateForm
from inplace.common.jobset.spares import read_spares, spares_name
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire

JOBS = [
    ReplicatedJob("few", 7, "default"),
    ReplicatedJob("most", 4, "default", form=TemplateForm(parallelism=2)),
    ReplicatedJob("one", 1, "default"),
]


@pytest.mark.parametrize(("text", "expected"), [(None, None), ("0", 0), ("1", 1), ("8", 8)])
def test_a_number_up_to_the_largest_replicated_job(text: str | None, expected: int | None) -> None:
    """None is for no annotation."""
    assert read_spares({} if text is None else {wire.SPARES: text}, JOBS) == expected


@pytest.mark.parametrize("text", ["9", "-1", "+1", "abc", "", "1.0", "10000", "99999999999", 2, None])
def test_anything_else_is_refused(text: object) -> None:
    """With what was expected, what was seen, and what happens."""
    expected = "an integer from 0 to 2147483647|at most 8, the pods of the largest replicatedJob"
    with pytest.raises(RemoteProtocolError, match=f"expected ({expected}), saw .*no spare is held; correct it"):
        read_spares({wire.SPARES: text if text is not None else "nine"}, JOBS)


def test_a_replicated_job_outside_the_group_does_not_count() -> None:
    """Nor does a JobSet without any fail."""
    outside = ReplicatedJob("most", 8, "default", form=TemplateForm(annotations={wire.DISABLE: ""}))
    assert read_spares({wire.SPARES: "1"}, [JOBS[2], outside]) == 1
    for jobs in ([JOBS[2], outside], []):
        with pytest.raises(RemoteProtocolError):
            read_spares({wire.SPARES: "2"}, jobs)


def test_the_jobs_name_fits_whatever_the_jobsets_is() -> None:
    """A host name is a label of at most 63 characters, and none ends with a hyphen before its part."""
    assert spares_name("train") == "train-spares"
    assert spares_name("a" * 49 + "-" + "b" * 13) == "a" * 49 + "-spares"
    assert len(spares_name("a" * 63) + "-99999") == 63
