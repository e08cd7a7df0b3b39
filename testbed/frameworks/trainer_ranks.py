"""
A rank that trains a small network on CPUs with a trainer that people use: TRAINER, a name of `inplace.integrations`.

With TRAINER=plain one process makes the same steps without a trainer, for both ranks: rank r of n takes the batches
r, r + n, r + 2n and so on, so the loss of each step is that of the trainers. Rank 0 prints `step=N loss=X ...` of its
own batch, as the examples do.

Environment: that of examples/torch_train.py. The folder CHECKPOINT_DIR is one for all Pods.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import inplace
from inplace.examples.torch_train import address_of, say

FEATURES: Final = 8
BATCH: Final = 16
LEARNING_RATE: Final = 0.05
FOLDER: Final = os.environ.get("CHECKPOINT_DIR", "")
RANK: Final = int(os.environ.get("RANK") or 0)
WORLD: Final = int(os.environ.get("WORLD_SIZE") or 1)
SHARED_EVERY: Final = int(os.environ.get("CHECKPOINT_EVERY") or 20)
MEMORY_EVERY: Final = int(os.environ.get("MEMORY_EVERY") or 0)
OF_POD: Final = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
STEPS: Final = int(os.environ.get("STEPS") or 100)


class Network(nn.Module):  # type: ignore[misc]
    """Its forward pass returns the loss, and counts the steps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self._layers = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
        self.step = 0

    def forward(self, samples: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return what Hugging Face's Trainer wants."""
        loss = nn.functional.mse_loss(self._layers(samples).squeeze(1), labels)
        self.step += 1
        if RANK == 0:
            say(f"step={self.step} loss={loss.item():.6f} epoch={os.environ.get('INPLACE_EPOCH', 0)} rank=0")
        time.sleep(float(os.environ.get("STEP_S") or 0))
        return {"loss": loss}

    def begin(self, step: int) -> Network:
        """Say where this run begins."""
        self.step = step
        say(f"rank={RANK} world={WORLD} epoch={os.environ.get('INPLACE_EPOCH', 0)} goes on from step {step}")
        return self


class Samples(Dataset[dict[str, Tensor]]):  # type: ignore[misc]
    """As many as all ranks need, in order."""

    def __len__(self) -> int:
        return STEPS * BATCH * WORLD

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        samples = torch.randn(FEATURES, generator=torch.Generator().manual_seed(number))
        return {"samples": samples, "labels": torch.tanh(samples.sum() / 3)}


class Stream(IterableDataset[dict[str, Tensor]]):  # type: ignore[misc]
    """The batches of one rank from a step on."""

    def __init__(self, step: int) -> None:
        self._step = step

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for step in range(self._step, STEPS):
            yield batch(step * WORLD + RANK)


def batch(number: int) -> dict[str, Tensor]:
    """Return one batch of all."""
    found = [Samples()[BATCH * number + each] for each in range(BATCH)]
    return {name: torch.stack([each[name] for each in found]) for name in found[0]}


def optimizer_of(network: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of all trainers."""
    return torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=0.9)


def transformers() -> None:
    """Train with Hugging Face's Trainer."""
    from transformers import Trainer, TrainingArguments

    from inplace.integrations.transformers import InPlaceCallback, resume_from

    begin()
    args = TrainingArguments(
        output_dir=FOLDER,
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        train_sampling_strategy="sequential",
        save_steps=SHARED_EVERY,
        save_total_limit=2,
        lr_scheduler_type="constant",
        max_grad_norm=0,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    network, dataset = Network(), Samples()
    checkpoint = resume_from(args)
    network.begin(int(checkpoint.rpartition("-")[2]) if checkpoint else 0)
    callbacks = [InPlaceCallback(memory_every=MEMORY_EVERY)]
    own = (optimizer_of(network), None)
    trainer = Trainer(network, args, train_dataset=dataset, callbacks=callbacks, optimizers=own)
    trainer.train(resume_from_checkpoint=checkpoint)


def lightning() -> None:
    """Train with Lightning."""
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    from inplace.integrations.lightning import InPlaceCallback, resume_from

    begin()

    class Module(LightningModule):  # type: ignore[misc]
        """The network, for Lightning."""

        def __init__(self) -> None:
            super().__init__()
            self.network = Network()

        def training_step(self, own: dict[str, Tensor], _: int) -> Tensor:
            """Return the loss."""
            loss: Tensor = self.network(**own)["loss"]
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            """Return the optimizer."""
            return optimizer_of(self.network)

        def train_dataloader(self) -> Any:
            """Return the data from this step on: Lightning skips none."""
            self.network.begin(self.trainer.global_step)
            return DataLoader(Stream(self.trainer.global_step), batch_size=None)

    folder = FOLDER
    trainer = Trainer(
        accelerator="cpu",
        devices=OF_POD,
        num_nodes=WORLD // OF_POD,
        strategy="ddp",
        max_steps=STEPS,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[
            ModelCheckpoint(folder, every_n_train_steps=SHARED_EVERY),
            InPlaceCallback(folder, memory_every=MEMORY_EVERY),
        ],
    )
    trainer.fit(Module(), ckpt_path=resume_from(folder))


def accelerate() -> None:
    """Train with a loop of its own and Accelerate."""
    from accelerate import Accelerator

    from inplace.integrations.accelerate import Saves

    begin()
    folder = FOLDER
    accelerator = Accelerator(cpu=True)
    network = Network()
    model, optimizer, loader = accelerator.prepare(
        network, optimizer_of(network), DataLoader(Samples(), batch_size=BATCH, shuffle=False)
    )
    saves = Saves(accelerator, folder, every=SHARED_EVERY, memory_every=MEMORY_EVERY)
    first = saves.load()
    network.begin(first)
    for step, own in enumerate(accelerator.skip_first_batches(loader, first), first):
        saves.begin(step)
        optimizer.zero_grad()
        accelerator.backward(model(**own)["loss"])
        optimizer.step()
        saves.end(step + 1)
    saves.finish()


def plain() -> None:
    """Make the same steps in one process, for two ranks, without a trainer."""
    network = Network().begin(0)
    optimizer = optimizer_of(network)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = network(**batch(2 * step))["loss"]
        other = nn.functional.mse_loss(*_outputs(network, batch(2 * step + 1)))
        ((loss + other) / 2).backward()
        optimizer.step()


def _outputs(network: Network, own: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return network._layers(own["samples"]).squeeze(1), own["labels"]


def begin() -> None:
    """Wait for the epoch, AFTER all imports, and say where rank 0 is."""
    inplace.ready()
    os.environ["MASTER_ADDR"] = address_of(os.environ["MASTER_ADDR"], os.environ.get("INPLACE_HOSTS_FILE", ""))
    os.environ.setdefault("LOCAL_RANK", "0")  # one rank in each Pod, unless torchrun says more
    os.environ.setdefault("NODE_RANK", str(RANK // OF_POD))


def main() -> None:
    """Train to the last step, or until somebody asks to save."""
    torch.set_num_threads(1)
    {"transformers": transformers, "lightning": lightning, "accelerate": accelerate, "plain": plain}[
        os.environ["TRAINER"]
    ]()
    say("trained")


if __name__ == "__main__":
    main()
