"""SGLang's HTTP endpoints, under the old paths and the new. The only module that uses `requests`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import requests

from tuner.errors import TunerError
from tuner.sglang.flags import RENAMED, canonical_name

_QUICK_S = 5.0
_INFO_S = 30.0
_HEALTH_S = 25.0
"""`/health` generates a token and gives up by itself after 20 s."""
_NO_SUCH_CALL = (requests.codes.not_found, requests.codes.method_not_allowed, requests.codes.not_implemented)


class EndpointError(TunerError):
    """A server did not answer as SGLang does: refused, too slow, an HTTP error, or no JSON.

    `status` is the code of the HTTP answer, None where none came.
    """

    def __init__(self, message: str, *, hint: str = "", status: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class ServerClient:
    """Talks to one server. May be used by several threads.

    Proxy variables and `.netrc` are ignored, as the server is one that was launched here.
    """

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self.url = url.rstrip("/")
        self.api_key = api_key
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    def healthy(self, timeout_s: float = _HEALTH_S) -> bool:
        """Whether `/health` answers 200. False too where nobody listens; never raises for that."""
        try:
            return bool(self._call("GET", "/health", timeout_s).status_code == requests.codes.ok)
        except EndpointError:
            return False

    def generate_one_token(self, timeout_s: float) -> str:
        """The text of one token that the model really generated; a special token may have none.

        Raises `EndpointError` where no token comes within `timeout_s`.
        """
        sampling = {"max_new_tokens": 1, "temperature": 0.0, "ignore_eos": True}
        reply = self._call("POST", "/generate", timeout_s, {"text": "The", "sampling_params": sampling})
        if reply.status_code == requests.codes.bad_request:
            # With --skip-tokenizer-init the server takes token ids only.
            body = {"input_ids": [1, 2, 3], "sampling_params": sampling}
            reply = self._call("POST", "/generate", timeout_s, body)
        answer = self._json(reply, "/generate")
        first = answer[0] if isinstance(answer, list) and answer else answer
        about = first.get("meta_info", {}) if isinstance(first, dict) else {}
        tokens = about.get("completion_tokens") if isinstance(about, dict) else None
        if not isinstance(first, dict) or not isinstance(tokens, int) or tokens < 1:
            raise EndpointError(f"{self.url}/generate answered without a token: {_excerpt(reply.text)}")
        return str(first.get("text") or "")

    def generate(self, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The whole answer of `/generate` to one prompt that is not streamed.

        Raises `EndpointError`, with the `status` where the server refused.
        """
        reply = self._call("POST", "/generate", timeout_s, dict(body))
        answer = self._json(reply, "/generate")
        if not isinstance(answer, dict):
            raise EndpointError(f"{self.url}/generate answered no JSON object: {_excerpt(reply.text)}")
        return answer

    def server_info(self, timeout_s: float = _INFO_S) -> dict[str, Any]:
        """The resolved arguments and the scheduler's state (`/server_info`, until 0.5.5 `/get_server_info`).

        Answering takes a turn of the scheduler's loop, so do not call it while measuring.
        """
        return self._first_of(("/server_info", "/get_server_info"), timeout_s)

    def model_info(self, timeout_s: float = _INFO_S) -> dict[str, Any]:
        """The model's path, kind and architecture (`/model_info`, until 0.5.5 `/get_model_info`)."""
        return self._first_of(("/model_info", "/get_model_info"), timeout_s)

    def flush_cache(self, timeout_s: float = _INFO_S) -> bool:
        """Empty the prefix cache. False where the server refuses because requests are running.

        A server that has no such call (all versions of SGLang have it, by POST and by GET) has nothing to
        empty as far as anybody can tell: whether a prompt came from a cache is counted with its answer.
        """
        reply = self._call("POST", "/flush_cache", timeout_s)
        if reply.status_code in _NO_SUCH_CALL:
            reply = self._call("GET", "/flush_cache", timeout_s)
        if reply.status_code in _NO_SUCH_CALL:
            return True
        if reply.status_code == requests.codes.bad_request:
            return False
        self._check(reply, "/flush_cache")
        return True

    def abort_all(self, timeout_s: float = _INFO_S) -> None:
        """End all requests of the server, running and waiting."""
        reply = self._call("POST", "/abort_request", timeout_s, {"rid": "", "abort_all": True})
        self._check(reply, "/abort_request")

    # --- calls -----------------------------------------------------------------------------------------

    def _first_of(self, paths: tuple[str, ...], timeout_s: float) -> dict[str, Any]:
        for path in paths:
            reply = self._call("GET", path, timeout_s)
            if reply.status_code != requests.codes.not_found:
                answer = self._json(reply, path)
                if not isinstance(answer, dict):
                    raise EndpointError(f"{self.url}{path} answered no JSON object: {_excerpt(reply.text)}")
                return answer
        raise EndpointError(f"{self.url} has neither {' nor '.join(paths)}: it is no SGLang server")

    def _call(self, method: str, path: str, timeout_s: float, body: Any = None) -> requests.Response:
        try:
            # A session of its own for every call: sessions are not safe to share between threads.
            with requests.Session() as session:
                session.trust_env = False
                limits = (min(_QUICK_S, timeout_s), timeout_s)
                return session.request(
                    method,
                    self.url + path,
                    json=body,
                    headers=self._headers,
                    timeout=limits,
                    allow_redirects=False,
                )
        except requests.Timeout:
            raise EndpointError(f"{self.url}{path} did not answer within {timeout_s:g} s") from None
        except requests.RequestException as error:
            raise EndpointError(f"{self.url}{path} cannot be reached: {_cause(error)}") from None

    def _check(self, reply: requests.Response, path: str) -> None:
        if reply.status_code in (requests.codes.unauthorized, requests.codes.forbidden):
            raise EndpointError(
                f"{self.url}{path} wants an API key (HTTP {reply.status_code})",
                hint="set api_key",
                status=reply.status_code,
            )
        if not reply.ok:
            raise EndpointError(
                f"{self.url}{path} answered HTTP {reply.status_code}: {_excerpt(reply.text)}",
                status=reply.status_code,
            )

    def _json(self, reply: requests.Response, path: str) -> Any:
        self._check(reply, path)
        try:
            return reply.json()
        except ValueError:
            raise EndpointError(f"{self.url}{path} answered no JSON: {_excerpt(reply.text)}") from None


def resolved_values(server_info: Mapping[str, Any], canonical_names: Iterable[str]) -> dict[str, Any]:
    """What the server says it really uses for each canonical name; what it does not report is left out.

    `max_running_requests` is the effective number over all data-parallel ranks (0.5.8+), `max_total_tokens`
    the size of the KV pool in tokens, `cuda_graph_max_bs` and `cuda_graph_bs` those of decoding, whatever the
    version calls them; the latter two are left out where decode graphs are off. `speculative` is the
    algorithm in small letters, or `off`.
    """
    found: dict[str, Any] = {}
    for name in canonical_names:
        value = _resolved(server_info, name)
        if value is not None:
            found[name] = value
    return found


def last_gen_tok_s(server_info: Mapping[str, Any]) -> float | None:
    """The speed of the last decode line (tok/s), over all data-parallel ranks; None where there is none."""
    speeds = [state.get("last_gen_throughput") for state in _states(server_info)]
    known = [float(speed) for speed in speeds if isinstance(speed, (int, float)) and speed > 0]
    return sum(known) if known else None


def _resolved(info: Mapping[str, Any], name: str) -> Any:
    if name == "speculative":
        return (
            str(info.get("speculative_algorithm") or "off").lower()
            if "speculative_algorithm" in info
            else None
        )
    if name == "max_running_requests":
        per_rank = [state.get("effective_max_running_requests_per_dp") for state in _states(info)]
        numbers = [number for number in per_rank if isinstance(number, int)]
        if numbers:
            return sum(numbers)
    if name == "max_total_tokens" and isinstance(info.get("max_total_num_tokens"), int):
        return info["max_total_num_tokens"]
    if name in ("cuda_graph_max_bs", "cuda_graph_bs"):
        config = info.get("cuda_graph_config")
        decode = config.get("decode") if isinstance(config, dict) else None
        if isinstance(decode, dict):
            on = decode.get("backend") != "disabled"
            return decode.get(name.removeprefix("cuda_graph_")) if on else None
    spellings = RENAMED.get(canonical_name(name), (name,))
    return next((info[spelled] for spelled in (name, *spellings) if info.get(spelled) is not None), None)


def _states(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    states = info.get("internal_states")
    return [state for state in states if isinstance(state, dict)] if isinstance(states, list) else []


def _excerpt(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= 200 else plain[:200] + " …"


def _cause(error: BaseException) -> str:
    """The innermost reason; requests and urllib3 wrap "connection refused" four times."""
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return str(cause) or type(cause).__name__
