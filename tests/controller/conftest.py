"""What tests of the whole controller run in."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

import pytest

from tests.controller.rig import Rig, running_rig


@pytest.fixture
def rig() -> AbstractAsyncContextManager[Rig]:
    """Return an API server with a running controller; under virtual time a test gets the `Rig` itself."""
    return running_rig()
