"""The capture of CUDA graphs in a start: which graphs, in what order, with what lines."""

from __future__ import annotations

from collections.abc import Callable

from tuner.simulator.box import Box
from tuner.simulator.deaths import capture_failure, cuda_out_of_memory
from tuner.simulator.memory import MemoryPlan
from tuner.simulator.physics import Links
from tuner.simulator.script import ScriptWriter, clock_text
from tuner.simulator.settings import Settings

_PREFILL_SIZES = [2**power for power in range(2, 12)]


class Captures:
    """Writes the captures of one launch; `before_each` is called when a capture begins."""

    def __init__(
        self,
        writer: ScriptWriter,
        box: Box,
        settings: Settings,
        plan: MemoryPlan,
        *,
        links: Links,
        before_each: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._box = box
        self._settings = settings
        self._plan = plan
        self._links = links
        self._before_each = before_each

    def before_0_5_14(self, *, draft: bool) -> None:
        """Up to 0.5.13: one capture for the target; two, after the target's, for a draft model."""
        sizes, writer = self._settings.graph_sizes, self._writer
        if not sizes:
            return
        names = ["draft ", "draft extend "] if draft else [""]
        gib = (self._plan.draft_graph_gib if draft else self._plan.graph_gib) / len(names)
        for name in names:
            writer.ranks(
                f"Capture {name}cuda graph begin. This can take up to several minutes. "
                f"avail mem={writer.free_gib:.2f} GB"
            )
            if not draft:
                writer.rank0(f"Capture cuda graph bs {list(sizes)}")
            taken = self._capture(gib, share=1.0 / len(names), draft=draft)
            writer.ranks(
                f"Capture {name}cuda graph end. Time elapsed: {taken:.2f} s. mem usage={gib:.2f} GB. "
                f"avail mem={writer.free_gib:.2f} GB."
            )

    def since_0_5_14(self) -> None:
        """From 0.5.14 on: prefill graphs, those of decode or verify, those of a draft model."""
        settings, plan = self._settings, self._plan
        if settings.prefill_graph:
            self._capture_prefill()
        if not settings.graph_sizes:
            return
        speculation = settings.speculation
        name = "target verify" if speculation else "target decode"
        self._capture_named(name, settings.rows_per_request, plan.graph_gib, listed=False)
        if plan.draft_gib and speculation:
            half_gib = plan.draft_graph_gib / 2
            self._capture_named("draft decode", speculation.topk, half_gib, listed=True)
            self._capture_named("draft extend", settings.rows_per_request, half_gib, listed=True)

    def _capture_prefill(self) -> None:
        writer, gib, seconds = self._writer, self._plan.prefill_graph_gib, self._box.startup.prefill_capture_s
        writer.ranks(
            f"Capture target prefill CUDA graph begin. backend=breakable, num_tokens={_PREFILL_SIZES}, "
            f"avail mem={writer.free_gib:.2f} GB"
        )
        writer.later(seconds)
        writer.take(gib)
        writer.ranks(
            f"Capture target prefill CUDA graph end. elapsed={seconds:.2f} s, mem usage={gib:.2f} GB, "
            f"avail mem={writer.free_gib:.2f} GB."
        )

    def _capture_named(self, name: str, rows_each: int, gib: float, *, listed: bool) -> None:
        writer, sizes = self._writer, list(self._settings.graph_sizes)
        writer.ranks(
            f"Capture {name} CUDA graph begin. backend=full, num_tokens_per_req={rows_each}, "
            f"{f'bs={sizes}, ' if listed else ''}avail mem={writer.free_gib:.2f} GB"
        )
        if self._links.pcie_ipc_limit_kib and self._box.all_reduce and not listed:
            hidden = self._box.all_reduce.row_bytes // 2
            numel = sizes[-1] * rows_each * hidden
            writer.ranks(
                f"FlashInfer PCIe-IPC workspace built (world={self._settings.tp}, max_numel={numel}, "
                f"hidden={hidden})"
            )
        taken = self._capture(gib, share=0.5 if listed else 1.0, draft=listed)
        writer.ranks(
            f"Capture {name} CUDA graph end. {'' if listed else f'bs={sizes}, '}elapsed={taken:.2f} s, "
            f"mem usage={gib:.2f} GB, avail mem={writer.free_gib:.2f} GB."
        )

    def _capture(self, gib: float, *, share: float, draft: bool) -> float:
        """Capture from the largest batch to the smallest, with its bar; the seconds that it took."""
        self._before_each()
        sizes, writer = self._settings.graph_sizes, self._writer
        each_s = self._box.startup.capture_each_s * share
        failing = self._plan.verdict == ("draft-capture" if draft else "capture")
        for number, size in enumerate(reversed(sizes)):
            writer.raw(self._bar(size, number, each_s))
            writer.later(each_s)
            writer.take(gib / len(sizes))
            if failing and number >= len(sizes) // 3:
                writer.raw("\n")
                cause = cuda_out_of_memory(self._box, asked_gib=0.25, free_gib=0.13)
                writer.fail("graph-capture", capture_failure(self._box, cause))
        writer.raw(self._bar(sizes[0], len(sizes), each_s) + "\n")
        return each_s * len(sizes)

    def _bar(self, size: int, number: int, each_s: float) -> str:
        total = len(self._settings.graph_sizes)
        filled = "█" * round(10 * number / total)
        left = clock_text(each_s * (total - number)) if number else "?"
        rate = f"{each_s:5.2f}s/it" if number else "?it/s"
        return (
            f"\rCapturing batches (bs={size} avail_mem={self._writer.free_gib:.2f} GB): "
            f"{number / total:4.0%}|{filled:<10}| {number}/{total} "
            f"[{clock_text(each_s * number)}<{left}, {rate}]"
        )
