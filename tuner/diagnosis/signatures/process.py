"""What the launcher and the shell say when a child is gone: echoes, seldom causes."""

from __future__ import annotations

from tuner.diagnosis.failure import Cause, Kind
from tuner.diagnosis.signature import Signature, Weight, action
from tuner.sglang.phases import Phase

_EXCEPTION = r"^(?:\w+\.)*(?:\w+Error|\w*Exception)(?::|$)"
_CLIENTS = (
    r"^(?:EOFError|Connection\w*Error|BrokenPipeError"
    r"|requests\.|urllib3\.|http\.client\.|httpx|asyncio\.|aiohttp\.|anyio\.)"
)
_BY_PHASE = {
    Phase.ARGUMENTS: Kind.INVALID_ARGUMENTS,
    Phase.IMPORT: Kind.DEPENDENCY_MISMATCH,
    Phase.DISTRIBUTED_INIT: Kind.RENDEZVOUS,
    Phase.WEIGHT_LOAD: Kind.UNSUPPORTED_MODEL,
    Phase.KV_CACHE_ALLOC: Kind.ASSERTION,
    Phase.GRAPH_CAPTURE: Kind.KERNEL_FAULT,
    Phase.DRAFT_MODEL: Kind.INCOMPATIBLE_OPTIONS,
}
"""What an exception most often is that nothing else is known of."""

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        name="native crash",
        kind=Kind.SCHEDULER_DIED,
        literals=(
            "fatal python error: segmentation fault",
            "segfault encountered",
            "fatal python error: floating",
            "fatal python error: illegal instruction",
            "segmentation fault (core dumped)",
            "segmentation fault",
            "terminate called",
        ),
        weight=Weight.VERDICT,
        certainty=0.7,
    ),
    Signature(
        name="exception that a scheduler died of",
        kind=Kind.SCHEDULER_DIED,
        literals=("error", "exception"),
        pattern=_EXCEPTION,
        unless=_CLIENTS,
        near=r"hit an exception|Exception in (?:run_tp_server|ModelTpServer|ModelRpcClient)"
        r"|in run_scheduler_process",
        weight=Weight.RAISED,
        kinds=_BY_PHASE,
        certainty=0.42,
    ),
    Signature(
        name="exception of an unknown sort",
        kind=Kind.SCHEDULER_DIED,
        literals=("error", "exception"),
        pattern=_EXCEPTION,
        unless=_CLIENTS,
        weight=Weight.UNSORTED,
        kinds=_BY_PHASE,
        certainty=0.4,
    ),
    Signature(
        name="child killed while it started",
        kind=Kind.HOST_OOM,
        literals=(
            "scheduler died during initialization (exit code: -9)",
            "exit code: -9",
            "exitcode=-9",
            "exit code -9",
            "exit code: 137",
            "exitcode: -9",
            "exit code 9",
        ),
        pattern=r"died during initialization \(exit code: -9\)|^exit ?code: -?(?:9|137)\b"
        r"|unexpectedly failed with exit ?code=? ?-9",
        weight=Weight.AFTERMATH,
        cause=Cause.UNKNOWN,
        hints=(action("reduce-host-memory"), action("check-dmesg-for-the-oom-killer")),
        summary="A scheduler was killed with SIGKILL while starting, most often for want of host memory.",
        certainty=0.75,
    ),
    Signature(
        name="child killed while serving",
        kind=Kind.KILLED,
        literals=("crashed with exit code -9", "crashed with exit code -15"),
        weight=Weight.AFTERMATH,
        phase=Phase.SERVING,
        summary="A child process was killed with a signal from outside while the server was running.",
        certainty=0.75,
    ),
    Signature(
        name="child hit a bus error",
        kind=Kind.SHM_TOO_SMALL,
        literals=("exit code: -7", "exit code -7", "exit code: 135"),
        pattern=r"exit code:? (?:-7|135)\b",
        weight=Weight.AFTERMATH,
        certainty=0.7,
    ),
    Signature(
        name="child crashed",
        kind=Kind.SCHEDULER_DIED,
        literals=(
            "scheduler died during initialization",
            "crashed with exit code",
            "scheduler is dead",
            "unexpectedly failed with exit",
            "dataparallelcontroller is dead",
            "scheduler or dataparallelcontroller",
            "died during initialization",
        ),
        unless=r"exit ?code ?=? ?9\b",
        weight=Weight.ECHO,
        certainty=0.65,
    ),
    Signature(
        name="exception without a readable end",
        kind=Kind.SCHEDULER_DIED,
        literals=("hit an exception",),
        weight=Weight.ECHO,
        certainty=0.5,
    ),
    Signature(
        name="parent told that a child failed",
        kind=Kind.SCHEDULER_DIED,
        literals=(
            "received sigquit from a child process",
            "sigquit received",
            "eoferror",
            "initialization failed. please see the error messages above",
        ),
        weight=Weight.ECHO,
        certainty=0.5,
    ),
    Signature(
        name="killed, as the shell says it",
        kind=Kind.KILLED,
        literals=("killed",),
        pattern=r"^Killed\b|line \d+: +\d+ Killed\b|zsh: killed",
        weight=Weight.ECHO,
        certainty=0.5,
    ),
    Signature(
        name="traceback without its end",
        kind=Kind.SCHEDULER_DIED,
        literals=("traceback (most recent call last)", 'file "'),
        pattern=r'^Traceback \(most recent|^\s*File "[^"]+", line \d+',
        weight=Weight.ECHO,
        in_source=True,
        certainty=0.4,
    ),
    Signature(
        name="aborted",
        kind=Kind.SCHEDULER_DIED,
        literals=("fatal python error: aborted", "aborted (core dumped)"),
        weight=Weight.ECHO,
        certainty=0.5,
    ),
)
