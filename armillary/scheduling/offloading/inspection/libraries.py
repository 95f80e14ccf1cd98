"""Names of libraries that matter: which packages use accelerators, which calls need a GPU, and which only ask whether there is one."""

from __future__ import annotations

#: Packages whose import says that a source may use an accelerator.
ACCELERATORS = frozenset({
    "torch", "tensorflow", "jax", "cupy", "numba.cuda", "pycuda", "cudf", "cuml", "rapids", "onnxruntime", "transformers", "diffusers",
    "torchvision", "keras", "triton", "tensorrt", "vllm",
})  # fmt: skip
#: Packages of which every use needs a GPU.
GPU_ONLY = ("cupy", "pycuda", "triton", "numba.cuda")
#: Calls that answer whether, or how often, there is a GPU.
GUARDS = frozenset({
    "torch.cuda.is_available", "torch.cuda.device_count", "tensorflow.config.list_physical_devices",
    "tensorflow.config.experimental.list_physical_devices", "tensorflow.config.list_logical_devices", "tensorflow.test.is_gpu_available",
    "tensorflow.test.is_built_with_cuda", "tensorflow.test.gpu_device_name", "cupy.cuda.is_available", "cupy.is_available",
    "cupy.cuda.runtime.getDeviceCount", "numba.cuda.is_available", "numba.cuda.detect", "pycuda.driver.Device.count",
    "jax.default_backend", "jax.lib.xla_bridge.get_backend", "transformers.is_torch_cuda_available",
    "transformers.utils.is_torch_cuda_available",
})  # fmt: skip
#: Parts of torch.cuda that do nothing, or nothing harmful, without a GPU.
HARMLESS_CUDA = frozenset({
    "torch.cuda.is_available", "torch.cuda.device_count", "torch.cuda.is_initialized", "torch.cuda.is_bf16_supported",
    "torch.cuda.empty_cache", "torch.cuda.manual_seed", "torch.cuda.manual_seed_all", "torch.cuda.memory_allocated",
    "torch.cuda.max_memory_allocated", "torch.cuda.reset_peak_memory_stats", "torch.cuda.amp.autocast", "torch.cuda.amp.GradScaler",
    "torch.cuda.OutOfMemoryError", "torch.cuda.nvtx.range",
})  # fmt: skip
#: Exceptions that the lack of a GPU, of a driver or of a package raises.
CATCHING = frozenset({
    "BaseException", "Exception", "RuntimeError", "AssertionError", "ImportError", "ModuleNotFoundError", "AttributeError", "OSError",
    "EnvironmentError", "NotImplementedError",
})  # fmt: skip
#: Libraries of arrays, whose constructors have the same names.
ARRAYS = (
    "torch", "numpy", "tensorflow", "jax.numpy", "cupy", "tensorflow.random", "numpy.random", "cupy.random", "jax.random",
    "torch.nn.functional", "torch.linalg", "tensorflow.linalg", "numpy.linalg", "jax.nn",
)  # fmt: skip
CONSTRUCTORS = frozenset({
    "randn", "rand", "zeros", "ones", "empty", "full", "arange", "eye", "random", "standard_normal", "normal", "uniform", "randint",
})  # fmt: skip
LIKE = frozenset({
    "zeros_like", "ones_like", "empty_like", "full_like", "randn_like", "rand_like", "asarray", "array", "as_tensor", "tensor",
    "from_numpy", "convert_to_tensor", "ascontiguousarray",
})  # fmt: skip
#: Functions that keep the shape of their first argument.
KEEPING = frozenset({
    "relu", "gelu", "sigmoid", "tanh", "exp", "log", "sqrt", "abs", "sin", "cos", "softmax", "log_softmax", "dropout", "layer_norm",
    "normalize", "clip", "clamp", "square",
})  # fmt: skip
#: Methods of tensors that keep their shape.
KEEPING_METHODS = frozenset({
    "to", "cuda", "cpu", "float", "double", "half", "bfloat16", "contiguous", "clone", "detach", "requires_grad_", "astype", "copy", "relu",
    "sigmoid", "tanh", "exp", "abs", "sqrt", "type", "pin_memory", "numpy", "get", "add_", "mul_", "normal_", "uniform_", "zero_", "fill_",
})  # fmt: skip
PRODUCTS = frozenset({"matmul", "mm", "dot", "bmm"})
#: Packages whose functions make models by their names.
MODELS = ("torchvision.models", "keras.applications", "tensorflow.keras.applications", "timm")


def accelerator_of(module: str) -> str | None:
    """The accelerator package that a module belongs to, or None."""
    top = module.partition(".")[0]
    if top in ACCELERATORS:
        return top
    return "numba.cuda" if module == "numba.cuda" or module.startswith("numba.cuda.") else None


def needs_gpu(name: str) -> bool:
    """Whether something of this name can be called only where there is a GPU."""
    if name in GUARDS or name in HARMLESS_CUDA:
        return False
    if name.startswith("torch.cuda."):
        return not any(name.startswith(f"{one}.") for one in HARMLESS_CUDA)
    return any(name.startswith(f"{package}.") for package in GPU_ONLY)


def of_arrays(name: str) -> str | None:
    """The function's own name if it belongs to a library of arrays, else None."""
    home, _, last = name.rpartition(".")
    return last if home in ARRAYS else None
