"""How a model is spread over devices: one `Plan` for training and serving, which can be written as the arguments of other programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from armillary.errors import InputError, unknown
from armillary.llm.model.shapes import Model

Recompute = Literal["none", "selective", "mlp", "full"]
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "mlp", "full")
OFFLOADS = ("weights", "gradients", "optimizer", "activations")


@dataclass(frozen=True)
class Batch:
    """The work of one training step over all devices: `sequences` sequences of `tokens` tokens each."""

    sequences: int
    tokens: int

    def __post_init__(self) -> None:
        if self.sequences < 1 or self.tokens < 1:
            raise InputError(f"a batch of {self.sequences} sequences of {self.tokens} tokens; expected at least one of each")


@dataclass(frozen=True)
class Plan:
    """Degrees of parallelism and what is kept; devices = dp · tp · pp · cp.

    dp: copies of the model that see different sequences. fsdp: the number of copies that share one state (1 means none); `zero` says what
    they share: 1 the optimizer, 2 also gradients, 3 also weights. tp: the devices over which each matrix is split. pp: stages; vpp: runs of
    layers that a stage holds (interleaving). ep: devices over which the experts are spread, taken from dp · cp, and also from tp where
    those are too few. cp: parts of one sequence. micro_batch: sequences that pass through the stages at a time.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    vpp: int = 1
    ep: int = 1
    cp: int = 1
    fsdp: int = 1
    zero: int = 3
    micro_batch: int = 1
    recompute: Recompute = "none"
    offload: tuple[str, ...] = ()
    attention: Literal["flash", "unfused"] = "flash"
    #: Whether norms and residuals are split by tokens over the tp devices.
    sequence_parallel: bool = False
    #: Whether tensor-parallel collectives overlap with the matrix products.
    async_tp: bool = False
    cp_kind: Literal["ring", "ulysses"] = "ring"
    #: Whether weights stay gathered between the forward and the backward pass.
    keep_gathered: bool = False
    #: Whether tp may exceed the number of key-value heads, which are then copied.
    replicate_kv: bool = False
    gradient_bytes: int = 4

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "pp", "vpp", "ep", "cp", "fsdp", "micro_batch"):
            found = getattr(self, name)
            if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= 1 << 24:
                raise InputError(f"plan: {name}: found {found}; expected a whole number from 1")
        if self.recompute not in RECOMPUTE:
            raise unknown("recompute", str(self.recompute), RECOMPUTE)
        if self.attention not in ("flash", "unfused"):
            raise unknown("attention", str(self.attention), ("flash", "unfused"))
        if self.cp_kind not in ("ring", "ulysses"):
            raise unknown("cp_kind", str(self.cp_kind), ("ring", "ulysses"))
        if self.zero not in (1, 2, 3):
            raise InputError(f"plan: zero: found {self.zero}; expected 1, 2 or 3")
        if self.gradient_bytes not in (2, 4):
            raise InputError(f"plan: gradient_bytes: found {self.gradient_bytes}; expected 2 or 4")
        for name in self.offload:
            if name not in OFFLOADS:
                raise unknown("offload", name, OFFLOADS)
        if self.dp % self.fsdp:
            raise InputError(f"plan: fsdp: found {self.fsdp} for dp {self.dp}; expected a divisor")
        if (self.dp * self.cp * self.tp) % self.ep:
            raise InputError(f"plan: ep: found {self.ep}; expected a divisor of dp · cp · tp = {self.dp * self.cp * self.tp}")

    @property
    def devices(self) -> int:
        """The total number of devices."""
        return self.dp * self.tp * self.pp * self.cp

    @property
    def expert_tp(self) -> int:
        """The number of devices over which the matrices of one expert are split."""
        return self.tp if (self.dp * self.cp) % self.ep == 0 else 1

    @property
    def expert_fsdp(self) -> int:
        """The number of devices that share one copy of an expert's state beyond ep."""
        return max(1, self.fsdp // min(self.ep, self.fsdp))

    def check(self, model: Model) -> Plan:
        """Returns this plan, or raises an `InputError` where the model cannot be divided like this."""
        check_tp(model, self.tp, self.replicate_kv)
        if model.layers < self.pp * self.vpp:
            raise InputError(f"plan: pp: {self.pp} stages of {self.vpp} runs for {model.layers} layers; expected at most one per layer")
        if self.ep > 1 and (model.moe is None or model.moe.experts % self.ep):
            experts = model.moe.experts if model.moe else 0
            raise InputError(f"plan: ep: found {self.ep} for {experts} experts of {model.name}; expected a divisor")
        if self.cp > 1 and self.cp_kind == "ulysses" and (model.heads // self.tp) % self.cp:
            raise InputError(f"plan: cp: found {self.cp} for {model.heads // self.tp} heads per device; Ulysses expects a divisor")
        return self

    def micro_batches(self, batch: Batch) -> int:
        """The number of micro-batches that each copy of the model sees in a step."""
        each = self.dp * self.micro_batch
        if batch.sequences % each:
            raise InputError(f"plan: {batch.sequences} sequences for dp {self.dp} · micro_batch {self.micro_batch}; expected a multiple")
        if batch.tokens % self.cp:
            raise InputError(f"plan: cp: found {self.cp} for {batch.tokens} tokens; expected a divisor")
        return batch.sequences // each

    def stages(self, model: Model) -> list[list[tuple[int, int]]]:
        """For each stage, its runs (first layer, one past the last); if the layers do not divide evenly, the first runs are longer."""
        parts = self.pp * self.vpp
        cuts = [0]
        for i in range(parts):
            cuts.append(cuts[-1] + model.layers // parts + (i < model.layers % parts))
        return [[(cuts[v * self.pp + s], cuts[v * self.pp + s + 1]) for v in range(self.vpp)] for s in range(self.pp)]

    def to_megatron_args(self, batch: Batch | None = None) -> list[str]:
        """The plan as arguments of Megatron-LM's training scripts."""
        args = [
            "--tensor-model-parallel-size", str(self.tp), "--pipeline-model-parallel-size", str(self.pp),
            "--context-parallel-size", str(self.cp), "--micro-batch-size", str(self.micro_batch),
        ]  # fmt: skip
        if self.vpp > 1:
            args += ["--num-virtual-stages-per-pipeline-rank", str(self.vpp)]
        if self.ep > 1:
            args += ["--expert-model-parallel-size", str(self.ep), "--expert-tensor-parallel-size", str(self.expert_tp)]
        if self.sequence_parallel and self.tp > 1:
            args.append("--sequence-parallel")
        if self.async_tp:
            args.append("--tp-comm-overlap")
        if self.fsdp > 1:
            args.append("--use-distributed-optimizer" if self.zero == 1 else "--use-torch-fsdp2")
        if self.recompute == "full":
            args += ["--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"]
        elif self.recompute != "none":
            module = {"selective": "core_attn", "mlp": "mlp"}[self.recompute]
            args += ["--recompute-granularity", "selective", "--recompute-modules", module]
        if "optimizer" in self.offload:
            args.append("--optimizer-cpu-offload")
        if self.attention == "flash":
            args += ["--attention-backend", "flash"]
        if batch is not None:
            args += ["--global-batch-size", str(batch.sequences), "--seq-length", str(batch.tokens)]
        return args

    def to_torchtitan_toml(self, batch: Batch | None = None) -> str:
        """The plan as the parallelism, activation_checkpoint and training tables of a torchtitan job file."""
        mode = {"none": "none", "selective": "selective", "mlp": "selective", "full": "full"}[self.recompute]
        lines = [
            "[parallelism]",
            f"data_parallel_replicate_degree = {self.dp // self.fsdp}",
            f"data_parallel_shard_degree = {self.fsdp}",
            f'fsdp_reshard_after_forward = "{"never" if self.keep_gathered or self.zero < 3 else "always"}"',
            f"tensor_parallel_degree = {self.tp}",
            f"enable_async_tensor_parallel = {str(self.async_tp).lower()}",
            f"pipeline_parallel_degree = {self.pp}",
            f'pipeline_parallel_schedule = "{"Interleaved1F1B" if self.vpp > 1 else "1F1B"}"',
            f"context_parallel_degree = {self.cp}",
            f"expert_parallel_degree = {self.ep}",
            "",
            "[activation_checkpoint]",
            f'mode = "{mode}"',
            "",
            "[training]",
            f"local_batch_size = {self.micro_batch if batch is None else self.micro_batch * self.micro_batches(batch)}",
            f"enable_cpu_offload = {str(bool(self.offload)).lower()}",
        ]
        if batch is not None:
            lines += [f"global_batch_size = {batch.sequences}", f"seq_len = {batch.tokens}"]
        return "\n".join(lines) + "\n"

    def to_vllm_args(self) -> list[str]:
        """The plan as arguments of `vllm serve`; whatever vLLM has no argument for raises an `InputError`."""
        for name, plain in (("vpp", 1), ("cp", 1), ("fsdp", 1), ("recompute", "none")):
            if getattr(self, name) != plain:
                raise InputError(f"plan: {name}: found {getattr(self, name)}; vLLM serves with {plain} only")
        if self.ep > 1 and self.ep != self.tp * self.dp:
            raise InputError(f"plan: ep: found {self.ep}; vLLM spreads experts over tp · dp = {self.tp * self.dp} devices, or not at all")
        args = ["--tensor-parallel-size", str(self.tp), "--pipeline-parallel-size", str(self.pp), "--data-parallel-size", str(self.dp)]
        return [*args, "--enable-expert-parallel"] if self.ep > 1 else args


def check_tp(model: Model, tp: int, replicate_kv: bool = False) -> None:
    """Raises an `InputError` unless the heads, and the key-value heads (or their copies, where allowed), divide over `tp` devices."""
    if tp < 1 or model.heads % tp:
        raise InputError(f"tp: found {tp} for {model.heads} heads of {model.name}; expected a divisor")
    if model.mla is None and model.kv_heads % tp:
        if tp % model.kv_heads:
            raise InputError(f"tp: found {tp} for {model.kv_heads} key-value heads of {model.name}; expected a divisor or a multiple")
        if not replicate_kv:
            raise InputError(f"tp: found {tp} for {model.kv_heads} key-value heads of {model.name}; replicate_kv=True allows copies")
