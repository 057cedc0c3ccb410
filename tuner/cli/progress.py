"""What is shown while the search runs: one line that is rewritten on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from typing import TextIO

from tuner.clock import Clock
from tuner.evaluate.outcome import Outcome
from tuner.evaluate.protocol import LaunchShown, PhaseNews, Request
from tuner.learn.ruled_out import RuledOut
from tuner.measure.measurement import LevelSample, LevelSummary
from tuner.preflight.refusal import Refusal
from tuner.results.record import COMPLETE, TrialRecord, shown_fallback, shown_score
from tuner.results.standings import Standing
from tuner.search.loop import SearchListener
from tuner.search.store import Proposal
from tuner.space.configuration import Configuration

_PLAIN_EVERY_S = 60.0
"""Without a terminal, a phase that lasts says so this often."""

_SHOWN_REASONS = 5


class ProgressPrinter(SearchListener):
    """Prints the search to `out`; `label` (what the server is called) heads every trial."""

    def __init__(self, out: TextIO, clock: Clock, *, label: str, terminal: bool, width: int = 100) -> None:
        self._out = out
        self._clock = clock
        self._label = label
        self._terminal = terminal
        self._width = width
        self._live = False
        self._phase = ""
        self._said_s = 0.0
        self._refused: Counter[str] = Counter()

    # --- the search ---------------------------------------------------------------------------------

    def on_begin(self, estimate: str, done: int) -> None:
        """See `SearchListener`."""
        if done:
            self.line(f"resuming after {done} trial{'s' if done != 1 else ''}")
        self.line(f"expected: {estimate}")

    def on_trial(self, proposal: Proposal) -> None:
        """See `SearchListener`."""
        source = f" '{proposal.source}'" if proposal.source else ""
        self.line("")
        self.line(f"trial {proposal.number} [{self._label}] {proposal.role}{source}")
        self.line(f"  {proposal.configuration.shown()}")

    def on_record(self, record: TrialRecord, best: Standing | None) -> None:
        """See `SearchListener`."""
        if record.state == COMPLETE:
            gain = f"  {record.gain:+.1%} over {record.reference}" if record.gain else "  the reference"
            mark = "  best so far" if best is not None and best.record.trial == record.trial else ""
            self.line(f"  => {shown_score(record)}{gain}{mark}")
            for missed in record.infeasible:
                self.line(f"     not eligible: {missed}")
        elif record.looked:
            self.line(f"  => a look: {record.looked[0]:.2f} {record.unit}, against other looks alone")
        elif record.failure:
            failure = record.failure
            where = failure["phase"] or "an unknown phase"
            self.line(f"  => {record.state}: {failure['kind']} in {where} ({failure['cause']})")
            self.line(f"     {failure['summary']}")
            for evidence in failure["evidence"][:1]:
                self.line(f"     {evidence['text'][:160]}")
        else:
            self.line(f"  => {record.state}; the configuration is queued again")
        for fallback in record.fallbacks:
            self.line(f"     {shown_fallback(fallback)}")
        if record.same_as is not None:
            self.line(f"     the same running server as trial {record.same_as}")

    def on_refusal(self, configuration: Configuration, refusal: Refusal) -> None:
        """See `Listener`. Of many with the same reason the first is shown; the end tells how many."""
        reason = refusal.shown()
        self._refused[reason] += 1
        if self._refused[reason] == 1:
            self.line(f"refused before launch: {reason}")
            self.line(f"  {configuration.shown()}")

    def on_note(self, text: str) -> None:
        """See `Listener`."""
        self.line(f"note: {text}")

    def refusals(self) -> None:
        """How many were refused before launch, and why."""
        if self._refused:
            shown = self._refused.most_common(_SHOWN_REASONS)
            told = [f"{count} for {reason}" for reason, count in shown]
            rest = sum(self._refused.values()) - sum(count for _, count in shown)
            told += [f"{rest} for other reasons"] if rest else []
            self.line(f"refused before launch, at no cost: {'; '.join(told)}")

    def on_ruled_out(self, ruled_out: RuledOut) -> None:
        """See `SearchListener`."""
        self.line(f"     {ruled_out.shown}")

    def on_confirmation(self, reason: str, launches: int) -> None:
        """See `SearchListener`."""
        self.line(f"\nthe search ends: {reason}")
        self.line(f"confirming the best against the reference, by up to {launches} fresh launches in turn")

    def on_explaining(self) -> None:
        """See `SearchListener`."""
        self.line("\nexplaining the best: which of its values it owes its speed to is not sure yet")

    # --- one launch ---------------------------------------------------------------------------------

    def on_launch(self, request: Request, launch: LaunchShown) -> None:
        """See `Listener`."""
        self._phase = ""
        if request.attempt > 1:
            self.line("  the failure may pass: launching the same once more")
        self.line(f"  log: {request.folder / 'server.log'}")

    def on_phase(self, request: Request, news: PhaseNews) -> None:
        """See `Listener`."""
        done = f" {news.done:.0%}" if news.done is not None else ""
        detail = f" ({news.detail})" if news.detail else ""
        text = f"  {shown_time(news.elapsed_s)}  {news.phase}{done}{detail}"
        if self._terminal:
            self._rewrite(text)
            return
        now_s = self._clock.monotonic_s()
        if str(news.phase) != self._phase or now_s - self._said_s >= _PLAIN_EVERY_S:
            self._phase, self._said_s = str(news.phase), now_s
            self.line(text)

    def on_level(self, request: Request, sample: LevelSample, summary: LevelSummary | None) -> None:
        """See `Listener`."""
        if summary is None:
            self.line(f"  C={sample.concurrency}: void ({sample.void})")
            return
        parts = [f"C={summary.concurrency}: {summary.decode_tok_s:.2f} tok/s"]
        if not summary.whole:
            parts.append(summary.running_shown)
        parts.append(f"TTFT {summary.ttft_p50_ms:.0f} ms, ITL {summary.itl_p50_ms:.1f} ms (p50)")
        if summary.server_tok_s is not None:
            parts.append(f"server says {summary.server_tok_s:.1f}")
        if summary.accept_length is not None:
            parts.append(f"accept length {summary.accept_length:.2f}")
        self.line("  " + ", ".join(parts))

    def on_outcome(self, request: Request, outcome: Outcome) -> None:
        """See `Listener`."""
        if outcome.ready_s is not None:
            self.line(f"  ready after {shown_time(outcome.ready_s)}, {shown_time(outcome.took_s)} in all")

    # --- lines --------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """A line that stays."""
        if self._live:
            self._out.write("\r\x1b[K")
            self._live = False
        self._out.write(f"{text}\n")
        self._out.flush()

    def _rewrite(self, text: str) -> None:
        self._out.write(f"\r\x1b[K{text[: self._width - 1]}")
        self._out.flush()
        self._live = True


def shown_time(seconds: float) -> str:
    """`0:42`, `12:05` or `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
