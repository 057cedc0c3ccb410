"""Kernels that fault, that want too much, or that cannot be built."""

from __future__ import annotations

from tuner.diagnosis.failure import Cause, Kind
from tuner.diagnosis.signature import Signature, Weight, env, param
from tuner.sglang.phases import Phase

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        name="Triton shared memory",
        kind=Kind.KERNEL_RESOURCES,
        literals=(
            "outofresources",
            "out of resource: shared memory",
            "out of resource",
            "too many resources requested for launch",
            "exceeds the maximum shared memory",
            "hardware limit:",
            "cudaerrorlaunchoutofresources",
            "exceeds available shared memory",
            "shared memory size",
            "out of resource: tensor memory",
        ),
        pattern=r"out ?of ?resources?\b.*(?:shared memory|tensor memory|threads|registers|required)"
        r"|triton.*OutOfResources|too many resources requested"
        r"|(?:exceeds?|larger than) .{0,40}shared memory|shared memory .{0,40}(?:exceeds?"
        r"|larger than)|LaunchOutOfResources",
        certainty=0.95,
    ),
    Signature(
        name="workspace of a kernel too small",
        kind=Kind.KERNEL_RESOURCES,
        literals=("workspace", "tmp_v", "buffer overflow", "aligned_alloc"),
        pattern=r"(?:Error|Exception|failed)\b.*(?:(?:increase|larger|bigger) .{0,30}workspace"
        r"|workspace .{0,60}(?:too small|insufficient|overflow|not enough|exceed|is smaller)"
        r"|failed to allocate memory for \w+ with size)",
        hints=(
            env("SGLANG_FLASHINFER_WORKSPACE_SIZE", "increase"),
            param("max_running_requests", "decrease"),
            param("chunked_prefill_size", "decrease"),
        ),
        certainty=0.92,
    ),
    Signature(
        name="capture broken by the watchdog's queries (ROCm)",
        kind=Kind.ALLREDUCE_UNSUPPORTED,
        cause=Cause.ENVIRONMENT,
        literals=("event last recorded in a capturing stream",),
        phase=Phase.GRAPH_CAPTURE,
        certainty=0.8,
    ),
    Signature(
        name="probabilities that are no numbers",
        kind=Kind.KERNEL_FAULT,
        literals=(
            "probability tensor contains either",
            "detected errors during sampling",
            "nan in the logits",
            "nan in the probability",
        ),
        pattern=r"probability tensor contains either|(?:Error"
        r"|Exception).*(?:detected errors during sampling|nan in the (?:logits|probab))",
        certainty=0.85,
    ),
    Signature(
        name="kernel fault",
        kind=Kind.KERNEL_FAULT,
        literals=(
            "failed with error code",
            "illegal memory access",
            "mmu fault",
            "xid (",
            "device-side assert",
            "cudaerrorillegaladdress",
            "cuda_error_illegal_address",
            "misaligned address",
            "illegal instruction was encountered",
            "unspecified launch failure",
            "launch failure",
            "cuda_error_launch_failed",
            "warp illegal address",
            "invalid program counter",
            "failed to encode tensor map: 700",
            "cuda exception",
            "index out of bounds",
            "an illegal barrier",
            "invalid argument",
            "invalid configuration argument",
            "cublas_status_execution_failed",
            "cublas_status_internal_error",
            "cublas_status_invalid_value",
            "invalid resource handle",
            "invalid device pointer",
            "retry page fault",
            "cuda error: operation not",
            "cudaerrorlaunchfailure",
            "hip error: ",
        ),
        pattern=r"failed with error code (?:invalid|unspecified|an illegal|misaligned)"
        r"|illegal memory access|mmu fault|Xid (?:\(PCI:[\w:.]+\): )?(?:13|31|43)\b"
        r"|device-side assert|illegal_?address|misaligned address"
        r"|illegal instruction was|(?:unspecified )?launch[_ ]fail"
        r"|Warp Illegal|invalid program counter|failed to encode tensor map: 700"
        r"|index out of bounds.{0,20}failed|illegal barrier"
        r"|(?:CUDA|Triton|HIP) (?:driver )?error\b.{0,20}: (?:invalid argument"
        r"|invalid configuration argument|invalid resource handle|invalid device pointer)"
        r"|amdgpu: .*page fault"
        r"|CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR|INVALID_VALUE)"
        r"|HIP error: (?:unspecified|illegal)|launch failure",
        unless=r"all_?reduce|register_graph_buffers|get_graph_buffer_ipc_meta|open_mem_handle|ipc_handle",
        certainty=0.92,
    ),
    Signature(
        name="device assertion",
        kind=Kind.KERNEL_FAULT,
        literals=(".cu:", ".cuh:"),
        pattern=r"\.cuh?:\d+:.*(?:\bAssertion `|thread: \[\d+,\d+,\d+\]|_assert_async)",
        certainty=0.93,
    ),
    Signature(
        name="capture forbids what a layer does",
        kind=Kind.INCOMPATIBLE_OPTIONS,
        literals=(
            "when stream is capturing",
            "unsafe during capture",
            "during cuda graph capture",
            "cudaerrorstreamcapture",
            "streamcaptureinvalidated",
            "previous error during capture",
            "stream capture",
        ),
        pattern=r"(?:Error|error|Exception"
        r"|failed)\b.*(?:operation not permitted when stream is capturing"
        r"|(?:cuda|hip)ErrorStreamCapture|previous error during capture|stream capture (?:unsupported"
        r"|invalidated|isolation))",
        phase=Phase.GRAPH_CAPTURE,
        hints=(param("disable_cuda_graph", "set", True),),
        weight=Weight.GENERIC,
        certainty=0.6,
    ),
    Signature(
        name="ninja or nvcc failed",
        kind=Kind.JIT_COMPILE,
        literals=(
            "bin/ptxas",
            "ninja exited with",
            "'ninja', '-v'",
            "ninja: build stopped",
            "ninja build failed",
            "error building extension",
            "ninja is required",
            "nvcc: not found",
            "nvcc fatal",
            "could not find nvcc",
            "nvcc not found",
            "cuda_home environment variable is not set",
            "cuda_home is not set",
            "failed: [code=",
            "nvcc compilation failed",
            "nvrtc compilation",
            "nvrtc: error",
            "compilation failed",
            "failed to compile",
            "fatal error: ",
            "cicc: ",
            "could not find cuda",
            "gcc: fatal",
            "no such file or directory: 'nvcc'",
            "no such file or directory: 'ninja",
            "no such file or directory: '/usr/local/cuda",
            "nvrtc_error",
            "collect2: error",
            "cannot find -lcuda",
            "cannot find -l",
            "c compiler",
            "calledprocesserror",
            "python.h: no such file",
            "unsupported gnu version",
            "jit compilation failed",
        ),
        pattern=r"bin/ptxas.*(?:died with|non-zero exit)|ninja exited with|'ninja', '-v'"
        r"|ninja: build stopped|ninja build failed|error building extension"
        r"|ninja is required|nvcc(?:: not found| fatal| not found)|could not find nvcc"
        r"|CUDA_HOME (?:environment variable )?is not set|FAILED: \[code=\d+\]|(?:nvcc|nvrtc"
        r"|jit|kernel)\w* compil\w+ (?:failed|error)|nvrtc: error"
        r"|fatal error: \S+: no such file|cicc: |no such file or directory: '\S*(?:nvcc|ninja"
        r"|cuda/bin|hipcc|gcc|g\+\+)\S*'|NVRTC_ERROR|collect2: error|cannot find -l\w+"
        r"|CalledProcessError: .*(?:gcc|g\+\+|nvcc|clang|ninja|hipcc)|failed to find c compiler"
        r"|Python\.h: no such file|unsupported gnu version"
        r"|could not find cuda",
        unless=r"unsupported gpu architecture|not supported on \.t",
        certainty=0.92,
        phase=Phase.JIT_COMPILE,
    ),
    Signature(
        name="DeepGEMM import without a toolkit",
        kind=Kind.JIT_COMPILE,
        literals=("deep_gemm", "deepgemm", "cuda_home"),
        in_source=True,
        pattern=r"assert .*cuda_home|deep_?gemm.*(?:cuda_home|nvcc|compil\w* (?:fail|error))",
        certainty=0.85,
        phase=Phase.JIT_COMPILE,
    ),
    Signature(
        name="Triton could not compile",
        kind=Kind.JIT_COMPILE,
        literals=(
            "triton.compiler.errors.compilationerror",
            "ptxaserror",
            "ptxas error",
            "internal triton ptx codegen error",
            "passmanager::run failed",
            "llvm error",
            "torch._inductor.exc",
            "inductorerror",
            "backendcompilerfailed",
            "torch._dynamo.exc",
        ),
        pattern=r"triton\.compiler\.errors\.|PTXAS ?error|Internal Triton PTX|PassManager::run failed"
        r"|LLVM ERROR|torch\._inductor\.exc|InductorError|BackendCompilerFailed"
        r"|torch\._dynamo\.exc",
        cause=Cause.CONFIG,
        weight=Weight.GENERIC,
        certainty=0.7,
        phase=Phase.JIT_COMPILE,
        hints=(param("enable_torch_compile", "unset"), param("attention_backend", "change")),
    ),
    Signature(
        name="CUDA error of another kind",
        kind=Kind.KERNEL_FAULT,
        literals=("cuda error: ", "triton error [cuda]", "acceleratorerror", "hip error: "),
        pattern=r"(?:Error|error|Exception)\b.*(?:cuda error: |triton error \[cuda\]|hip error: )"
        r"|AcceleratorError",
        weight=Weight.GENERIC,
        certainty=0.6,
    ),
)
