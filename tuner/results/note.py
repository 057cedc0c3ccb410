"""Trials and studies as pages of Markdown, for the dashboard's notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tuner.results.record import COMPLETE, TrialRecord, shown_fallback, shown_score
from tuner.results.standings import Standing

_LEVEL_HEAD = (
    "concurrency",
    "decode tok/s",
    "running",
    "TTFT p50 / p99 ms",
    "ITL p50 / p99 ms",
    "server says tok/s",
    "accept length",
)


def trial_note(record: TrialRecord) -> str:
    """A trial on one page: configuration, launch command, phases, result or failure."""
    parts = [f"# Trial {record.trial}: {_headline(record)}", _origin(record)]
    if record.failure:
        parts.append(_failure(record.failure))
    if record.infeasible:
        parts.append("**Not eligible**, whatever its speed: " + "; ".join(record.infeasible))
    if record.levels:
        parts.append("## Measured\n" + _table(_LEVEL_HEAD, map(_level_row, record.levels)))
    if record.fallbacks:
        parts.append("## Asked for, but not running\n" + _list(map(shown_fallback, record.fallbacks)))
    if record.output:
        parts.append("## Output\n" + _output(record.output))
    chosen = [f"`{name}` = {value}" for name, value in record.configuration.items()]
    parts.append("## Configuration\n" + (_list(chosen) if chosen else "The tuned flags are left out."))
    if record.launch:
        parts.append(f"## Launch\n{_command(record)}")
    if record.phases:
        rows = (
            (span["phase"], f"{span['start_s']:.1f}", f"{span['end_s'] - span['start_s']:.1f}")
            for span in record.phases
        )
        parts.append("## Start\n" + _table(("phase", "at s", "took s"), rows))
    if record.attempts:
        parts.append(
            "## Earlier launches of this trial\n" + _list(attempt["summary"] for attempt in record.attempts)
        )
    if record.leftovers:
        parts.append("## Left behind\n" + _list(record.leftovers))
    return "\n\n".join(parts)


def study_note(
    records: Sequence[TrialRecord],
    best: Standing | None,
    label: str,
    reference: str,
    verdict: str = "",
    remarks: Sequence[str] = (),
    refused: Mapping[str, int] | None = None,
    ruled_out: Sequence[str] = (),
    looks: str = "",
) -> str:
    """A study on one page: what was found so far, what failed, and what was `refused` before launch."""
    measured = sum(record.state == COMPLETE for record in records)
    failures = [
        (record.trial, record.failure) for record in records if record.failure and not record.fidelity
    ]
    parts = [
        f"# {label}",
        f"{measured} configurations measured, {len(failures)} failed. "
        f"Gains are over {reference or 'nothing yet'}.",
    ]
    if verdict:
        parts.append(f"**Verdict:** {verdict}")
    if best is not None:
        parts.append(f"**Best:** trial {best.record.trial}, {best.shown}.\n{_command(best.record)}")
    if looks:
        parts.append(f"**Looks:** {looks}.")
    if failures:
        rows = ((trial, failure["kind"], failure["phase"], failure["summary"]) for trial, failure in failures)
        parts.append("## Failed launches\n" + _table(("trial", "kind", "phase", "what happened"), rows))
    if refused:
        parts.append(
            "## Refused before launch\n" + _table(("reason", "configurations"), list(refused.items()))
        )
    if ruled_out:
        parts.append("## Off the list\n" + _list(ruled_out))
    if remarks:
        parts.append("## What is known to cost on this box\n" + _list(remarks))
    return "\n\n".join(parts)


def _headline(record: TrialRecord) -> str:
    if record.failure:
        return f"{record.failure['kind']} in {record.failure['phase'] or 'an unknown phase'}"
    if record.looked:
        return f"a look {record.fidelity}: {record.looked[0]:.2f} {record.unit}, against other looks alone"
    if record.score is None:
        return record.state
    gain = f", {record.gain:+.1%} over {record.reference}" if record.gain is not None else ""
    return f"{shown_score(record)}{gain}"


def _origin(record: TrialRecord) -> str:
    words = [record.label, record.role, record.source]
    if record.repeat_of is not None:
        words.append(f"a deliberate repeat of trial {record.repeat_of}")
    if record.same_as is not None:
        words.append(f"the same running server as trial {record.same_as}")
    return " · ".join(word for word in words if word)


def _failure(failure: dict[str, Any]) -> str:
    quoted = "\n".join(f"{line['line']:>6}: {line['text'][:300]}" for line in failure["evidence"][:12])
    hints = ", ".join(_hint(hint) for hint in failure["hints"]) or "none"
    return (
        f"**{failure['summary']}**\n\n"
        f"Cause: {failure['cause']} · certainty {failure['certainty']:.0%} · hints: {hints}"
        f"\n```\n{quoted}\n```"
    )


def _hint(hint: dict[str, Any]) -> str:
    target = next(hint[key] for key in ("param", "env", "action") if key in hint)
    value = f" to {hint['value']}" if "value" in hint else ""
    return f"{hint['direction']} {target}{value}"


def _level_row(level: dict[str, Any]) -> tuple[str, ...]:
    server, accept = level["server_tok_s"], level["accept_length"]
    return (
        str(level["concurrency"]),
        f"{level['decode_tok_s']:.2f}",
        str(level["running"]),
        f"{level['ttft_p50_ms']:.0f} / {level['ttft_p99_ms']:.0f}",
        f"{level['itl_p50_ms']:.1f} / {level['itl_p99_ms']:.1f}",
        f"{server:.1f}" if server is not None else "",
        f"{accept:.2f}" if accept is not None else "",
    )


def _output(output: dict[str, Any]) -> str:
    """What the guard said of the answers."""
    if output.get("reference"):
        return "The answers of this server are what all others are compared with."
    if output["blind"]:
        return f"The output could not be judged: {output['blind']}"
    if not output["ok"]:
        return "**Wrong:** " + "; ".join(output["reasons"])
    agreement = f" ({output['agreement']:.0%} of the tokens)" if output["agreement"] is not None else ""
    return f"As the reference answers{agreement}."


def _command(record: TrialRecord) -> str:
    """One flag a line, so that the page stays narrow; empty where no launch was shown."""
    if not record.launch:
        return ""
    command = str(record.launch["command"]).replace(" --", " \\\n  --")
    return f"```sh\n{command}\n```"


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )
