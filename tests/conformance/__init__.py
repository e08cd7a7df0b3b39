"""API server behaviour that this project's clients rely on, as cases that run on the simulator and on the real one."""

from tests.conformance import (
    test_apply,
    test_custom,
    test_deletion,
    test_lists,
    test_logs,
    test_objects,
    test_patch,
    test_protocol,
    test_tables,
    test_watch,
    test_workloads,
)

SUITE = (
    test_objects,
    test_lists,
    test_watch,
    test_tables,
    test_patch,
    test_apply,
    test_custom,
    test_deletion,
    test_workloads,
    test_logs,
    test_protocol,
)
