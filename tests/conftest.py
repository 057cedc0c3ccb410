"""Where the real server is required, a skipped test of it is a failed one."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest


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
