"""Leave 16 MB of POSIX shared memory in each run, as NCCL and vLLM do; a Pod's 64 MB are full after four of them."""

import os
import signal
import time
from pathlib import Path

RUNS = 5  # rank 0 dies in all but the last
epoch = int(os.environ["INPLACE_EPOCH"])
left = sum(file.stat().st_size for file in Path("/dev/shm").iterdir())
Path(f"/dev/shm/ring-{epoch}-{os.getpid()}").write_bytes(bytes(16 << 20))
print(f"trains in epoch {epoch} beside {left >> 20} MB", flush=True)
if os.environ["JOB_COMPLETION_INDEX"] == "0" and epoch < RUNS:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    time.sleep(0.1)
