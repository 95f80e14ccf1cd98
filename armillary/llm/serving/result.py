"""The result of serving requests: the times of each request, and their summary."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

if TYPE_CHECKING:
    from .fleet import Serving
    from .requests import Requests

#: A fleet that processes less than this share of the offered tokens is starved.
STARVED = 0.9


@dataclass(frozen=True)
class Result:
    """Times in seconds, one entry per request; NaN where a request did not get that far."""

    requests: Requests
    arrived: npt.NDArray[np.float64]
    first_scheduled: npt.NDArray[np.float64]
    first_token: npt.NDArray[np.float64]
    finish: npt.NDArray[np.float64]
    generated: npt.NDArray[np.int32]
    preemptions: npt.NDArray[np.int32]
    cached_tokens: npt.NDArray[np.int32]
    replica: npt.NDArray[np.int32]
    token_at: npt.NDArray[np.int64]
    token_time: npt.NDArray[np.float64]  # empty if not requested
    gaps: npt.NDArray[np.int64]  # histogram of the gaps between tokens
    end_s: float
    busy_s: npt.NDArray[np.float64]  # by replica
    kv_share: npt.NDArray[np.float64]  # by replica: mean share of blocks in use while it was busy
    loads: npt.NDArray[np.int64]  # by replica: adapter loads
    iterations: npt.NDArray[np.int64]  # by replica; segments count once
    log: npt.NDArray[np.float64]  # [iteration, (replica, begin, end, tokens, sequences)], sampled when there are very many

    @classmethod
    def of(cls, serving: Serving) -> Result:
        """The result of a fleet as it stands."""
        from . import state as st

        seq, when, clock, eng, m = serving.state.seq, serving.state.when, serving.state.clock, serving.state.eng, serving.measures
        finish, arrived, scheduled = when[:, st.DONE_AT].copy(), when[:, st.ARRIVED], when[:, st.SCHEDULED]
        done = finish[np.isfinite(finish)]
        last = float(done.max()) if len(done) else 0.0
        busy = clock[:, st.BUSY_S].copy()
        used = np.divide(clock[:, st.BLOCK_S], busy * eng[:, st.CAPACITY], out=np.zeros(len(busy)), where=busy > 0)
        return cls(
            serving.requests, np.where(arrived >= 0, arrived, np.nan), np.where(scheduled >= 0, scheduled, np.nan),
            when[:, st.FIRST_TOKEN].copy(), finish, seq[:, st.KNOWN] - seq[:, st.PROMPT], seq[:, st.PREEMPTIONS].copy(),
            seq[:, st.CACHED].copy(), seq[:, st.HOME].copy(), m.token_at, m.token_time.copy(), m.gap.copy(),
            max(last, serving.now if np.isfinite(serving.now) else 0.0), busy, used, eng[:, st.LOADED].copy(), eng[:, st.ITERATIONS].copy(),
            m.log[: m.logged[0]].copy(),
        )  # fmt: skip

    @property
    def ttft(self) -> npt.NDArray[np.float64]:
        """Seconds from arrival to the first token."""
        return self.first_token - self.arrived

    @property
    def e2e(self) -> npt.NDArray[np.float64]:
        """Seconds from arrival to the last token."""
        return self.finish - self.arrived

    @property
    def tpot(self) -> npt.NDArray[np.float64]:
        """Seconds per token after the first; NaN for an output of one token."""
        n = self.requests.output - 1
        return np.divide(self.finish - self.first_token, n, out=np.full(len(n), np.nan), where=n > 0)

    def gap_quantile(self, share: float) -> float:
        """The quantile `share` of the gaps between tokens, in seconds, to within 2 %."""
        total = int(self.gaps.sum())
        if not total:
            return float("nan")
        at = int(np.searchsorted(np.cumsum(self.gaps), share * total))
        return float(2.0 ** ((at + 0.5) / 32.0 - 30.0)) if at else 0.0

    def goodput(self, ttft_s: float, tpot_s: float) -> float:
        """Finished requests per second whose TTFT and TPOT are both within bounds."""
        if ttft_s <= 0 or tpot_s <= 0:
            raise InputError(f"goodput: found bounds {ttft_s} and {tpot_s} s; expected positive seconds")
        tpot = np.nan_to_num(self.tpot)
        with np.errstate(invalid="ignore"):
            good = np.isfinite(self.finish) & (self.ttft <= ttft_s) & (tpot <= tpot_s)
        return float(good.sum()) / self.end_s if self.end_s else 0.0

    def summary(self, warm_up_s: float = 0.0, until_s: float | None = None) -> dict[str, float]:
        """Latencies (s) and throughputs (1/s) over the window from `warm_up_s` to `until_s` (to the end)."""
        end = self.end_s if until_s is None else min(until_s, self.end_s)
        span = end - warm_up_s
        if span <= 0 and len(self.requests):
            raise InputError(f"warm_up_s: found {warm_up_s}; the run is over after {end} s")
        with np.errstate(invalid="ignore"):
            done = (self.finish > warm_up_s) & (self.finish <= end)
            begun = (self.first_token > warm_up_s) & (self.first_token <= end)
        out: dict[str, float] = {"requests": float(len(self.requests)), "finished": float(done.sum()), "span_s": span}
        for name, values in (("ttft", self.ttft[begun]), ("tpot", self.tpot[done]), ("e2e", self.e2e[done])):
            values = values[np.isfinite(values)]
            out[f"mean_{name}_s"] = float(values.mean()) if len(values) else float("nan")
            for share in (50, 95, 99):
                out[f"p{share}_{name}_s"] = float(np.percentile(values, share)) if len(values) else float("nan")
        for share in (50, 95, 99):
            out[f"p{share}_itl_s"] = self.gap_quantile(share / 100)
        outputs = self._outputs_between(warm_up_s, end)
        inputs = float(self.requests.prompt[begun].sum(dtype=np.int64))
        rates = {"request": float(done.sum()), "input_token": inputs, "output_token": outputs, "token": inputs + outputs}
        out |= {f"{name}_per_s": value / span if span > 0 else 0.0 for name, value in rates.items()}
        with np.errstate(invalid="ignore"):
            came = (self.arrived >= warm_up_s) & (self.arrived < end)
        offered = float((self.requests.prompt[came].astype(np.int64) + self.requests.output[came]).sum())
        out["starved"] = float(inputs + outputs < STARVED * offered)
        out["preemptions"], out["loads"] = float(self.preemptions.sum()), float(self.loads.sum())
        out["utilisation"] = float(self.busy_s.sum() / (len(self.busy_s) * self.end_s)) if self.end_s else 0.0
        out["kv_utilisation"] = float(self.kv_share.mean())
        out["cached_share"] = float(self.cached_tokens.sum() / max(1, self.requests.prompt.sum(dtype=np.int64)))
        return out

    def _outputs_between(self, begin: float, end: float) -> float:
        """Output tokens in the window: exact if token times were kept, and otherwise spread evenly between the first and the last token of
        a request.
        """
        if len(self.token_time):
            return float(((self.token_time > begin) & (self.token_time <= end)).sum())
        first, last = self.first_token, np.where(np.isfinite(self.finish), self.finish, self.end_s)
        n = self.generated.astype(float)
        with np.errstate(invalid="ignore", divide="ignore"):
            length = last - first
            inside = np.clip(np.minimum(last, end) - np.maximum(first, begin), 0.0, None)
            rest = np.where(length > 0, (n - 1) * inside / length, np.where(last <= end, n - 1, 0.0))
            head = (first > begin) & (first <= end)
        return float(np.nansum(np.where(np.isfinite(first) & (n > 0), rest + head, 0.0)))

    def to_vllm(self) -> dict[str, Any]:
        """The run as `vllm bench serve --save-result --save-detailed` writes it (times in seconds, summaries in milliseconds)."""
        done = np.isfinite(self.finish)
        s = self.summary() if done.any() else {}
        gaps: list[list[float]] = []
        for q in np.flatnonzero(done):
            if len(self.token_time):
                times = self.token_time[self.token_at[q] : self.token_at[q + 1]]
                gaps.append(np.diff(times).tolist())
            else:
                n = int(self.requests.output[q])
                gaps.append([float(self.tpot[q])] * (n - 1))
        span = float(self.end_s)
        out: dict[str, Any] = {
            "backend": "armillary-simulated", "num_prompts": len(self.requests), "completed": int(done.sum()), "duration": span,
            "total_input_tokens": int(self.requests.prompt[done].sum(dtype=np.int64)),
            "total_output_tokens": int(self.requests.output[done].sum(dtype=np.int64)),
            "request_throughput": float(done.sum()) / span if span else 0.0,
            "output_throughput": s.get("output_token_per_s", 0.0), "total_token_throughput": s.get("token_per_s", 0.0),
            "input_lens": self.requests.prompt[done].tolist(), "output_lens": self.requests.output[done].tolist(),
            "ttfts": self.ttft[done].tolist(), "itls": gaps, "errors": [""] * int(done.sum()),
            "start_times": self.arrived[done].tolist(),
        }  # fmt: skip
        for name in ("ttft", "tpot", "e2e"):
            for key in ("mean", "p50", "p95", "p99"):
                if f"{key}_{name}_s" in s:
                    out[f"{'median' if key == 'p50' else key}_{'e2el' if name == 'e2e' else name}_ms"] = 1e3 * s[f"{key}_{name}_s"]
        return out

    def write(self, path: str | Path) -> None:
        """Writes the run in the form of vLLM's benchmark (`.json`), or a table of requests (`.parquet`)."""
        target = Path(path)
        if target.suffix == ".parquet":
            self.table().write_parquet(target)
        elif target.suffix == ".json":
            target.write_text(json.dumps(self.to_vllm()))
        else:
            raise InputError(f"{target}: found suffix {target.suffix!r}; expected .json or .parquet")

    def table(self) -> Any:
        """A polars DataFrame with one row per request (times in seconds)."""
        import polars as pl

        return pl.DataFrame(
            {
                "arrival_s": self.arrived, "prompt": self.requests.prompt, "output": self.requests.output, "adapter": self.requests.adapter,
                "replica": self.replica, "first_scheduled_s": self.first_scheduled, "first_token_s": self.first_token,
                "finish_s": self.finish, "preemptions": self.preemptions, "cached_tokens": self.cached_tokens,
            }
        )  # fmt: skip

    def perfetto(self, most: int | None = None) -> dict[str, Any]:
        """A Chrome trace with one track per replica and one slice per iteration that the log kept, or for the first `most` of them."""
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "thread_name", "pid": 0, "tid": r, "args": {"name": f"replica {r}"}} for r in range(len(self.busy_s))
        ]
        for replica, begin, end, tokens, sequences in self.log[:most].tolist():
            events.append(
                {"ph": "X", "name": f"{int(tokens)} tokens", "pid": 0, "tid": int(replica), "ts": begin * 1e6, "dur": (end - begin) * 1e6,
                 "args": {"tokens": int(tokens), "sequences": int(sequences)}}
            )  # fmt: skip
        return {"traceEvents": events, "displayTimeUnit": "ms"}
