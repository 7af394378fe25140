"""The environment of child processes: a variable reaches one only when it is named here, or by the operator.

A shell holds secrets of other programs (``AWS_*``, ``PG_CONN_STR``, ``OPENAI_API_KEY``), and settings that would change
an engine behind the lock (``LLAMA_ARG_*``).  A name that ends with ``*`` is a prefix; a prefix that is also the
beginning of a secret's name (``NVIDIA_API_KEY``, ``GOOGLE_API_KEY``) is written out instead.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from corral.errors import Refused

ANY = """
    PATH HOME USER LOGNAME LANG LANGUAGE LC_* TZ TMPDIR
    LD_LIBRARY_PATH NIX_LD* DYLD_LIBRARY_PATH DYLD_FALLBACK_LIBRARY_PATH
"""
"""For every program."""
ENGINE = """
    CORRAL_VRAM_SOURCE GGML_* GOMP_* KMP_* MKL_NUM_THREADS OMP_* OPENBLAS_NUM_THREADS
    CUDA_* CUBLAS_WORKSPACE_CONFIG NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES NVIDIA_TF32_OVERRIDE
    GPU_DEVICE_ORDINAL HIP_* HIPBLASLT_* HSA_* ROCBLAS_* ROCM_PATH ROCR_*
    MESA_* RADV_* VK_* XDG_CACHE_HOME XDG_DATA_DIRS
    ONEAPI_DEVICE_SELECTOR SYCL_* UR_* ZE_* ZES_*
"""
"""For llama-swap and its engines: which card they use and how, threads, drivers and their caches."""
BUILD = """
    GOAUTH GOCACHE GOENV GOGC GOINSECURE GOMAXPROCS GOMEMLIMIT GOMODCACHE GONOPROXY GONOSUMDB GOPATH GOPRIVATE
    GOPROXY GOSUMDB GOTMPDIR CC CXX NETRC PIP_* REQUESTS_CA_BUNDLE SSL_CERT_DIR SSL_CERT_FILE XDG_CACHE_HOME
    XDG_CONFIG_HOME HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy https_proxy no_proxy all_proxy
"""
"""For Go and pip: from where, and through which proxy, they fetch what the pins name."""
TERRAFORM = "TF_CLI_CONFIG_FILE TF_LOG*"
"""For the local stack, which has no provider."""

OWN_NAMES = "CORRAL_ENGINE_ENV"
"""The operator's variable with further names for engines, separated by commas."""

_SYSTEM_CONFIG = Path("/etc/llama.cpp/config.ini")
_NO_FOLDER = "/dev/null"  # nothing can ever exist below it
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NEVER = ("HF_TOKEN*", "LLAMA_*", "XDG_CONFIG_HOME")
_SETTING = re.compile(r"^[ \t]*[^\s;#\[]", re.MULTILINE)


def allowed(*names: str, **added: str) -> dict[str, str]:
    """Those of the caller's variables that are in ``ANY`` or in *names* (separated by blanks), and *added*."""
    wanted = " ".join((ANY, *names)).split()
    return {name: value for name, value in os.environ.items() if _matches(name, wanted)} | added


def of_engine(**added: str) -> dict[str, str]:
    """The environment of llama-swap, and so of its engines, with *added*.

    llama-server also reads a config.ini of the user and one of the machine: the first is out of reach then.

    Raises:
        Refused: the second has a setting, or ``CORRAL_ENGINE_ENV`` names a variable that is not set, or that never
            reaches an engine.
    """
    own = [name for part in os.environ.get(OWN_NAMES, "").split(",") if (name := part.strip())]
    for name in own:
        if not _NAME.fullmatch(name) or _matches(name, _NEVER):
            rule = "never reaches an engine" if _NAME.fullmatch(name) else "is not the name of a variable"
            raise Refused(f"{OWN_NAMES} names {name!r}, which {rule}.", next_step=f"Take it out of {OWN_NAMES}")
        if name not in os.environ:
            step = f"export {name}=VALUE, or take it out of {OWN_NAMES}"
            raise Refused(f"{OWN_NAMES} names {name}, which is not set.", next_step=step)
    if _has_settings(_SYSTEM_CONFIG):
        raise Refused(
            f"llama-server reads {_SYSTEM_CONFIG}, and the lock does not have its settings: what ran would not be "
            "what was predicted and measured.",
            next_step=f"sudo mv {_SYSTEM_CONFIG} {_SYSTEM_CONFIG}.old; settings belong in the catalog",
        )
    return allowed(ENGINE, *own, XDG_CONFIG_HOME=_NO_FOLDER, **added)


def _has_settings(config: Path) -> bool:
    try:
        return _SETTING.search(config.read_text(encoding="utf-8", errors="replace")) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
