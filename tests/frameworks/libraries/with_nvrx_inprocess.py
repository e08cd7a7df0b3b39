"""NVRx's in-process wrapper around a script with its local checkpoints: an exception ends no process.

SIGUSR1 makes a rank raise one. After it the ranks begin again in the processes that they have: with the newest local
checkpoint that NVRx finds, because INPLACE_RESUME_STEP is that of the processes' start. NVRx reads the annotation of
`call`: it may be no string.
"""

import os
import signal
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist
from nvidia_resiliency_ext import inprocess

from inplace.examples.torch_train import address_of
from tests.frameworks.libraries import with_nvrx
from tests.frameworks.libraries.loop import train

STORE_PORT: Final = 1  # ports above MASTER_PORT: NVRx's own store, then one for each try


class AbortGloo(inprocess.abort.Abort):  # type: ignore[misc]
    """NVRx's own asks for NCCL's groups; without them a group is destroyed."""

    def __call__(self, state: Any) -> Any:
        """End what the main thread waits for."""
        if dist.is_initialized():
            dist.destroy_process_group()
        return state


def main() -> None:
    """Train, and again after each exception."""
    signal.signal(signal.SIGUSR1, _fail)
    os.environ["MASTER_ADDR"] = address_of(os.environ["MASTER_ADDR"], os.environ.get("INPLACE_HOSTS_FILE", ""))
    port = int(os.environ["MASTER_PORT"])

    @inprocess.Wrapper(  # type: ignore[untyped-decorator]
        store_kwargs={"port": port + STORE_PORT},
        abort=AbortGloo(),
        monitor_thread_interval=timedelta(seconds=0.2),
        monitor_process_interval=timedelta(seconds=0.2),
        last_call_wait=timedelta(seconds=0.2),
    )
    def one_try(call: inprocess.CallWrapper | None = None) -> None:
        assert call is not None
        tries = call.iteration
        os.environ["MASTER_PORT"] = str(port + STORE_PORT + 1 + tries)

        class Keeper(with_nvrx.Keeper):
            """That of the script without the wrapper, in a later try with NVRx's own word."""

            def restore(self) -> int:
                """Load the step."""
                return self.load(self._manager.find_latest()) if tries else super().restore()

        train(Keeper)

    one_try()


def _fail(*_: object) -> None:
    raise RuntimeError("a fault of this rank, as SIGUSR1 asked for")


if __name__ == "__main__":
    main()
