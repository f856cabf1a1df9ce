"""Trains a small language model under tensor parallelism, and beside it the same model on one device.

    python examples/train_tp.py                    two ranks, float64
    python examples/train_tp.py --ranks 4 --tied

The model (tiny_lm/model.py) and the training loop are written for one device. Three things make them run on
many: a mesh of ranks, a plan that says for each module how its tensors lie on them, and `parallelize_module`.
All processes start from the same seed and read the same text, so their losses must be equal; the command ends
with an error if they are not.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from hyper_parallel import CommDebugMode, DTensor, init_device_mesh, parallelize_module
from tiny_lm import report
from tiny_lm.comparison import compare
from tiny_lm.data import python_help
from tiny_lm.launch import Job, Say, rank_environments
from tiny_lm.model import LanguageModel
from tiny_lm.recipe import learning_rate_factor, sequence_parallel_plan
from tiny_lm.sizes import Config


class Precision(StrEnum):
    """Dtype of the parameters and of everything computed from them."""

    float64 = "float64"
    float32 = "float32"


TOLERANCES = {
    Precision.float64: report.Tolerance(first_steps=1e-9, whole_run=1e-6),
    Precision.float32: report.Tolerance(first_steps=1e-3, whole_run=1e-3),
}


@dataclass(frozen=True)
class Options:
    """What all processes have in common."""

    steps: int
    precision: Precision
    tied: bool
    batch: int
    seq: int
    seed: int = 0
    learning_rate: float = 3e-3


def train_rank(options: Options, say: Say) -> None:
    """Trains the part of the model that this rank holds."""
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("tp",))
    model = parallelize_module(build_model(options), mesh["tp"], sequence_parallel_plan())
    train(model, options, say)
    torch.distributed.destroy_process_group()


def train_one_device(options: Options, say: Say) -> None:
    """Trains the whole model."""
    train(build_model(options), options, say)


def build_model(options: Options) -> LanguageModel:
    """Returns the whole model, the same in every process."""
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    config = Config(vocabulary_size=python_help().vocabulary_size, tied=options.tied)
    return LanguageModel(config).to(getattr(torch, options.precision))


def train(model: nn.Module, options: Options, say: Say) -> None:
    """Trains the model, wherever its parameters lie, and says how it goes."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, partial(learning_rate_factor, steps=options.steps)
    )
    batches = python_help().batches(options.steps + 1, options.batch, options.seq, options.seed)
    started = time.perf_counter()
    for _ in range(options.steps):
        loss = train_step(model, optimizer, *map(torch.from_numpy, next(batches)))
        schedule.step()
        say(report.Step(loss, time.perf_counter() - started))

    with CommDebugMode() as comm:  # one more step, only to count what it sends
        train_step(model, optimizer, *map(torch.from_numpy, next(batches)))
    parameters: Iterable[Any] = model.parameters()
    held = [p.to_local() if isinstance(p, DTensor) else p for p in parameters]
    say(report.Footprint(sum(p.numel() for p in held), sum(p.nbytes for p in held), dict(comm.counts)))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> float:
    """Takes one step down the gradient, and returns the loss before it."""
    logits = model(inputs)
    loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0, foreach=True)
    optimizer.step()
    return loss.item()


def main(
    ranks: Annotated[int, typer.Option(min=1, help="Processes that share the model: 1, 2 or 4.")] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 200,
    dtype: Annotated[Precision, typer.Option(help="Dtype of all processes.")] = Precision.float64,
    tied: Annotated[bool, typer.Option("--tied/--untied", help="One weight for embedding and head?")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Texts per step.")] = 8,
    seq: Annotated[int, typer.Option(min=1, help="Characters per text, a multiple of the ranks.")] = 64,
    out: Annotated[Path, typer.Option(help="Where the loss curves are drawn.")] = Path("out/train_tp.png"),
) -> None:
    """Train a small language model under tensor parallelism, and beside it the same model on one device."""
    options = Options(steps, dtype, tied, batch, seq)
    workers = [
        Job(f"rank {rank}", partial(train_rank, options), environment)
        for rank, environment in enumerate(rank_environments(ranks))
    ]
    compare(partial(train_one_device, options), workers, steps, batch * seq, TOLERANCES[dtype], out)


if __name__ == "__main__":
    typer.run(main)
