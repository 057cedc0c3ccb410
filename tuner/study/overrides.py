"""Every field of a study definition as a command-line option.

An option becomes a value at its key path, exactly as if it stood in the file, so it is checked by the same
reader and its errors name the option. The precedence is: command line, then file, then default.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from tuner.document import Node, parse_document
from tuner.errors import InputError


@dataclass(frozen=True)
class Override:
    """An option and the key path that it sets.

    `form`: `value` (as in a YAML file, `{low: 1, high: 9}` included), `text` (taken as it is), `list`
    (several values), `pairs` (NAME=VALUE, repeatable, merged into the file's mapping).
    """

    option: str
    path: str
    help: str
    form: str = "value"
    metavar: str = "N"


OVERRIDES = (
    Override("--name", "name", "name of the study", "text", "NAME"),
    Override("--search-space", "search_space", "search space, by name or file", "text", "SPACE"),
    Override("--folder", "folder", "where results go", "text", "DIR"),
    Override("--storage", "storage", "Optuna storage URL", "text", "URL"),
    Override("--seed", "seed", "seed of sampler and prompts"),
    Override("--sampler", "sampler", "what proposes: surrogate, tpe, random or gp", "text", "NAME"),
    Override("--warm-start", "warm_start", "earlier studies to learn from", "list", "STUDY"),
    Override("--prior", "prior", "what ranks layouts of the GPUs: aiconfigurator", "text", "PROGRAM"),
    Override("--command", "server.command", "how the server is started", "text", "LINE"),
    Override("--label", "server.label", "what the server is called everywhere", "text", "TEXT"),
    Override("--model", "server.model", "model path or name", "text", "MODEL"),
    Override("--gpus", "server.gpus", "indices of the GPUs to use", "list", "GPU"),
    Override("--flag", "server.flags", "flag of every launch, by canonical name", "pairs", "NAME=VALUE"),
    Override("--env", "server.environment", "variable of every launch", "pairs", "NAME=VALUE"),
    Override(
        "--inherit-env", "server.inherit_environment", "variables taken over from this shell", "list", "NAME"
    ),
    Override("--ready-limit-s", "server.ready_limit_s", "longest start in all", metavar="S"),
    Override("--stall-limit-s", "server.stall_limits_s", "longest silence of a phase", "pairs", "PHASE=S"),
    Override("--stop-grace-s", "server.stop_grace_s", "time to end by itself", metavar="S"),
    Override("--expected-start-s", "server.expected_start_s", "for the first estimate of hours", metavar="S"),
    Override("--kind", "workload.kind", "batch, waves, closed, burst or open", "text", "KIND"),
    Override("--load", "workload.load", "own, or SGLang's bench-serving to check with", "text", "CLIENT"),
    Override("--dataset", "workload.dataset", "what is sent", "text", "KIND"),
    Override("--dataset-file", "workload.dataset_file", "the file of a dataset", "text", "FILE"),
    Override("--input-tokens", "workload.input_tokens", "tokens of a prompt"),
    Override("--output-tokens", "workload.output_tokens", "tokens of an answer"),
    Override("--prefix-tokens", "workload.prefix_tokens", "shared tokens of a group's prompts"),
    Override("--prefix-groups", "workload.prefix_groups", "groups that share a prefix"),
    Override("--rate", "workload.rate", "requests per second of an open load", "list", "R"),
    Override("--requests", "workload.requests", "requests of a round"),
    Override("--burst-every-s", "workload.burst_every_s", "time between bursts", metavar="S"),
    Override("--precision", "workload.precision", "half width of a level's 95 % interval", metavar="P"),
    Override("--batches", "workload.batches", "rounds of a level, at least"),
    Override("--max-batches", "workload.max_batches", "rounds of a level, at most"),
    Override("--repeat-limit-s", "workload.repeat_limit_s", "no further round after this", metavar="S"),
    Override("--warmup-s", "workload.warmup_s", "warm-up, at least", metavar="S"),
    Override("--warmup-limit-s", "workload.warmup_limit_s", "warm-up, at most", metavar="S"),
    Override("--concurrency", "workload.concurrency", "load levels", "list"),
    Override("--warmup-output-tokens", "workload.warmup_output_tokens", "tokens of a warm-up answer"),
    Override("--level-limit-s", "workload.level_limit_s", "longest level", metavar="S"),
    Override(
        "--expected-level-s", "workload.expected_level_s", "for the first estimate of hours", metavar="S"
    ),
    Override("--silence-limit-s", "workload.silence_limit_s", "longest silence under load", metavar="S"),
    Override("--goal", "objective.goal", "what is scored (decode, goodput …)", "text", "GOAL"),
    Override("--goal-of", "objective.of", "the latency that is scored (ttft_p99_ms …)", "text", "NAME"),
    Override("--goals", "objective.goals", "two goals that are traded off", metavar="YAML"),
    Override("--objective-rate", "objective.rate", "rates that are scored", "list", "R"),
    Override("--limit", "objective.limits", "limit on a latency (ttft_p99_ms=500)", "pairs", "NAME=MS"),
    Override("--objective-concurrency", "objective.concurrency", "levels that are scored", "list"),
    Override("--min-kv-tokens", "least.min_kv_tokens", "least size of the KV pool"),
    Override("--min-context-len", "least.min_context_len", "least context length"),
    Override("--min-running-requests", "least.min_running_requests", "least running requests"),
    Override("--preflight", "preflight", "refuse what cannot run before it is launched", metavar="BOOL"),
    Override("--guard", "guard.enabled", "compare outputs with the default's", metavar="BOOL"),
    Override("--guard-prompts", "guard.prompts", "prompts of the output check", "text", "FILE"),
    Override("--allow-lossy", "guard.allow_lossy", "tune switches that trade quality", metavar="BOOL"),
    Override("--accuracy-command", "guard.accuracy.command", "judges a server at {url}", "text", "LINE"),
    Override("--accuracy-limit-s", "guard.accuracy.limit_s", "longest run of that command", metavar="S"),
    Override("--baseline-command", "baseline.command", "the command you run today", "text", "LINE"),
    Override("--baseline-flag", "baseline.flags", "flag given even with the defaults", "pairs", "NAME=VALUE"),
    Override("--launches", "budget.launches", "stop after so many launches"),
    Override("--hours", "budget.hours", "stop after so many hours", metavar="H"),
    Override("--confirm", "budget.confirm", "launches kept to confirm the best, 0 for none"),
    Override("--explain", "budget.explain", "launches to explain the best, 0 for none"),
    Override("--stop-when-idle", "budget.stop_when_idle", "end where nothing promises more", metavar="BOOL"),
    Override("--looks", "budget.looks", "cheap looks before full launches: auto or off", "text", "WHEN"),
    Override("--repairs", "budget.repairs", "repaired failed trials, at most"),
    Override("--give-up-after", "budget.give_up_after", "stop after so many failures and no success"),
    Override("--until", "budget.until", "stop at this time (07:00)", "text", "TIME"),
)


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """Add an option for every field."""
    group = parser.add_argument_group("fields of the study (before the file, before the defaults)")
    for override in OVERRIDES:
        told = override.help.replace("%", "%%")  # argparse fills it in
        if override.form == "pairs":
            group.add_argument(
                override.option,
                dest=override.path,
                metavar=override.metavar,
                nargs="+",
                action="extend",
                help=told,
            )
        elif override.form == "list":
            group.add_argument(
                override.option, dest=override.path, metavar=override.metavar, nargs="+", help=told
            )
        else:
            group.add_argument(override.option, dest=override.path, metavar=override.metavar, help=told)


def merge_overrides(root: Node, arguments: argparse.Namespace) -> Node:
    """The file's tree with the given options laid over it."""
    for override in OVERRIDES:
        given = getattr(arguments, override.path, None)
        if given is None:
            continue
        *parents, key = override.path.split(".")
        root = _laid_over(root, parents, key, override, given)
    return root


def _laid_over(root: Node, parents: list[str], key: str, override: Override, given: str | list[str]) -> Node:
    keys = dict(root.value) if isinstance(root.value, dict) else {}
    if parents:
        child = keys.get(parents[0], Node({}, "command line", parents[0]))
        keys[parents[0]] = _laid_over(child, parents[1:], key, override, given)
    else:
        keys[key] = _value(override, given, keys.get(key))
    return Node(keys, root.file, root.path, root.line)


def _value(override: Override, given: str | list[str], in_file: Node | None) -> Node:
    where = ("command line", override.option)
    if override.form == "text":
        return Node(given, *where)
    if override.form == "list":
        return Node([_scalar(word, *where) for word in given], *where)
    if override.form == "value":
        return _scalar(str(given), *where)
    pairs = dict(in_file.value) if in_file is not None and isinstance(in_file.value, dict) else {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"command line: {override.option}: '{pair}' is not {override.metavar}")
        pairs[name] = _scalar(value, "command line", f"{override.option} {name}")
    return Node(pairs, *where)


def _scalar(word: str, file: str, path: str) -> Node:
    """What `word` would be in a YAML file: a number, true, text, a list or keys and values."""
    try:
        found = parse_document(f"value: {word}", file).value["value"]
    except InputError:
        found = Node(word, file)
    return _placed(found if found.value is not None else Node(word, file), file, path)


def _placed(node: Node, file: str, path: str) -> Node:
    """The node as part of an option: complaints name the option, and below it the key."""
    value = node.value
    if isinstance(value, dict):
        value = {key: _placed(child, file, f"{path} {key}") for key, child in value.items()}
    elif isinstance(value, list):
        value = [_placed(child, file, path) for child in value]
    return Node(value, file, path)
