"""Reading profiles: every key is checked, and every coefficient counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulator.boxes import DENSE, KIMI_12, KIMI_23
from tuner.errors import InputError
from tuner.simulator.profile import PROFILES, read_box, shipped_boxes

TEXT = (PROFILES / f"{KIMI_12}.yaml").read_text(encoding="utf-8")


def changed(folder: Path, old: str, new: str) -> str:
    assert old in TEXT
    path = folder / "box.yaml"
    path.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    return str(path)


def test_the_shipped_boxes_can_be_read() -> None:
    assert set(shipped_boxes()) == {DENSE, KIMI_12, KIMI_23}
    for name in shipped_boxes():
        assert read_box(name).name == name


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fixed_ms: 6.56", "fixed_sm: 6.56", "step.fixed_sm: unknown key"),
        ("  row_ms: 0.051", "  # nothing", "the key 'row_ms' is missing"),
        ("fixed_ms: 6.56", "fixed_ms: fast", "step.fixed_ms: expected a number"),
        ("count: 8", "count: 8.5", "gpus.count: expected a whole number"),
        ("sglang_version: 0.5.12", "sglang_version: 0.4.1", "release '0.4.1' is not modelled"),
        ("custom_factor: {1: 1.05, 16: 1.20}", "custom_factor: {16: 1.05, 1: 1.2}", "the keys must rise"),
        ("custom_factor: {1: 1.05, 16: 1.20}", "custom_factor: {a: 1.05}", "must be a number"),
        ("fragmentation_after_s: [60, 3600]", "fragmentation_after_s: [60]", "expected two numbers"),
        ("effect: warning", "effect: shouting", "'shouting' is not possible"),
        ("{flag: ep_size, above: 1,", "{flag: ep_size,", "either 'values' or 'above'"),
        ("{flag: ep_size, above: 1,", "{above: 1,", "either 'flag' or 'variable'"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        read_box(changed(tmp_path, old, new))
    assert message in str(refused.value)
    assert "box.yaml:" in str(refused.value)


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(InputError, match="dense-small"):
        read_box("dense-smal")
    with pytest.raises(InputError, match="no such file"):
        read_box("nowhere/box.yaml")


def test_a_file_may_leave_out_what_a_box_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "box.yaml"
    text = (PROFILES / f"{DENSE}.yaml").read_text(encoding="utf-8")
    start, end = text.index("draft:"), text.index("step:")
    path.write_text(text[:start] + text[end : text.index("rules:")], encoding="utf-8")
    box = read_box(str(path))
    assert box.draft is None
    assert box.experts is None
    assert box.rules == ()
