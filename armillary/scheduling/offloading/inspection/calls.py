"""Calls: whether one needs a GPU, what it returns, and what work it is."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence

from armillary.errors import one_line

from . import libraries, models, work
from .folding import is_cuda, shown
from .notes import Notes
from .scopes import Keys, Scope
from .values import (
    UNKNOWN,
    Available,
    Const,
    Device,
    Instance,
    Layer,
    Library,
    Local,
    Method,
    Prefix,
    Tensor,
    Value,
    alternatives,
    constant,
    either,
    number_of,
    text_of,
)  # fmt: skip


class Calls(Notes):
    """Follows calls."""

    def call(self, node: ast.Call, scope: Scope, guarded: bool) -> Value:
        """A call: what it returns, whether it needs a GPU, and what work it is."""
        target = self.value(node.func, scope, guarded)
        arguments = [self.value(one, scope, guarded) for one in node.args]
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, scope, guarded)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif isinstance(value, Keys):
                keywords.update(value.of)
        if any(isinstance(one, ast.Starred) for one in node.args):
            arguments = [UNKNOWN for _ in arguments]
        options = alternatives(target)
        reasons, results = [], []
        for one in options:
            reason, result = self.called(node, one, arguments, keywords, guarded)
            reasons.append(reason)
            results.append(result)
        if all(reasons):
            self.explicit(node, reasons[0], guarded)
        return either(results)

    def called(
        self, node: ast.Call, target: Value, arguments: Sequence[Value], keywords: Mapping[str, Value], guarded: bool
    ) -> tuple[str, Value]:  # fmt: skip
        """(why it needs a GPU, or an empty text; what it returns)."""
        for name in ("device", "device_map"):
            if name in keywords and is_cuda(keywords[name]):
                result = self.result(node, target, arguments, keywords, guarded)
                return f'passes {name}="{shown(keywords[name])}"', result
        reason = ""
        if isinstance(target, Method):
            if target.name == "cuda":
                reason = "calls .cuda()"
            elif target.name == "to" and arguments and is_cuda(arguments[0]):
                reason = f'calls .to("{shown(arguments[0])}")'
        elif isinstance(target, Library):
            reason = self.needs(target.name, arguments, keywords)
        return reason, self.result(node, target, arguments, keywords, guarded)

    def needs(self, name: str, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> str:
        """Why a library's function needs a GPU here, or an empty text."""
        first = text_of(arguments[0]) if arguments else None
        if libraries.needs_gpu(name):
            return f"calls {name}"
        if name == "torch.device" and arguments and is_cuda(arguments[0]):
            return f'takes torch.device("{shown(arguments[0])}")'
        if name == "torch.set_default_device" and arguments and is_cuda(arguments[0]):
            return "makes CUDA the default device"
        if name == "torch.set_default_tensor_type" and arguments:
            kind = arguments[0].name if isinstance(arguments[0], Library) else first or ""
            return "makes CUDA tensors the default" if "cuda" in kind else ""
        if name == "tensorflow.device" and first is not None and "GPU" in first.upper():
            return f'takes tf.device("{one_line(first, 40)}")'
        if name in ("jax.devices", "jax.local_devices") and first is not None and first.lower() in ("gpu", "cuda"):
            return f'asks for jax.devices("{first}")'
        if name.endswith("InferenceSession") and name.startswith("onnxruntime."):
            given = keywords.get("providers")
            names = given.value if isinstance(given, Const) and isinstance(given.value, tuple) else ()
            if names and all(isinstance(one, str) and one.startswith(("CUDA", "Tensorrt")) for one in names):
                return "allows GPU providers only"
        if name == "transformers.pipeline" and (number := number_of(keywords.get("device", UNKNOWN))) is not None and number >= 0:
            return f"passes device={number} to a pipeline"
        return ""

    def result(
        self, node: ast.Call, target: Value, arguments: Sequence[Value], keywords: Mapping[str, Value], guarded: bool
    ) -> Value:  # fmt: skip
        """What a call returns; its work is counted."""
        if isinstance(target, Library):
            return self.library_result(node, target.name, arguments, keywords)
        if isinstance(target, Local):
            return self.local_result(target, arguments, keywords, guarded)
        if isinstance(target, Layer):
            return self.worked(node, *work.applied(target, arguments[0] if arguments else UNKNOWN))
        if isinstance(target, Method):
            return self.method_result(node, target, arguments, keywords, guarded)
        return UNKNOWN

    def library_result(self, node: ast.Call, name: str, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> Value:
        if name in libraries.GUARDS:
            return Available()
        first = arguments[0] if arguments else UNKNOWN
        if name.startswith("builtins."):
            return self.builtin_result(name[9:], node, arguments)
        if name == "torch.device":
            return either([Device(one) if text_of(one) is not None else UNKNOWN for one in alternatives(first)])
        if name in ("importlib.import_module", "importlib.util.find_spec") and (module := text_of(first)) and isinstance(first, Const):
            if name.endswith("import_module"):
                self.noted(node, module, True)
                return Library(module)
            return UNKNOWN
        if (made := work.layer(name, arguments, keywords)) is not None:
            return made
        self.model_loaded(node, name, arguments, keywords)
        found, flops = work.called(name, arguments, keywords)
        return self.worked(node, found, flops)

    def builtin_result(self, name: str, node: ast.Call, arguments: Sequence[Value]) -> Value:
        first = arguments[0] if arguments else UNKNOWN
        if name in ("len", "bool", "int", "list", "tuple", "any") and isinstance(first, Available):
            return first
        if name == "len" and isinstance(first, Const) and isinstance(first.value, tuple | str):
            return Const(len(first.value))
        if name == "str":
            return first if isinstance(first, Const) and isinstance(first.value, str) else (
                Const(str(first.value)) if isinstance(first, Const) and type(first.value) in (int, float, bool) else
                first.name if isinstance(first, Device) else UNKNOWN)  # fmt: skip
        if name in ("int", "float") and isinstance(first, Const) and type(first.value) in (int, float):
            return constant(int(first.value)) if name == "int" and math.isfinite(first.value) else first
        if name in ("tuple", "list") and isinstance(first, Const) and isinstance(first.value, tuple):
            return first
        if name == "getattr" and len(arguments) >= 2 and (attribute := text_of(arguments[1])):
            return either([self.part(one, attribute) for one in alternatives(first)])
        if name == "__import__" and isinstance(first, Const) and (module := text_of(first)):
            self.noted(node, module, True)
            return Library(module.partition(".")[0])
        if name == "dict" and node.keywords:
            return UNKNOWN
        return UNKNOWN

    def local_result(self, target: Local, arguments: Sequence[Value], keywords: Mapping[str, Value], guarded: bool) -> Value:
        source = self.analysis.sources.get(target.module)
        if source is not None and target.name in source.classes and target.name not in source.functions:
            method = Local(target.module, f"{target.name}.__init__")
            self.site(method, guarded)
            self.run(method, arguments, keywords, guarded)
            return Instance(target.module, target.name)
        self.site(target, guarded)
        return self.run(target, arguments, keywords, guarded)

    def site(self, target: Local, guarded: bool) -> None:
        """Notes who calls whom; calls inside of calls were noted where the function was followed on its own."""
        if not self.inside:
            self.analysis.calls.append(((target.module, target.name), self.frame.key, guarded))

    def method_result(
        self, node: ast.Call, target: Method, arguments: Sequence[Value], keywords: Mapping[str, Value], guarded: bool
    ) -> Value:  # fmt: skip
        home, name = target.of, target.name
        if isinstance(home, Instance):
            local = Local(home.module, f"{home.name}.{name}")
            self.site(local, guarded)
            return self.run(local, arguments, keywords, guarded)
        if isinstance(home, Tensor):
            return self.tensor_method(node, home, name, arguments)
        if isinstance(home, Const) and isinstance(home.value, str):
            if name in ("lower", "upper", "strip") and not arguments:
                return constant(getattr(home.value, name)())
            if name == "format":
                whole = "{" not in home.value
                return home if whole else Prefix(home.value.partition("{")[0])
            if name == "startswith" and arguments and (text := text_of(arguments[0])) is not None:
                return Const(home.value.startswith(text))
        if name in ("startswith", "count", "find") and arguments and (text_of(arguments[0]) or "").startswith("cuda"):
            return Available()
        if name == "from_pretrained" and arguments:
            self.model_loaded(node, "transformers.from_pretrained", arguments, keywords)
        # A model or a layer that is moved stays what it is.
        if name in ("to", "cuda", "cpu", "eval", "train", "half", "float", "compile") and isinstance(home, Layer | Instance):
            return home
        return UNKNOWN

    def tensor_method(self, node: ast.Call, home: Tensor, name: str, arguments: Sequence[Value]) -> Value:
        if name in libraries.KEEPING_METHODS:
            return home
        if name in ("matmul", "mm", "bmm", "dot") and arguments:
            return self.worked(node, *work.product(home, arguments[0]))
        if name in ("t", "transpose", "permute", "swapaxes"):
            return Tensor(home.shape[::-1] if home.shape is not None and len(home.shape) == 2 else None)
        if name in ("reshape", "view", "expand"):
            return self.worked(node, Tensor(work.sizes_of(arguments)), 0.0)
        if name in ("sum", "mean", "max", "min", "norm", "item") and not arguments:
            return UNKNOWN
        return Tensor()

    def model_loaded(self, node: ast.Call, name: str, arguments: Sequence[Value], keywords: Mapping[str, Value]) -> None:
        """Notes a model that is loaded by its name."""
        last = name.rpartition(".")[2]
        candidates_: list[str | None] = []
        if last == "from_pretrained" or name.endswith(("pipeline", "create_model", "SentenceTransformer", "vllm.LLM", "load_model")):
            given = [*arguments, *(keywords[key] for key in ("model", "pretrained_model_name_or_path", "model_name") if key in keywords)]
            if name.startswith("transformers.") and last == "pipeline":
                task = (text_of(arguments[0]) if arguments else None) or ""
                given = [*arguments[1:2], *(keywords[key] for key in ("model",) if key in keywords)]
                if not given and task in models.TASKS:
                    self.model(node, task, models.MILLION * models.TASKS[task])
            candidates_ += [text_of(one) for one in given[:2]]
        elif name == "torch.hub.load" and len(arguments) > 1:
            candidates_.append(text_of(arguments[1]))
        elif name.startswith(tuple(f"{home}." for home in libraries.MODELS)):
            candidates_.append(text_of(arguments[0]) if last in ("get_model", "create_model") and arguments else last)
        for candidate in candidates_:
            if candidate and (count := models.parameters_of(candidate)) is not None:
                self.model(node, candidate, count)
