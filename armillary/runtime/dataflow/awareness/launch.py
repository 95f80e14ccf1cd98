"""A call inside a task that ends the task only when the device has ended the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from armillary.errors import InputError
from armillary.tasks.events import External, current

if TYPE_CHECKING:
    from armillary.runtime.dataflow.apis.api import Kernel

    from .apis import Bound
    from .poller import Pending


def launch(api: Bound, kernel: Kernel, *args: Any, width: int = 1) -> Any:
    """Runs `kernel` on `api` as part of the task that is running, and returns at once if the API is asynchronous.

    The task ends when its body has returned and all kernels that it launched have ended; one that fails fails the task. A kernel of an API
    that computes on the calling thread runs here, and its result is returned. `width` is the number of threads that it may use.
    """
    context = task_of(api, kernel)
    if not api.api.asynchronous:
        return api.call(kernel, args, width)
    # Announced only now, because a kernel that cannot be enqueued will never end.
    pending = api.enqueue(kernel, args, width)
    finish(External(context, 1), pending)
    return None


def task_of(api: Bound, kernel: Kernel) -> Any:
    """The task that this thread runs; outside one there is nothing that could end later."""
    try:
        return current()
    except RuntimeError:
        raise InputError(f"kernel {kernel.name} was launched on {api.name} outside a task; launch is for bodies of tasks") from None


def finish(external: External, pending: Pending) -> None:
    """Completes a task's announced event at the end of a kernel."""

    def end(error: BaseException | None) -> None:
        if error is None:
            external.complete()
        else:
            external.fail(error)

    pending.then(end)
