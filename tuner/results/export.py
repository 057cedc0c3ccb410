"""The best configuration as files that SGLang starts from: `best.yaml` and, beside it, `best.sh`.

The YAML file is what `python -m sglang.launch_server --config best.yaml` takes. The script sets the
environment as well, since a winner may live there alone (NCCL, PCIe-IPC all-reduce), and passes the flags
that such a file refuses: all of them, and no file, where the server takes none.

An evaluator of one's own may launch no server at all, and then nothing is there to be started: the file holds
the values of the parameters, and there is no script.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.document import write_document
from tuner.errors import NothingRan
from tuner.redact import REDACTED, is_secret
from tuner.results.record import TrialRecord
from tuner.results.standings import Expected, Standing, standings

Verdict = Mapping[str, Any]
"""`tuner.verdict.verdict.Verdict.to_json`."""


@dataclass(frozen=True)
class Choice:
    """What is exported, and what is known of it.

    `derived` says how it was made of another trial, where it was; with `predicted` nobody launched it, and
    score, gain and verdict are those of that trial.
    """

    standing: Standing
    verdict: Verdict | None
    derived: str = ""
    predicted: bool = False

    @property
    def record(self) -> TrialRecord:
        """The trial that first measured it."""
        return self.standing.record

    @property
    def is_confirmed(self) -> bool:
        """Whether fresh launches have shown that it is better than the reference."""
        return self.verdict is not None and self.verdict["winner"] == str(self.record.trial)

    @property
    def certainty(self) -> str:
        """How sure the gain is, in a sentence."""
        if self.predicted:
            measured = replace(self, predicted=False)
            return f"no: predicted, not measured; trial {self.record.trial} itself: {measured.certainty}"
        if self.verdict is None:
            return "no: no fresh launches have confirmed it"
        sentence: str = self.verdict["sentence"]
        return f"yes: {sentence}" if self.is_confirmed else f"no: {sentence}"

    @property
    def gain(self) -> str:
        """`+9.1% over the engine's defaults (trial 0)`."""
        if self.predicted:
            return f"{replace(self, predicted=False).gain}, as trial {self.record.trial} itself"
        if self.verdict is not None and self.is_confirmed:
            return f"{self.verdict['gain']:+.1%} over {self.record.reference}, confirmed"
        if self.record.gain is None:
            return "gain unknown: nothing to compare with"
        return f"{self.record.gain:+.1%} over {self.record.reference}, unconfirmed"


def choose(
    records: Sequence[TrialRecord], verdict: Verdict | None = None, expected: Expected | None = None
) -> Choice:
    """The confirmed winner, or else the configuration that is expected to be the best of those measured.

    Raises `NothingRan` where no trial was measured that meets what was asked for.
    """
    found = standings(records, expected)
    if not found:
        raise NothingRan("no configuration has run yet, so there is nothing to export")
    winner = verdict["winner"] if verdict is not None else None
    confirmed = next((standing for standing in found if str(standing.record.trial) == winner), None)
    return Choice(confirmed or found[0], verdict)


def write_exports(
    records: Sequence[TrialRecord],
    target: Path,
    verdict: Verdict | None = None,
    expected: Expected | None = None,
) -> Choice:
    """Write the choice as `write_choice` does. Raises as `choose` does."""
    choice = choose(records, verdict, expected)
    write_choice(choice, target)
    return choice


def write_choice(choice: Choice, target: Path) -> Path | None:
    """Write it to `target` (YAML) and, where there is a launch to repeat, a script with `.sh`: its path."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _replace(target, config_text(choice, target.name))
    if not choice.record.launch:
        return None
    script = target.with_suffix(".sh")
    _replace(script, script_text(choice, target.name))
    script.chmod(0o755)
    return script


def config_text(choice: Choice, file_name: str = "best.yaml") -> str:
    """The YAML file: what was found, and how sure that is, in comments on top."""
    record = choice.record
    variables = _variables(record)
    origin = (record.role, record.source)
    lines = [
        f"Study:       {record.study}, trial {record.trial} ({', '.join(filter(None, origin))})",
        *([f"Changed:     {choice.derived}"] if choice.derived else []),
        f"Server:      {record.label}",
        f"SGLang:      {record.server.get('version') or 'version not reported'}",
        f"GPUs:        {', '.join(str(gpu) for gpu in record.gpus) or 'none named'}",
        f"Objective:   {record.objective}",
        f"Score:       {choice.standing.shown}, {choice.gain}",
        f"Confirmed:   {choice.certainty}",
        f"Written by:  tuner {record.tuner_version}, measured {record.started}",
        "",
    ]
    if variables:
        lines.append("The environment has to be set as well:")
        lines += [f"  export {name}={_quoted(name, value)}" for name, value in variables.items()]
        lines.append("")
    if not record.launch:
        lines.append("No launch was shown, so these are the values of the parameters.")
        return _commented(lines, {**record.configuration})
    left_out = record.launch["config_left_out"]
    for reason in dict.fromkeys(item["reason"] for item in left_out):
        lines.append(f"Not possible in this file, to be given on the command line ({reason}):")
        lines += [f"  {shlex.join(item['words'])}" for item in left_out if item["reason"] == reason]
        lines.append("")
    script = Path(file_name).with_suffix(".sh").name
    if record.launch["config"]:
        lines.append(f"Start it with {script}, which sets all of this, or with")
        lines.append(f"  {shlex.join([*record.launch['server_command'], '--config', file_name])}")
    else:
        lines.append(f"Start it with {script}, which sets all of this; there is nothing for a file to hold.")
    return _commented(lines, _public(record.launch["config"]))


def _commented(lines: Sequence[str], content: dict[str, object]) -> str:
    head = "\n".join(f"# {line}".rstrip() for line in lines)
    return f"{head}\n{write_document(content)}"


def script_text(choice: Choice, config_name: str) -> str:
    """A POSIX shell script that sets the environment and starts the server; arguments are passed on."""
    record = choice.record
    lines = [
        "#!/bin/sh",
        f"# {record.label}: trial {record.trial} of study {record.study},",
        *([f"# {choice.derived};"] if choice.derived else []),
        f"# {choice.gain}.",
        "# Usage: sh " + Path(config_name).with_suffix(".sh").name + " [--port N] [further flags]",
        'here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)',
    ]
    for name, value in _variables(record).items():
        if value == REDACTED:
            lines.append(f': "${{{name}:?{name} is a secret and was not stored: set it first}}"')
        else:
            lines.append(f"export {name}={shlex.quote(value)}")
    words = [
        *(shlex.quote(word) for word in record.launch["server_command"]),
        *(("--config", f'"$here/{config_name}"') if record.launch["config"] else ()),
    ]
    for item in record.launch["config_left_out"]:
        words += [shlex.quote(word) for word in item["words"] if word != REDACTED]
    for key in _secret_keys(record.launch["config"]):
        variable = key.replace("-", "_").upper()
        words += [f"--{key}", f'"${{{variable}:?--{key} is a secret and was not stored: set {variable}}}"']
    lines.append("exec " + " ".join([*words, '"$@"']))
    return "\n".join(lines) + "\n"


def _variables(record: TrialRecord) -> dict[str, str]:
    variables: dict[str, str] = record.launch.get("variables", {})
    return variables


def _quoted(name: str, value: str) -> str:
    return f"…  # a secret, not stored: set {name} yourself" if value == REDACTED else shlex.quote(value)


def _secret_keys(config: dict[str, object]) -> list[str]:
    return [key for key in config if is_secret(key)]


def _public(config: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in config.items() if not is_secret(key)}


def _replace(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
