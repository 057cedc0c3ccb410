"""Processes that talk to each other: all-reduce paths, NCCL, meeting points, lost peers."""

from __future__ import annotations

from tuner.diagnosis.failure import Cause, Kind
from tuner.diagnosis.signature import Signature, Weight, action, env, param
from tuner.sglang.phases import Phase

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        name="no peer access",
        kind=Kind.ALLREDUCE_UNSUPPORTED,
        literals=(
            "peer access is not supported",
            "peer access is not enabled",
            "cudaerrorpeeraccess",
            "peer mapping resources exhausted",
        ),
        phase=Phase.DISTRIBUTED_INIT,
        hints=(param("disable_custom_all_reduce", "set", True), param("enable_p2p_check", "set", True)),
        certainty=0.95,
    ),
    Signature(
        name="custom all-reduce",
        kind=Kind.ALLREDUCE_UNSUPPORTED,
        literals=(
            "custom_all_reduce",
            "register_graph_buffers",
            "rank data buffer is overflowed",
            "quick_all_reduce",
            "get_graph_buffer_ipc_meta",
            "custom allreduce",
            "custom_ar",
        ),
        pattern=r"(?:Failed|Error|error|assert)\b.*(?:custom_all_?reduce|quick_all_reduce|custom_ar)"
        r"|rank data buffer is overflowed|in register_graph_buffers"
        r"|in get_graph_buffer_ipc_meta",
        unless=r"thread 0x|most recent call first",
        in_source=True,
        certainty=0.85,
    ),
    Signature(
        name="IPC handle of another rank cannot be opened",
        kind=Kind.NCCL,
        literals=("ipcopenmemhandle", "cudaipc", "hipipc"),
        pattern=r"(?:Error|error|failed)\b.*(?:cuda|hip)?IpcOpenMemHandle",
        certainty=0.8,
    ),
    Signature(
        name="all-reduce fusion",
        kind=Kind.ALLREDUCE_UNSUPPORTED,
        literals=(
            "allreduce fusion requires",
            "allreduce_fusion",
            "trtllm_mnnvl_ar",
            "allreduce fusion",
            "create_allreduce_fusion_workspace",
            "flashinfer_comm_fusion",
        ),
        pattern=r"all_?reduce\w* failed with error|allreduce fusion requires|(?:Error|Exception"
        r"|error)\b.*allreduce.?fusion"
        r"|\b(?:in )?(?:create_allreduce_fusion_workspace|_alloc_symm_buffer"
        r"|trtllm_mnnvl\w*)\b",
        unless=r"disabling flashinfer allreduce fusion",
        in_source=True,
        hints=(
            param("enforce_disable_flashinfer_allreduce_fusion", "set", True),
            param("enable_flashinfer_allreduce_fusion", "unset"),
        ),
        certainty=0.85,
    ),
    Signature(
        name="symmetric or multicast memory",
        kind=Kind.ALLREDUCE_UNSUPPORTED,
        literals=(
            "multicast",
            "symmetric memory",
            "symm_mem",
            "nvls",
            "mscclpp",
            "msccl++",
            "cumulticast",
            "_symmetric_memory",
            "cudasymmetricmemory",
            "nvshmem",
        ),
        pattern=r"(?:Error|Exception|WARN|failed|Failed)\b.*(?:multicast|symmetric.?memory|symm_mem"
        r"|nvls|mscclpp|msccl\+\+|nvshmem)"
        r"|(?:multicast|nvls|mscclpp|msccl\+\+|nvshmem|symmetric.?memory).{0,80}(?:fail|error"
        r"|not supported|unable)",
        unless=r"Setup Custom allreduce failed|Setup Torch|communicator is not available"
        r"|is unavailable because",
        hints=(
            env("NCCL_NVLS_ENABLE", "set", 0),
            param("enable_symm_mem", "unset"),
            param("enable_torch_symm_mem", "unset"),
            param("enable_mscclpp", "unset"),
        ),
        certainty=0.85,
    ),
    Signature(
        name="NCCL wants shared memory",
        kind=Kind.SHM_TOO_SMALL,
        literals=(
            "unable to open shared memory object",
            "error while creating shared memory segment",
            "/dev/shm/nccl",
            "no space left on device",
            "bus error",
            "bytes of shared memory",
            "insufficient shared memory",
            "shm_open",
            "posix_fallocate",
        ),
        pattern=r"unable to open shared memory object|error while creating shared memory segment"
        r"|(?:failed|error)\b.{0,60}/dev/shm|/dev/shm.*(?:no space|failed|error"
        r"|bus error)|no space left on device.*(?:/dev/shm|shm)|(?:^|: )bus error"
        r"|insufficient shared memory"
        r"|(?:Error|failed).*(?:shm_open|posix_fallocate)|error: \d+ bytes of shared memory",
        certainty=0.94,
    ),
    Signature(
        name="disk full",
        kind=Kind.DISK_FULL,
        literals=(
            "no space left on device",
            "disk quota exceeded",
            "not enough free disk space",
            "not enough disk space",
            "errno 28",
            "errno 122",
        ),
        pattern=r"no space left on device|disk quota exceeded|not enough (?:free )?disk space",
        unless=r"/dev/shm|shared memory segment|sem_open|SemLock|shm_",
        certainty=0.92,
        warns=True,
    ),
    Signature(
        name="address in use",
        kind=Kind.PORT_IN_USE,
        literals=(
            "is not available",
            "address already in use",
            "errno 98",
            "is not available in 30 seconds",
            "port is already in use",
            "is used by a process already",
            "eaddrinuse",
            "errno 48",
            "already allocated",
            "port is in use",
            "failed to bind",
            "could not bind port",
            "unable to bind",
        ),
        pattern=r"\bport (?:at )?\d+ is not available|address already in use|errno 98"
        r"|not available in \d+ seconds"
        r"|port (?:\S+ )?is (?:already )?in use|used by a process already|EADDRINUSE"
        r"|errno 48\]|port .{0,20}already allocated|(?:could not|unable to|failed to) bind (?:to )?(?:port"
        r"|address)",
        certainty=0.95,
        warns=True,
    ),
    Signature(
        name="NCCL system error",
        kind=Kind.NCCL,
        weight=Weight.SYMPTOM,
        literals=("unhandled system error", "ncclsystemerror", "ncclremoteerror"),
        pattern=r"(?:Error|error|failure)\b.*(?:unhandled system error|ncclSystemError"
        r"|ncclRemoteError)|^ncclSystemError",
        certainty=0.87,
        cause=Cause.ENVIRONMENT,
        hints=(env("NCCL_DEBUG", "set", "INFO"), action("check-shm-and-interfaces")),
    ),
    Signature(
        name="NCCL error",
        kind=Kind.NCCL,
        weight=Weight.SYMPTOM,
        literals=(
            "nccl error",
            "ncclunhandledcudaerror",
            "unhandled cuda error",
            "nccl warn",
            "ncclinternalerror",
            "internal error - please report this issue to the nccl",
            "ncclinvalidusage",
            "invalid usage",
            "ncclinvalidargument",
            "nccl failure",
            "rccl error",
            "duplicate gpu detected",
            "hccl error",
            "nccl version mismatch",
        ),
        pattern=r"nccl error|ncclUnhandledCudaError|unhandled cuda error|ncclInternalError"
        r"|ncclInvalid(?:Usage|Argument)|nccl failure|rccl error|hccl error"
        r"|duplicate gpu detected"
        r"|NCCL WARN (?:cuda failure|call to|failed)",
        unless=r"Watchdog caught|remote process exited|ncclRemoteError|Connection (?:reset|closed"
        r"|refused)|out of memory",
        certainty=0.87,
        cause=Cause.TRANSIENT,
        hints=(env("NCCL_DEBUG", "set", "INFO"),),
    ),
    Signature(
        name="Gloo mesh not connected",
        kind=Kind.RENDEZVOUS,
        literals=(
            "connectfullmesh failed",
            "gloo connect",
            "unable to resolve hostname",
            "unable to find interface",
            "couldn't find address",
            "unable to find address for",
        ),
        pattern=r"connectFullMesh failed|(?:Error|Exception"
        r"|failed)\b.*(?:unable to (?:resolve hostname|find (?:address|interface))"
        r"|couldn't find address)",
        hints=(env("GLOO_SOCKET_IFNAME", "set"), env("NCCL_SOCKET_IFNAME", "set")),
        certainty=0.92,
        phase=Phase.DISTRIBUTED_INIT,
    ),
    Signature(
        name="meeting point not reached",
        kind=Kind.RENDEZVOUS,
        literals=(
            "diststoreerror",
            "distnetworkerror",
            "waiting for clients",
            "failed to connect to",
            "client socket has timed out",
            "tcpstore",
            "the ipv6 network addresses",
            "rendezvous",
            "no address associated with hostname",
            "name or service not known",
            "temporary failure in name resolution",
            "bootstrap : no socket interface found",
            "socket timeout",
            "connection to master",
            "wait timeout after",
        ),
        pattern=r"DistStoreError|DistNetworkError|waiting for clients|client socket has timed out"
        r"|(?:Error|Exception)\b.*rendezvous|no socket interface found"
        r"|(?:Error|Exception|failed)\b.*(?:tcpstore|no address associated"
        r"|name or service not known|failure in name resolution)|(?:Error"
        r"|Exception)\b.*wait timeout after \d+ms",
        unless=r"huggingface|hf\.co|modelscope|max retries exceeded|should dump"
        r"|store server has shut down|connection (?:reset|closed)|broken pipe|recvValue failed"
        r"|sendBytes failed|EADDRINUSE|address already in use",
        hints=(param("dist_init_addr", "change"), param("dist_timeout", "increase")),
        certainty=0.88,
        phase=Phase.DISTRIBUTED_INIT,
    ),
    Signature(
        name="a socket of the store ran into its time-out",
        kind=Kind.RENDEZVOUS,
        literals=("waitforinput",),
        pattern=r"waitForInput: .*timed out after \d+ ?ms",
        weight=Weight.SYMPTOM,
        kinds={Phase.SERVING: Kind.PEER_LOST},
        warns=True,
        hints=(param("dist_init_addr", "change"), param("dist_timeout", "increase")),
        certainty=0.75,
    ),
    Signature(
        name="transfer engine not set up",
        kind=Kind.RENDEZVOUS,
        literals=(
            "transfer engine initialization failed",
            "gid is null",
            "failed to open device",
            "no rdma device",
            "rdma",
            "mooncake",
            "nixl",
        ),
        pattern=r"transfer engine init\w* failed|GID is NULL|failed to open (?:rdma )?device .*(?:gid"
        r"|port)|no (?:rdma|ib) devices? (?:found|available)|(?:Error|failed)\b.*(?:mooncake"
        r"|nixl).*(?:init|connect|handshake)",
        certainty=0.88,
        phase=Phase.DISTRIBUTED_INIT,
    ),
    Signature(
        name="collective timed out",
        kind=Kind.NCCL,
        literals=(
            "watchdog caught collective operation timeout",
            "timeout at nccl work",
            "collective operation timeout",
            "ran for",
            "heartbeat monitor timed out",
            "watchdog got stuck",
        ),
        pattern=r"watchdog caught collective operation timeout|timeout at nccl work"
        r"|collective operation timeout|heartbeat monitor timed out|watchdog got stuck",
        weight=Weight.VERDICT,
        cause=Cause.TRANSIENT,
        hints=(param("dist_timeout", "increase"), env("NCCL_DEBUG", "set", "INFO")),
        certainty=0.75,
    ),
    Signature(
        name="NCCL work aborted",
        kind=Kind.NCCL,
        literals=(
            "nccl communicator was aborted",
            "process group watchdog thread terminated",
            "distbackenderror",
        ),
        weight=Weight.AFTERMATH,
        cause=Cause.TRANSIENT,
        certainty=0.6,
    ),
    Signature(
        name="peer closed the connection",
        kind=Kind.PEER_LOST,
        literals=(
            "timed out waiting",
            "connection closed by peer",
            "connection reset by peer",
            "reached monitoredbarrier, but received errors",
            "socket closed",
            "broken pipe",
            "store server has shut down",
            "remote process exited",
            "ncclremoteerror",
            "connection was likely closed",
            "monitoredbarrier",
            "recvvalue failed",
            "sendbytes failed",
            "peer may have",
            "producer process has been terminated",
            "gloo/transport/tcp/pair.cc",
        ),
        pattern=r"timed out waiting \d+ ?ms for (?:recv|send)|gloo/transport/tcp/pair\.cc|(?:gloo"
        r"|pair\.cc|nccl|tcpstore|store|rank|barrier|socket"
        r"|recvValue|sendBytes|peer|producer|zmq|distributed).{0,200}(?:connection (?:closed"
        r"|reset)|received errors|shut ?down|remote process exited|broken pipe|failed"
        r"|terminated|likely)"
        r"|connection closed by peer|read error .*connection reset|^\s*(?:read|write) error",
        weight=Weight.AFTERMATH,
        warns=True,
        certainty=0.8,
    ),
)
