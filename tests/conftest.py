"""Which tests run alone, which first; and where the real server is required, a skipped test of it is a failed
one."""

from __future__ import annotations

import os
from collections.abc import Generator

import hypothesis
import pytest

# How long an example takes says something of the machine, not of the code.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

_LONGEST = ("tests/real_server", "tests/test_docs.py", "tests/cli/test_optimize.py")
"""Files that take minutes begin first, so that no worker is left alone with one at the end."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    required = os.environ.get("TUNER_REQUIRE_REAL_SERVER") and item.get_closest_marker("real_server")
    if required and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"a test of the real server was skipped although it is required: {report.longrepr}"
    return report
