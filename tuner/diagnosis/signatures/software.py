"""Packages that do not fit each other."""

from __future__ import annotations

from tuner.diagnosis.failure import Kind
from tuner.diagnosis.signature import Signature, Weight
from tuner.sglang.phases import Phase

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        name="package version",
        kind=Kind.DEPENDENCY_MISMATCH,
        literals=(
            "does not exist or is not currently imported",
            "operator ",
            "less than the minimum required version",
            "with minimum required version",
            "packagenotfounderror",
            "is required but",
            "versionconflict",
            "contextualversionconflict",
            "requires transformers",
            "please upgrade",
            "please install",
            "not installed",
            "is required for a normal functioning",
            "but found",
        ),
        pattern=r"does not exist or is not currently imported|(?:Error"
        r"|Exception)\b.*operator \S+::\S+ does not exist|less than the minimum required"
        r"|with minimum required version|PackageNotFoundError"
        r"|VersionConflict|(?:Error|Exception)\b.*(?:please (?:upgrade|install|reinstall"
        r"|uninstall)|not installed|requires transformers|is required for a normal functioning"
        r"|(?:package|library) .{0,30}is required)"
        r"|is required for a normal functioning",
        unless=r"checkpoint you are trying to load|trust_remote_code|model type",
        certainty=0.92,
        phase=Phase.IMPORT,
    ),
    Signature(
        name="kernel library of another torch",
        kind=Kind.DEPENDENCY_MISMATCH,
        literals=(
            "undefined symbol",
            "could not load any common_ops library",
            "cannot open shared object file",
            "version `glibc",
            "version `cxxabi",
            "version `glibcxx",
            "cxxabi",
            "abi mismatch",
            "torchvision::nms",
            "has no schema",
            "was compiled with",
            "compiled using numpy 1",
        ),
        pattern=r"undefined symbol|could not load any common_ops|cannot open shared object file"
        r"|version `(?:GLIBC|CXXABI)|abi mismatch|torchvision::nms|(?:Error"
        r"|Exception)\b.*compiled (?:with|using)",
        unless=r"libcuda\.so|no sm_?\d+\w*/? directory|disabling flashinfer|unsupported toolchain",
        certainty=0.92,
        phase=Phase.IMPORT,
    ),
    Signature(
        name="import",
        kind=Kind.DEPENDENCY_MISMATCH,
        literals=("importerror", "modulenotfounderror", "cannot import name", "no module named"),
        pattern=r"^(?:\w+\.)*(?:ImportError|ModuleNotFoundError): *[^\s:]|^(?:\w*Error"
        r"|Exception): .*(?:cannot import name|no module named)",
        unless=r"ignore import error|transformers_modules|trust_remote_code",
        weight=Weight.ROOT,
        certainty=0.87,
        phase=Phase.IMPORT,
    ),
    Signature(
        name="a function of another version",
        kind=Kind.DEPENDENCY_MISMATCH,
        literals=(
            "got an unexpected keyword argument",
            "missing 1 required positional",
            "required positional argument",
            "takes from",
            "positional arguments but",
            "incompatible function arguments",
            "has no attribute",
            "expected at most",
            "unknown keyword",
            "is missing value for argument",
            "schema",
        ),
        pattern=r"TypeError: \w[\w.<>]*\(\) (?:got an unexpected keyword argument|missing \d+ required"
        r"|takes (?:from )?\d)|incompatible function arguments"
        r"|AttributeError: (?:partially initialized )?module '.*' has no attribute"
        r"|'_OpNamespace' '\w+' object has no attribute|\w+\(\) (?:expected at most"
        r"|is missing value for argument)|AttributeError: type object '\w+' has no attribute"
        r"|_C\b.*has no attribute",
        weight=Weight.GENERIC,
        certainty=0.8,
    ),
    Signature(
        name="NumPy or protobuf of another generation",
        kind=Kind.DEPENDENCY_MISMATCH,
        literals=(
            "numpy.dtype size changed",
            "a module that was compiled using numpy",
            "descriptors cannot be created directly",
            "numpy.core.multiarray failed to import",
        ),
        certainty=0.88,
        phase=Phase.IMPORT,
    ),
)
